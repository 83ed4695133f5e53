"""Makes the machine ready for `make train` and `make test`: .venv, the pinned packages, the compiled cores.

    python3 tools/setup/prepare.py [dev] [bench]

Does only what is missing, so a second run needs no network and a fraction of a second. `.venv/rematch.json`
says what was installed and is marked finished last: a set-up that was killed half-way is begun anew.
Standard library only, and no newer than Python 3.8, like the doctor it starts with.
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
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/setup"), str(ROOT / "rematch/core")]
import doctor  # noqa: E402
import native_build  # noqa: E402  (rematch/core/native_build.py: imports nothing of ours)

del sys.path[:2]

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
RECORD = VENV / "rematch.json"
BUILD_TOOLS = ("setuptools", "wheel", "Cython", "numpy")
REQUIREMENTS = """
import json, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = [line for name in sys.argv[1:] for line in project["optional-dependencies"][name]]
print(json.dumps(project["dependencies"] + extras))
"""


class Stop(Exception):
    """Set-up cannot go on; the message says why and what to do."""


@dataclass(frozen=True)
class Wish:
    """What this run must find installed."""

    pins: str  # digest of the files that say what is installed and how it is built
    extras: tuple[str, ...] = ("dev",)
    python: str = ""  # minor version and prefix of the interpreter that the user named; "": any that serves
    torch_index: str = ""  # "": whichever build of torch is there


def plan(record: Mapping[str, Any] | None, python: doctor.Python | None, wish: Wish) -> tuple[str, str]:
    """What to do about .venv, and why: new, install, link (the folder was moved) or keep.

    `record` is None where there is no .venv and empty where we did not make it; `python` is None where it
    does not run.
    """
    if record is None:
        return "new", ""
    if python is None:
        return "new", "its Python is gone"
    if doctor.lacks(python) and doctor.lacks(python)[0].kind == "python":
        return "new", f"its Python {python.minor} does not serve"
    if wish.python and wish.python != identity(python):
        return "new", "another Python was asked for"
    if not record:
        return "install", "it was made by hand"
    if not record.get("finished"):
        return "new", "an earlier set-up was interrupted"
    if record["python"] != python.minor:
        return "new", f"its Python went from {record['python']} to {python.minor}"
    if record["pins"] != wish.pins:
        return "install", "the pinned versions or the build changed"
    if not set(wish.extras) <= set(record["extras"]):
        return "install", "more packages are needed"
    if wish.torch_index and wish.torch_index != record["torch_index"]:
        return "install", "another build of PyTorch was asked for"
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


def say(words: str) -> None:
    print(words, flush=True)


def run(line: Sequence[str], compiler: str = "") -> None:
    """Runs one command in the project's folder, away from settings that would install elsewhere."""
    apart = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    environment.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if compiler:
        environment["CC"] = compiler
    subprocess.run(line, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=True)


def pip(*arguments: str) -> None:
    """Bytecode is left to the first import: most of what PyTorch and others bring is never imported here."""
    calm = [] if sys.stdout.isatty() else ["-q", "--progress-bar", "off"]
    plain = ["--no-input", "--no-compile", "-c", "constraints.txt"]
    run([str(PYTHON), "-I", "-m", "pip", "install", *plain, *calm, *arguments])


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


def install(wish: Wish, switch_torch: bool) -> None:
    """Everything in constraints.txt that is asked for; torch alone may come from another index.

    Only torch is taken from TORCH_INDEX, and without what it depends on: beside the usual index
    (--extra-index-url) either of the two could serve any package under the other's names.
    """
    pip(*BUILD_TOOLS)
    if wish.torch_index:
        pins = (ROOT / "constraints.txt").read_text().split()
        pin = next(line for line in pins if line.startswith("torch=="))
        again = ["--force-reinstall"] if switch_torch else []
        pip("--no-deps", "--index-url", wish.torch_index, *again, pin)
    told = subprocess.check_output([str(PYTHON), "-I", "-c", REQUIREMENTS, *wish.extras], cwd=ROOT)
    pip(*json.loads(told))


def stale_cores(suffix: str) -> list[Path]:
    sources = sorted((ROOT / "rematch").rglob("*.pyx"))
    return [path for path in sources if not native_build.is_fresh(path, path.with_name(path.stem + suffix))]


def compile_cores(python: doctor.Python, everything: bool) -> None:
    """Builds the cores whose text, flags or processor changed, in place; each then carries its digest."""
    waiting = stale_cores(python.suffix)
    if not waiting and not everything:
        return
    compiler = doctor.working_compiler([os.environ.get("CC", ""), python.compiler])
    if not compiler:
        raise Stop(doctor.complaint(doctor.examine(python.executable)))
    say("Compiling " + (", ".join(str(path.relative_to(ROOT)) for path in waiting) or "every core anew"))
    own = compiler == python.compiler or os.environ.get("CC") == compiler
    how = ["-j", str(os.cpu_count() or 1), *(["--force"] if everything else [])]
    run([str(PYTHON), "setup.py", "-q", "build_ext", "--inplace", *how], "" if own else compiler)
    left = [str(path.relative_to(ROOT)) for path in stale_cores(python.suffix)]
    if left:
        raise Stop(f"{', '.join(left)}: changed during the build (run make again), or lacks REMATCH_BUILD")


def link_project() -> None:
    """The `rematch` command and an import path to this folder. No build isolation, no deps: no network."""
    pip("-q", "--no-deps", "--no-build-isolation", "-e", ".")


# --- all of it ------------------------------------------------------------------------------------


def start_anew(wanted: str, torch_index: str) -> None:
    """Asks the doctor, tells how much will be fetched, makes an empty .venv."""
    findings = doctor.examine(wanted)
    if findings.problems or findings.python is None:
        raise Stop(doctor.complaint(findings))
    words, need = doctor.download(torch_index, platform.system(), platform.machine())
    say(f"Setting up .venv with {findings.python}\nThis downloads {words}")
    free = shutil.disk_usage(ROOT).free / 1e9
    notes = doctor.warnings(findings.python, platform.system(), platform.machine())
    if free < need:
        notes.append(f"{free:.1f} GB of disk space are free, {need:.0f} GB may be needed")
    for note in notes:
        say("Warning: " + note)
    make_venv(findings.python)


def prepare(extras: tuple[str, ...], wanted: str, torch_index: str) -> None:
    if ":" in str(ROOT):
        raise Stop(f"Python makes no .venv in a path with a colon; move this folder: {ROOT}")
    named = doctor.ask(wanted) if wanted else None
    if wanted and (named is None or doctor.lacks(named)):
        raise Stop(doctor.complaint(doctor.examine(wanted)))
    pins = digest_of("constraints.txt", "pyproject.toml", "setup.py")
    wish = Wish(pins, extras, identity(named) if named else "", torch_index)

    record = read_record()
    python = doctor.ask(str(PYTHON)) if record is not None else None
    step, reason = plan(record, python, wish)
    if step in ("install", "link") and not has_pip():
        step, reason = "new", "its pip is gone"
    if reason:
        say(f"Set-up: .venv {'is made anew' if step == 'new' else 'is brought up to date'}, because {reason}")
    if step == "new":
        start_anew(wanted, torch_index)
        record, python = {}, doctor.ask(str(PYTHON))
    if python is None:
        raise Stop("The new .venv has no Python that runs; is this folder on a disk that forbids programs?")

    if step in ("new", "install"):
        update(wish, python, record or {})
    compile_cores(python, everything=(record or {}).get("pins") != pins)
    if step != "keep":
        link_project()
        write_record({**(read_record() or {}), "root": str(ROOT)})
        say("Set-up is done.")


def update(wish: Wish, python: doctor.Python, old: Mapping[str, Any]) -> None:
    """Installs, and says so in the record only when all of it is there."""
    by_hand = not RECORD.exists()
    write_record({"finished": False})
    try:
        install(wish, switch_torch=wish.torch_index != old.get("torch_index", wish.torch_index))
    except subprocess.CalledProcessError:
        if old:  # pip gave up by itself, before it changed anything: what was there still serves
            write_record(old)
        elif by_hand:
            RECORD.unlink()
        raise Stop("pip could not install the packages (see above); run the same command again") from None
    write_record({
        "finished": True, "python": python.minor, "pins": wish.pins, "root": "",
        "extras": sorted({*wish.extras, *old.get("extras", ())}),
        "torch_index": wish.torch_index or old.get("torch_index", ""),
    })  # fmt: skip


def wait_for_others(lock: Any) -> None:
    """Two terminals may start at once: the second waits here for the first."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Waiting for another set-up of this folder to finish …")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return  # a file system without locks


def main(extras: Sequence[str]) -> int:
    wanted, torch_index = os.environ.get("PYTHON", ""), os.environ.get("TORCH_INDEX", "")
    code = 2
    try:
        with open(ROOT / "constraints.txt") as lock:
            wait_for_others(lock)
            prepare(tuple(extras) or ("dev",), wanted, torch_index)
        return 0
    except Stop as why:
        words = str(why)
    except subprocess.CalledProcessError as why:
        words = f"Set-up stopped: {' '.join(map(str, why.cmd[:6]))} … failed (see above)"
    except OSError as why:
        words = f"Set-up stopped: {why}"
    except KeyboardInterrupt:
        words, code = "Set-up was interrupted; the same command takes it up again.", 130
    print(words, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
