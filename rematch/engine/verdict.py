"""What a run's evaluations say, in words. The formulas stand in docs/strength.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, hypot, sqrt
from typing import Any

from rematch.engine import returns
from rematch.engine.evaluate import EvaluationConfig

Row = dict[str, Any]
Pairing = tuple[str, str]  # role, rival
STEADY = 0.05  # smaller changes of the mean score are no change


def alarms(history: Sequence[Row], config: EvaluationConfig) -> list[str]:
    """The failures that people named beforehand: a lasting gap, and swings."""
    out = []
    since: int | None = None
    most, lasting = config.alarm_gap, config.alarm_steps
    for row in history:
        if lopsided(row) > most:
            since = row["step"] if since is None else since
            if row["step"] - since >= lasting:
                out.append(f"gap above {most:g} from step {since:,} to {row['step']:,}")
                break
        else:
            since = None
    for before, after in pairwise(history):
        for role, rate in after.get("rates", {}).items():
            swing = abs(rate["rate"] - before["rates"][role]["rate"])
            if swing > config.alarm_swing:
                out.append(
                    f"{role} swung by {swing:.2f} between steps {before['step']:,} and {after['step']:,}"
                )
                return out
    return out


def lopsided(row: Row) -> float:
    """How far a match is from even, as a gap; where the game is solved, from what perfect play gives."""
    exact = row.get("exact", {})
    if "played" in exact and "value" in exact:
        return 2 * abs(float(exact["played"]) - float(exact["value"]))
    return float(row.get("gap", 0.0))


def pairings(row: Row) -> set[Pairing]:
    return {(entry["role"], entry["rival"]) for entry in row["table"]}


def strength(row: Row, among: set[Pairing]) -> tuple[float, float, float]:
    """Mean score over these scripted rivals, each role weighing the same; how far it may lie below and above.

    The distances to the ends of the pairings' Wilson intervals add as squares (Zou and Donner 2008).
    """
    mean = below = above = 0.0
    roles = sorted({role for role, _ in among})
    for role in roles:
        entries = [e for e in row["table"] if e["role"] == role and (role, e["rival"]) in among]
        weight = 1 / len(roles) / len(entries)
        for entry in entries:
            mean += weight * entry["score"]
            below += (weight * (entry["score"] - entry["low"])) ** 2
            above += (weight * (entry["high"] - entry["score"])) ** 2
    return mean, sqrt(below), sqrt(above)


def trend(first: Row, last: Row) -> str:
    """What became of the strength, over the pairings that both evaluations played."""
    both = pairings(first) & pairings(last)
    if not both:
        return "inconclusive: no scripted rival was played at first and now"
    (before, under, over), (now, below, above) = strength(first, both), strength(last, both)
    change, less, more = now - before, hypot(below, over), hypot(above, under)  # so much it may be off
    seen = f"mean score against scripted rivals {before:.3f} at first, {now:.3f} now"
    if change > max(STEADY, less):
        return f"improving: {seen}"
    if -change > max(STEADY, more):
        return f"declining: {seen}"
    if max(less, more) <= STEADY:
        return f"steady: {seen}"
    fewest = min(entry["games"] for entry in [*first["table"], *last["table"]])
    need = ceil((fewest + 4) * (max(less, more) / STEADY) ** 2)
    change_seen = f"a change of {change:+.3f} [{change - less:+.3f}, {change + more:+.3f}]"
    return f"inconclusive: {seen}, {change_seen}; about {need} games per pairing would tell"


def behind(row: Row) -> list[Row]:
    """The pairings of an evaluation in which the best scripted player is surely better."""
    return [e for e in row["table"] if "best_bot_low" in e and e["high"] < e["best_bot_low"]]


def balanced(history: Sequence[Row], eta: float) -> int:
    """How many of the newest evaluations in a row have a gap whose upper bound is below eta, S0's apart."""
    count = 0
    for row in reversed(history):
        if row["phase"] == "S0" or row["gap_high"] >= eta:
            break
        count += 1
    return count


def verdict(history: Sequence[Row], config: EvaluationConfig) -> str:
    """collapsed, weak, balanced but weak, converged, improving, steady, declining or inconclusive; with the
    evidence."""
    if not history:
        return "inconclusive: no evaluation yet"
    raised = alarms(history, config)
    if raised:
        return "collapsed: " + "; ".join(raised)
    last = history[-1]
    if returns.judged(last):
        return returns.verdict(history)
    below = behind(last)
    if below:
        worst = min(below, key=lambda e: e["score"] - e["best_bot_score"])
        word = "balanced but weak" if "gap" in last and last["gap_high"] < 0.30 else "weak"
        return (
            f"{word}: {len(below)} of {len(last['table'])} pairings below the best scripted player, "
            f"the worst {worst['role']} against {worst['rival']}: {worst['score']:.3f} "
            f"[{worst['low']:.3f}, {worst['high']:.3f}] where {worst['best_bot']} has "
            f"{worst['best_bot_score']:.3f}"
        )
    if last.get("converged"):
        games = min(rate["games"] for rate in last["rates"].values())
        return (
            f"converged: {last['balanced']} evaluations in a row with a small gap, the last "
            f"{last['gap']:.3f} [{last['gap_low']:.3f}, {last['gap_high']:.3f}] in {games} games; "
            f"none of {len(last['table'])} pairings below the best scripted player"
        )
    if len(history) < 2:
        return "inconclusive: one evaluation only"
    return trend(history[0], last)
