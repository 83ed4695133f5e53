"""How a native core is compiled, and whether it still matches its sources. Used by setup.py and at import.

A core is compiled for the processor it runs on and from headers that people edit; both must still be the
same when it is loaded. Standard library only, and no newer than Python 3.8: setup.py and tools/ import this
file by itself, before anything is installed.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

# gcc and clang select this machine's processor by -march on x86 and -mcpu on ARM; elsewhere it is uncertain.
NATIVE = {"x86_64": ["-march=native"], "arm64": ["-mcpu=native"], "aarch64": ["-mcpu=native"]}
FLAGS = ["-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-unused-function"]
HEADERS = (".h", ".pxd", ".pxi")  # files that a core includes
DIRECTIVES = {
    "language_level": 3, "boundscheck": False, "wraparound": False,
    "initializedcheck": False, "cdivision": True, "freethreading_compatible": False,
}  # fmt: skip


def flags(source: Path) -> list[str]:
    """The C flags of one core: a world must round as on a GPU (multiply, then add), a learner need not."""
    is_world = Path(__file__).resolve().parents[1] / "worlds" in source.resolve().parents
    contract = "-ffp-contract=" + ("off" if is_world else "fast")
    return [*FLAGS, *NATIVE.get(platform.machine(), []), contract]


def processor() -> str:
    """Architecture and instruction sets, as the system names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = next(line for line in lines if line.startswith(("flags", "Features")))
        return platform.machine() + " " + " ".join(sorted(names.partition(":")[2].split()))
    except (OSError, StopIteration):
        return platform.machine() + " " + platform.processor()


def source_files(source: Path) -> list[Path]:
    """The files a core is compiled from: the .pyx, the headers beside it, the shared headers, this file."""
    this_file = Path(__file__).resolve()
    folders = (source.parent, this_file.parents[1] / "worlds/native")
    headers = [sorted(path for path in folder.iterdir() if path.suffix in HEADERS) for folder in folders]
    return [source, *headers[0], *headers[1], this_file]


def digest(source: Path) -> str:
    """Sixteen hex digits over the source files, the flags and the processor."""
    total = hashlib.sha256()
    for file in source_files(source):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    total.update((" ".join(flags(source)) + processor()).encode())
    return total.hexdigest()[:16]


def is_fresh(source: Path, compiled: Path) -> bool:
    """Whether `compiled` was made from these sources: a core holds its digest as bytes (REMATCH_BUILD)."""
    try:
        return digest(source).encode() in compiled.read_bytes()
    except OSError:
        return False


def refuse_stale(name: str, built: str, source: Path) -> None:
    """Raise ImportError where the digest in a compiled core differs from that of the sources beside it."""
    if source.exists() and digest(source) != built:
        raise ImportError(
            f"{name} was compiled from other sources or for another processor; rebuild it with: make build"
        )
