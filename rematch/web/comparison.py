"""Several runs in one chart: a line with a band per group of seeds, one with its intervals per single run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rematch.core.errors import ConfigError
from rematch.evaluation.text import clean
from rematch.reporting.seed_groups import groups, series

Json = dict[str, Any]
MOST_RUNS = 60
TITLES = {"strength": "Mean score against scripted opponents", "gap": "NE gap (balance)",
          "nash_conv": "NashConv (exploitability)"}
ROLE_TITLES = {"rates": "Win rate of {} against the other role of its run", "returns": "Mean return of {}"}
UNITS = {"rates": "share of games", "returns": "return of a game", "strength": "score (win 1, draw ½)",
         "gap": "difference of win rates", "nash_conv": "score"}
BOUNDS = {"gap": ("gap_low", "gap_high")}  # of an evaluation; other curves have low and high beside the value


def comparison(runs: Sequence[Json]) -> list[Json]:
    """Curves with their lines, the win rates first. Runs that differ only in the seed are one line."""
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ConfigError(f"{len(runs)} runs: expected 1 to {MOST_RUNS}")
    charts: dict[str, list[Json]] = {}
    for group in groups(runs):
        members = [runs[index] for index in group["runs"]]
        if len(members) > 1 and len(set(group["seeds"])) == len(members):  # a copy of a run is no seed
            drawn = list(seed_lines(members, group))
        else:
            drawn = [line for run in members for line in run_lines(run)]
        for name, line in drawn:
            charts.setdefault(name, []).append(line)
    order = ("rates", "returns", "strength", "gap", "nash_conv")
    names = sorted(charts, key=lambda name: order.index(name.partition("/")[0]))
    return [{"title": title(name), "unit": UNITS[name.partition("/")[0]],
             "share": name.startswith(("rates", "strength")), "lines": charts[name]}
            for name in names]  # fmt: skip


def title(name: str) -> str:
    part, _, role = name.partition("/")
    return TITLES.get(part) or ROLE_TITLES[part].format(clean(role)[:60])


def seed_lines(members: Sequence[Json], group: Json) -> Iterator[tuple[str, Json]]:
    """The interquartile mean over seeds with its band, then every seed as a thin line."""
    parents = {run["name"].rpartition("/")[0] for run in members}
    label = f"{parents.pop() or group['label']}, {len(members)} seeds" if len(parents) == 1 else ""
    label = label or f"{group['label']}, {len(members)} seeds"
    for name, curve in group["curves"].items():
        yield name, {"label": label, "steps": curve["steps"], "values": curve["middle"],
                     "low": curve["low"], "high": curve["high"]}  # fmt: skip
        for run in members:
            steps, values = series(run["evaluations"], name)
            yield name, {"label": run["name"], "steps": steps, "values": values, "thin": True}


def run_lines(run: Json) -> Iterator[tuple[str, Json]]:
    """The curves of one run with the intervals of its evaluations."""
    last: Mapping[str, Any] = run["evaluations"][-1] if run["evaluations"] else {}
    roles = [f"{part}/{role}" for part in ROLE_TITLES for role in last.get(part, {})]
    for name in (*roles, *TITLES):
        steps, values = series(run["evaluations"], name)
        if values:
            yield name, {"label": run["name"], "steps": steps, "values": values} | bounds(run, name, steps)


def bounds(run: Json, name: str, steps: Sequence[float]) -> Json:
    """The interval of each value; empty where the curve has none."""
    part, _, role = name.partition("/")
    low, high = BOUNDS.get(part, ("low", "high"))
    rows = {}
    for row in run["evaluations"]:
        entry = row if part in BOUNDS else row.get(part)
        entry = entry.get(role) if role and isinstance(entry, dict) else entry
        rows[row["step"]] = entry if isinstance(entry, dict) else {}
    columns = {"low": [rows[step].get(low) for step in steps],
               "high": [rows[step].get(high) for step in steps]}  # fmt: skip
    return columns if any(value is not None for value in columns["low"]) else {}
