"""Interquartile mean and bootstrap against a slow reference; an evaluation's numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.core import rng
from rematch.evaluation import spread as module
from rematch.evaluation.spread import iqm, measures, spread, standing

reals = st.floats(-1e6, 1e6, allow_nan=False)


def slow_iqm(values: list[float]) -> float:
    """Drop the lowest and the highest quarter, rounded down; the exact mean of the rest."""
    rest = sorted(values)
    for _ in range(len(values) // 4):
        rest = rest[1:-1]
    return float(sum(map(Fraction, rest)) / len(rest))


def slow_spread(values: list[float], resamples: int) -> tuple[float, float]:
    """One key for each draw, one resample after another; the percentiles by linear interpolation."""
    n, found = len(values), []
    for resample in range(resamples):
        drawn = [values[rng.key(0, rng.BOOTSTRAP, resample * n + i) % n] for i in range(n)]
        found.append(slow_iqm(drawn))
    found.sort()

    def percentile(share: float) -> float:
        at = share * (len(found) - 1)
        low = math.floor(at)
        high = min(low + 1, len(found) - 1)
        return found[low] + (at - low) * (found[high] - found[low])

    return percentile(0.025), percentile(0.975)


@given(st.lists(reals, min_size=1, max_size=25))
def test_the_interquartile_mean_drops_a_quarter_at_either_end(values: list[float]) -> None:
    assert float(iqm(np.array(values))) == pytest.approx(slow_iqm(values), rel=1e-9, abs=1e-6)


def test_one_wild_seed_of_four_does_not_move_it() -> None:
    assert float(iqm(np.array([0.4, 0.6, 1e9, 0.2]))) == pytest.approx(0.5)
    assert float(iqm(np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 4.0]]))[1]) == 2.0  # three seeds: all of them


@pytest.mark.parametrize("values", [[0.3, 0.9], [0.1, 0.2, 0.9, 0.4, 0.5], [1.0] * 6])
def test_the_interval_is_that_of_the_slow_bootstrap(
    values: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 300)
    module.draws.cache_clear()
    got = spread(values)
    module.draws.cache_clear()
    assert (got["low"], got["high"]) == pytest.approx(slow_spread(values, 300), abs=1e-12)
    assert got["value"] == pytest.approx(slow_iqm(values)) and got["n"] == len(values)


def test_ten_thousand_resamples_and_the_same_every_time() -> None:
    assert module.draws(5).shape == (10_000, 5)
    counts = np.bincount(module.draws(5).ravel(), minlength=5)
    assert abs(counts / 10_000 - 1).max() < 0.03  # 3 %: more than four standard deviations
    values = list(np.linspace(0, 1, 20) ** 2)
    assert spread(values) == spread(list(values)) and spread(values)["low"] < spread(values)["value"]


def test_one_seed_has_no_interval() -> None:
    assert spread([0.5]) == {"value": 0.5, "low": None, "high": None, "n": 1}


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Twenty seeds from a known distribution, 200 times: near 95 %, a little below at worst."""
    made = rng.units(7, rng.GAME, 200 * 20).reshape(200, 20)
    covered = [one["low"] <= 0.5 <= one["high"] for one in (spread(list(row)) for row in made)]
    assert 0.87 <= np.mean(covered) <= 0.99


def test_the_numbers_of_an_evaluation() -> None:
    entry = {"role": "cat", "rival": "mouse", "score": 0.4, "low": 0.3, "high": 0.5, "games": 9}
    rate = {"rate": 0.25, "low": 0.1, "high": 0.4, "games": 10}
    row = {"step": 64, "rates": {"cat": rate, "dog": rate}, "gap": 0.5, "gap_low": 0.2, "gap_high": 0.8,
           "exact": {"nash_conv": 0.07}, "table": [entry | {"best_bot_low": 0.6}], "verdict": "weak: so"}
    found = measures(row, {"cat": "SR_C"})
    assert list(found) == ["SR_C", "dog", "NE-GAP", "NashConv", "score"]
    assert found["NE-GAP"] == {"value": 0.5, "low": 0.2, "high": 0.8}
    assert found["NashConv"] == {"value": 0.07, "low": None, "high": None}
    assert [found["score"][key] for key in ("value", "low", "high")] == pytest.approx([0.4, 0.3, 0.5])
    assert standing(row) == {"step": 64, "games": 9, "below": 1, "pairings": 1, "verdict": "weak: so"}
    alone = {"step": 1, "rates": {}, "table": [],
             "returns": {"agent": {"mean": 21.0, "low": 20.0, "high": 22.0, "games": 5}}}
    assert measures(alone, {}) == {"agent's return": {"value": 21.0, "low": 20.0, "high": 22.0}}
    assert standing(alone)["games"] == 5
