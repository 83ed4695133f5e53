"""Looks at a machine before set-up: which Python, what is missing, which line installs it, how much to fetch.

    python3 tools/setup/doctor.py

`make` starts with this (see tools/setup/prepare.py). Standard library only, and no newer than Python 3.8: it
has to speak clearly on a machine where rematch itself cannot run yet.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 14)
# The user's own `python3` first, then the newest: a version nobody chose is never preferred to theirs.
CANDIDATES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# What an interpreter says of itself. It must parse on any Python somebody might name, 2.7 included.
PROBE = """
import json, os, platform, sys
try:
    import sysconfig
    import importlib.util as modules
    absent = [m for m in ("venv", "ssl", "zlib", "ctypes", "bz2") if modules.find_spec(m) is None]
    try:
        import ensurepip
        ensurepip.version()  # finds the wheel of pip, which some systems package apart
    except Exception:
        absent.append("ensurepip")
    variable = sysconfig.get_config_var
    headers = [os.path.join(sysconfig.get_path(kind), "Python.h") for kind in ("include", "platinclude")]
    more = dict(absent=absent, headers=any(map(os.path.exists, headers)), compiler=variable("CC") or "",
                free_threaded=bool(variable("Py_GIL_DISABLED")), suffix=variable("EXT_SUFFIX") or "")
except ImportError:
    more = {}
print(json.dumps(dict(
    version=list(sys.version_info[:3]), implementation=platform.python_implementation(),
    bits64=sys.maxsize > 2**32, prefix=getattr(sys, "base_prefix", sys.prefix),
    executable=sys.executable, **more)))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter, as it describes itself."""

    command: str
    version: tuple[int, ...] = ()
    implementation: str = "CPython"
    bits64: bool = True
    free_threaded: bool = False
    prefix: str = ""
    executable: str = ""
    absent: tuple[str, ...] = ()  # standard modules that it was installed without
    headers: bool = False
    compiler: str = ""  # the one it was built with, which setuptools uses for extensions
    suffix: str = ""  # of the extension modules it loads

    @property
    def minor(self) -> str:
        return "{}.{}".format(*self.version)

    def __str__(self) -> str:
        return f"{self.command} ({'.'.join(map(str, self.version))}, {self.executable})"


@dataclass(frozen=True)
class Lack:
    """Something missing: what it is called in PACKAGES, and in words."""

    kind: str  # python, venv, headers, compiler, make
    words: str


def ask(command: str) -> Python | None:
    """The interpreter behind `command`; None where it is not there or does not run."""
    try:
        answer = subprocess.run(
            [command, "-I", "-c", PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        told = json.loads(answer.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    told.update(command=command, version=tuple(told["version"]), absent=tuple(told.get("absent", ())))
    return Python(**told)


def lacks(python: Python) -> list[Lack]:
    """What keeps this interpreter from running rematch."""
    if python.implementation != "CPython" or not python.bits64 or python.free_threaded:
        return [Lack("python", "is not an ordinary 64-bit CPython, the one that PyTorch is published for")]
    if not OLDEST <= python.version[:2] <= NEWEST:
        return [Lack("python", "is not one of Python 3.11 to 3.14")]
    missing = []
    if {"venv", "ensurepip"} & set(python.absent):
        missing.append(Lack("venv", "lacks the venv module (venv and ensurepip)"))
    others = [name for name in python.absent if name not in ("venv", "ensurepip")]
    if others:
        missing.append(Lack("python", "was built without " + ", ".join(others)))
    if not python.headers:
        missing.append(Lack("headers", "lacks its C headers (Python.h)"))
    return missing


def choose(wanted: str = "") -> tuple[Python | None, list[Lack], list[str]]:
    """The interpreter to use, or the nearest to it; what it lacks; a line for each that was passed over."""
    nearest: Python | None = None
    missing, passed = [Lack("python", "no Python 3.11 to 3.14 was found")], []
    for command in (wanted,) if wanted else CANDIDATES:
        python = ask(command)
        if python is None:
            if shutil.which(command):
                passed.append(f"{command}: does not run as Python 3")
            elif wanted:
                passed.append(f"{command}: not found")
            continue
        here = lacks(python)
        if not here:
            return python, [], passed
        passed.append(f"{python} " + " and ".join(lack.words for lack in here))
        if nearest is None or (missing[0].kind == "python" and here[0].kind != "python"):
            nearest, missing = python, here
    return nearest, missing, passed


def working_compiler(first: Sequence[str] = ()) -> str:
    """The first C compiler that makes a shared library, or "": without a C library none is made."""
    quiet = subprocess.DEVNULL
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text('#include <stdio.h>\n#include <math.h>\nint probe(void) { return printf(""); }\n')
        for command in (*filter(None, first), "cc", "gcc", "clang"):
            line = [*shlex.split(command), "-shared", "-fPIC", str(source), "-o", folder + "/probe"]
            try:
                if subprocess.run(line, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60).returncode == 0:
                    return command
            except (OSError, subprocess.SubprocessError):
                continue
    return ""


# --- which line installs it -----------------------------------------------------------------------

KINDS = ("python", "venv", "headers", "compiler", "make")
# How each package manager installs, then its name for each of KINDS. {v}: 3.12, {vv}: 312.
# They are looked for in this order; brew also exists on Linux, so it is last.
PACKAGES: Mapping[str, Sequence[str]] = {
    "apt-get": ("apt-get update && {sudo}apt-get install -y",
                "python{v} python{v}-venv python{v}-dev", "python{v}-venv", "python{v}-dev",
                "build-essential", "make"),
    "dnf": ("dnf install -y", "python{v} python{v}-devel", "python{v}", "python{v}-devel", "gcc", "make"),
    "pacman": ("pacman -S --needed", "python", "python", "python", "base-devel", "make"),
    "apk": ("apk add", "python3 python3-dev", "python3", "python3-dev", "build-base", "make"),
    "zypper": ("zypper install -y", "python{vv} python{vv}-devel", "python{vv}", "python{vv}-devel",
               "gcc", "make"),
    "brew": ("brew install", "python@{v}", "python@{v}", "python@{v}", "gcc", "make"),
}  # fmt: skip


def package_manager() -> str:
    return next((name for name in PACKAGES if shutil.which(name)), "")


def packaged_version(manager: str) -> str:
    """A Python version that this system has a package for."""
    if manager != "apt-get":
        return "3.12"
    for version in ("3.13", "3.12", "3.11", "3.14"):  # releases differ; apt-cache knows without the network
        try:
            if subprocess.run(["apt-cache", "show", "python" + version], capture_output=True).returncode == 0:
                return version
        except OSError:
            break
    return "3"


def install_lines(kinds: Sequence[str], version: str, manager: str, system: str, root: bool) -> list[str]:
    """The exact lines that install `kinds` (of KINDS) here, for Python `version` ("3.12")."""
    lines = []
    if system == "Darwin":  # Apple's own compiler and make need no package manager
        if {"compiler", "make"} & set(kinds):
            lines.append("xcode-select --install")
        kinds = [kind for kind in kinds if kind not in ("compiler", "make")]
        manager = "brew"
    if kinds and manager:
        line, *names = PACKAGES[manager]
        wanted = " ".join(names[KINDS.index(kind)] for kind in kinds).split()
        sudo = "" if root or manager == "brew" else "sudo "
        line = f"{{sudo}}{line} {' '.join(dict.fromkeys(wanted))}"
        lines.append(line.format(sudo=sudo, v=version, vv=version.replace(".", "")))
    return lines


# --- how much to fetch ----------------------------------------------------------------------------


def download(torch_index: str, system: str, machine: str) -> tuple[str, float]:
    """What set-up will fetch, in words, and the disk space that it needs in GB."""
    if torch_index:
        return f"about 300 MB with a CPU build of PyTorch (from {torch_index}), 3 GB with a CUDA build", 2.0
    if system == "Linux" and machine in ("x86_64", "aarch64"):
        words = (
            "up to 2.9 GB, because PyTorch's default build for Linux brings CUDA\n"
            f"  CPU only is about 300 MB:  make train TORCH_INDEX={CPU_INDEX}"
        )
        return words, 8.0
    return "about 200 MB", 2.0


def warnings(python: Python, system: str, machine: str) -> list[str]:
    """Machines on which pip will find no PyTorch, unless the user has a build of their own."""
    if "musl" in python.suffix:
        return ["PyTorch is not published for musl (Alpine); use a glibc system such as Debian or Fedora"]
    if system == "Darwin" and machine == "x86_64":
        return ["PyTorch is no longer published for Intel Macs"]
    return []


# --- the report -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    wanted: str  # what the user asked for, or ""
    python: Python | None
    compiler: str
    problems: tuple[str, ...]  # one line each; none: set-up can start
    cures: tuple[str, ...]  # lines that install what is missing


def examine(wanted: str = "") -> Findings:
    """Everything that set-up needs on this machine, looked at once."""
    python, missing, passed = choose(wanted)
    problems = passed or [lack.words for lack in missing] if missing else []
    kinds = [lack.kind for lack in missing]
    manager = package_manager()
    if kinds and python and python.prefix != "/usr" and manager != "brew":
        kinds = ["python"]  # an interpreter from elsewhere cannot be completed by the system's packages
    compiler = working_compiler([os.environ.get("CC", ""), python.compiler if python else ""])
    if not compiler:
        problems.append("no C compiler was found that works (cc, gcc or clang, with the C library's headers)")
        kinds.append("compiler")
    if not shutil.which("make"):
        problems.append("make was not found")
        kinds.append("make")
    version = python.minor if python and "python" not in kinds else packaged_version(manager)
    cures = install_lines(kinds, version, manager, platform.system(), os.geteuid() == 0)
    return Findings(wanted, python, compiler, tuple(problems), tuple(cures))


def complaint(findings: Findings) -> str:
    """What to tell a user whose machine lacks something."""
    lines = ["Set-up cannot start:", *("  " + problem for problem in findings.problems)]
    if findings.cures:
        lines += ["This installs it:", *("  " + cure for cure in findings.cures)]
    else:
        lines.append("Install it with your system's package manager.")
    lines.append("Then run the same command again.")
    if findings.wanted:
        lines.append(f"Or leave out PYTHON={findings.wanted}: make then looks for a Python itself.")
    else:
        lines.append("Or name another Python:  make train PYTHON=/path/to/python3.12")
    return "\n".join(lines)


def main() -> int:
    findings = examine(os.environ.get("PYTHON", ""))
    if findings.problems:
        print(complaint(findings), file=sys.stderr)
        return 2
    assert findings.python is not None
    words, _ = download(os.environ.get("TORCH_INDEX", ""), platform.system(), platform.machine())
    print(f"Python: {findings.python}\nC compiler: {findings.compiler}\nFirst set-up downloads {words}")
    for warning in warnings(findings.python, platform.system(), platform.machine()):
        print("Warning: " + warning)
    return 0


if __name__ == "__main__":
    sys.exit(main())
