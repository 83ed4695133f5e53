"""Returns: Student's interval against known points and by coverage, and what a history of them is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rematch.evaluation import returns
from rematch.evaluation.evaluator import EvaluationConfig
from rematch.evaluation.returns import mean_of, student
from rematch.evaluation.verdict import verdict
from rematch.reporting.text import evaluation_lines, scoreboard_lines


def test_students_points() -> None:
    # from the tables of Student's t, two-sided 95 %
    for freedom, point in (
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (5, 2.571),
        (10, 2.228),
        (30, 2.042),
        (99, 1.984),
    ):
        assert student(freedom) == pytest.approx(point, abs=4e-3)
    assert student(10**6) == pytest.approx(1.95996, abs=1e-4)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    luck = np.random.default_rng(0)
    held = 0
    for _ in range(4000):
        told = mean_of(luck.normal(3.0, 2.0, 8))
        assert told.low is not None and told.high is not None
        held += told.low <= 3.0 <= told.high
    assert abs(held / 4000 - 0.95) < 0.015


def test_one_game_tells_no_interval() -> None:
    told = mean_of(np.array([4.0]))
    assert (told.mean, told.low, told.high, told.games) == (4.0, None, None, 1)
    assert mean_of(np.array([])).games == 0


def row(mean: float, half: float | None, step: int = 0, **more: Any) -> dict[str, Any]:
    low, high = (None, None) if half is None else (mean - half, mean + half)
    entry = {"mean": mean, "low": low, "high": high, "games": 20, "player": "player (learnt)"} | more
    return {"step": step, "rates": {}, "table": [], "returns": {"player": entry}}


BOT = {"best_bot": "random", "best_bot_mean": 60.0, "best_bot_low": 55.0, "best_bot_high": 65.0}

VERDICTS = [
    ([row(10, 3)], "inconclusive: one evaluation only"),
    ([row(10, 3), row(50, 3)], "improving: mean return 10 at first, 50 now"),
    ([row(-10, 3), row(-50, 3)], "declining: mean return -10 at first, -50 now"),
    ([row(100, 2), row(101, 2)], "steady: mean return 100 at first, 101 now"),
    ([row(500, 0), row(500, 0)], "steady: mean return 500 at first, 500 now"),
    ([row(0, 0), row(0, 0)], "steady: mean return 0 at first, 0 now"),
    (
        [row(10, 8), row(12, 8)],
        "inconclusive: mean return 10 at first, 12 now, a change of +2 ± 11.31; about 7112",
    ),
    ([row(10, None), row(12, None)], "inconclusive: mean return 10 at first, 12 now, a change of +2 ± inf"),
    ([row(10, 3), row(50, 3, **BOT)], "weak: mean return 50 [47, 53] where random has 60"),
    ([row(10, 3), row(50, 6, **BOT)], "improving: mean return 10 at first, 50 now"),
]


@pytest.mark.parametrize(("history", "line"), VERDICTS, ids=[line[:30] for _, line in VERDICTS])
def test_what_a_history_is_called(history: list[dict[str, Any]], line: str) -> None:
    assert returns.judged(history[-1])
    assert verdict(history, EvaluationConfig()).startswith(line)


def test_texts() -> None:
    told = row(50, 3, success=0.25, success_low=0.1, success_high=0.5, **BOT)
    (line,) = evaluation_lines(told)
    assert "player return 50.000 [47.000, 53.000] n 20 success 0.250 [0.100, 0.500]" in line
    board = "\n".join(scoreboard_lines(told))
    assert "scripted rivals" not in board and "random" in board and "below" in board
    assert "[-, -]" in "\n".join(scoreboard_lines(row(4, None)))
