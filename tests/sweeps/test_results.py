"""The results of a sweep: measures of an evaluation, and their means over seeds."""

from __future__ import annotations

from typing import Any

import pytest
from support.evaluation_rows import return_row

from rematch.evaluation.evaluation import Evaluation
from rematch.sweeps.results import measures, seed_means, summary


def test_measures_of_an_evaluation() -> None:
    match = {"role": "cat", "rival": "mouse", "score": 0.4, "low": 0.3, "high": 0.5, "games": 9}
    rate = {"rate": 0.25, "low": 0.1, "high": 0.4, "games": 10}
    row = {"step": 64, "rates": {"cat": rate, "dog": rate}, "gap": 0.5, "gap_low": 0.2, "gap_high": 0.8,
           "exact": {"nash_conv": 0.07}, "table": [match | {"best_bot_low": 0.6}], "verdict": "weak: so"}
    evaluation = Evaluation.from_json(row)
    values = measures(evaluation, {"cat": "SR_C"})
    assert list(values) == ["SR_C", "dog", "NE-GAP", "NashConv", "score"]
    assert values["NE-GAP"] == {"value": 0.5, "low": 0.2, "high": 0.8}
    assert values["NashConv"] == {"value": 0.07, "low": None, "high": None}
    assert [values["score"][key] for key in ("value", "low", "high")] == pytest.approx([0.4, 0.3, 0.5])
    assert summary(evaluation) == {"step": 64, "games": 9, "below": 1, "pairings": 1, "verdict": "weak: so"}


def test_measures_of_a_world_with_one_seat() -> None:
    evaluation = Evaluation.from_json(return_row(21.0, 1.0, games=5))
    assert measures(evaluation, {}) == {"player's return": {"value": 21.0, "low": 20.0, "high": 22.0}}
    assert summary(evaluation)["games"] == 5


def test_seed_means_are_over_finished_runs_that_have_the_measure() -> None:
    rows: list[dict[str, Any]] = [
        {"state": "finished", "measures": {"score": {"value": 0.25}, "NashConv": {"value": 0.5}}},
        {"state": "finished", "measures": {"score": {"value": 0.75}}},
        {"state": "failed"},
    ]
    means = seed_means(rows)
    assert list(means) == ["score", "NashConv"]
    assert (means["score"]["value"], means["score"]["n"]) == (0.5, 2)
    assert means["NashConv"] == {"value": 0.5, "low": None, "high": None, "n": 1}
