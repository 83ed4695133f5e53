"""Compiler flags of native cores, and the check that a core matches its sources. For setup.py and imports.

A core is compiled for one processor, or, in a wheel, for the processor levels of LEVELS, of which the best
that runs here is loaded (system/portable_cores.py); and from sources that can change. Both must be the same
when it is loaded. This file uses the standard library of Python 3.8 only, because setup.py and tools/ import
it before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

# gcc and clang select this machine's processor by -march on x86 and by -mcpu on ARM.
NATIVE = {"x86_64": ["-march=native"], "arm64": ["-mcpu=native"], "aarch64": ["-mcpu=native"]}
# Processor levels of the cores in a wheel, the lowest first (x86-64 psABI, "Micro-Architecture Levels").
LEVELS = {"x86_64": ["x86-64-v2", "x86-64-v3", "x86-64-v4"], "arm64": ["armv8-a"], "aarch64": ["armv8-a"]}
V3 = ["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"]
NEEDS = {"x86-64-v3": V3, "x86-64-v4": [*V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]}
LEVEL_VARIABLE = "REMATCH_LEVEL"  # environment variable: a lower level than the best one
MAC_NAMES = {"avx1.0": "avx", "lzcnt": "abm"}  # names of instruction sets on macOS -> those of Linux
FLAGS = ["-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-unused-function"]
HEADERS = (".h", ".pxd", ".pxi")  # files that a core includes
DIRECTIVES = {
    "language_level": 3, "boundscheck": False, "wraparound": False,
    "initializedcheck": False, "cdivision": True, "freethreading_compatible": False,
}  # fmt: skip


def cores_folder() -> Path:
    """The folder of a wheel that holds its cores, one subfolder per level; a checkout has none."""
    return Path(__file__).resolve().parents[1] / "cores"


def instruction_sets() -> set[str]:
    """The instruction sets of this processor, by the names of Linux."""
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.features", "machdep.cpu.leaf7_features"]
        try:
            text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError:
            return set()
        return {MAC_NAMES.get(name, name) for name in text.lower().split()}
    return set(processor().split()[1:])


def supported(level: str) -> bool:
    """Whether this processor can run code of a level."""
    return set(NEEDS.get(level, [])) <= instruction_sets()


def portable_level() -> str:
    """The level of the cores to load: the highest in the wheel that runs here. Empty in a checkout."""
    folder = cores_folder()
    if not folder.is_dir():
        return ""
    known = [level for level in LEVELS.get(platform.machine(), []) if (folder / level).is_dir()]
    wanted = os.environ.get(LEVEL_VARIABLE, "")
    if wanted and wanted not in known:
        raise ImportError(f"{LEVEL_VARIABLE} = {wanted!r}: expected one of {', '.join(known)}")
    usable = [level for level in known if supported(level)]
    if wanted:
        usable = [level for level in usable if level == wanted]
    if not usable:
        raise ImportError(f"this wheel of Rematch has no cores for this processor ({platform.machine()}): "
                          "install it from the sources, with a C compiler")
    return usable[-1]


def flags(source: Path, level: str = "") -> list[str]:
    """The C flags of one core, for a level or for this machine's processor.

    Worlds round as on a GPU (multiply, then add); learners may use FMA.
    """
    is_world = Path(__file__).resolve().parents[1] / "worlds" in source.resolve().parents
    contract = "-ffp-contract=" + ("off" if is_world else "fast")
    machine = [f"-march={level}"] if level else NATIVE.get(platform.machine(), [])
    return [*FLAGS, *machine, contract]


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


def digest(source: Path, level: str = "") -> str:
    """Sixteen hex digits: SHA-256 of the source files, the flags, and the level or the processor."""
    checksum = hashlib.sha256()
    for file in source_files(source):
        checksum.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    checksum.update((" ".join(flags(source, level)) + (level or processor())).encode())
    return checksum.hexdigest()[:16]


def is_fresh(source: Path, compiled: Path) -> bool:
    """Whether `compiled` was built from these sources; a core contains its digest (REMATCH_BUILD)."""
    try:
        return digest(source).encode() in compiled.read_bytes()
    except OSError:
        return False


def refuse_stale(name: str, built: str, source: Path) -> None:
    """ImportError if the digest in a compiled core differs from the digest of its sources."""
    level = portable_level()
    if source.exists() and digest(source, level) != built:
        remedy = "install the wheel again" if level else "rebuild it with: make build"
        raise ImportError(f"{name} was compiled from other sources or for another processor; {remedy}")
