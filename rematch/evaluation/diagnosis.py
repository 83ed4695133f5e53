"""Likely causes of alarms and of weak play: rules that read a run's own numbers, each with its evidence.

A rule looks at the iterations and evaluations from the first step of an alarm to its last; for a verdict that
reports weak play, at the whole run. The number is a fact; the cause and the remedy are a judgement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import e, log, pi
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rematch.core.config import has_effect
from rematch.core.spec import Role, Spec
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.text import verdict_word
from rematch.evaluation.verdict import Alarm, role_progress

if TYPE_CHECKING:
    from rematch.core.run_config import Config

Row = Mapping[str, Any]

LARGE_RATIO = 5.0  # of the rewards of two roles per step
TINY_KL = 1e-7  # nats; an update with a smaller KL changes nothing
LARGE_KL = 0.05  # nats; an update with a larger KL changes too much at once (usual targets: 0.01 to 0.02)
FEW_GAMES = 16  # games that end in an iteration; with fewer the estimate of a win or loss is noise
WEAK = "weak"  # kind of a verdict that is treated as an alarm over the whole run
WEAK_WORDS = ("forgetting", "balanced but weak", "weak", "declining")  # of verdicts
NEAR_FLOOR = 0.05  # distance to the lowest entropy: nats per action; fraction of the maximum if discrete


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The records of a run: iterations (metrics.jsonl), evaluations, first observations."""

    config: Config
    spec: Spec
    metrics: Sequence[Row]
    history: Sequence[Evaluation]
    observations: Mapping[str, Sequence[Row]] = field(default_factory=dict)  # role -> its columns


def likely_causes(alarm: Alarm, run: Evidence) -> list[str]:
    """The causes that the numbers during an alarm support, the strongest kind first, each with a remedy."""
    rows = [row for row in run.metrics if alarm.first <= row.get("step", -1) <= alarm.last]
    history = [entry for entry in run.history if alarm.first <= entry.step <= alarm.last]
    rules = (
        (no_learning(run, rows), "check its learning rate"),
        (no_improvement(run, alarm), "train longer"),
        (reward_asymmetry(run, rows, history), "scale the rewards of the world to the same size"),
        (alternating_roles(run, alarm, history), "set schedule.kind to simultaneous"),
        (low_entropy(run, rows), "raise the weight of the entropy bonus"),
        (large_updates(run, rows), "lower the learning rate, or set ppo.target_kl to 0.02"),
        (constant_columns(run), "compare these columns with the rules of the world"),
        (no_past_opponents(run, alarm), "set league.opponent_share to 0.3"),
        (no_regularizer(run, alarm), "set ppo.magnet_weight to 0.1"),
        (no_scripted_opponents(run, alarm), "set league.bots to names of scripted players"),
        (few_games(rows, alarm), "set games to a larger number"),
    )
    return [f"{cause}. To try: {remedy}." for causes, remedy in rules for cause in causes]


def verdict_causes(verdict: str, run: Evidence) -> list[str]:
    """As `likely_causes`, over the whole run, for a verdict that reports weak play; empty for other words."""
    if verdict_word(verdict) not in WEAK_WORDS or not run.history:
        return []
    whole = Alarm(kind=WEAK, first=0, last=run.history[-1].step, text=verdict)
    return likely_causes(whole, run)


def _mean(rows: Sequence[Row], key: str) -> float | None:
    values = [row[key] for row in rows if type(row.get(key)) in (int, float)]
    return fmean(values) if values else None


def no_learning(run: Evidence, rows: Sequence[Row]) -> Iterator[str]:
    """A role that did not learn although the schedule lets all roles learn together."""
    if run.config.schedule.kind != "simultaneous":
        return
    for role in run.spec.roles:
        updated = sum(1 for row in rows if row.get(f"{role}/updates"))
        kl, lr = _mean(rows, f"{role}/kl"), _mean(rows, f"{role}/lr")
        if rows and not updated and f"{role}/updates" in {key for row in run.metrics for key in row}:
            yield f"{role} did not learn: none of {len(rows)} iterations updated it"
        elif updated and (lr == 0 or (kl is not None and abs(kl) < TINY_KL)):
            yield (f"{role} did not learn: learning rate {lr or 0:.2g}, mean KL of its updates "
                   f"{kl or 0:.1e} over {updated} iterations")


def no_improvement(run: Evidence, alarm: Alarm) -> Iterator[str]:
    """Roles that were not better against scripted opponents at the end of a large gap than at first."""
    last = [entry for entry in run.history if entry.step <= alarm.last]
    if alarm.kind not in ("gap", WEAK) or not last:
        return
    first = next(entry for entry in run.history if entry.level == last[-1].level)
    if first is last[-1]:  # one evaluation shows no progress
        return
    for entry in role_progress(first, last[-1]):
        if not entry.improved:
            yield (f"{entry.role} did not improve: mean score against scripted opponents {entry.first:.3f} "
                   f"at step {first.step:,}, {entry.now:.3f} at step {last[-1].step:,}")


def reward_asymmetry(run: Evidence, rows: Sequence[Row], history: Sequence[Evaluation]) -> Iterator[str]:
    """General-sum rewards of which one role collects many times more than the other."""
    if run.spec.zero_sum or len(run.spec.roles) != 2:
        return
    length = _mean(rows, "rollout/length")
    per_step = {}
    for role in run.spec.roles:
        means = [entry.returns[role].mean for entry in history if role in entry.returns]
        if not means or not length:
            return
        per_step[role] = fmean(means) / length
    (more, most), (less, least) = sorted(per_step.items(), key=lambda item: -abs(item[1]))
    if abs(most) > LARGE_RATIO * abs(least):
        ratio = f"a factor of {abs(most / least):.0f}" if least else "the other nothing"
        yield (f"reward asymmetry: {more} earns {most:+.3g} per step, {less} {least:+.3g} ({ratio}), "
               f"over {len(history)} evaluations")


def alternating_roles(run: Evidence, alarm: Alarm, history: Sequence[Evaluation]) -> Iterator[str]:
    """Roles that learn in turn: each learns a best response to a fixed opponent."""
    kind = run.config.schedule.kind
    if kind == "simultaneous" or has_effect(run.config, "schedule.kind"):
        return
    if alarm.kind == "swing" and len(history) >= 2:
        role = history[-1].role or ""
        before, after = history[0].rates.get(role), history[-1].rates.get(role)
        if before is not None and after is not None and after.rate > before.rate:
            yield (f"best-response dynamics: schedule.kind is {kind} and only {role} learned in phase "
                   f"{history[-1].phase}; its win rate went from {before.rate:.3f} to {after.rate:.3f}")
    elif alarm.kind in ("gap", WEAK):
        counts: dict[str, int] = {}
        for entry in history:
            counts[str(entry.role)] = counts.get(str(entry.role), 0) + 1
        turns = ", ".join(f"{role} in {count}" for role, count in counts.items())
        yield (f"best-response dynamics: schedule.kind is {kind}; role that learned before each of the "
               f"{len(history)} evaluations: {turns}")


def low_entropy(run: Evidence, rows: Sequence[Row]) -> Iterator[str]:
    """Exploration that has ended: entropy at its lowest possible value."""
    for name, role in run.spec.roles.items():
        entropy = _mean(rows, f"{name}/entropy")
        if entropy is None:
            continue
        lowest, tolerance = entropy_floor(role, run.config)
        if entropy <= lowest + tolerance:
            yield (f"entropy of {name} is at its lowest: {entropy:.3f} nats on average; the lowest possible "
                   f"is {lowest:.3f}")


def entropy_floor(role: Role, config: Config) -> tuple[float, float]:
    """The lowest entropy of a policy of this role, in nats, and the distance that counts as reaching it."""
    size = role.actions.size
    if role.actions.kind == "discrete":
        return 0.0, NEAR_FLOOR * log(max(2, size))
    return size * (config.network.log_std_low + 0.5 * log(2 * pi * e)), NEAR_FLOOR * size


def large_updates(run: Evidence, rows: Sequence[Row]) -> Iterator[str]:
    """Updates that change the policy too much at once."""
    for role in run.spec.roles:
        kl = _mean(rows, f"{role}/kl")
        if kl is not None and kl > LARGE_KL:
            target = f"ppo.target_kl is {run.config.ppo.target_kl:g}; 0 is off"
            yield f"updates of {role} are large: mean KL {kl:.3f} nats ({target})"


def constant_columns(run: Evidence) -> Iterator[str]:
    """Observation columns that never changed: not connected, or not varied yet."""
    for role, columns in run.observations.items():
        constant = [str(column.get("column")) for column in columns if column.get("constant")]
        if constant:
            more = f" and {len(constant) - 4} more" if len(constant) > 4 else ""
            yield (f"{role} may lack information: {len(constant)} of {len(columns)} observation columns "
                   f"never changed in the first rollout ({', '.join(constant[:4])}{more})")


def no_past_opponents(run: Evidence, alarm: Alarm) -> Iterator[str]:
    """Training without past policies: old weaknesses can return unseen."""
    usable = not has_effect(run.config, "league.opponent_share")
    if alarm.kind in ("swing", WEAK) and usable and run.config.league.opponent_share == 0:
        yield "no past policies among the opponents in training: league.opponent_share is 0"


def no_regularizer(run: Evidence, alarm: Alarm) -> Iterator[str]:
    """Weak play after training without the magnet, which keeps old skills."""
    usable = not has_effect(run.config, "ppo.magnet_weight")
    if alarm.kind == WEAK and usable and run.config.ppo.magnet_weight == 0:
        yield "no regularizer keeps old skills: ppo.magnet_weight is 0"


def no_scripted_opponents(run: Evidence, alarm: Alarm) -> Iterator[str]:
    """Weak play against scripted players that training never played."""
    usable = not has_effect(run.config, "league.bots")
    if alarm.kind == WEAK and usable and not run.config.league.bots:
        yield "no scripted players among the opponents in training: league.bots is empty"


def few_games(rows: Sequence[Row], alarm: Alarm) -> Iterator[str]:
    """Updates from a handful of games: an outcome is then mostly luck."""
    counts = [row["games"] for row in rows if type(row.get("games")) is int]
    if alarm.kind != WEAK or len(counts) < 2:
        return
    per_iteration = (counts[-1] - counts[0]) / (len(counts) - 1)
    if per_iteration < FEW_GAMES:
        yield f"few games: {per_iteration:.1f} games end in an iteration on average"
