"""tools/checks/steady_memory.py: distinguishes growth from a replay buffer that fills."""

from __future__ import annotations

import pytest
import steady_memory


def test_quarters_tell_filling_from_growing() -> None:
    filling = [(step, min(step, 20) + 100) for step in range(1, 101)]
    growing = [(step, step + 100) for step in range(1, 101)]
    assert steady_memory.quarter_medians(filling, 100) == (120, 120)
    second, last = steady_memory.quarter_medians(growing, 100)
    assert last > steady_memory.MAX_GROWTH * second


def test_wrong_words_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert steady_memory.main(["tinny"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "nearest: tiny" in message
