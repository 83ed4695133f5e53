"""The criterion of balance: which win rates pass it, and how many games a perfectly even pair needs.

A pair is even where each role wins a game with probability 1/2, without draws: the first role's wins in n
games then have the binomial distribution B(n, 1/2), and the probabilities here are exact sums of it.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, floor, lgamma, log, sqrt

from rematch.evaluation.statistics import Z95

BOUND, POINT = "bound", "point"
LIKELY = 0.9  # probability with which an even pair should meet the criterion
ROUND = 50  # the number of games is a multiple of this
ROUNDING = 1e-9  # 0.575 - 0.425 is not quite 0.15 in floating point
MOST_GAMES = 100_000  # largest value of evaluation.games


def passes(gap: float, gap_high: float, threshold: float, rule: str) -> bool:
    """Whether an evaluation counts as balanced: by the upper bound of the gap, or by the gap itself."""
    return gap < threshold - ROUNDING if rule == POINT else gap_high <= threshold


def most_wins(games: int, threshold: float, rule: str) -> int:
    """Largest number of wins of the first role, at least half of the games, that passes; less if none does.

    Point: 2 k / n - 1 < t. Bound: Wilson's upper bound of k / n is at most u = (1 + t) / 2, which is
    k / n <= u - z sqrt(u (1 - u) / n).
    """
    u = (1 + threshold) / 2
    if rule == POINT:
        return ceil(games * u - ROUNDING * games) - 1
    return floor(games * u - Z95 * sqrt(games * u * (1 - u)) + ROUNDING)


def probability(games: int, threshold: float, rule: str) -> float:
    """Probability that one evaluation of an even pair passes."""
    most = min(games, most_wins(games, threshold, rule))
    scale = lgamma(games + 1) - games * log(2)
    wins = range(max(0, games - most), most + 1)
    return min(1.0, sum(exp(scale - lgamma(k + 1) - lgamma(games - k + 1)) for k in wins))


@lru_cache(maxsize=64)
def games_needed(threshold: float, consecutive: int) -> int:
    """Smallest multiple of ROUND games with which an even pair passes by the bound, `consecutive` times in a
    row, with probability LIKELY; MOST_GAMES where more would be needed."""
    low, high = 0, MOST_GAMES // ROUND  # `high` is enough, `low` is not; the probability grows with games
    while high - low > 1:
        middle = (low + high) // 2
        enough = probability(middle * ROUND, threshold, BOUND) ** consecutive >= LIKELY
        low, high = (low, middle) if enough else (middle, high)
    return high * ROUND
