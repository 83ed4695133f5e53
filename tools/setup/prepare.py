"""Prepares the folder for `make train` and `make test`: .venv, the pinned packages, the compiled cores.

    python3 tools/setup/prepare.py [dev] [bench]

It does only what is missing, so a second run needs no network and a fraction of a second.
`.venv/rematch.json` records what was installed and is marked finished last: an interrupted set-up starts
again. It uses only the standard library and the syntax of Python 3.8, like doctor.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/setup"), str(ROOT / "rematch/core")]
import doctor  # noqa: E402

if TYPE_CHECKING:
    from rematch.core import native_build
else:
    import native_build  # (rematch/core/native_build.py imports only the standard library)

del sys.path[:2]

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
RECORD = VENV / "rematch.json"
BUILD_TOOLS = ("setuptools", "wheel", "Cython", "numpy")
REQUIREMENTS_SCRIPT = """
import json, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = [line for name in sys.argv[1:] for line in project["optional-dependencies"][name]]
print(json.dumps(project["dependencies"] + extras))
"""


class SetupError(Exception):
    """Set-up cannot continue; the message says why and what to do."""


@dataclass(frozen=True)
class Requirements:
    """What must be installed after this run."""

    pins: str  # digest of the files that determine packages and build
    extras: tuple[str, ...] = ("dev",)
    python: str = ""  # minor version and prefix of the interpreter that the user named; "": any suitable one
    torch_index: str = ""  # "": any build of torch


def plan_update(
    record: Mapping[str, Any] | None, python: doctor.Python | None, requirements: Requirements
) -> tuple[str, str]:
    """(action, reason) for .venv; the action is new, install, link (the folder was moved) or keep.

    `record` is None if there is no .venv and empty if something else created it; `python` is None if it does
    not run.
    """
    if record is None:
        return "new", ""
    if python is None:
        return "new", "its Python no longer runs"
    if doctor.find_problems(python) and doctor.find_problems(python)[0].kind == "python":
        return "new", f"its Python {python.minor} is not supported"
    if requirements.python and requirements.python != identity(python):
        return "new", "another Python was requested"
    if not record:
        return "install", "it was created by hand"
    if not record.get("finished"):
        return "new", "an earlier set-up was interrupted"
    if record["python"] != python.minor:
        return "new", f"its Python changed from {record['python']} to {python.minor}"
    if record["pins"] != requirements.pins:
        return "install", "the pinned versions or the build changed"
    if not set(requirements.extras) <= set(record["extras"]):
        return "install", "more packages are needed"
    if requirements.torch_index and requirements.torch_index != record["torch_index"]:
        return "install", "another build of PyTorch was requested"
    if record["root"] != str(ROOT):
        return "link", "the folder was moved" if record["root"] else "its last step was interrupted"
    return "keep", ""


def identity(python: doctor.Python) -> str:
    return f"{python.minor} {os.path.realpath(python.prefix)}"


def digest_of(*names: str) -> str:
    return hashlib.sha256(b"\0".join((ROOT / name).read_bytes() for name in names)).hexdigest()


def read_record() -> dict[str, Any] | None:
    if not os.path.lexists(VENV):
        return None
    try:
        record = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(record: Mapping[str, Any]) -> None:
    part = RECORD.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, RECORD)


# --- the steps ------------------------------------------------------------------------------------


def report(message: str) -> None:
    print(message, flush=True)


def run(command: Sequence[str], compiler: str = "") -> None:
    """Runs one command in the project's folder, without environment variables that redirect installs."""
    removed = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if compiler:
        environment["CC"] = compiler
    subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=True)


def pip(*arguments: str) -> None:
    """pip install. Bytecode is compiled at first import: most modules of PyTorch are never imported."""
    progress_options = [] if sys.stdout.isatty() else ["-q", "--progress-bar", "off"]
    options = ["--no-input", "--no-compile", "-c", "constraints.txt"]
    run([str(PYTHON), "-I", "-m", "pip", "install", *options, *progress_options, *arguments])


def has_pip() -> bool:
    return subprocess.run([str(PYTHON), "-I", "-m", "pip", "--version"], capture_output=True).returncode == 0


def make_venv(interpreter: doctor.Python) -> None:
    if VENV.is_symlink():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)
    VENV.mkdir()
    write_record({"finished": False})
    run([interpreter.executable, "-I", "-m", "venv", str(VENV)])


def install(requirements: Requirements, switch_torch: bool) -> None:
    """Installs the required packages, pinned by constraints.txt; only torch may come from another index.

    Torch is taken from TORCH_INDEX without its dependencies. With --extra-index-url instead, each index could
    serve any package under a name of the other.
    """
    pip(*BUILD_TOOLS)
    if requirements.torch_index:
        pins = (ROOT / "constraints.txt").read_text().split()
        pin = next(line for line in pins if line.startswith("torch=="))
        options = ["--force-reinstall"] if switch_torch else []
        pip("--no-deps", "--index-url", requirements.torch_index, *options, pin)
    output = subprocess.check_output(
        [str(PYTHON), "-I", "-c", REQUIREMENTS_SCRIPT, *requirements.extras], cwd=ROOT
    )
    pip(*json.loads(output))


def stale_cores(suffix: str) -> list[Path]:
    sources = sorted((ROOT / "rematch").rglob("*.pyx"))
    return [path for path in sources if not native_build.is_fresh(path, path.with_name(path.stem + suffix))]


def compile_cores(python: doctor.Python, rebuild_all: bool) -> None:
    """Builds in place the cores whose source, flags or processor changed; each contains its digest."""
    stale = stale_cores(python.suffix)
    if not stale and not rebuild_all:
        return
    compiler = doctor.working_compiler([os.environ.get("CC", ""), python.compiler])
    if not compiler:
        raise SetupError(doctor.format_problems(doctor.examine_machine(python.executable)))
    report("Compiling " + (", ".join(str(path.relative_to(ROOT)) for path in stale) or "all cores again"))
    is_default = compiler == python.compiler or os.environ.get("CC") == compiler
    options = ["-j", str(os.cpu_count() or 1), *(["--force"] if rebuild_all else [])]
    run([str(PYTHON), "setup.py", "-q", "build_ext", "--inplace", *options], "" if is_default else compiler)
    still_stale = [str(path.relative_to(ROOT)) for path in stale_cores(python.suffix)]
    if still_stale:
        raise SetupError(
            f"{', '.join(still_stale)}: changed during the build (run make again), or lacks REMATCH_BUILD"
        )


def link_project() -> None:
    """Installs the `rematch` command and an import path to this folder, without network access."""
    pip("-q", "--no-deps", "--no-build-isolation", "-e", ".")


# --- the whole set-up -----------------------------------------------------------------------------


def create_venv(wanted: str, torch_index: str) -> None:
    """Examines the machine, prints the download size and creates an empty .venv."""
    machine = doctor.examine_machine(wanted)
    if machine.problems or machine.python is None:
        raise SetupError(doctor.format_problems(machine))
    description, needed_gb = doctor.download(torch_index, platform.system(), platform.machine())
    report(f"Setting up .venv with {machine.python}\nThis downloads {description}")
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    warnings = doctor.warnings(machine.python, platform.system(), platform.machine())
    if free_gb < needed_gb:
        warnings.append(f"{free_gb:.1f} GB of disk space are free, {needed_gb:.0f} GB may be needed")
    for warning in warnings:
        report("Warning: " + warning)
    make_venv(machine.python)


def prepare(extras: tuple[str, ...], wanted: str, torch_index: str) -> None:
    if ":" in str(ROOT):
        raise SetupError(f"Python cannot create a .venv in a path with a colon; move this folder: {ROOT}")
    chosen_python = doctor.query_python(wanted) if wanted else None
    if wanted and (chosen_python is None or doctor.find_problems(chosen_python)):
        raise SetupError(doctor.format_problems(doctor.examine_machine(wanted)))
    pins = digest_of("constraints.txt", "pyproject.toml", "setup.py")
    requirements = Requirements(pins, extras, identity(chosen_python) if chosen_python else "", torch_index)

    record = read_record()
    python = doctor.query_python(str(PYTHON)) if record is not None else None
    step, reason = plan_update(record, python, requirements)
    if step in ("install", "link") and not has_pip():
        step, reason = "new", "its pip is missing"
    if reason:
        report(f"Set-up: .venv is {'created again' if step == 'new' else 'updated'}, because {reason}")
    if step == "new":
        create_venv(wanted, torch_index)
        record, python = {}, doctor.query_python(str(PYTHON))
    if python is None:
        raise SetupError(
            "The Python of the new .venv does not run; is this folder on a disk mounted with noexec?"
        )

    if step in ("new", "install"):
        update(requirements, python, record or {})
    compile_cores(python, rebuild_all=(record or {}).get("pins") != pins)
    if step != "keep":
        link_project()
        write_record({**(read_record() or {}), "root": str(ROOT)})
        report("Set-up is done.")


def update(requirements: Requirements, python: doctor.Python, previous: Mapping[str, Any]) -> None:
    """Installs the packages; the record is marked finished only after all are installed."""
    by_hand = not RECORD.exists()
    write_record({"finished": False})
    try:
        install(
            requirements,
            switch_torch=requirements.torch_index != previous.get("torch_index", requirements.torch_index),
        )
    except subprocess.CalledProcessError:
        if previous:  # pip failed before it changed anything: the previous packages still work
            write_record(previous)
        elif by_hand:
            RECORD.unlink()
        raise SetupError(
            "pip could not install the packages (see above); run the same command again"
        ) from None
    write_record({
        "finished": True, "python": python.minor, "pins": requirements.pins, "root": "",
        "extras": sorted({*requirements.extras, *previous.get("extras", ())}),
        "torch_index": requirements.torch_index or previous.get("torch_index", ""),
    })  # fmt: skip


def acquire_lock(lock: Any) -> None:
    """Waits until no other set-up of this folder runs."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report("Waiting for another set-up of this folder to finish …")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return  # a file system without locks


def main(extras: Sequence[str]) -> int:
    wanted, torch_index = os.environ.get("PYTHON", ""), os.environ.get("TORCH_INDEX", "")
    code = 2
    try:
        with open(ROOT / "constraints.txt") as lock:
            acquire_lock(lock)
            prepare(tuple(extras) or ("dev",), wanted, torch_index)
        return 0
    except SetupError as error:
        message = str(error)
    except subprocess.CalledProcessError as error:
        message = f"Set-up stopped: {' '.join(map(str, error.cmd[:6]))} … failed (see above)"
    except OSError as error:
        message = f"Set-up stopped: {error}"
    except KeyboardInterrupt:
        message, code = "Set-up was interrupted; run the same command to continue.", 130
    print(message, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
