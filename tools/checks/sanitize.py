"""Tests the native cores with the sanitisers of gcc, in a copy of the tree that is compiled with them.

    python tools/checks/sanitize.py              addresses and undefined behaviour (about 6 minutes)
    python tools/checks/sanitize.py --threads    data races between threads

The tree itself is not changed. The first report ends a process. Reports are written to files, because pytest
captures output, and printed at the end. Needs Linux and gcc; Python and its packages are not checked.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("rematch", "tests", "tools", "docs", "examples", "setup.py", "pyproject.toml", "constraints.txt",
         "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")  # fmt: skip
# Check -> libraries, compiler flags (`undefined` does not include float-cast-overflow), test files.
CHECKS = {
    "addresses and undefined behaviour": (
        ("libasan.so", "libubsan.so"),
        "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all",
        "worlds/pursuit/rules worlds/pursuit/world worlds/pursuit/sensors worlds/pursuit/safety_filter "
        "worlds/lattice/rules worlds/lattice/world worlds/lattice/solve worlds/lattice/exploitability "
        "worlds/beasty/rules worlds/beasty/bots worlds/beasty/search worlds/beasty/world "
        "worlds/conformance agents/networks/fused agents/networks/fused_categories "
        "agents/privileged_observations "
        "agents/learners/lookahead agents/learners/ppo agents/policy core/rng rollout/collector "
        "training/trainer adapters/environments",
    ),
    "races between threads": (
        ("libtsan.so",),
        "-fsanitize=thread",
        "agents/networks/fused agents/networks/fused_categories agents/privileged_observations "
        "worlds/pursuit/world worlds/lattice/world worlds/beasty/search worlds/beasty/world "
        "rollout/collector training/trainer",
    ),
}


def find_libraries(names: tuple[str, ...]) -> str:
    """Paths of gcc's libraries. They must be loaded before Python, which was not compiled with them."""
    paths = []
    for name in names:
        try:
            path = subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        except (OSError, subprocess.CalledProcessError):
            sys.exit("sanitize: gcc was not found; its sanitisers are needed")
        if not os.path.isabs(path):  # gcc prints the bare name if there is no such file
            sys.exit(f"sanitize: gcc has no {name}; install its sanitisers")
        paths.append(path)
    return " ".join(paths)


def copy_tree(target: Path) -> None:
    """Copies the tree without compiled files."""
    ignored = shutil.ignore_patterns("*.so", "*.part", "__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, target / name)


def run_check(kind: str, tree: Path) -> int:
    names, flags, tests = CHECKS[kind]
    preload = find_libraries(names)
    copy_tree(tree)
    compiler_flags = {"CC": "gcc", "CFLAGS": f"{flags} -fno-omit-frame-pointer -g1", "LDFLAGS": flags}
    build_environment = os.environ | compiler_flags
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
    if subprocess.run(command, cwd=tree, env=build_environment).returncode:
        sys.exit("sanitize: the cores do not compile with the sanitisers")
    reports = tree / "reports"
    reports.mkdir()
    options = f"log_path={reports}/found:exitcode=66:detect_leaks=0:ignore_noninstrumented_modules=1"
    test_environment = os.environ | {
        "LD_PRELOAD": preload, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(tree),
        "ASAN_OPTIONS": options, "UBSAN_OPTIONS": options + ":print_stacktrace=1", "TSAN_OPTIONS": options,
    }  # fmt: skip
    folders_and_names = [test.rpartition("/") for test in tests.split()]
    files = [f"tests/{folder}/test_{name}.py" for folder, _, name in folders_and_names]
    # libubsan ignores log_path when libasan is loaded: it prints, and --capture=sys lets C output through.
    pytest_options = ["--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    command = [sys.executable, "-m", "pytest", *pytest_options, *files]
    started = time.monotonic()
    with open(reports / "printed", "w") as printed:
        code = subprocess.run(command, cwd=tree, env=test_environment, stderr=printed).returncode
    texts = [path.read_text(errors="replace") for path in sorted(reports.iterdir())]
    texts = [text for text in texts if "Sanitizer" in text or "runtime error" in text]
    for text in texts:
        print(re.sub(r"(?m)^ +#\d\d+ .*\n", "", text))  # from the tenth frame on, all is the interpreter
    result = f"reports from {len(texts)} processes" if texts else "no report"
    failed = f"; pytest ended with code {code}" if code else ""
    print(f"sanitize: {kind}: {result}, {len(files)} test files, {time.monotonic() - started:.0f} s{failed}")
    return 1 if texts or code else 0


if __name__ == "__main__":
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--threads", action="store_true", help="check for data races between threads instead")
    chosen = list(CHECKS)[parser.parse_args().threads]
    with tempfile.TemporaryDirectory(prefix="rematch-sanitize-") as folder:
        sys.exit(run_check(chosen, Path(folder)))
