"""The native cores under the sanitisers of gcc: a copy is compiled with checks, and the tests run on it.

    python tools/checks/sanitize.py              every address, every undefined operation (about 6 minutes)
    python tools/checks/sanitize.py --threads    every race between threads

The tree itself is not touched. The first report ends a program; reports are kept in files, since tests hide
what is printed, and shown at the end. Linux with gcc; Python and its packages run unchecked.
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
PARTS = ("rematch", "tests", "tools", "docs", "examples", "setup.py", "pyproject.toml", "constraints.txt",
         "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")  # fmt: skip
# What is looked for: the libraries, the flags (`undefined` leaves float-cast-overflow out), the tests.
KINDS = {
    "addresses and undefined behaviour": (
        ("libasan.so", "libubsan.so"),
        "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all",
        "pursuit_rules pursuit_world pursuit_sensors pursuit_safety lattice_rules lattice_world beasty_rules "
        "beasty_bots beasty_search beasty_world solve exact worlds fused fused_names aside lookahead ppo "
        "policy rollout train adapters",
    ),
    "races between threads": (
        ("libtsan.so",), "-fsanitize=thread",
        "fused fused_names aside pursuit_world lattice_world beasty_search beasty_world rollout train",
    ),
}


def libraries(names: tuple[str, ...]) -> str:
    """Where gcc keeps them. They must be loaded before Python, which was not compiled with them."""
    found = []
    for name in names:
        try:
            path = subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        except (OSError, subprocess.CalledProcessError):
            sys.exit("sanitize: no gcc was found; it is the compiler whose sanitisers are used here")
        if not os.path.isabs(path):  # gcc answers the bare name where there is none
            sys.exit(f"sanitize: gcc has no {name} here; install its sanitisers")
        found.append(path)
    return " ".join(found)


def copy(place: Path) -> None:
    """The tree without anything compiled."""
    leave = shutil.ignore_patterns("*.so", "*.part", "__pycache__")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=leave)
        else:
            shutil.copy2(ROOT / name, place / name)


def check(kind: str, place: Path) -> int:
    names, flags, tests = KINDS[kind]
    loaded = libraries(names)
    copy(place)
    build = os.environ | {"CC": "gcc", "CFLAGS": f"{flags} -fno-omit-frame-pointer -g1", "LDFLAGS": flags}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
    if subprocess.run(command, cwd=place, env=build).returncode:
        sys.exit("sanitize: the cores do not compile with the sanitisers")
    reports = place / "reports"
    reports.mkdir()
    options = f"log_path={reports}/found:exitcode=66:detect_leaks=0:ignore_noninstrumented_modules=1"
    checked = os.environ | {
        "LD_PRELOAD": loaded, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(place),
        "ASAN_OPTIONS": options, "UBSAN_OPTIONS": options + ":print_stacktrace=1", "TSAN_OPTIONS": options,
    }  # fmt: skip
    files = [f"tests/test_{name}.py" for name in tests.split()]
    # libubsan, loaded beside libasan, heeds no log_path: it prints, and "sys" lets through what C prints.
    quiet = ["--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    command = [sys.executable, "-m", "pytest", *quiet, *files]
    began = time.monotonic()
    with open(reports / "printed", "w") as printed:
        code = subprocess.run(command, cwd=place, env=checked, stderr=printed).returncode
    found = [path.read_text(errors="replace") for path in sorted(reports.iterdir())]
    found = [text for text in found if "Sanitizer" in text or "runtime error" in text]
    for text in found:
        print(re.sub(r"(?m)^ +#\d\d+ .*\n", "", text))  # from the tenth caller on it is the interpreter
    result = f"reports from {len(found)} of the programs" if found else "no report"
    failed = f"; pytest ended with code {code}" if code else ""
    print(f"sanitize: {kind}: {result}, {len(files)} test files, {time.monotonic() - began:.0f} s{failed}")
    return 1 if found or code else 0


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--threads", action="store_true", help="look for races between threads instead")
    chosen = list(KINDS)[words.parse_args().threads]
    with tempfile.TemporaryDirectory(prefix="rematch-sanitize-") as folder:
        sys.exit(check(chosen, Path(folder)))
