"""System memory: available memory is at most the total; a process counts its arrays."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rematch.core.system import system_memory

SLACK = 1 << 20  # the kernel counts in batches


def test_available_memory_is_at_most_the_total() -> None:
    assert 0 < system_memory.available_bytes() <= system_memory.total_bytes()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells it there")
def test_process_memory_counts_its_arrays() -> None:
    before, _ = system_memory.process_bytes(os.getpid())
    block = np.ones(64 << 20, np.uint8)
    during, most = system_memory.process_bytes(os.getpid())
    assert most + SLACK >= during >= before + (48 << 20)
    del block
    after, still = system_memory.process_bytes(os.getpid())
    assert after < during and still + SLACK >= most
    assert system_memory.process_bytes(2**22 + 1) == (0, 0)  # above any process number


def test_read_number_finds_a_name(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("\nMemFree:  12 kB\nMemAvailable:   34 kB\n")
    assert system_memory._read_number(tmp_path / "x", "MemAvailable:") == 34
    with pytest.raises(ValueError, match="no Mem"):
        system_memory._read_number(tmp_path / "x", "Mem")
