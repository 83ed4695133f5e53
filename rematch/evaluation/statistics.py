"""Statistics of games and of seeds: intervals of rates and means, mirrored deals, bootstrap over seeds.

A rate has Wilson's interval, a mean return has Student's. Games that share a deal are not independent: the
deal is the unit, and its games count together. Runs that differ only in the seed are summarized by the
interquartile mean with a bootstrap interval, as Agarwal et al. (2021) recommend for few seeds.
docs/explanation/strength.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import hypot, inf, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng

Reals = NDArray[np.float64]

Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution
RESAMPLES = 10_000  # bootstrap samples of the seeds


# --- rates ------------------------------------------------------------------------------------------------


def wilson(score: float, games: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's (1927) interval of a rate: `score` successes in `games`, where a draw counts half.

    `z` is the normal quantile of the confidence level; the default gives 95 %.
    """
    if games == 0:
        return 0.0, 1.0
    p = score / games
    middle = (p + z * z / (2 * games)) / (1 + z * z / games)
    half = z / (1 + z * z / games) * sqrt(p * (1 - p) / games + z * z / (4 * games * games))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (low if score > 0 else 0.0), (high if score < games else 1.0)  # exactly 0 and 1, not 3.5e-18


def bonferroni_z(comparisons: int) -> float:
    """The normal quantile of a 95 % interval that holds for this number of comparisons together."""
    return NormalDist().inv_cdf(1 - 0.025 / max(1, comparisons))


def score_drop(before: tuple[float, float], now: tuple[float, float], z: float) -> tuple[float, float]:
    """The drop from an earlier score to the present one, and the lower bound of that drop.

    Each score is given as (score, games). The bound is that of Zou and Donner (2008) for a difference.
    """
    (old_score, old_games), (new_score, new_games) = before, now
    drop = old_score - new_score
    below = old_score - wilson(old_score * old_games, old_games, z)[0]
    above = wilson(new_score * new_games, new_games, z)[1] - new_score
    return drop, drop - hypot(below, above)


# --- means ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """A mean over games with its 95 % interval; the interval is None for a single game."""

    mean: float
    low: float | None
    high: float | None
    games: int


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom.

    Hill's (1970) expansion around the normal quantile; exact for 1 and 2.
    """
    if freedom <= 2:
        return (inf, 12.706204736, 4.30265273)[freedom]
    z = Z95
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def mean_interval(values: NDArray[Any]) -> Mean:
    """Mean of independent values [n] with Student's (1908) interval."""
    n = len(values)
    mean = float(np.mean(values, dtype=np.float64)) if n else 0.0
    if n < 2:
        return Mean(mean, None, None, n)
    half = student(n - 1) * float(np.std(values.astype(np.float64), ddof=1)) / sqrt(n)
    return Mean(mean, mean - half, mean + half, n)


# --- mirrored deals ---------------------------------------------------------------------------------------


def _clustered_variance(values: Reals, deal: NDArray[Any]) -> tuple[float, int]:
    """The variance of the mean of `values` [n] when whole deals [n] vary, and the number of deals.

    The cluster-robust variance of a ratio (Cochran 1977, section 11.3): residuals are summed per deal.
    """
    deals, deal_index = np.unique(deal, return_inverse=True)
    residuals = np.bincount(deal_index, values - values.mean(), len(deals))
    n = len(deals)
    return float((residuals**2).sum()) * n / max(n - 1, 1) / len(values) ** 2, n


def effective_games(values: NDArray[Any], deal: NDArray[Any]) -> float:
    """The number of independent games with the same information: values [n] from 0 to 1, each of a deal [n].

    The effective sample size of Korn and Graubard (1998), with their correction for few deals, for Wilson's
    interval as Dean and Pagano (2015) advise. If all games are won or all are lost, the variance between
    deals is unknown and the games count as they are. Where the effect of the cards cancels, it exceeds n,
    at most by the number of games of a deal: a few deals can agree by chance.
    """
    n, x = len(values), np.asarray(values, np.float64)
    p = float(x.mean()) if n else 0.0
    if len(np.unique(deal)) in (0, n) or p * (1 - p) == 0:
        return float(n)
    variance, deals = _clustered_variance(x, deal)
    if deals < 2:
        return 1.0
    most = n * n / deals
    if variance * most <= p * (1 - p):
        effective = most
    else:
        effective = p * (1 - p) / variance
    return max(1.0, effective * (Z95 / student(deals - 1)) ** 2)


def mean_by_deal(values: NDArray[Any], deal: NDArray[Any]) -> Mean | None:
    """Mean of values [n] with Student's interval over deals [n]; games without a value (nan) are left out."""
    has_value = ~np.isnan(values)
    x, deals_of_x = np.asarray(values, np.float64)[has_value], deal[has_value]
    if not len(x):
        return None
    variance, deals = _clustered_variance(x, deals_of_x)
    if deals < 2:
        return Mean(float(x.mean()), None, None, len(x))
    half = student(deals - 1) * sqrt(variance)
    return Mean(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, len(x))


# --- seeds ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedSummary:
    """The interquartile mean over `n` seeds and its 95 % interval; the interval is None for one seed."""

    value: float
    low: float | None
    high: float | None
    n: int


def interquartile_mean(values: Reals) -> Reals:
    """The interquartile mean along the last axis, [..., n] -> [...].

    A quarter of the values, rounded down, is left out at either end.
    """
    n = values.shape[-1]
    middle = np.sort(values, axis=-1)[..., n // 4 : n - n // 4]
    return np.asarray(middle.mean(axis=-1), np.float64)


@lru_cache(maxsize=8)
def bootstrap_indices(n: int) -> NDArray[np.int64]:
    """The seeds of every bootstrap sample, [RESAMPLES, n]: with replacement, the same for every measure."""
    words = rng.words(0, rng.BOOTSTRAP, RESAMPLES * n) % np.uint64(n)
    return words.astype(np.int64).reshape(RESAMPLES, n)


def summarize_seeds(values: Sequence[float]) -> SeedSummary:
    """The interquartile mean over seeds and its 95 % percentile interval.

    Seeds are resampled within their cell only: the cell is the stratum of the stratified bootstrap.
    """
    array = np.asarray(values, np.float64)
    mean, n = float(interquartile_mean(array)), len(array)
    if n < 2:
        return SeedSummary(mean, None, None, n)
    samples = interquartile_mean(array[bootstrap_indices(n)])
    low, high = (float(bound) for bound in np.quantile(samples, (0.025, 0.975)))
    return SeedSummary(mean, low, high, n)


def seed_band(values: Reals) -> tuple[Reals, Reals, Reals]:
    """values [n, points] of n seeds: interquartile mean of every point, and its 95 % interval over seeds.

    One seed has no interval: low and high are nan.
    """
    n, points = values.shape
    centre = interquartile_mean(values.T)
    if n < 2:
        unknown = np.full(points, np.nan)
        return centre, unknown, unknown
    indices = bootstrap_indices(n)
    low, high = np.empty(points), np.empty(points)
    for i in range(points):
        low[i], high[i] = np.quantile(interquartile_mean(values[indices, i]), (0.025, 0.975))
    return centre, low, high


def align_curves(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[Reals, Reals]:
    """Curves (steps, values) at common steps [p], as values [n, p].

    The steps are those of the curve with the fewest points, within the range that all curves cover. A curve
    that was not measured at such a step is interpolated linearly.
    """
    end = min(x[-1] for x, _ in curves)
    start = max(x[0] for x, _ in curves)
    fewest = min((x for x, _ in curves), key=len)
    grid = np.array([x for x in fewest if start <= x <= end], np.float64)
    return grid, np.array([np.interp(grid, x, y) for x, y in curves]).reshape(len(curves), len(grid))
