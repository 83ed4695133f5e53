"""Groups of runs that differ only in the seed; every curve of a group has a band over its seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rematch.evaluation.statistics import align_curves, seed_band

Row = dict[str, Any]

FREE_SETTINGS = ("seed", "threads")  # runs of one group may differ in these
MOST_NAMED = 3  # settings in a label
# part of an evaluation -> key of its value
VALUES = {"strength": "score", "rates": "rate", "returns": "mean"}


def groups(runs: Sequence[Row]) -> list[Row]:
    """Groups of runs with equal settings; each with a label of the settings that differ, and its curves."""
    members: dict[str, list[int]] = {}
    changes: dict[str, Row] = {}
    for index, run in enumerate(runs):
        changed = {entry["key"]: entry["value"] for entry in run["changed"]
                   if entry["key"] not in FREE_SETTINGS}
        key = repr((run["game"], sorted(changed.items(), key=str)))
        members.setdefault(key, []).append(index)
        changes[key] = changed
    out = []
    for key, indices in members.items():
        differs = {name: value for name, value in changes[key].items()
                   if any(other.get(name) != value for other in changes.values())}
        group = [runs[index] for index in indices]
        games = [runs[other[0]]["game"] for other in members.values()]
        out.append({"label": _label(group, differs, games.count(group[0]["game"]) == 1), "runs": indices,
                    "seeds": [run["seed"] for run in group], "differs": differs,
                    "curves": {name: _band([run["evaluations"] for run in group], name)
                               for name in _curve_names(group)}})
    return out


def _label(runs: Sequence[Row], differs: Row, only_of_game: bool) -> str:
    game = str(runs[0]["game"] or "")
    if only_of_game:
        return game
    if len(differs) <= MOST_NAMED:
        return ", ".join(f"{key} {value}" for key, value in differs.items()) or game
    return " and ".join(run["label"] for run in runs)


def _curve_names(runs: Sequence[Row]) -> Iterator[str]:
    """The curves that all of these runs have."""
    newest = runs[0]["evaluations"][-1] if runs[0]["evaluations"] else {}
    candidates = ["strength", "gap", "nash_conv", *(f"rates/{role}" for role in newest.get("rates", {})),
                  *(f"returns/{role}" for role in newest.get("returns", {}))]
    return (name for name in candidates if all(series(run["evaluations"], name)[0] for run in runs))


def series(evaluations: Sequence[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one curve, at the evaluations that have it."""
    part, _, role = name.partition("/")
    steps: list[float] = []
    values: list[float] = []
    for row in evaluations:
        value: Any = row.get(part)
        value = value.get(role) if role and isinstance(value, dict) else value
        if isinstance(value, dict):
            value = value.get(VALUES[part])
        step = row.get("step")
        if isinstance(value, int | float) and isinstance(step, int) and (not steps or step > steps[-1]):
            steps.append(float(step))
            values.append(float(value))
    return steps, values


def _band(evaluations: Sequence[Sequence[Row]], name: str) -> Row:
    """The interquartile mean of a curve over seeds, with its band; None for the band of a single seed."""
    steps, values = align_curves([series(rows, name) for rows in evaluations])
    centre, low, high = seed_band(values)
    return {"steps": steps.tolist(), "middle": centre.tolist(), "low": _json(low), "high": _json(high),
            "seeds": len(evaluations)}


def _json(values: Any) -> list[float | None]:
    numbers: list[float | None] = [float(value) for value in values]
    for index in np.flatnonzero(np.isnan(values)):
        numbers[index] = None
    return numbers
