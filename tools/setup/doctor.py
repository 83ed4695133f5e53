"""Examines a machine before set-up: which Python to use, what is missing, how to install it, download size.

    python3 tools/setup/doctor.py

`make` runs this first (see tools/setup/prepare.py). It uses only the standard library and the syntax of
Python 3.8, because it must also run on machines where rematch cannot run yet.
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
# The user's default `python3` comes first, then the newest version.
CANDIDATES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# Prints facts about an interpreter as JSON. It must parse on any Python that a user may name, 2.7 included.
PROBE = """
import json, os, platform, sys
try:
    import sysconfig
    import importlib.util as modules
    absent = [m for m in ("venv", "ssl", "zlib", "ctypes", "bz2") if modules.find_spec(m) is None]
    try:
        import ensurepip
        ensurepip.version()  # finds the wheel of pip, which is a separate package on some systems
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
    """Facts about one interpreter, from PROBE."""

    command: str
    version: tuple[int, ...] = ()
    implementation: str = "CPython"
    bits64: bool = True
    free_threaded: bool = False
    prefix: str = ""
    executable: str = ""
    absent: tuple[str, ...] = ()  # missing modules of the standard library
    headers: bool = False
    compiler: str = ""  # the compiler that it was built with; setuptools uses it for extensions
    suffix: str = ""  # file suffix of its extension modules

    @property
    def minor(self) -> str:
        return "{}.{}".format(*self.version)

    def __str__(self) -> str:
        return f"{self.command} ({'.'.join(map(str, self.version))}, {self.executable})"


@dataclass(frozen=True)
class Problem:
    """Something missing: its kind in PACKAGES, and a message."""

    kind: str  # python, venv, headers, compiler, make
    message: str


def query_python(command: str) -> Python | None:
    """Facts about the interpreter `command`; None if it does not exist or does not run."""
    try:
        process = subprocess.run(
            [command, "-I", "-c", PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        fields = json.loads(process.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    fields.update(command=command, version=tuple(fields["version"]), absent=tuple(fields.get("absent", ())))
    return Python(**fields)


def find_problems(python: Python) -> list[Problem]:
    """Problems that prevent rematch from running with this interpreter."""
    if python.implementation != "CPython" or not python.bits64 or python.free_threaded:
        return [Problem("python", "is not an ordinary 64-bit CPython, the one that PyTorch is published for")]
    if not OLDEST <= python.version[:2] <= NEWEST:
        return [Problem("python", "is not one of Python 3.11 to 3.14")]
    problems = []
    if {"venv", "ensurepip"} & set(python.absent):
        problems.append(Problem("venv", "lacks the venv module (venv and ensurepip)"))
    others = [name for name in python.absent if name not in ("venv", "ensurepip")]
    if others:
        problems.append(Problem("python", "was built without " + ", ".join(others)))
    if not python.headers:
        problems.append(Problem("headers", "lacks its C headers (Python.h)"))
    return problems


def choose_python(wanted: str = "") -> tuple[Python | None, list[Problem], list[str]]:
    """(the interpreter to use, or the closest candidate; its problems; a line per rejected candidate)."""
    nearest: Python | None = None
    missing, rejected = [Problem("python", "no Python 3.11 to 3.14 was found")], []
    for command in (wanted,) if wanted else CANDIDATES:
        python = query_python(command)
        if python is None:
            if shutil.which(command):
                rejected.append(f"{command}: does not run as Python 3")
            elif wanted:
                rejected.append(f"{command}: not found")
            continue
        problems = find_problems(python)
        if not problems:
            return python, [], rejected
        rejected.append(f"{python} " + " and ".join(problem.message for problem in problems))
        if nearest is None or (missing[0].kind == "python" and problems[0].kind != "python"):
            nearest, missing = python, problems
    return nearest, missing, rejected


def working_compiler(preferred: Sequence[str] = ()) -> str:
    """The first C compiler that can build a shared library (which needs a C library), or ""."""
    quiet = subprocess.DEVNULL
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text('#include <stdio.h>\n#include <math.h>\nint probe(void) { return printf(""); }\n')
        for command in (*filter(None, preferred), "cc", "gcc", "clang"):
            command_line = [*shlex.split(command), "-shared", "-fPIC", str(source), "-o", folder + "/probe"]
            try:
                if (
                    subprocess.run(
                        command_line, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60
                    ).returncode
                    == 0
                ):
                    return command
            except (OSError, subprocess.SubprocessError):
                continue
    return ""


# --- installation commands ------------------------------------------------------------------------

KINDS = ("python", "venv", "headers", "compiler", "make")
# Package manager -> its install command, then its package names for each of KINDS. {v}: 3.12, {vv}: 312.
# The first one that exists is used; brew also exists on Linux, so it is last.
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
    """A Python version for which this system has a package."""
    if manager != "apt-get":
        return "3.12"
    for version in ("3.13", "3.12", "3.11", "3.14"):  # depends on the release; apt-cache works offline
        try:
            if subprocess.run(["apt-cache", "show", "python" + version], capture_output=True).returncode == 0:
                return version
        except OSError:
            break
    return "3"


def install_lines(kinds: Sequence[str], version: str, manager: str, system: str, root: bool) -> list[str]:
    """Commands that install `kinds` (of KINDS) on this machine, for Python `version` ("3.12")."""
    lines = []
    if system == "Darwin":  # Apple's compiler and make need no package manager
        if {"compiler", "make"} & set(kinds):
            lines.append("xcode-select --install")
        kinds = [kind for kind in kinds if kind not in ("compiler", "make")]
        manager = "brew"
    if kinds and manager:
        line, *names = PACKAGES[manager]
        packages = " ".join(names[KINDS.index(kind)] for kind in kinds).split()
        sudo = "" if root or manager == "brew" else "sudo "
        line = f"{{sudo}}{line} {' '.join(dict.fromkeys(packages))}"
        lines.append(line.format(sudo=sudo, v=version, vv=version.replace(".", "")))
    return lines


# --- download size --------------------------------------------------------------------------------


def download(torch_index: str, system: str, machine: str) -> tuple[str, float]:
    """(description of the download, needed disk space in GB)."""
    if torch_index:
        return f"about 430 MB with a CPU build of PyTorch (from {torch_index}), 3 GB with a CUDA build", 2.5
    if system == "Linux" and machine in ("x86_64", "aarch64"):
        description = (
            "up to 3 GB, because PyTorch's default build for Linux brings CUDA\n"
            f"  CPU only is about 430 MB:  make train TORCH_INDEX={CPU_INDEX}"
        )
        return description, 8.0
    return "about 200 MB", 2.0


def warnings(python: Python, system: str, machine: str) -> list[str]:
    """Warnings for machines for which no PyTorch is published."""
    if "musl" in python.suffix:
        return ["PyTorch is not published for musl (Alpine); use a glibc system such as Debian or Fedora"]
    if system == "Darwin" and machine == "x86_64":
        return ["PyTorch is no longer published for Intel Macs"]
    return []


# --- the report -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    wanted: str  # command of the Python that the user named, or ""
    python: Python | None
    compiler: str
    problems: tuple[str, ...]  # one line each; empty: set-up can start
    install_commands: tuple[str, ...]  # commands that install what is missing


def examine_machine(wanted: str = "") -> Report:
    """Checks everything that set-up needs on this machine."""
    python, missing, rejected = choose_python(wanted)
    problems = rejected or [problem.message for problem in missing] if missing else []
    kinds = [problem.kind for problem in missing]
    manager = package_manager()
    if kinds and python and python.prefix != "/usr" and manager != "brew":
        kinds = ["python"]  # system packages cannot complete an interpreter outside /usr
    compiler = working_compiler([os.environ.get("CC", ""), python.compiler if python else ""])
    if not compiler:
        problems.append("no C compiler was found that works (cc, gcc or clang, with the C library's headers)")
        kinds.append("compiler")
    if not shutil.which("make"):
        problems.append("make was not found")
        kinds.append("make")
    version = python.minor if python and "python" not in kinds else packaged_version(manager)
    commands = install_lines(kinds, version, manager, platform.system(), os.geteuid() == 0)
    return Report(wanted, python, compiler, tuple(problems), tuple(commands))


def format_problems(report: Report) -> str:
    """Message to a user whose machine lacks something."""
    lines = ["Set-up cannot start:", *("  " + problem for problem in report.problems)]
    if report.install_commands:
        lines += ["This installs it:", *("  " + command for command in report.install_commands)]
    else:
        lines.append("Install it with your system's package manager.")
    lines.append("Then run the same command again.")
    if report.wanted:
        lines.append(f"Or leave out PYTHON={report.wanted}: make then looks for a Python itself.")
    else:
        lines.append("Or name another Python:  make train PYTHON=/path/to/python3.12")
    return "\n".join(lines)


def main() -> int:
    report = examine_machine(os.environ.get("PYTHON", ""))
    if report.problems:
        print(format_problems(report), file=sys.stderr)
        return 2
    assert report.python is not None
    description, _ = download(os.environ.get("TORCH_INDEX", ""), platform.system(), platform.machine())
    print(f"Python: {report.python}\nC compiler: {report.compiler}\nFirst set-up downloads {description}")
    for warning in warnings(report.python, platform.system(), platform.machine()):
        print("Warning: " + warning)
    return 0


if __name__ == "__main__":
    sys.exit(main())
