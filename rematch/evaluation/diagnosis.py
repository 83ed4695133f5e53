"""Likely causes of alarms: rules that claim only what a run's own numbers show, each with its number.

A rule looks at the iterations and evaluations from an alarm's first step to its last. That a cause is likely
is a judgement; the number beside it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import e, log, pi
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rematch.core.spec import Role, Spec

if TYPE_CHECKING:
    from rematch.training.trainer import Config

Row = Mapping[str, Any]

LOPSIDED = 5.0  # one role collects so many times what the other does
STILL = 1e-7  # KL of an update that changes nothing
WILD = 0.05  # KL of an update that changes too much at once; usual targets lie between 0.01 and 0.02
NEAR = 0.05  # nats from the least entropy there can be, per action; of a discrete role, share of the most


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a run left behind: iteration rows, evaluations, and what every seat saw at first."""

    config: Config
    spec: Spec
    metrics: Sequence[Row]
    history: Sequence[Row]
    sight: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def likely(alarm: Row, run: Evidence) -> list[str]:
    """The causes that the numbers between an alarm's first and last step speak for, strongest kind first."""
    first, last = alarm["first"], alarm["last"]
    rows = [row for row in run.metrics if first <= row.get("step", -1) <= last]
    history = [row for row in run.history if first <= row.get("step", -1) <= last]
    rules = (still(run, rows), paid(run, rows, history), alone(run, alarm, history),
             settled(run, rows), wild(run, rows), blind(run), unremembered(run, alarm))
    return [cause for rule in rules for cause in rule]


def _mean(rows: Sequence[Row], key: str) -> float | None:
    values = [row[key] for row in rows if type(row.get(key)) in (int, float)]
    return fmean(values) if values else None


def still(run: Evidence, rows: Sequence[Row]) -> Iterator[str]:
    """A role that did not learn, though nobody had told it to wait for its turn."""
    if run.config.schedule.kind != "together":
        return
    for role in run.spec.roles:
        learnt = sum(1 for row in rows if row.get(f"{role}/updates"))
        kl, lr = _mean(rows, f"{role}/kl"), _mean(rows, f"{role}/lr")
        if rows and not learnt and f"{role}/updates" in {key for row in run.metrics for key in row}:
            yield f"{role} was not learning: none of {len(rows)} iterations updated it"
        elif learnt and (lr == 0 or (kl is not None and abs(kl) < STILL)):
            yield (f"{role} was not learning: learning rate {lr or 0:.2g}, mean KL of its updates "
                   f"{kl or 0:.1e} over {learnt} iterations")


def paid(run: Evidence, rows: Sequence[Row], history: Sequence[Row]) -> Iterator[str]:
    """Rewards that do not cancel, and of which one role collects many times more than the other."""
    if run.spec.zero_sum or len(run.spec.roles) != 2:
        return
    length = _mean(rows, "rollout/length")
    points = {}
    for role in run.spec.roles:
        means = [row["returns"][role]["mean"] for row in history if role in (row.get("returns") or {})]
        if not means or not length:
            return
        points[role] = fmean(means) / length
    (more, most), (less, least) = sorted(points.items(), key=lambda item: -abs(item[1]))
    if abs(most) > LOPSIDED * abs(least):
        times = f"{abs(most / least):.0f}-fold" if least else "and the other nothing"
        yield (f"reward asymmetry: {more} earns {most:+.3g} per step, {less} {least:+.3g} ({times}), "
               f"over {len(history)} evaluations")


def alone(run: Evidence, alarm: Row, history: Sequence[Row]) -> Iterator[str]:
    """Roles that learn in turn: each finds a best response to a player that stands still."""
    kind = run.config.schedule.kind
    if kind == "together" or run.config.learner != "ppo":
        return
    if alarm["kind"] == "swing" and len(history) >= 2:
        role = history[-1].get("role")
        before, after = (row["rates"].get(role, {}).get("rate") for row in (history[0], history[-1]))
        if before is not None and after is not None and after > before:
            yield (f"best-response dynamics: schedule.kind is {kind} and only {role} learnt in phase "
                   f"{history[-1].get('phase')}; its share went from {before:.3f} to {after:.3f}")
    elif alarm["kind"] == "gap":
        turns: dict[str, int] = {}
        for row in history:
            turns[str(row.get("role"))] = turns.get(str(row.get("role")), 0) + 1
        told = ", ".join(f"{role} at {count}" for role, count in turns.items())
        yield (f"best-response dynamics: schedule.kind is {kind}; of {len(history)} evaluations in this time "
               f"the role that had just learnt was {told}")


def settled(run: Evidence, rows: Sequence[Row]) -> Iterator[str]:
    """Exploration that has ended: entropy at the least there can be."""
    for role, about in run.spec.roles.items():
        entropy = _mean(rows, f"{role}/entropy")
        if entropy is None:
            continue
        low, near = floor(about, run.config)
        if entropy <= low + near:
            yield f"{role}'s entropy is at its floor: {entropy:.3f} nats on average, the least is {low:.3f}"


def floor(role: Role, config: Config) -> tuple[float, float]:
    """The least entropy a policy of this role can have, in nats, and what counts as being there."""
    size = role.actions.size
    if role.actions.kind == "discrete":
        return 0.0, NEAR * log(max(2, size))
    return size * (config.network.log_std_low + 0.5 * log(2 * pi * e)), NEAR * size


def wild(run: Evidence, rows: Sequence[Row]) -> Iterator[str]:
    """Updates that change the policy too much at once."""
    for role in run.spec.roles:
        kl = _mean(rows, f"{role}/kl")
        if kl is not None and kl > WILD:
            yield (f"{role}'s updates are large: mean KL {kl:.3f} nats (target_kl is "
                   f"{run.config.ppo.target_kl:g}, 0 being off)")


def blind(run: Evidence) -> Iterator[str]:
    """Columns that told a role nothing: not connected, or not varied yet."""
    for role, columns in run.sight.items():
        dull = [str(column.get("column")) for column in columns if column.get("constant")]
        if dull:
            shown = ", ".join(dull[:4]) + (f" and {len(dull) - 4} more" if len(dull) > 4 else "")
            yield (f"{role} may be blind to something: {len(dull)} of {len(columns)} numbers it sees never "
                   f"changed in the first rollout ({shown})")


def unremembered(run: Evidence, alarm: Row) -> Iterator[str]:
    """Nobody from the past in training: nothing keeps an old answer alive."""
    if alarm["kind"] == "swing" and run.config.learner == "ppo" and run.config.league.history == 0:
        yield "no past selves in training: league.history is 0"
