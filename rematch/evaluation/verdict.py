"""What a run's evaluations say, in words. The formulas stand in docs/strength.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, hypot, sqrt
from typing import Any

from rematch.evaluation import returns
from rematch.evaluation.evaluator import EvaluationConfig
from rematch.evaluation.mirrored import Z95
from rematch.evaluation.payoff_matrix import LOST, Payoff, cyclic, drop, forgetting, surely

Row = dict[str, Any]
Pairing = tuple[str, str]  # role, rival
STEADY = 0.05  # smaller changes of the mean score are no change
CIRCULAR = 0.5  # a larger share of the payoff matrix: more circles than progress


def alarms(history: Sequence[Row], config: EvaluationConfig) -> list[str]:
    """The failures that people named beforehand: a lasting gap, and swings."""
    return [alarm["text"] for alarm in raised(history, config)]


def raised(history: Sequence[Row], config: EvaluationConfig) -> list[Row]:
    """The first alarm of each kind: "kind", "first" and "last" step, "text", "role" of a swing."""
    out: list[Row] = []
    since: int | None = None
    most, lasting = config.alarm_gap, config.alarm_steps
    for row in history:
        if lopsided(row) > most:
            since = row["step"] if since is None else since
            if row["step"] - since >= lasting:
                text = f"gap above {most:g} from step {since:,} to {row['step']:,}"
                out.append({"kind": "gap", "first": since, "last": row["step"], "role": None, "text": text})
                break
        else:
            since = None
    for before, after in pairwise(history):
        if before.get("level") != after.get("level"):  # another game: no rate of it could have swung
            continue
        for role, rate in after.get("rates", {}).items():
            if role not in before.get("rates", {}):  # a row that somebody else wrote
                continue
            swing = abs(rate["rate"] - before["rates"][role]["rate"])
            if swing > config.alarm_swing:
                first, last = before["step"], after["step"]
                text = f"{role} swung by {swing:.2f} between steps {first:,} and {last:,}"
                return [*out, {"kind": "swing", "first": first, "last": last, "role": role, "text": text}]
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


def on_level(history: Sequence[Row]) -> list[Row]:
    """The evaluations on the newest one's level of a curriculum: a score on another is of another game."""
    return [row for row in history if row.get("level") == history[-1].get("level")]


def balanced(history: Sequence[Row], eta: float) -> int:
    """How many of the newest evaluations in a row have a gap whose upper bound is below eta, S0's apart.

    All of them on the newest one's level.
    """
    count = 0
    for row in reversed(history):
        other = row.get("level") != history[-1].get("level")
        if row["phase"] == "S0" or row["gap_high"] >= eta or other:
            break
        count += 1
    return count


def cycling(payoff: Payoff) -> str:
    """Whether most of what past selves win from each other surely goes in circles, and it is worth a word."""
    found = cyclic(payoff)
    if found["share"] is None or found["low"] <= CIRCULAR or found["cyclic"] <= STEADY:
        return ""
    share = f"{found['share']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
    return (f"cycling: {share} of what {found['selves']} past selves win from each other goes in circles "
            f"({found['games']} games a cell), by {found['cyclic']:.2f} of a score where "
            f"ratings explain {found['transitive']:.2f}")


def forgotten(history: Sequence[Row], payoff: Payoff | None) -> str:
    """What the pair once surely did better by more than LOST: against a scripted rival, against past selves.

    Every earlier evaluation of every pairing is a chance to find something: all of them are allowed for.
    """
    last = {(entry["role"], entry["rival"]): entry for entry in history[-1]["table"]}
    earlier = [(row["step"], entry) for row in history[:-1] for entry in row["table"]
               if (entry["role"], entry["rival"]) in last]
    z = surely(len(earlier))
    worst: tuple[float, str] = (LOST, "")

    def told(one: Row) -> tuple[float, float]:
        return one["score"], one.get("effective") or one["games"]  # mirrored deals tell less, or more

    for step, entry in earlier:
        now = last[entry["role"], entry["rival"]]
        gone, least = drop(told(entry), told(now), z)
        if least > worst[0]:
            worst = least, (
                f"forgetting: {entry['role']} against {entry['rival']} had {entry['score']:.3f} at step "
                f"{step:,} and has {now['score']:.3f} now: {gone:.3f} lost, at least {least:.3f} "
                f"({now['games']} games)")
    if worst[1] or payoff is None:
        return worst[1]
    found = forgetting(payoff)
    if not found["lost"]:
        return ""
    skill = found["lost"][0]
    whom = ("its past opponents on average" if skill["rival_step"] is None
            else f"the opponent of step {skill['rival_step']:,}")
    return (f"forgetting: against {whom} the {skill['role']} of step {skill['step']:,} has "
            f"{skill['was']:.3f} and the newest {skill['now']:.3f}: {skill['drop']:.3f} lost, at least "
            f"{skill['at_least']:.3f} ({found['games']} games a cell)")


def weak(row: Row) -> str:
    below = behind(row)
    if not below:
        return ""
    worst = min(below, key=lambda e: e["score"] - e["best_bot_score"])
    word = "balanced but weak" if "gap" in row and row["gap_high"] < 0.30 else "weak"
    return (
        f"{word}: {len(below)} of {len(row['table'])} pairings below the best scripted player, "
        f"the worst {worst['role']} against {worst['rival']}: {worst['score']:.3f} "
        f"[{worst['low']:.3f}, {worst['high']:.3f}] where {worst['best_bot']} has "
        f"{worst['best_bot_score']:.3f}"
    )


def converged(row: Row) -> str:
    if not row.get("converged") or behind(row):
        return ""
    games = min(rate["games"] for rate in row["rates"].values())
    return (
        f"converged: {row['balanced']} evaluations in a row with a small gap, the last "
        f"{row['gap']:.3f} [{row['gap_low']:.3f}, {row['gap_high']:.3f}] in {games} games; "
        f"none of {len(row['table'])} pairings below the best scripted player"
    )


def findings(
    history: Sequence[Row], config: EvaluationConfig, payoff: Payoff | None = None
) -> list[str]:
    """All that can be said of a run, "word: evidence", what matters most first; never empty.

    collapsed, cycling, forgetting, balanced but weak, weak, converged; then one of improving, steady,
    declining and inconclusive. With the `payoff` matrix of its past selves, where there is one.
    """
    if not history:
        return ["inconclusive: no evaluation yet"]
    said = alarms(history, config)
    found = ["collapsed: " + "; ".join(said)] if said else []
    if returns.judged(history[-1]):
        return [*found, returns.verdict(history)]
    found += [cycling(payoff)] if payoff else []
    here = on_level(history)
    found += [forgotten(here, payoff), weak(history[-1]), converged(history[-1])]
    only = "inconclusive: one evaluation only" + (" on this level" if len(history) > 1 else "")
    over = only if len(here) < 2 else trend(here[0], here[-1])
    if payoff and over.startswith("inconclusive") and (told := against_first(payoff)):
        over = told
    return [*filter(None, found), over]


def against_first(payoff: Payoff) -> str:
    """Where scripted rivals do not tell: the newest self against the first, each in both roles in turn."""
    ahead = (payoff.score[-1, 0] - payoff.score[0, -1]) / 2
    off = Z95 * sqrt(payoff.variance[-1, 0] + payoff.variance[0, -1]) / 2
    seen = (f"the newest self scores {0.5 + ahead:.3f} ± {off:.3f} against the first "
            f"({payoff.games} games a role)")
    if abs(ahead) <= max(STEADY, off):
        return ""
    return f"{'improving' if ahead > 0 else 'declining'}: {seen}"


def verdict(history: Sequence[Row], config: EvaluationConfig, payoff: Payoff | None = None) -> str:
    """The first of the findings."""
    return findings(history, config, payoff)[0]
