"""How much memory this machine has, how much is free, how much a process took. Imports nothing of ours.

Linux grants memory that it does not have and kills somebody once it is touched, so MemoryError alone would
come too late or never (proc(5), overcommit_memory): whoever needs much asks here first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def here() -> int:
    """Bytes of memory that this machine, or the container we are in, has at most."""
    amount = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in CGROUPS:
        with suppress(OSError, ValueError):  # absent, or the word "max"
            amount = min(amount, int(Path(file).read_text()))
    return amount


def available() -> int:
    """Bytes that new processes could have now without pushing others out (proc(5), MemAvailable)."""
    free = here()
    with suppress(OSError, ValueError):
        free = min(free, 1024 * _number(Path("/proc/meminfo"), "MemAvailable:"))
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # a container's limit counts cached files, which it would give back
        used = int((group / "memory.current").read_text()) - _number(group / "memory.stat", "inactive_file")
        free = min(free, int((group / "memory.max").read_text()) - used)
    return max(free, 0)


def taken(process: int) -> tuple[int, int]:
    """Bytes that a process has in memory, now and at most so far; zeros where nobody can tell."""
    file = Path(f"/proc/{process}/status")
    with suppress(OSError, ValueError):
        return 1024 * _number(file, "VmRSS:"), 1024 * _number(file, "VmHWM:")
    return 0, 0


def _number(file: Path, name: str) -> int:
    """The number behind a name, in a file with one such pair a line."""
    for line in file.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    raise ValueError(f"{file}: no {name}")
