"""Returns: the points a seat collects in a game, as a mean with its interval, and what they mean in words.

A task for one seat has no winner, so outcomes say nothing there; in general-sum games they do not say all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, hypot, inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = Mapping[str, Any]

STEADY = 0.05  # smaller changes, as a share of the larger of two means, are no change


@dataclass(frozen=True)
class Mean:
    """The mean of some games' returns and its 95 % interval; None where one game does not tell it."""

    mean: float
    low: float | None
    high: float | None
    games: int


def student(freedom: int) -> float:
    """The 97.5 % point of Student's t, by Hill's (1970) expansion around the normal's; exact for 1 and 2."""
    if freedom <= 2:
        return (inf, 12.706204736, 4.30265273)[freedom]
    z = 1.959963984540054
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def mean_of(returns: NDArray[Any]) -> Mean:
    """Mean of returns [n] with Student's (1908) interval."""
    n = len(returns)
    mean = float(np.mean(returns, dtype=np.float64)) if n else 0.0
    if n < 2:
        return Mean(mean, None, None, n)
    half = student(n - 1) * float(np.std(returns.astype(np.float64), ddof=1)) / sqrt(n)
    return Mean(mean, mean - half, mean + half, n)


def judged(row: Row) -> bool:
    """Whether returns are what this evaluation is judged by: nobody else sits at the table."""
    return bool(row.get("returns")) and not row.get("rates") and not row.get("table")


def _half(entry: Row) -> float:
    return inf if entry["low"] is None else (entry["high"] - entry["low"]) / 2


def verdict(history: Sequence[Row]) -> str:
    """weak, improving, steady, declining or inconclusive, by mean returns; of several roles the worst."""
    order = ("weak", "declining", "inconclusive", "steady", "improving")
    words = [_of_role(role, history) for role in history[-1]["returns"]]
    return min(words, key=lambda word: order.index(word.partition(":")[0]))


def _of_role(role: str, history: Sequence[Row]) -> str:
    last = history[-1]["returns"][role]
    ours, theirs = last["high"], last.get("best_bot_low")
    if ours is not None and theirs is not None and ours < theirs:
        return (
            f"weak: mean return {last['mean']:.4g} [{last['low']:.4g}, {last['high']:.4g}] where "
            f"{last['best_bot']} has {last['best_bot_mean']:.4g}"
        )
    earlier = [row["returns"][role] for row in history[:-1] if role in (row.get("returns") or {})]
    if not earlier:
        return "inconclusive: one evaluation only"
    first = earlier[0]
    change, off = last["mean"] - first["mean"], hypot(_half(first), _half(last))
    seen = f"mean return {first['mean']:.4g} at first, {last['mean']:.4g} now"
    least = STEADY * max(abs(first["mean"]), abs(last["mean"]))
    if abs(change) > max(off, least):
        return f"{'improving' if change > 0 else 'declining'}: {seen}"
    if off <= least or (off == 0 and change == 0):
        return f"steady: {seen}"
    told = f"{seen}, a change of {change:+.4g} ± {off:.4g}"
    if off == inf or least == 0:
        return f"inconclusive: {told}"
    need = ceil(max(first["games"], last["games"]) * (off / least) ** 2)
    return f"inconclusive: {told}; about {need} games would tell"
