"""What a run's evaluations say, in words. The formulas stand in docs/strength.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematch.engine.evaluate import EvaluationConfig

Row = dict[str, Any]


def alarms(history: Sequence[Row], config: EvaluationConfig) -> list[str]:
    """The failures that people named beforehand: a lasting gap, and swings."""
    out = []
    since: int | None = None
    for row in history:
        if row.get("gap", 0.0) > config.alarm_gap:
            since = row["step"] if since is None else since
            if row["step"] - since >= config.alarm_steps:
                out.append(f"gap above {config.alarm_gap:g} from step {since:,} to {row['step']:,}")
                break
        else:
            since = None
    for before, after in zip(history, history[1:]):
        for role, rate in after.get("rates", {}).items():
            swing = abs(rate["rate"] - before["rates"][role]["rate"])
            if swing > config.alarm_swing:
                out.append(f"{role} swung by {swing:.2f} between steps {before['step']:,} and {after['step']:,}")
                return out
    return out


def strength(row: Row) -> float:
    """Mean score over all scripted rivals, each role weighing the same."""
    roles = {entry["role"] for entry in row["table"]}
    means = []
    for role in sorted(roles):
        scores = [entry["score"] for entry in row["table"] if entry["role"] == role]
        means.append(sum(scores) / len(scores))
    return sum(means) / max(len(means), 1)


def verdict(history: Sequence[Row], config: EvaluationConfig) -> str:
    """One of: collapsed, weak, balanced but weak, improving, steady, inconclusive; with the evidence."""
    if not history:
        return "inconclusive: no evaluation yet"
    raised = alarms(history, config)
    if raised:
        return "collapsed: " + "; ".join(raised)
    last = history[-1]
    behind = [e for e in last["table"] if "best_bot_low" in e and e["high"] < e["best_bot_low"]]
    if behind:
        worst = min(behind, key=lambda e: e["score"] - e["best_bot_score"])
        word = "balanced but weak" if "gap" in last and last["gap_high"] < 0.30 else "weak"
        return (
            f"{word}: {len(behind)} of {len(last['table'])} pairings below the best scripted player, the worst "
            f"{worst['role']} against {worst['rival']}: {worst['score']:.3f} "
            f"[{worst['low']:.3f}, {worst['high']:.3f}] where {worst['best_bot']} has {worst['best_bot_score']:.3f}"
        )
    if len(history) < 2:
        return "inconclusive: one evaluation only"
    gained = strength(last) - strength(history[0])
    word = "improving" if gained > 0.05 else "steady" if gained > -0.05 else "declining"
    return f"{word}: mean score against scripted rivals {strength(history[0]):.3f} at first, {strength(last):.3f} now"
