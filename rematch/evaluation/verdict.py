"""The verdict on a run: a word and its evidence, from the history of evaluations.

A verdict reads "word: evidence". The words, most important first: collapsed, cycling, forgetting, lopsided,
balanced but weak, weak, converged; then one of improving, steady, declining and inconclusive.
docs/explanation/strength.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, hypot, inf, sqrt

from rematch.evaluation.evaluation import Evaluation, MatchRow, MatchUp, ReturnRow
from rematch.evaluation.evaluator import EvaluationConfig
from rematch.evaluation.payoff_matrix import LARGE_DROP, Payoff, cycle_share, find_forgetting
from rematch.evaluation.statistics import Z95, bonferroni_z, score_drop
from rematch.evaluation.text import percent, verdict_word

STEADY_SCORE = 0.05  # a smaller change of the mean score counts as no change
STEADY_RETURN = 0.05  # the same for mean returns, as a fraction of the larger of two means
MOSTLY_CYCLIC = 0.5  # cyclic share of the payoff matrix above which cycles outweigh progress
NEAR_PERFECT = 0.95  # mean score against scripted opponents from which a role need not improve
CLOSE_BOUNDS = 0.30  # distance of two bounds of a game's value that still says something
SMALL_GAP = 0.30  # upper bound of the NE gap below which a pair counts as balanced
RETURN_WORDS = ("weak", "declining", "inconclusive", "steady", "improving")  # the worst role decides
RANDOM_OPPONENT = "random"
ONLY_RANDOM = ("only random was played, so strength was not measured: rematch eval RUN plays every scripted "
               "opponent, rematch exploit RUN trains best responses")
NO_OPPONENT = ("inconclusive: no scripted player was met, so strength was not measured: rematch exploit RUN "
               "trains best responses")
ONE_EVALUATION = "inconclusive: there is only one evaluation"


def verdict(history: Sequence[Evaluation], config: EvaluationConfig, payoff: Payoff | None = None) -> str:
    """The most important finding."""
    return findings(history, config, payoff)[0]


def findings(
    history: Sequence[Evaluation], config: EvaluationConfig, payoff: Payoff | None = None
) -> list[str]:
    """All findings about a run as "word: evidence", the most important first; never empty.

    `payoff` is the matrix of the run's past policies, where there is one.
    """
    if not history:
        return ["inconclusive: there is no evaluation yet"]
    raised = alarms(history, config)
    collapse = "collapsed: " + "; ".join(alarm.text for alarm in raised) if raised else ""
    if history[-1].judged_by_returns:
        return [*filter(None, [collapse]), return_verdict(history)]
    on_level = same_level(history)
    large_gap = any(alarm.kind == "gap" for alarm in raised)
    texts = [collapse, cycles(payoff) if payoff else "", forgetting(on_level, payoff),
             "" if large_gap else lopsidedness(history, config), weakness(history[-1]),
             convergence(history[-1])]
    trend = score_trend(on_level, len(history) > 1)
    if payoff and verdict_word(trend) == "inconclusive":
        trend = trend_against_first(payoff) or trend
    return [*filter(None, texts), trend]


def same_level(history: Sequence[Evaluation]) -> list[Evaluation]:
    """The evaluations on the newest one's curriculum level: scores on another level are of another game."""
    return [evaluation for evaluation in history if evaluation.level == history[-1].level]


def below_baseline(evaluation: Evaluation) -> list[MatchRow]:
    """The match-ups in which the best scripted player is better, beyond the 95 % intervals."""
    return evaluation.below_baseline


def count_balanced(history: Sequence[Evaluation], eta: float) -> int:
    """The number of newest evaluations in a row whose NE gap has an upper bound below `eta`.

    They are on the newest one's curriculum level; the warm-up phase S0 ends the count.
    """
    count = 0
    for evaluation in reversed(history):
        gap_high = inf if evaluation.gap_high is None else evaluation.gap_high
        if evaluation.phase == "S0" or gap_high >= eta or evaluation.level != history[-1].level:
            break
        count += 1
    return count


# --- alarms -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A failure with its evidence: a large gap that lasts, or a swing between two evaluations."""

    kind: str  # gap or swing
    first: int  # step
    last: int  # step
    role: str | None = None  # role of a swing
    text: str


def alarms(history: Sequence[Evaluation], config: EvaluationConfig) -> list[Alarm]:
    """The first alarm of each kind."""
    return [alarm for alarm in (gap_alarm(history, config), swing_alarm(history, config)) if alarm]


def gap_alarm(history: Sequence[Evaluation], config: EvaluationConfig) -> Alarm | None:
    """A gap above `alarm_gap` for `alarm_steps` or more, in which the roles did not all improve.

    A large gap alone is no failure: the value of most games is not known, and few are even. An evaluation at
    which every role is better against scripted opponents than at first restarts the count.
    """
    longest, first = config.alarm_steps, None  # read before the loop: the setting counts as used
    earliest: dict[object, Evaluation] = {}  # curriculum level -> its first evaluation
    for evaluation in history:
        step = evaluation.step
        start = earliest.setdefault(evaluation.level, evaluation)
        if imbalance(evaluation) <= config.alarm_gap or all_improved(start, evaluation):
            first = None
            continue
        first = step if first is None else first
        if step - first >= longest:
            text = f"NE gap above {config.alarm_gap:g} from step {first:,} to step {step:,}"
            return Alarm(kind="gap", first=first, last=step, text=text)
    return None


def swing_alarm(history: Sequence[Evaluation], config: EvaluationConfig) -> Alarm | None:
    """A change of a role's win rate by more than `alarm_swing` between two evaluations of one level."""
    for before, after in pairwise(history):
        if before.level != after.level:
            continue
        for role, rate in after.rates.items():
            if role not in before.rates:
                continue
            swing = abs(rate.rate - before.rates[role].rate)
            if swing > config.alarm_swing:
                text = (f"win rate of {role} changed by {swing:.2f} between step {before.step:,} and step "
                        f"{after.step:,}")
                return Alarm(kind="swing", first=before.step, last=after.step, role=role, text=text)
    return None


def imbalance(evaluation: Evaluation) -> float:
    """The NE gap; in a solved world twice the distance of the first role's score from perfect play."""
    if exact := _exact_value(evaluation):
        return 2 * abs(exact[0] - exact[1])
    return evaluation.gap or 0.0


def _exact_value(evaluation: Evaluation) -> tuple[float, float] | None:
    """First role's score as played and with perfect play, where the world can be solved."""
    exact = evaluation.exact or {}
    return (float(exact["played"]), float(exact["value"])) if {"played", "value"} <= set(exact) else None


# --- lopsided games ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RoleProgress:
    """A role's mean score against the scripted opponents that both evaluations played."""

    role: str
    first: float
    now: float
    improved: bool  # by more than STEADY_SCORE and the uncertainty, or near perfect and not worse

    def __str__(self) -> str:
        return f"{self.role} {self.first:.3f} at first, {self.now:.3f} now"


def role_progress(first: Evaluation, last: Evaluation) -> list[RoleProgress]:
    """The progress of every role that has rates; empty where some role shares no scripted opponent."""
    common, result = first.match_ups & last.match_ups, []
    for role in last.rates:
        among = {match_up for match_up in common if match_up[0] == role}
        if not among:
            return []
        before, now = first.strength(among), last.strength(among)
        change = now.score - before.score
        rises = change > max(STEADY_SCORE, hypot(now.below, before.above))
        perfect = now.score >= NEAR_PERFECT and change > -STEADY_SCORE
        result.append(RoleProgress(role=role, first=before.score, now=now.score, improved=rises or perfect))
    return result


def all_improved(first: Evaluation, last: Evaluation) -> bool:
    """Whether every role improved against scripted opponents, in a game whose value is not known."""
    progress = [] if _exact_value(last) else role_progress(first, last)
    return bool(progress) and all(entry.improved for entry in progress)


def lopsidedness(history: Sequence[Evaluation], config: EvaluationConfig) -> str:
    """A large gap that has lasted `alarm_steps` until now, while every role improved."""
    stretch: list[Evaluation] = []
    for evaluation in reversed(history):
        if imbalance(evaluation) <= config.alarm_gap:
            break
        stretch.append(evaluation)
    last, first = history[-1], same_level(history)[0]
    lasts = stretch and last.step - stretch[-1].step >= config.alarm_steps
    if not lasts or len(last.rates) != 2 or not all_improved(first, last):
        return ""
    winner, rate = max(last.rates.items(), key=lambda item: item[1].rate)
    text = (f"lopsided: {winner} wins {rate.rate:.3f} [{rate.low:.3f}, {rate.high:.3f}] of {rate.games} "
            f"games, NE gap above {config.alarm_gap:g} since step {stretch[-1].step:,}, but every role "
            f"improved against scripted opponents: {'; '.join(map(str, role_progress(first, last)))}")
    if bounds := scripted_value(last):
        text += (f"; between scripted players the game is worth {bounds[0]:.2f} to {bounds[1]:.2f} to "
                 f"{next(iter(last.rates))}")
    if last.below_baseline:
        text += (f"; a scripted baseline is better in {len(last.below_baseline)} of {len(last.matches)} "
                 "match-ups")
    return f"{text}; {ONLY_RANDOM}" if only_random(last.match_ups) else text


def scripted_value(evaluation: Evaluation) -> tuple[float, float] | None:
    """Bounds of the first role's score if both roles choose among their scripted players.

    Lower: the best of the first role's players against its strongest opponent (maximin). Upper: the best
    reply to each of the second role's players, the strongest of them (minimax). None where they are unknown
    or further apart than CLOSE_BOUNDS.
    """
    if len(evaluation.rates) != 2:
        return None
    best: dict[str, list[float]] = {role: [] for role in evaluation.rates}
    for entry in evaluation.matches:
        if entry.best_bot_score is not None and entry.role in best:
            best[entry.role].append(entry.best_bot_score)
    replies, replies_of_second = best.values()
    if not replies or not replies_of_second:
        return None
    low, high = sorted((1 - min(replies_of_second), min(replies)))
    return (low, high) if high - low <= CLOSE_BOUNDS else None


# --- scores against scripted opponents --------------------------------------------------------------------


def weakness(evaluation: Evaluation) -> str:
    """The match-ups that a scripted baseline plays better, with the worst of them."""
    below = evaluation.below_baseline
    if not below:
        return ""
    worst = min(below, key=lambda entry: entry.score - (entry.best_bot_score or 0.0))
    balanced = evaluation.gap is not None and (evaluation.gap_high or 0.0) < SMALL_GAP
    word = "balanced but weak" if balanced else "weak"
    verb = "scores" if worst.draws else "wins"  # a draw counts half in a score
    return (
        f"{word}: loses to scripted baselines in {len(below)} of {len(evaluation.matches)} match-ups; worst: "
        f"{worst.role} against {worst.opponent} {verb} {percent(worst.score)} % "
        f"[{percent(worst.low)}–{percent(worst.high)}], {worst.best_bot} "
        f"{percent(worst.best_bot_score or 0)} %"
    )


def only_random(match_ups: Collection[MatchUp]) -> bool:
    """Whether all these matches were against random players, whose defeat proves no strength."""
    return bool(match_ups) and all(opponent == RANDOM_OPPONENT for _, opponent in match_ups)


def convergence(evaluation: Evaluation) -> str:
    """A small gap several times in a row, where no scripted baseline is better."""
    if not evaluation.converged or evaluation.below_baseline:
        return ""
    games = min(rate.games for rate in evaluation.rates.values())
    balance = (
        f"{evaluation.balanced} evaluations in a row with a small NE gap, the last "
        f"{evaluation.gap or 0:.3f} [{evaluation.gap_low or 0:.3f}, {evaluation.gap_high or 0:.3f}] in "
        f"{games} games"
    )
    if only_random(evaluation.match_ups):
        return f"inconclusive: {balance}; {ONLY_RANDOM}"
    return (f"converged: {balance}; no scripted baseline is better in any of {len(evaluation.matches)} "
            "match-ups")


def score_trend(history: Sequence[Evaluation], other_levels: bool) -> str:
    """The change of the mean score between the first and the newest evaluation of a level."""
    if not any(evaluation.matches for evaluation in history):
        return NO_OPPONENT
    if len(history) < 2:
        return ONE_EVALUATION + (" on this level" if other_levels else "")
    first, last = history[0], history[-1]
    common = first.match_ups & last.match_ups
    if not common:
        return "inconclusive: the first and the newest evaluation share no scripted opponent"
    before, now = first.strength(common), last.strength(common)
    change = now.score - before.score
    below, above = hypot(now.below, before.above), hypot(now.above, before.below)
    scores = f"mean score against scripted opponents {before.score:.3f} at first, {now.score:.3f} now"
    if -change > max(STEADY_SCORE, above):
        return f"declining: {scores}"
    if only_random(common):
        return f"inconclusive: {scores}; {ONLY_RANDOM}"
    if change > max(STEADY_SCORE, below):
        return f"improving: {scores}"
    if max(below, above) <= STEADY_SCORE:
        return f"steady: {scores}"
    fewest = min(entry.games for entry in [*first.matches, *last.matches])
    games = ceil((fewest + 4) * (max(below, above) / STEADY_SCORE) ** 2)
    bounds = f"change {change:+.3f} [{change - below:+.3f}, {change + above:+.3f}]"
    return f"inconclusive: {scores}, {bounds}; about {games} games per match-up are needed"


# --- past policies ----------------------------------------------------------------------------------------


def cycles(payoff: Payoff) -> str:
    """A payoff matrix in which cycles outweigh transitive skill, beyond the interval."""
    result = cycle_share(payoff)
    if result.low is None or result.low <= MOSTLY_CYCLIC or (result.cyclic or 0.0) <= STEADY_SCORE:
        return ""
    share = f"{result.share:.2f} [{result.low:.2f}, {result.high:.2f}]"
    return (f"cycling: cycles explain {share} of the score differences between {result.policies} past "
            f"policies ({result.games} games per match); typical difference {result.cyclic:.2f} from cycles, "
            f"{result.transitive:.2f} from transitive skill")


def forgetting(history: Sequence[Evaluation], payoff: Payoff | None) -> str:
    """The largest drop of a score by more than LARGE_DROP: against scripted opponents, then past policies.

    Every earlier evaluation of every match-up is a comparison; the bounds hold for all of them together.
    """
    last = {entry.match_up: entry for entry in history[-1].matches}
    earlier = [(evaluation.step, entry) for evaluation in history[:-1] for entry in evaluation.matches
               if entry.match_up in last]
    z = bonferroni_z(len(earlier))
    largest, text = LARGE_DROP, ""
    for step, entry in earlier:
        now = last[entry.match_up]
        drop, at_least = score_drop(_score_and_games(entry), _score_and_games(now), z)
        if at_least > largest:
            largest, text = at_least, (
                f"forgetting: {entry.role} against {entry.opponent} scored {entry.score:.3f} at step "
                f"{step:,} and scores {now.score:.3f} now: a drop of {drop:.3f}, at least {at_least:.3f} "
                f"({now.games} games)")
    if text or payoff is None:
        return text
    return _forgotten_past(payoff)


def _score_and_games(entry: MatchRow) -> tuple[float, float]:
    return entry.score, entry.effective or entry.games  # mirrored deals carry less information, or more


def _forgotten_past(payoff: Payoff) -> str:
    result = find_forgetting(payoff)
    if not result.lost:
        return ""
    skill = result.lost[0]
    opponent = "all past opponents on average"
    if skill.opponent_step is not None:
        opponent = f"the opponent of step {skill.opponent_step:,}"
    return (f"forgetting: against {opponent} the {skill.role} of step {skill.step:,} scores "
            f"{skill.old_score:.3f} and the newest {skill.role} {skill.new_score:.3f}: a drop of "
            f"{skill.drop:.3f}, at least {skill.at_least:.3f} ({result.games} games per match)")


def trend_against_first(payoff: Payoff) -> str:
    """The newest policies against the first, in both roles, for runs without scripted opponents."""
    ahead = (payoff.score[-1, 0] - payoff.score[0, -1]) / 2
    half = Z95 * sqrt(payoff.variance[-1, 0] + payoff.variance[0, -1]) / 2
    if abs(ahead) <= max(STEADY_SCORE, half):
        return ""
    word = "improving" if ahead > 0 else "declining"
    return (f"{word}: the newest policies score {0.5 + ahead:.3f} ± {half:.3f} against the first "
            f"({payoff.games} games per role)")


# --- returns: worlds with one seat ------------------------------------------------------------------------


def return_verdict(history: Sequence[Evaluation]) -> str:
    """The verdict by mean returns; with several roles the worst."""
    verdicts = [role_verdict(role, history) for role in history[-1].returns]
    return min(verdicts, key=lambda verdict: RETURN_WORDS.index(verdict_word(verdict)))


def role_verdict(role: str, history: Sequence[Evaluation]) -> str:
    """A role's mean return beside the best scripted player's, then its change since the first evaluation."""
    entries = [evaluation.returns[role] for evaluation in history if role in evaluation.returns]
    last = entries[-1]
    if last.high is not None and last.best_bot_low is not None and last.high < last.best_bot_low:
        return (f"weak: mean return {last.mean:.4g} [{last.low:.4g}, {last.high:.4g}]; scripted baseline "
                f"{last.best_bot} reaches {last.best_bot_mean:.4g}")
    if len(entries) < 2:
        return ONE_EVALUATION
    return _return_trend(entries[0], last)


def _return_trend(first: ReturnRow, last: ReturnRow) -> str:
    change, half = last.mean - first.mean, hypot(_half_width(first), _half_width(last))
    means = f"mean return {first.mean:.4g} at first, {last.mean:.4g} now"
    threshold = STEADY_RETURN * max(abs(first.mean), abs(last.mean))
    if abs(change) > max(half, threshold):
        return f"{'improving' if change > 0 else 'declining'}: {means}"
    if half <= threshold or (half == 0 and change == 0):
        return f"steady: {means}"
    means = f"{means}, change {change:+.4g} ± {half:.4g}"
    if half == inf or threshold == 0:
        return f"inconclusive: {means}"
    games = ceil(max(first.games, last.games) * (half / threshold) ** 2)
    return f"inconclusive: {means}; about {games} games are needed"


def _half_width(entry: ReturnRow) -> float:
    return inf if entry.low is None or entry.high is None else (entry.high - entry.low) / 2
