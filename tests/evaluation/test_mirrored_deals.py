"""Mirrored deals: intervals that hold the truth whether luck of the cards cancels or adds up."""

from __future__ import annotations

import numpy as np
import pytest

from rematch.evaluation.match import wilson
from rematch.evaluation.mirrored import effective, mean_by_deal
from rematch.evaluation.returns import mean_of


def games(kind: str, runs: int, deals: int, seed: int = 1) -> tuple[np.ndarray, float]:
    """[runs, 2, deals] results of a player a little better, and the rate that they scatter around.

    cancels: the cards favour a seat; adds: they favour the player, from either seat; plain: neither.
    """
    draw = np.random.Generator(np.random.Philox(seed))
    luck = draw.standard_normal((runs, 1, deals)) * {"plain": 0.0, "cancels": 1.5, "adds": 1.5}[kind]
    sign = np.array([1.0, -1.0 if kind == "cancels" else 1.0])[:, None]
    won = 0.6 + sign * luck + draw.standard_normal((runs, 2, deals)) > 0
    return won.astype(float), 0.7257 if kind == "plain" else 0.6303


@pytest.mark.parametrize("deals", [20, 200])
@pytest.mark.parametrize("kind", ["plain", "cancels", "adds"])
def test_intervals_hold_the_truth(kind: str, deals: int) -> None:
    won, truth = games(kind, 1500, deals)
    assert abs(won.mean() - truth) < 0.01
    deal = np.tile(np.arange(deals), 2)
    held, naive, widths = 0, 0, []
    for run in won:
        n, score = effective(run.ravel(), deal), run.mean()
        low, high = wilson(score * n, n)
        held += low <= truth <= high
        plain = wilson(run.sum(), run.size)
        naive += plain[0] <= truth <= plain[1]
        widths.append((high - low) / (plain[1] - plain[0]))
    assert 0.935 < held / len(won) < 0.99
    if kind == "adds":  # games that are counted as if they were independent promise too much
        assert naive / len(won) < 0.925 and np.mean(widths) > 1.1
    if kind == "cancels":  # what mirroring is for
        assert np.mean(widths) < 0.95


def test_what_games_are_worth() -> None:
    deal = np.tile(np.arange(50), 2)
    split = np.concatenate([np.ones(50), np.zeros(50)])  # whoever sits first wins: as sure as can be, capped
    assert 100 < effective(split, deal) <= 200
    twice = np.tile(np.arange(50) % 2, 2)  # the second game of a deal never told anything
    assert 45 < effective(twice, deal) <= 50
    assert effective(np.ones(100), deal) == 100 == effective(np.zeros(100), deal)
    assert effective(np.arange(10) % 2, np.arange(10)) == 10  # every game its own deal
    assert effective(np.array([1.0, 0.0]), np.zeros(2)) == 1 and effective(np.zeros(0), np.zeros(0)) == 0


def test_means_go_by_deals() -> None:
    draw = np.random.Generator(np.random.Philox(3))
    each = draw.standard_normal(40)
    alone = mean_of(each)
    deal = np.repeat(np.arange(40), 3)
    found = mean_by_deal(np.repeat(each, 3), deal)  # thrice the same tells it once
    assert found is not None and found.games == 120
    assert (found.mean, found.low, found.high) == pytest.approx((alone.mean, alone.low, alone.high))
    gaps = np.repeat(each, 3)
    gaps[::5] = np.nan
    some = mean_by_deal(gaps, deal)
    assert some is not None and some.games == 96
    assert mean_by_deal(np.full(3, np.nan), np.arange(3)) is None
    single = mean_by_deal(np.ones(2), np.zeros(2))
    assert single is not None and single.low is None
