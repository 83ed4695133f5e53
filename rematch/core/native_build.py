"""How a core is compiled, and whether a compiled one still matches its text. Used by setup.py and at import.

A core is compiled for the processor it runs on and from headers that people edit; both must still be the
same when it is loaded. Standard library only, and no newer than Python 3.8: setup.py and tools/ import this
file by itself, before anything is installed.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

# gcc and clang name "this very processor" by -march on x86 and by -mcpu on ARM; elsewhere neither is certain.
NATIVE = {"x86_64": ["-march=native"], "arm64": ["-mcpu=native"], "aarch64": ["-mcpu=native"]}
FLAGS = ["-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-unused-function"]
DIRECTIVES = {
    "language_level": 3, "boundscheck": False, "wraparound": False,
    "initializedcheck": False, "cdivision": True, "freethreading_compatible": False,
}  # fmt: skip


def flags(source: Path) -> list[str]:
    """The C flags for one core: a world must round as on a GPU (multiply, then add), a learner need not."""
    world = Path(__file__).resolve().parents[1] / "worlds" in source.resolve().parents
    return [*FLAGS, *NATIVE.get(platform.machine(), []), "-ffp-contract=" + ("off" if world else "fast")]


def processor() -> str:
    """Architecture and instruction sets, as the system names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = next(line for line in lines if line.startswith(("flags", "Features")))
        return platform.machine() + " " + " ".join(sorted(names.partition(":")[2].split()))
    except (OSError, StopIteration):
        return platform.machine() + " " + platform.processor()


def texts(source: Path) -> list[Path]:
    """What a core is made from: the .pyx, what it may include beside it, the shared headers, this file."""
    here = Path(__file__).resolve()
    beside = [path for path in source.parent.iterdir() if path.suffix in (".h", ".pxd", ".pxi")]
    return [source, *sorted(beside), *sorted((here.parents[1] / "worlds/native").glob("*.h")), here]


def digest(source: Path) -> str:
    """Sixteen hex digits over the texts, the flags and the processor."""
    total = hashlib.sha256()
    for text in texts(source):
        total.update(text.name.encode() + b"\0" + text.read_bytes() + b"\0")
    total.update((" ".join(flags(source)) + processor()).encode())
    return total.hexdigest()[:16]


def is_fresh(source: Path, compiled: Path) -> bool:
    """Whether `compiled` was made from this text: a core holds its digest as plain bytes (REMATCH_BUILD)."""
    try:
        return digest(source).encode() in compiled.read_bytes()
    except OSError:
        return False


def refuse_stale(name: str, built: str, source: Path) -> None:
    """Raise ImportError where a core's digest is not that of the text beside it."""
    if source.exists() and digest(source) != built:
        raise ImportError(
            f"{name} was compiled from other text or for another processor; rebuild it with: make build"
        )
