"""Compiler flags of native cores, and the check that a core matches its sources. For setup.py and imports.

A core is compiled for one processor and from sources that can change; both must be the same when it is
loaded. This file uses the standard library of Python 3.8 only, because setup.py and tools/ import it before
anything is installed.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

# gcc and clang select this machine's processor by -march on x86 and by -mcpu on ARM.
NATIVE = {"x86_64": ["-march=native"], "arm64": ["-mcpu=native"], "aarch64": ["-mcpu=native"]}
FLAGS = ["-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-unused-function"]
HEADERS = (".h", ".pxd", ".pxi")  # files that a core includes
DIRECTIVES = {
    "language_level": 3, "boundscheck": False, "wraparound": False,
    "initializedcheck": False, "cdivision": True, "freethreading_compatible": False,
}  # fmt: skip


def flags(source: Path) -> list[str]:
    """The C flags of one core. Worlds round as on a GPU (multiply, then add); learners may use FMA."""
    is_world = Path(__file__).resolve().parents[1] / "worlds" in source.resolve().parents
    contract = "-ffp-contract=" + ("off" if is_world else "fast")
    return [*FLAGS, *NATIVE.get(platform.machine(), []), contract]


def processor() -> str:
    """Architecture and instruction sets, as reported by the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = next(line for line in lines if line.startswith(("flags", "Features")))
        return platform.machine() + " " + " ".join(sorted(names.partition(":")[2].split()))
    except (OSError, StopIteration):
        return platform.machine() + " " + platform.processor()


def source_files(source: Path) -> list[Path]:
    """The files of a core: the .pyx, the headers in its folder, the headers of worlds/native, this file."""
    this_file = Path(__file__).resolve()
    folders = (source.parent, this_file.parents[1] / "worlds/native")
    headers = [sorted(path for path in folder.iterdir() if path.suffix in HEADERS) for folder in folders]
    return [source, *headers[0], *headers[1], this_file]


def digest(source: Path) -> str:
    """Sixteen hex digits: SHA-256 of the source files, the flags and the processor."""
    checksum = hashlib.sha256()
    for file in source_files(source):
        checksum.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    checksum.update((" ".join(flags(source)) + processor()).encode())
    return checksum.hexdigest()[:16]


def is_fresh(source: Path, compiled: Path) -> bool:
    """Whether `compiled` was built from these sources; a core contains its digest (REMATCH_BUILD)."""
    try:
        return digest(source).encode() in compiled.read_bytes()
    except OSError:
        return False


def refuse_stale(name: str, built: str, source: Path) -> None:
    """ImportError if the digest in a compiled core differs from the digest of its sources."""
    if source.exists() and digest(source) != built:
        raise ImportError(
            f"{name} was compiled from other sources or for another processor; rebuild it with: make build"
        )
