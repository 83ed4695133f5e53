"""Fixtures of the storage tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rematch.storage.run_folder import Run


@pytest.fixture
def ram_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in RAM where the system has one: thousands of fsyncs, none of which needs a real disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A new run, open for writing."""
    with Run.create(tmp_path / "run", "game: none\n") as created:
        yield created
