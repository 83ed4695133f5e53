"""Statistics: published values, coverage of intervals, slow references, mirrored deals, bands over seeds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.core import rng
from rematch.evaluation import statistics
from rematch.evaluation.statistics import (
    SeedSummary,
    align_curves,
    bonferroni_z,
    bootstrap_indices,
    effective_games,
    interquartile_mean,
    mean_by_deal,
    mean_interval,
    score_drop,
    seed_band,
    student,
    summarize_seeds,
    wilson,
)

reals = st.floats(-1e6, 1e6, allow_nan=False)


# --- rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"),
    [
        # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0000),
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilson_equals_published_values(wins: int, games: int, low: float, high: float) -> None:
    assert wilson(wins, games) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_wilson_contains_the_rate_and_is_symmetric(games: int, share: float) -> None:
    score = round(share * games * 2) / 2  # draws count half
    low, high = wilson(score, games)
    assert 0 <= low <= score / games + 1e-12 and score / games - 1e-12 <= high <= 1
    assert wilson(games - score, games) == pytest.approx((1 - high, 1 - low), abs=1e-9)
    wider = wilson(score, games, 2.6)
    assert wider[0] <= low + 1e-12 and high <= wider[1] + 1e-12


def test_wilson_without_games_is_the_whole_range() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 100)[0] == 0.0 and wilson(100, 100)[1] == 1.0  # exactly, not up to rounding
    assert 0.061 < wilson(500, 1000)[1] - wilson(500, 1000)[0] < 0.062  # a thousand games: plus or minus 0.03


def test_bonferroni_z_grows_with_the_comparisons() -> None:
    assert bonferroni_z(1) == pytest.approx(1.959964, abs=1e-5) and bonferroni_z(100) > 3.4
    one, thousand = (score_drop((0.8, 100), (0.6, 100), bonferroni_z(count)) for count in (1, 1000))
    assert one[0] == pytest.approx(0.2) and one[1] > 0 > thousand[1]


# --- means ------------------------------------------------------------------------------------------------


def test_student_equals_the_tables() -> None:
    # from the tables of Student's t, two-sided 95 %
    for freedom, quantile in (
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (5, 2.571),
        (10, 2.228),
        (30, 2.042),
        (99, 1.984),
    ):
        assert student(freedom) == pytest.approx(quantile, abs=4e-3)
    assert student(10**6) == pytest.approx(1.95996, abs=1e-4)


def test_mean_interval_covers_the_mean_at_its_level() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(4000):
        result = mean_interval(generator.normal(3.0, 2.0, 8))
        assert result.low is not None and result.high is not None
        covered += result.low <= 3.0 <= result.high
    assert abs(covered / 4000 - 0.95) < 0.015


def test_mean_interval_of_one_game_is_unknown() -> None:
    result = mean_interval(np.array([4.0]))
    assert (result.mean, result.low, result.high, result.games) == (4.0, None, None, 1)
    assert mean_interval(np.array([])).games == 0


# --- mirrored deals ---------------------------------------------------------------------------------------


def mirrored_games(kind: str, runs: int, deals: int, seed: int = 1) -> tuple[np.ndarray, float]:
    """[runs, 2, deals] results of a slightly better player, and the true rate.

    cancels: the cards favour a seat; adds: they favour the player, from either seat; plain: neither.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    scale = {"plain": 0.0, "cancels": 1.5, "adds": 1.5}[kind]
    cards = generator.standard_normal((runs, 1, deals)) * scale
    sign = np.array([1.0, -1.0 if kind == "cancels" else 1.0])[:, None]
    won = 0.6 + sign * cards + generator.standard_normal((runs, 2, deals)) > 0
    return won.astype(float), 0.7257 if kind == "plain" else 0.6303


@pytest.mark.parametrize("deals", [20, 200])
@pytest.mark.parametrize("kind", ["plain", "cancels", "adds"])
def test_effective_games_give_intervals_that_cover_the_rate(kind: str, deals: int) -> None:
    won, truth = mirrored_games(kind, 1500, deals)
    assert abs(won.mean() - truth) < 0.01
    deal = np.tile(np.arange(deals), 2)
    covered, naive, widths = 0, 0, []
    for run in won:
        n, score = effective_games(run.ravel(), deal), run.mean()
        low, high = wilson(score * n, n)
        covered += low <= truth <= high
        plain = wilson(run.sum(), run.size)
        naive += plain[0] <= truth <= plain[1]
        widths.append((high - low) / (plain[1] - plain[0]))
    assert 0.935 < covered / len(won) < 0.99
    if kind == "adds":  # games that are counted as if they were independent promise too much
        assert naive / len(won) < 0.925 and np.mean(widths) > 1.1
    if kind == "cancels":  # the purpose of mirroring
        assert np.mean(widths) < 0.95


def test_effective_games_of_extreme_cases() -> None:
    deal = np.tile(np.arange(50), 2)
    split = np.concatenate([np.ones(50), np.zeros(50)])  # the first seat always wins: no variance, so the cap
    assert 100 < effective_games(split, deal) <= 200
    twice = np.tile(np.arange(50) % 2, 2)  # the second game of a deal adds no information
    assert 45 < effective_games(twice, deal) <= 50
    assert effective_games(np.ones(100), deal) == 100 == effective_games(np.zeros(100), deal)
    assert effective_games(np.arange(10) % 2, np.arange(10)) == 10  # every game has its own deal
    assert effective_games(np.array([1.0, 0.0]), np.zeros(2)) == 1
    assert effective_games(np.zeros(0), np.zeros(0)) == 0


def test_mean_by_deal_counts_a_deal_once() -> None:
    generator = np.random.Generator(np.random.Philox(3))
    values = generator.standard_normal(40)
    independent = mean_interval(values)
    deal = np.repeat(np.arange(40), 3)
    result = mean_by_deal(np.repeat(values, 3), deal)  # three times the same value: one observation
    assert result is not None and result.games == 120
    assert (result.mean, result.low, result.high) == pytest.approx(
        (independent.mean, independent.low, independent.high))
    gaps = np.repeat(values, 3)
    gaps[::5] = np.nan
    some = mean_by_deal(gaps, deal)
    assert some is not None and some.games == 96
    assert mean_by_deal(np.full(3, np.nan), np.arange(3)) is None
    single = mean_by_deal(np.ones(2), np.zeros(2))
    assert single is not None and single.low is None


# --- seeds ------------------------------------------------------------------------------------------------


def slow_interquartile_mean(values: list[float]) -> float:
    """Drop the lowest and the highest quarter, rounded down; the exact mean of the rest."""
    rest = sorted(values)
    for _ in range(len(values) // 4):
        rest = rest[1:-1]
    return float(sum(map(Fraction, rest)) / len(rest))


def slow_interval(values: list[float], resamples: int) -> tuple[float, float]:
    """One key for each draw, one resample after another; the percentiles by linear interpolation."""
    n, means = len(values), []
    for resample in range(resamples):
        drawn = [values[rng.key(0, rng.BOOTSTRAP, resample * n + i) % n] for i in range(n)]
        means.append(slow_interquartile_mean(drawn))
    means.sort()

    def percentile(share: float) -> float:
        position = share * (len(means) - 1)
        low = math.floor(position)
        high = min(low + 1, len(means) - 1)
        return means[low] + (position - low) * (means[high] - means[low])

    return percentile(0.025), percentile(0.975)


@given(st.lists(reals, min_size=1, max_size=25))
def test_interquartile_mean_drops_a_quarter_at_either_end(values: list[float]) -> None:
    mean = float(interquartile_mean(np.array(values)))
    assert mean == pytest.approx(slow_interquartile_mean(values), rel=1e-9, abs=1e-6)


def test_interquartile_mean_ignores_one_outlier_of_four() -> None:
    assert float(interquartile_mean(np.array([0.4, 0.6, 1e9, 0.2]))) == pytest.approx(0.5)
    three_seeds = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 4.0]])  # all of them count
    assert float(interquartile_mean(three_seeds)[1]) == 2.0


@pytest.mark.parametrize("values", [[0.3, 0.9], [0.1, 0.2, 0.9, 0.4, 0.5], [1.0] * 6])
def test_seed_summary_equals_the_slow_bootstrap(
    values: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 300)
    bootstrap_indices.cache_clear()
    summary = summarize_seeds(values)
    bootstrap_indices.cache_clear()
    assert (summary.low, summary.high) == pytest.approx(slow_interval(values, 300), abs=1e-12)
    assert summary.value == pytest.approx(slow_interquartile_mean(values)) and summary.n == len(values)


def test_bootstrap_has_ten_thousand_equal_samples_every_time() -> None:
    assert bootstrap_indices(5).shape == (10_000, 5)
    counts = np.bincount(bootstrap_indices(5).ravel(), minlength=5)
    assert abs(counts / 10_000 - 1).max() < 0.03  # 3 %: more than four standard deviations
    values = list(np.linspace(0, 1, 20) ** 2)
    summary = summarize_seeds(values)
    assert summary == summarize_seeds(list(values))
    assert summary.low is not None and summary.low < summary.value


def test_seed_summary_of_one_seed_has_no_interval() -> None:
    assert summarize_seeds([0.5]) == SeedSummary(0.5, None, None, 1)


def test_seed_summary_covers_the_mean_at_about_its_level() -> None:
    """Twenty seeds from a known distribution, 200 times: near 95 %, a little below at worst."""
    made = rng.units(7, rng.GAME, 200 * 20).reshape(200, 20)
    covered = []
    for row in made:
        summary = summarize_seeds(list(row))
        assert summary.low is not None and summary.high is not None
        covered.append(summary.low <= 0.5 <= summary.high)
    assert 0.87 <= np.mean(covered) <= 0.99


def test_seed_band_covers_the_mean_at_about_its_level() -> None:
    generator = np.random.default_rng(1)
    centre, low, high = seed_band(generator.normal(size=(10, 60)))
    assert (low <= centre).all() and (centre <= high).all()
    assert 0.8 < np.mean((low < 0) & (high > 0)) <= 1.0  # with few seeds a bootstrap is slightly too narrow


def test_seed_band_of_one_seed_is_unknown() -> None:
    centre, low, high = seed_band(np.array([[0.25, 0.5]]))
    assert list(centre) == [0.25, 0.5] and np.isnan(low).all() and np.isnan(high).all()


def test_align_curves_takes_the_steps_of_the_coarsest() -> None:
    fine = ([10.0, 20.0, 30.0, 40.0], [0.0, 1.0, 2.0, 3.0])
    grid, values = align_curves([fine, ([15.0, 40.0, 60.0], [5.0, 6.0, 7.0])])
    assert list(grid) == [15.0, 40.0] and values.tolist() == [[0.5, 3.0], [5.0, 6.0]]
    assert align_curves([([1.0], [1.0]), ([5.0], [2.0])])[1].shape == (2, 0)  # they never overlap
