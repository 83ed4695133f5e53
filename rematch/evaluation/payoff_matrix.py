"""Who of a run's past selves beats whom: the payoff matrix, how much of it is circles, what was forgotten.

The formulas stand in docs/strength.md. Self i is what all of a run's players were after some iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import hypot, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.evaluation.evaluator import versus
from rematch.evaluation.match import Result, Scoreboard, wilson
from rematch.evaluation.past_policies import Self, chosen

Row = dict[str, Any]
Array = NDArray[np.float64]

SEED_OFFSET = 1 << 42  # streams of these matches: training, its evaluations, responses never use them
SELVES, GAMES = 20, 100  # of a matrix; of a cell
PATIENCE = 50.0  # seconds that a matrix may take where nobody named a number of games
LEAST, FEWEST = 16, 6  # games of a cell, selves of a matrix, however slow they are
RESAMPLES = 2000
LOST = 0.10  # a skill counts as lost where surely more than this of a score is gone


@dataclass(frozen=True, kw_only=True)
class Payoff:
    """wins, draws [k, k]: of the first role's self i against the second role's self j, in `games` games each.

    Where all seats are of one role, of self i against self j of the same.
    """

    roles: tuple[str, ...]
    iterations: tuple[int, ...]
    steps: tuple[int, ...]
    games: int
    wins: NDArray[np.int64]
    draws: NDArray[np.int64]

    @property
    def score(self) -> Array:
        """[k, k] a win 1, a draw one half."""
        return np.asarray((self.wins + 0.5 * self.draws) / self.games, np.float64)

    @property
    def variance(self) -> Array:
        """[k, k] of a cell's score, with half a game won and half a game lost added (Jeffreys' prior)."""
        n = self.games + 1
        mean = (self.wins + 0.5 * self.draws + 0.5) / n
        square = (self.wins + 0.25 * self.draws + 0.5) / n
        return np.asarray((square - mean**2) / n, np.float64)

    def tree(self) -> Row:
        return {"roles": list(self.roles), "iterations": list(self.iterations), "steps": list(self.steps),
                "games": self.games, "wins": self.wins.tolist(), "draws": self.draws.tolist()}


def from_tree(tree: Mapping[str, Any]) -> Payoff:
    """What `tree` wrote; ConfigError for anything that cannot be a matrix."""
    try:
        roles, games = tuple(tree["roles"]), tree["games"]
        iterations, steps = tuple(tree["iterations"]), tuple(tree["steps"])
        wins, draws = (np.array(tree[name]) for name in ("wins", "draws"))
        k = len(steps)
        fine = (all(type(role) is str for role in roles) and len(roles) in (1, 2) and type(games) is int
                and 0 < games < 10**9 and 1 < k <= 1000 and len(iterations) == k
                and all(type(i) is int and 0 <= i < 10**15 for i in (*iterations, *steps))
                and all(a.shape == (k, k) and a.dtype == np.int64 and (a >= 0).all() for a in (wins, draws))
                and bool((wins + draws <= games).all()))
    except (KeyError, TypeError, ValueError, OverflowError):
        fine = False
    if not fine:
        raise ConfigError("not a payoff matrix")
    return Payoff(roles=roles, iterations=iterations, steps=steps, games=games, wins=wins, draws=draws)


# --- playing it -------------------------------------------------------------------------------------------


def play(
    board: Scoreboard, selves: Sequence[Self], games: int | None, tell: Callable[[str], None]
) -> Payoff:
    """Every self against every self.

    Without a number of `games`: GAMES, or fewer if that takes too long, and then fewer selves, because a step
    of a recurrent network costs about the same however many games it is for.
    """
    spec, k = board.make(1, 0, 0).spec, len(selves)
    if spec.seats < 2 or len(spec.roles) > 2 or k < 2:
        raise ConfigError(f"payoff matrix: {k} past selves, {spec.seats} seats, {len(spec.roles)} roles: "
                          "expected two selves or more, two seats or more, one role or two")
    count = games or GAMES
    mine = spec.roles[next(iter(spec.roles))].seats[0]

    def meet(i: int, j: int, number: int) -> Result:
        return board.results(seated(spec, selves[i], selves[j]), count, number)[mine]

    def all_seconds() -> float:
        """One cell tells how long all of them take."""
        began = time.monotonic()
        meet(0, 0, 0)
        return (time.monotonic() - began) * k * k

    if games is None and (seconds := all_seconds()) > PATIENCE:
        count = max(LEAST, int(count * PATIENCE / seconds))
        if (seconds := all_seconds()) > 2 * PATIENCE:
            k = min(k, max(FEWEST, int(k * sqrt(PATIENCE / seconds))))
            tell(f"payoff matrix: {k} of {len(selves)} past selves")
            selves = [selves[i] for i in chosen(range(len(selves)), k)]
        tell(f"payoff matrix: {count} games a cell, so that it takes about a minute")
    wins, draws = np.zeros((k, k), np.int64), np.zeros((k, k), np.int64)
    for number, (i, j) in enumerate(product(range(k), range(k))):
        result = meet(i, j, number)
        wins[i, j], draws[i, j] = result.wins, result.draws
    return Payoff(roles=tuple(spec.roles), iterations=tuple(s.iteration for s in selves),
                  steps=tuple(s.step for s in selves), games=count, wins=wins, draws=draws)


def seated(spec: Spec, row: Self, column: Self) -> list[Player]:
    """Players by seat: the first role's of `row`, all others of `column`."""
    first = next(iter(spec.roles))
    if len(spec.roles) == 1:
        return versus(spec, row.players[first], first, column.players[first])
    names = [spec.role_of(seat).name for seat in range(spec.seats)]
    return [(row if name == first else column).players[name] for name in names]


# --- circles ----------------------------------------------------------------------------------------------


def split(advantage: Array) -> tuple[Array, Array]:
    """Squared length of the transitive and of the cyclic part of antisymmetric matrices [..., k, k].

    HodgeRank on the complete graph (Jiang, Lim, Yao and Ye 2011): ratings are row means, what differences of
    ratings do not explain is cyclic, and the two parts are orthogonal. Each pair counts once.
    """
    ratings = advantage.mean(-1)
    transitive = ratings[..., :, None] - ratings[..., None, :]
    both = (np.square(x).sum((-2, -1)) / 2 for x in (transitive, advantage - transitive))
    straight, circular = both
    return straight, circular


def cyclic(payoff: Payoff) -> Row:
    """The share of what selves win from each other that no rating explains, sampling noise taken off."""
    k, edges = len(payoff.steps), len(payoff.steps) * (len(payoff.steps) - 1) // 2
    about: Row = dict.fromkeys(("share", "low", "high", "circle"))
    about |= {"selves": k, "games": payoff.games}
    if k < 3:
        return about
    score, variance = payoff.score, payoff.variance
    advantage = (score - score.T) / 2
    spread = (variance + variance.T) / 4
    noise = float(spread[np.triu_indices(k, 1)].sum())
    # A projection keeps of independent noise what its dimension is of all: k - 1 of the edges are ratings'.
    straight, circular = (float(x) for x in split(advantage))
    less = np.array([2 / k, 1 - 2 / k]) * noise
    kept = np.maximum(0.0, np.array([straight, circular]) - less)
    about |= {"raw": circular / (straight + circular) if straight + circular else 0.0,
              "cyclic": sqrt(kept[1] / edges), "transitive": sqrt(kept[0] / edges),
              "noise": sqrt(noise / edges), "circle": circle(payoff, advantage, spread)}
    if not kept.sum():
        return about  # nothing that noise would not show
    # Parametric bootstrap around what is left once the noise is off: around the raw matrix it counts twice.
    ratings = advantage.mean(1)
    transitive = ratings[:, None] - ratings[None, :]
    scale = np.sqrt(kept / np.maximum([straight, circular], 1e-300))
    model = scale[0] * transitive + scale[1] * (advantage - transitive)
    draw = rng.generator(payoff.games, rng.BOOTSTRAP, k).standard_normal((RESAMPLES, k, k))
    draw = np.triu(draw, 1) * np.sqrt(spread)
    again = np.stack(split(model + draw - np.swapaxes(draw, 1, 2)), -1)
    parts = np.maximum(0.0, again - less)
    whole = parts.sum(-1)
    shares = np.divide(parts[:, 1], whole, out=np.full(RESAMPLES, np.nan), where=whole > 0)
    about["share"] = float(kept[1] / kept.sum())
    about["low"] = float(np.quantile(np.nan_to_num(shares, nan=0.0), 0.025))
    about["high"] = float(np.quantile(np.nan_to_num(shares, nan=1.0), 0.975))
    return about


def circle(payoff: Payoff, advantage: Array, spread: Array) -> Row | None:
    """Three selves of which each surely beats the next, by the most that the least of them has."""
    k = len(advantage)
    z = surely(k * (k - 1) * (k - 2) // 3)
    least = advantage - z * np.sqrt(spread)
    three = np.minimum(np.minimum(least[:, :, None], least[None, :, :]), least.T[:, None, :])
    a, b, c = np.unravel_index(int(three.argmax()), three.shape)
    if three[a, b, c] <= 0:
        return None
    won = [0.5 + float(advantage[i, j]) for i, j in ((a, b), (b, c), (c, a))]
    return {"steps": [payoff.steps[i] for i in (a, b, c)], "scores": won}


# --- forgetting -------------------------------------------------------------------------------------------


def surely(comparisons: int) -> float:
    """z of a 95 % interval that holds for this many comparisons at once (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.025 / max(1, comparisons))


def drop(before: tuple[float, float], now: tuple[float, float], z: float) -> tuple[float, float]:
    """How much less a score is than it was, and at least: (score, games) each. Zou and Donner (2008)."""
    (was, n), (is_now, m) = before, now
    lost = was - is_now
    return lost, lost - hypot(was - wilson(was * n, n, z)[0], wilson(is_now * m, m, z)[1] - is_now)


def by_role(payoff: Payoff) -> dict[str, Array]:
    """role -> [k, k] the score of its self i against opponent j."""
    faced = {payoff.roles[0]: payoff.score}
    if len(payoff.roles) == 2:
        faced[payoff.roles[1]] = 1 - payoff.score.T
    return faced


def forgetting(payoff: Payoff) -> Row:
    """The newest self against every past one, beside what the self of that time had and what the best had.

    "lost" names what earlier selves surely did better, by more than LOST: against one past opponent, and
    ("rival" None) against all of them on average.
    """
    k, n = len(payoff.steps), payoff.games
    curves: dict[str, list[Row]] = {}
    lost: list[Row] = []
    faced = by_role(payoff)
    z, z_mean = surely(len(faced) * (k - 1) ** 2), surely(len(faced) * (k - 1))
    for role, score in faced.items():
        spread = payoff.variance if role == payoff.roles[0] else payoff.variance.T
        curves[role] = []
        for j in range(k - 1):
            (low, high), then = wilson(score[-1, j] * n, n), wilson(score[j, j] * n, n)
            best = int(score[:-1, j].argmax())
            curves[role].append({"step": payoff.steps[j], "score": float(score[-1, j]), "low": low,
                                 "high": high, "games": n, "then": float(score[j, j]),
                                 "then_low": then[0], "then_high": then[1],
                                 "best": float(score[best, j]), "best_step": payoff.steps[best]})
        for i, j in product(range(k - 1), range(k - 1)):
            gone, least = drop((score[i, j], n), (score[-1, j], n), z)
            if least > LOST:
                lost.append(_lost(payoff, role, (i, j), (score[i, j], score[-1, j]), (gone, least)))
        for i in range(k - 1):
            was, is_now = float(score[i, :-1].mean()), float(score[-1, :-1].mean())
            off = z_mean * sqrt((spread[i, :-1] + spread[-1, :-1]).sum()) / (k - 1)
            if was - is_now - off > LOST:
                lost.append(_lost(payoff, role, (i, None), (was, is_now), (was - is_now, was - is_now - off)))
    lost.sort(key=lambda skill: (skill["rival_step"] is not None, -skill["at_least"]))
    return {"games": n, "selves": k, "curves": curves, "lost": lost}


def _lost(
    payoff: Payoff, role: str, who: tuple[int, int | None], scores: tuple[float, float],
    drops: tuple[float, float],
) -> Row:
    i, j = who
    return {"role": role, "step": payoff.steps[i], "rival_step": None if j is None else payoff.steps[j],
            "was": float(scores[0]), "now": float(scores[1]), "drop": float(drops[0]),
            "at_least": float(drops[1])}
