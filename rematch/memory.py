"""How much memory this machine has. Imports nothing of ours.

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
