"""The results of a sweep: the measures of every seed and their interquartile means, as in sweep.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rematch.core.errors import ConfigError
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.statistics import summarize_seeds
from rematch.storage.run_folder import Run
from rematch.sweeps.processes import Task

Measures = dict[str, dict[str, Any]]  # name -> value with its 95 % interval


def measures(evaluation: Evaluation, names: Mapping[str, str]) -> Measures:
    """The numbers of an evaluation; the interval is None where the value is exact.

    `names` are the world's names for the roles' rates.
    """
    out: Measures = {}
    for role, rate in evaluation.rates.items():
        out[names.get(role, role)] = {"value": rate.rate, "low": rate.low, "high": rate.high}
    if evaluation.gap is not None:
        out["NE-GAP"] = {"value": evaluation.gap, "low": evaluation.gap_low, "high": evaluation.gap_high}
    if evaluation.nash_conv is not None:
        out["NashConv"] = {"value": evaluation.nash_conv, "low": None, "high": None}
    if evaluation.matches:
        score, below, above = evaluation.strength(evaluation.match_ups)
        out["score"] = {"value": score, "low": score - below, "high": score + above}
    if evaluation.judged_by_returns:
        for role, entry in evaluation.returns.items():
            out[f"{role}'s return"] = {"value": entry.mean, "low": entry.low, "high": entry.high}
    return out


def summary(evaluation: Evaluation) -> dict[str, Any]:
    """Step, games, match-ups below the baseline and verdict of an evaluation."""
    games = [entry.games for entry in evaluation.matches]
    games += [entry.games for entry in evaluation.returns.values()]
    return {"step": evaluation.step, "games": min(games, default=0), "below": len(evaluation.below_baseline),
            "pairings": len(evaluation.matches), "verdict": evaluation.verdict or ""}


def seed_result(task: Task, seed: int, names: Mapping[str, str]) -> dict[str, Any]:
    """A seed's row: how its run ended and, if it finished, its last evaluation."""
    result: dict[str, Any] = {}
    if task.state == "finished":
        try:
            with Run.open(task.folder, write=False) as run:
                evaluation = Evaluation.from_json(run.history[-1])
            result = summary(evaluation) | {"measures": measures(evaluation, names)}
        except (ConfigError, LookupError, TypeError, ValueError, AttributeError):
            task.state, task.why = "failed", "its history.json has unexpected content"
    if task.state == "failed":
        result = {"why": task.why}
    return {"seed": seed, "run": task.name, "state": task.state, **result}


def seed_means(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The interquartile mean of every measure over the seeds that finished."""
    finished: list[Measures] = [row["measures"] for row in rows if row["state"] == "finished"]
    names = dict.fromkeys(name for entry in finished for name in entry)
    return {name: asdict(summarize_seeds([entry[name]["value"] for entry in finished if name in entry]))
            for name in names}
