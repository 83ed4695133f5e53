"""The numbers of a run as named scalars, for tools that draw curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rematch.evaluation.text import clean

MOST_NAME = 200  # characters of a scalar's name
NOT_SCALARS = ("iteration", "step")
EXACT = ("gap", "gap_low", "gap_high", "nash_conv", "rollbacks", "level")


def metric_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """A row of metrics.jsonl: its names are already NAME/metric; others get the prefix run/."""
    named = ((scalar_name(key), value) for key, value in row.items() if key not in NOT_SCALARS)
    return finite(named)


def scalar_name(key: str) -> str:
    return key if "/" in key else f"run/{key}"


def evaluation_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """A row of history.json: win rates, scores and returns, each with its interval and number of games."""
    return finite(_evaluation(row))


def _evaluation(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in EXACT:
        yield f"evaluation/{key}", row.get(key)
    for role, entry in _records(row.get("rates")):
        for key in ("rate", "low", "high", "games"):
            yield f"evaluation/{role}/win_{key}", entry.get(key)
    for role, entry in _records(row.get("returns")):
        for key in ("mean", "low", "high", "success", "games"):
            yield f"evaluation/{role}/return_{key}", entry.get(key)
    table = row.get("table")
    for entry in table if isinstance(table, list) else []:
        if isinstance(entry, Mapping):
            for key in ("score", "low", "high", "games"):
                yield f"evaluation/{entry.get('role')} against {entry.get('rival')}/{key}", entry.get(key)


def _records(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, entry in value.items() if isinstance(value, Mapping) else ():
        if isinstance(entry, Mapping):
            yield str(key), entry


def finite(named: Any) -> dict[str, float]:
    """The finite numbers among named values; names are plain text."""
    out = {}
    for name, value in named:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            out[clean(name)[:MOST_NAME]] = float(value)
    return out
