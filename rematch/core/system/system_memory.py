"""Memory of this machine and of single processes, in bytes. Imports no other module of Rematch.

Linux grants memory that it does not have and kills the process that then writes to it, so MemoryError comes
too late or never (proc(5), overcommit_memory): code that needs much memory calls these functions first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CGROUP_LIMITS = (CGROUP / "memory.max", CGROUP / "memory/memory.limit_in_bytes")  # versions 2 and 1


def total_bytes() -> int:
    """Memory of this machine, or of the container that limits this process."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # the file is absent or holds the word "max"
            total = min(total, int(file.read_text()))
    return total


def available_bytes() -> int:
    """Memory that new processes can use without swapping (proc(5), MemAvailable)."""
    free = total_bytes()
    with suppress(OSError, ValueError):
        free = min(free, 1024 * _read_number(Path("/proc/meminfo"), "MemAvailable:"))
    with suppress(OSError, ValueError):  # a container's usage counts cached files, which it gives back
        cached = _read_number(CGROUP / "memory.stat", "inactive_file")
        used = int((CGROUP / "memory.current").read_text()) - cached
        free = min(free, int((CGROUP / "memory.max").read_text()) - used)
    return max(free, 0)


def process_bytes(process: int) -> tuple[int, int]:
    """Present and largest memory of a process; zeros where the system does not provide them."""
    file = Path(f"/proc/{process}/status")
    with suppress(OSError, ValueError):
        return 1024 * _read_number(file, "VmRSS:"), 1024 * _read_number(file, "VmHWM:")
    return 0, 0


def _read_number(file: Path, name: str) -> int:
    """The number after `name` in a file with one name and one number per line."""
    for line in file.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    raise ValueError(f"{file}: no {name}")
