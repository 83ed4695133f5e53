"""The payoff matrix of a run's past policies: scores, the share of cycles, forgotten skills.

docs/explanation/strength.md has the formulas. Entry i of the matrix is the set of policies, one for each
role, that a run had after some iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.evaluator import versus
from rematch.evaluation.match import Result, Scoreboard
from rematch.evaluation.past_policies import PastPolicies, evenly_spaced
from rematch.evaluation.statistics import bonferroni_z, score_drop, wilson

Array = NDArray[np.float64]

SEED_OFFSET = 1 << 42  # random streams that training, its evaluations and best responses never use
MOST_POLICIES, GAMES = 20, 100  # past policies in a matrix; games per match
TIME_LIMIT = 50.0  # seconds for a matrix when the user gives no number of games
FEWEST_GAMES, FEWEST_POLICIES = 16, 6  # lower limits, however slow the games are
RESAMPLES = 2000  # bootstrap samples of the cyclic share
LARGE_DROP = 0.10  # a skill is lost where the lower bound of the drop in score exceeds this


@dataclass(frozen=True, kw_only=True)
class Payoff:
    """wins, draws [k, k] of the first role's policy i against the second role's policy j, in `games` games
    each.

    Where all seats have one role, of policy i against policy j of that role.
    """

    roles: tuple[str, ...]
    iterations: tuple[int, ...]
    steps: tuple[int, ...]
    games: int
    wins: NDArray[np.int64]
    draws: NDArray[np.int64]

    @property
    def score(self) -> Array:
        """[k, k]; a win counts 1, a draw one half."""
        return np.asarray((self.wins + 0.5 * self.draws) / self.games, np.float64)

    @property
    def variance(self) -> Array:
        """[k, k] variance of a score, with half a win and half a loss added (Jeffreys' prior)."""
        n = self.games + 1
        mean = (self.wins + 0.5 * self.draws + 0.5) / n
        square = (self.wins + 0.25 * self.draws + 0.5) / n
        return np.asarray((square - mean**2) / n, np.float64)

    def by_role(self) -> dict[str, Array]:
        """role -> [k, k] score of its policy i against opponent j."""
        scores = {self.roles[0]: self.score}
        if len(self.roles) == 2:
            scores[self.roles[1]] = 1 - self.score.T
        return scores

    def to_json(self) -> dict[str, Any]:
        return {"roles": list(self.roles), "iterations": list(self.iterations), "steps": list(self.steps),
                "games": self.games, "wins": self.wins.tolist(), "draws": self.draws.tolist()}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Payoff:
        """The matrix that `to_json` wrote; ConfigError for anything that cannot be one."""
        try:
            roles, games = tuple(tree["roles"]), tree["games"]
            iterations, steps = tuple(tree["iterations"]), tuple(tree["steps"])
            wins, draws = np.array(tree["wins"]), np.array(tree["draws"])
            k = len(steps)
            valid = (all(type(role) is str for role in roles) and len(roles) in (1, 2) and type(games) is int
                     and 0 < games < 10**9 and 1 < k <= 1000 and len(iterations) == k
                     and all(type(i) is int and 0 <= i < 10**15 for i in (*iterations, *steps))
                     and all(a.shape == (k, k) and a.dtype == np.int64 for a in (wins, draws))
                     and bool((wins >= 0).all() and (draws >= 0).all())
                     and bool((wins + draws <= games).all()))
        except (KeyError, TypeError, ValueError, OverflowError):
            valid = False
        if not valid:
            raise ConfigError("not a payoff matrix")
        return cls(roles=roles, iterations=iterations, steps=steps, games=games, wins=wins, draws=draws)


# --- playing ----------------------------------------------------------------------------------------------


def play(
    board: Scoreboard, past: Sequence[PastPolicies], games: int | None, log: Callable[[str], None]
) -> Payoff:
    """All past policies against each other.

    Without `games`: GAMES per match, or fewer if that takes too long, and then fewer policies, because a step
    of a recurrent network costs about the same for one game as for many.
    """
    spec = board.spec
    if spec.seats < 2 or len(spec.roles) > 2 or len(past) < 2:
        raise ConfigError(f"payoff matrix: {len(past)} past policies, {spec.seats} seats, {len(spec.roles)} "
                          "roles: expected two policies or more, two seats or more, one role or two")
    with PROGRESS.part(0.0, 0.0):
        past, count = _affordable(board, past, games, log)
    k = len(past)
    wins, draws = np.zeros((k, k), np.int64), np.zeros((k, k), np.int64)
    for index, (i, j) in PROGRESS.each(list(enumerate(product(range(k), range(k))))):
        result = _match(board, past[i], past[j], count, index)
        wins[i, j], draws[i, j] = result.wins, result.draws
    return Payoff(roles=tuple(spec.roles), iterations=tuple(entry.iteration for entry in past),
                  steps=tuple(entry.step for entry in past), games=count, wins=wins, draws=draws)


def _match(board: Scoreboard, row: PastPolicies, column: PastPolicies, games: int, index: int) -> Result:
    """The result of the first role's policy of `row`."""
    spec = board.spec
    first_seat = spec.roles[next(iter(spec.roles))].seats[0]
    return board.results(seat_players(spec, row, column), games, index)[first_seat]


def _affordable(
    board: Scoreboard, past: Sequence[PastPolicies], games: int | None, log: Callable[[str], None]
) -> tuple[Sequence[PastPolicies], int]:
    """The past policies and the games per match that fit into TIME_LIMIT, by the time of one match."""
    count, k = games or GAMES, len(past)

    def seconds_for_all() -> float:
        start = time.monotonic()
        _match(board, past[0], past[0], count, 0)
        return (time.monotonic() - start) * k * k

    if games is not None or (seconds := seconds_for_all()) <= TIME_LIMIT:
        return past, count
    count = max(FEWEST_GAMES, int(count * TIME_LIMIT / seconds))
    if (seconds := seconds_for_all()) > 2 * TIME_LIMIT:
        k = min(k, max(FEWEST_POLICIES, int(k * sqrt(TIME_LIMIT / seconds))))
        log(f"payoff matrix: {k} of {len(past)} past policies")
        past = [past[i] for i in evenly_spaced(range(len(past)), k)]
    log(f"payoff matrix: {count} games per match, so that it takes about a minute")
    return past, count


def seat_players(spec: Spec, row: PastPolicies, column: PastPolicies) -> list[Player]:
    """Players by seat: the first role's policy of `row`, all others of `column`."""
    first = next(iter(spec.roles))
    if len(spec.roles) == 1:
        return versus(spec, row.players[first], first, column.players[first])
    names = [spec.role_of(seat).name for seat in range(spec.seats)]
    return [(row if name == first else column).players[name] for name in names]


# --- cycles -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """Three past policies, each of which beats the next: their steps, and the score of each."""

    steps: list[int]
    scores: list[float]


@dataclass(frozen=True, kw_only=True)
class CycleShare:
    """The share of score differences that no rating explains, with its 95 % interval.

    The share is None where the matrix shows no more than sampling noise.
    """

    policies: int
    games: int  # per match
    share: float | None = None
    low: float | None = None
    high: float | None = None
    cycle: Cycle | None = None  # the clearest one
    raw: float | None = None  # the share, sampling noise included
    cyclic: float | None = None  # typical score difference from cycles
    transitive: float | None = None  # typical score difference from transitive skill
    noise: float | None = None  # typical score difference from sampling noise


def split(advantage: Array) -> tuple[Array, Array]:
    """Squared length of the transitive and of the cyclic part of antisymmetric matrices [..., k, k].

    HodgeRank on the complete graph (Jiang, Lim, Yao and Ye 2011): ratings are row means, the remainder after
    differences of ratings is cyclic, and the two parts are orthogonal. Each pair counts once.
    """
    ratings = advantage.mean(-1)
    transitive = ratings[..., :, None] - ratings[..., None, :]
    lengths = (np.square(part).sum((-2, -1)) / 2 for part in (transitive, advantage - transitive))
    transitive_part, cyclic_part = lengths
    return transitive_part, cyclic_part


def cycle_share(payoff: Payoff) -> CycleShare:
    """The share of score differences that no rating explains, without the expected sampling noise."""
    k, pairs = len(payoff.steps), len(payoff.steps) * (len(payoff.steps) - 1) // 2
    if k < 3:
        return CycleShare(policies=k, games=payoff.games)
    score, variance = payoff.score, payoff.variance
    advantage = (score - score.T) / 2
    spread = (variance + variance.T) / 4
    noise = float(spread[np.triu_indices(k, 1)].sum())
    parts = np.array([float(part) for part in split(advantage)])
    # Ratings span k - 1 of the k (k - 1) / 2 dimensions; of independent noise, a projection contains the
    # share of its dimensions, here 2 / k.
    expected_noise = np.array([2 / k, 1 - 2 / k]) * noise
    clean_parts = np.maximum(0.0, parts - expected_noise)
    share = low = high = None
    if clean_parts.sum():
        share = float(clean_parts[1] / clean_parts.sum())
        low, high = _share_interval(payoff, advantage, spread, parts)
    return CycleShare(
        policies=k, games=payoff.games, share=share, low=low, high=high,
        cycle=clearest_cycle(payoff, advantage, spread),
        raw=float(parts[1] / parts.sum()) if parts.sum() else 0.0,
        cyclic=sqrt(clean_parts[1] / pairs), transitive=sqrt(clean_parts[0] / pairs),
        noise=sqrt(noise / pairs))


def _share_interval(payoff: Payoff, advantage: Array, spread: Array, parts: Array) -> tuple[float, float]:
    """The 95 % interval of the cyclic share by a parametric bootstrap around the matrix without its noise.

    Around the raw matrix the noise would count twice.
    """
    k = len(payoff.steps)
    noise = float(spread[np.triu_indices(k, 1)].sum())
    expected_noise = np.array([2 / k, 1 - 2 / k]) * noise
    clean_parts = np.maximum(0.0, parts - expected_noise)
    ratings = advantage.mean(1)
    transitive = ratings[:, None] - ratings[None, :]
    scale = np.sqrt(clean_parts / np.maximum(parts, 1e-300))
    model = scale[0] * transitive + scale[1] * (advantage - transitive)
    normal = rng.generator(payoff.games, rng.BOOTSTRAP, k).standard_normal((RESAMPLES, k, k))
    upper = np.triu(normal, 1) * np.sqrt(spread)
    samples = np.stack(split(model + upper - np.swapaxes(upper, 1, 2)), -1)
    samples = np.maximum(0.0, samples - expected_noise)
    total = samples.sum(-1)
    shares = np.divide(samples[:, 1], total, out=np.full(RESAMPLES, np.nan), where=total > 0)
    low = float(np.quantile(np.nan_to_num(shares, nan=0.0), 0.025))
    high = float(np.quantile(np.nan_to_num(shares, nan=1.0), 0.975))
    return low, high


def clearest_cycle(payoff: Payoff, advantage: Array, spread: Array) -> Cycle | None:
    """Three policies of which each beats the next, beyond the bounds; the one with the largest advantages."""
    k = len(advantage)
    z = bonferroni_z(k * (k - 1) * (k - 2) // 3)
    bound = advantage - z * np.sqrt(spread)
    smallest = np.minimum(np.minimum(bound[:, :, None], bound[None, :, :]), bound.T[:, None, :])
    a, b, c = np.unravel_index(int(smallest.argmax()), smallest.shape)
    if smallest[a, b, c] <= 0:
        return None
    scores = [0.5 + float(advantage[i, j]) for i, j in ((a, b), (b, c), (c, a))]
    return Cycle(steps=[payoff.steps[i] for i in (a, b, c)], scores=scores)


# --- forgetting -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LostSkill:
    """An earlier policy that scores more than the newest against one past opponent, or against all."""

    role: str
    step: int  # of the earlier policy
    opponent_step: int | None  # None: all past opponents on average
    old_score: float
    new_score: float
    drop: float
    at_least: float  # lower bound of the drop


@dataclass(frozen=True, kw_only=True)
class ForgettingPoint:
    """Scores against the opponent of one step: newest policy, policy of that time, best policy."""

    step: int  # of the opponent
    score: float
    low: float
    high: float
    games: int
    then: float
    then_low: float
    then_high: float
    best: float
    best_step: int


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """The newest policies against every past opponent, and the skills that were lost."""

    games: int  # per match
    policies: int
    curves: dict[str, list[ForgettingPoint]] = field(default_factory=dict)  # by role
    lost: list[LostSkill] = field(default_factory=list)  # averages first, then by the lower bound


def find_forgetting(payoff: Payoff) -> Forgetting:
    """Forgetting curves, and the skills whose drop is larger than LARGE_DROP for all comparisons together."""
    k = len(payoff.steps)
    result = Forgetting(games=payoff.games, policies=k)
    scores = payoff.by_role()
    for role, score in scores.items():
        variance = payoff.variance if role == payoff.roles[0] else payoff.variance.T
        result.curves[role] = [_forgetting_point(payoff, score, j) for j in range(k - 1)]
        result.lost.extend(_lost_single(payoff, role, score, bonferroni_z(len(scores) * (k - 1) ** 2)))
        z = bonferroni_z(len(scores) * (k - 1))
        result.lost.extend(_lost_average(payoff, role, (score, variance), z))
    result.lost.sort(key=lambda skill: (skill.opponent_step is not None, -skill.at_least))
    return result


def _forgetting_point(payoff: Payoff, score: Array, j: int) -> ForgettingPoint:
    n = payoff.games
    (low, high), (then_low, then_high) = wilson(score[-1, j] * n, n), wilson(score[j, j] * n, n)
    best = int(score[:-1, j].argmax())
    return ForgettingPoint(
        step=payoff.steps[j], score=float(score[-1, j]), low=low, high=high, games=n, then=float(score[j, j]),
        then_low=then_low, then_high=then_high, best=float(score[best, j]), best_step=payoff.steps[best])


def _lost_single(payoff: Payoff, role: str, score: Array, z: float) -> list[LostSkill]:
    """Skills lost against one past opponent."""
    k, n = len(payoff.steps), payoff.games
    lost = []
    for i, j in product(range(k - 1), range(k - 1)):
        old, new = float(score[i, j]), float(score[-1, j])
        drop, at_least = score_drop((old, n), (new, n), z)
        if at_least > LARGE_DROP:
            lost.append(LostSkill(role=role, step=payoff.steps[i], opponent_step=payoff.steps[j],
                                  old_score=old, new_score=new, drop=drop, at_least=at_least))
    return lost


def _lost_average(payoff: Payoff, role: str, table: tuple[Array, Array], z: float) -> list[LostSkill]:
    """Skills lost against all past opponents on average; `table` is (score, variance) [k, k]."""
    score, variance = table
    k = len(payoff.steps)
    lost = []
    for i in range(k - 1):
        old, new = float(score[i, :-1].mean()), float(score[-1, :-1].mean())
        half = z * sqrt((variance[i, :-1] + variance[-1, :-1]).sum()) / (k - 1)
        if old - new - half > LARGE_DROP:
            lost.append(LostSkill(role=role, step=payoff.steps[i], opponent_step=None,
                                  old_score=old, new_score=new, drop=old - new, at_least=old - new - half))
    return lost


def with_bounds(matrix: Payoff) -> dict[str, Any]:
    """A matrix as JSON, with the bounds of every score and the widest half of an interval."""
    score = matrix.score
    bounds = [[wilson(p * matrix.games, matrix.games) for p in row] for row in score.tolist()]
    return matrix.to_json() | {"score": score.tolist(), "low": [[low for low, _ in row] for row in bounds],
                               "high": [[high for _, high in row] for row in bounds],
                               "widest": max((high - low) / 2 for row in bounds for low, high in row)}
