"""tools/checks/steady_memory.py: growth is seen, a run that only fills its replay is not taken for one that
grows."""

from __future__ import annotations

import pytest
import steady_memory


def test_quarters_tell_filling_from_growing() -> None:
    filling = [(step, min(step, 20) + 100) for step in range(1, 101)]
    growing = [(step, step + 100) for step in range(1, 101)]
    assert steady_memory.grown(filling, 100) == (120, 120)
    second, last = steady_memory.grown(growing, 100)
    assert last > steady_memory.MOST * second


def test_wrong_words_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert steady_memory.main(["tinny"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "nearest: tiny" in said
