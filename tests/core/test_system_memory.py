"""Memory as the kernel tells it: never more free than there is, a process as large as what it holds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rematch.core import system_memory

SLACK = 1 << 20  # the kernel counts in batches


def test_what_is_free_is_part_of_what_there_is() -> None:
    assert 0 < system_memory.available() <= system_memory.here()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells it there")
def test_a_process_is_as_large_as_what_it_holds() -> None:
    before, _ = system_memory.taken(os.getpid())
    block = np.ones(64 << 20, np.uint8)
    during, most = system_memory.taken(os.getpid())
    assert most + SLACK >= during >= before + (48 << 20)
    del block
    after, still = system_memory.taken(os.getpid())
    assert after < during and still + SLACK >= most
    assert system_memory.taken(2**22 + 1) == (0, 0)  # above any process number


def test_a_file_of_names_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("\nMemFree:  12 kB\nMemAvailable:   34 kB\n")
    assert system_memory._number(tmp_path / "x", "MemAvailable:") == 34
    with pytest.raises(ValueError, match="no Mem"):
        system_memory._number(tmp_path / "x", "Mem")
