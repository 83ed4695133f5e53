"""Many seeds in few numbers: the interquartile mean with its bootstrap interval (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.evaluation import returns
from rematch.evaluation.verdict import Row, behind, pairings, strength

RESAMPLES = 10_000
Reals = NDArray[np.float64]


def iqm(values: Reals) -> Reals:
    """The interquartile mean along the last axis, [..., n] -> [...]: a quarter of the values, rounded down,
    is left out at either end."""
    n = values.shape[-1]
    middle = np.sort(values, axis=-1)[..., n // 4 : n - n // 4]
    return np.asarray(middle.mean(axis=-1), np.float64)


@lru_cache(maxsize=8)
def draws(n: int) -> NDArray[np.int64]:
    """Which of n seeds each resample takes, [RESAMPLES, n]: with replacement, the same for every measure."""
    words = rng.words(0, rng.BOOTSTRAP, RESAMPLES * n) % np.uint64(n)
    return words.astype(np.int64).reshape(RESAMPLES, n)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The interquartile mean over seeds and its 95 % percentile interval; none where one seed is all.

    Seeds are drawn anew within their cell only: the cell is the stratum of the stratified bootstrap.
    """
    of = np.asarray(values, np.float64)
    out: dict[str, Any] = {"value": float(iqm(of)), "low": None, "high": None, "n": len(of)}
    if len(of) > 1:
        out["low"], out["high"] = (float(x) for x in np.quantile(iqm(of[draws(len(of))]), (0.025, 0.975)))
    return out


def measures(row: Row, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """An evaluation's numbers: name -> value with its 95 % interval, which is none where it is exact.

    `names` are the world's own for the roles' rates.
    """
    found: dict[str, dict[str, Any]] = {}
    for role, rate in row.get("rates", {}).items():
        found[names.get(role, role)] = {"value": rate["rate"], "low": rate["low"], "high": rate["high"]}
    if "gap" in row:
        found["NE-GAP"] = {"value": row["gap"], "low": row["gap_low"], "high": row["gap_high"]}
    if "nash_conv" in row.get("exact", {}):
        found["NashConv"] = {"value": row["exact"]["nash_conv"], "low": None, "high": None}
    if row["table"]:
        mean, below, above = strength(row, pairings(row))
        found["score"] = {"value": mean, "low": mean - below, "high": mean + above}
    if returns.judged(row):
        for role, entry in row["returns"].items():
            found[f"{role}'s return"] = {"value": entry["mean"], "low": entry["low"], "high": entry["high"]}
    return found


def standing(row: Row) -> dict[str, Any]:
    """The rest of what a table over seeds shows of an evaluation."""
    games = [entry["games"] for entry in [*row["table"], *row.get("returns", {}).values()]]
    return {"step": row["step"], "games": min(games, default=0), "below": len(behind(row)),
            "pairings": len(row["table"]), "verdict": row.get("verdict", "")}
