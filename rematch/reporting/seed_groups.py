"""Runs side by side: those that differ in their seed alone are one group, with a band over its seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rematch.evaluation.bands import aligned, band

Row = dict[str, Any]

SEEDS = ("seed", "threads")  # what runs of one group may differ in
MOST_NAMED = 3  # settings that a label can hold


def groups(runs: Sequence[Row]) -> list[Row]:
    """Which runs belong together, what tells the groups apart, and every curve of each with its band."""
    found: dict[str, Row] = {}
    for index, run in enumerate(runs):
        own = {entry["key"]: entry["value"] for entry in run["changed"] if entry["key"] not in SEEDS}
        group = found.setdefault(repr((run["game"], sorted(own.items(), key=str))), {"runs": [], "own": own})
        group["runs"].append(index)
    every = [group["own"] for group in found.values()]
    out = []
    for group in found.values():
        differs = {key: value for key, value in group["own"].items()
                   if any(other.get(key) != value for other in every)}
        members = [runs[index] for index in group["runs"]]
        games = [runs[other["runs"][0]]["game"] for other in found.values()]
        game = str(members[0]["game"] or "")
        if games.count(members[0]["game"]) == 1:
            label = game
        elif len(differs) <= MOST_NAMED:
            label = ", ".join(f"{key} {value}" for key, value in differs.items()) or game
        else:
            label = " and ".join(run["label"] for run in members)
        out.append({"label": label, "runs": group["runs"], "seeds": [run["seed"] for run in members],
                    "differs": differs, "curves": {name: _curve([run["evaluations"] for run in members], name)
                                                   for name in _names(members)}})
    return out


def _names(runs: Sequence[Row]) -> Iterator[str]:
    """The curves that all of these runs have."""
    first = runs[0]["evaluations"][-1] if runs[0]["evaluations"] else {}
    candidates = ["strength", "gap", "nash_conv", *(f"rates/{role}" for role in first.get("rates", {})),
                  *(f"returns/{role}" for role in first.get("returns", {}))]
    return (name for name in candidates if all(series(run["evaluations"], name)[0] for run in runs))


def series(evaluations: Sequence[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one curve, where it is known."""
    part, _, role = name.partition("/")
    steps: list[float] = []
    values: list[float] = []
    for row in evaluations:
        value: Any = row.get(part)
        value = value.get(role) if role and isinstance(value, dict) else value
        if isinstance(value, dict):
            value = value.get({"strength": "score", "rates": "rate", "returns": "mean"}[part])
        step = row.get("step")
        if isinstance(value, int | float) and isinstance(step, int) and (not steps or step > steps[-1]):
            steps.append(float(step))
            values.append(float(value))
    return steps, values


def _curve(members: Sequence[Sequence[Row]], name: str) -> Row:
    steps, values = aligned([series(evaluations, name) for evaluations in members])
    centre, low, high = band(values)
    told = [[None if np.isnan(x) else float(x) for x in line] for line in (low, high)]
    return {"steps": steps.tolist(), "middle": centre.tolist(), "low": told[0], "high": told[1],
            "seeds": len(members)}
