"""The scoreboard: who beat whom, how often, how surely. Scores are read off outcomes, never off rewards.

Rewards only enter as returns, where they do not cancel: beside the score, never into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Ints
from rematch.core.player import Noise, Player, Seat
from rematch.core.spec import Spec
from rematch.core.world import RUNNING, World
from rematch.evaluation.mirrored import Z95, effective, mean_by_deal
from rematch.evaluation.returns import Mean, mean_of
from rematch.rollout.collector import side_by_side


def wilson(score: float, games: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's (1927) 95 % interval of a rate of `score` successes (draws count half) in `games`."""
    if games == 0:
        return 0.0, 1.0
    p = score / games
    middle = (p + z * z / (2 * games)) / (1 + z * z / games)
    half = z / (1 + z * z / games) * sqrt(p * (1 - p) / games + z * z / (4 * games * games))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (low if score > 0 else 0.0), (high if score < games else 1.0)  # not 3.5e-18


@dataclass(frozen=True)
class Result:
    """One row: how a player of a role did against a rival."""

    player: str
    role: str
    rival: str
    games: int
    wins: int
    draws: int
    length: float  # mean steps of a game
    returned: Mean | None = None  # points per game, where the seats' rewards do not cancel
    deals: int = 0  # of which each was played from every seat; 0: every game was dealt anew
    effective: float = 0.0  # independent games that would tell the score as well; 0: as many as there are
    effective_wins: float = 0.0  # the same for the share of games won
    margin: Mean | None = None  # own points less the best other's at the end, where the world tells points
    reached: dict[str, int] | None = None  # games in which each milestone was reached, where it tells any

    @property
    def score(self) -> float:
        return (self.wins + 0.5 * self.draws) / max(self.games, 1)

    @property
    def interval(self) -> tuple[float, float]:
        n = self.effective or self.games
        return wilson(self.score * n, n)

    @property
    def won(self) -> tuple[float, float, float]:
        """The share of games won, draws counted as not won, and its interval."""
        rate, n = self.wins / max(self.games, 1), self.effective_wins or self.games
        return (rate, *wilson(rate * n, n))

    def row(self) -> dict[str, Any]:
        low, high = self.interval
        row = asdict(self) | {"score": self.score, "low": low, "high": high}
        row |= dict(zip(("win", "win_low", "win_high"), self.won))
        return {name: value for name, value in row.items()
                if value is not None or name not in ("returned", "margin", "reached")}


class Played(NamedTuple):
    """Whole games: outcomes [N, seats], steps [N], and the points each seat collected [N, seats].

    `points` [N, seats] are a world's own, as they stood at the end; not a number where it tells none.
    `reached` [N, M]: which milestones, where it tells any (Role.milestones of the first seat).
    """

    outcome: Floats
    length: Ints
    returns: NDArray[np.float64]
    points: NDArray[np.float64]
    reached: NDArray[np.bool_]


def play(world: World, players: Sequence[Player], seed: int) -> Played:
    """One whole game per copy, players by seat.

    Every copy counts exactly once, so long games weigh as much as short ones. Who resigns has lost; of
    several others each has half a point.
    """
    spec, n = world.spec, world.games
    outcome: Floats = np.zeros((n, spec.seats), np.float32)
    length: Ints = np.zeros(n, np.int32)
    returns, points = np.zeros((n, spec.seats)), np.full((n, spec.seats), np.nan)
    points_after: Any = getattr(world, "points_after", None)
    names, telling = spec.role_of(0).milestones, cast(Any, world)
    reached = np.zeros((n, len(names)), bool)
    left = np.ones(n, bool)
    memory: dict[int, NDArray[Any]] = {}  # seat -> [N, M], of players who carry one; they begin without
    step = 0
    while left.any():
        actions: dict[str, NDArray[Any]] = {}
        resigned = np.zeros((n, spec.seats), bool)
        for role, about in spec.roles.items():
            k = len(about.seats)
            discrete = about.actions.kind == "discrete"
            act: NDArray[Any] = (
                np.zeros((n, k), np.int32) if discrete else np.zeros((n, k, about.actions.size), np.float32)
            )
            sight, mask = side_by_side(about, world.view[role]), world.view.mask.get(role)
            if mask is not None and discrete:
                act[:] = mask.argmax(-1)  # games that are over here go on with any legal move
            for j, seat in enumerate(about.seats):
                rows = np.flatnonzero(left & (world.view.acting[:, seat] != 0)).astype(np.int32)
                if len(rows):
                    legal = None if mask is None else mask[rows, j]
                    at = Seat(about, seat, world, rows, np.ascontiguousarray(sight[rows, j]), legal)
                    carried = memory[seat][rows] if seat in memory else None
                    move = players[seat].act(at, Noise(seed, rng.ACT, step), carried)
                    act[rows, j] = move.action
                    if move.resigned is not None:
                        resigned[rows, seat] = move.resigned
                    if move.memory is not None:
                        if seat not in memory:
                            memory[seat] = np.zeros((n, *move.memory.shape[1:]), move.memory.dtype)
                        memory[seat][rows] = move.memory
            actions[role] = act
        quit = resigned.any(1)
        outcome[quit] = np.where(resigned[quit], 0.0, 1.0 if spec.seats == 2 else 0.5)
        length[quit] = step + 1
        left &= ~quit
        told = points_after(actions) if points_after else points
        view = world.step(actions)
        returns += view.reward * left[:, None]
        for row, name in telling.events if names else ():
            reached[row, names.index(name)] |= left[row]
        over = left & (view.ended != RUNNING)
        outcome[over] = view.outcome[over]
        length[over] = view.length[over]
        points[over] = told[over]
        left &= ~over
        step += 1
    return Played(outcome, length, returns / spec.reward_scale, points, reached)


def _ahead(points: NDArray[np.float64], seat: int) -> NDArray[np.float64]:
    """[N] a seat's points less the best other's."""
    others = np.delete(points, seat, 1)
    return points[:, seat] - others.max(1) if others.shape[1] else np.full(len(points), np.nan)


class Scoreboard:
    """Plays matches in worlds from one builder, `make(games, first) -> World`, over some threads."""

    def __init__(self, make: Callable[[int, int, int], World], seed: int, threads: int) -> None:
        self.make, self.seed, self.threads = make, seed, threads

    @cached_property
    def spec(self) -> Spec:
        return self.make(1, 0, 0).spec

    def match(self, players: Sequence[Player], games: int, index: int, turn: int = 0) -> Played:
        """`games` games between players by seat; no two values of `index` share random numbers.

        Every `turn` of an index meets the same deals, with luck of its own.
        """
        seed = rng.key(self.seed, rng.EVALUATION, index & 0xFFFFFFFF, index >> 32)
        world = self.make(games, 0, seed)
        seed = rng.key(seed, rng.EVALUATION, turn) if turn else seed
        parts = world.parts(max(1, min(self.threads, games)))
        if len(parts) == 1:
            return play(world, players, seed)
        with ThreadPoolExecutor(len(parts)) as pool:
            out = list(pool.map(lambda part: play(part, players, seed), parts))
        return Played(*(np.concatenate(arrays) for arrays in zip(*out)))

    def results(self, players: Sequence[Player], games: int, index: int) -> list[Result]:
        """A row per seat. With several seats of one role, every player sits everywhere equally often.

        There each deal is played from every seat: game i of every rotation begins from the same key.
        """
        spec = self.spec
        if len(spec.roles) > 1 or spec.seats == 1:
            rotations = [(list(range(spec.seats)), self.match(players, games, index))]
        else:
            rotations = []
            for turn in range(spec.seats):
                order = [(seat + turn) % spec.seats for seat in range(spec.seats)]
                share = games // spec.seats + (turn < games % spec.seats)
                if share:
                    seated = [players[order[seat]] for seat in range(spec.seats)]
                    rotations.append((order, self.match(seated, share, index, turn)))
        rows = []
        deal = np.concatenate([np.arange(len(match.length)) for _, match in rotations])
        deals = len(np.unique(deal)) if len(rotations) > 1 else 0
        for me, player in enumerate(players):
            mine = np.concatenate([match.outcome[:, order.index(me)] for order, match in rotations])
            steps = np.concatenate([match.length for _, match in rotations])
            points = np.concatenate([match.returns[:, order.index(me)] for order, match in rotations])
            others = [p.name for i, p in enumerate(players) if i != me]
            wins, draws = int((mine > 0.75).sum()), int((np.abs(mine - 0.5) <= 0.25).sum())
            role = spec.role_of(me).name
            counted = (len(mine), wins, draws, float(steps.mean()))
            returned = None if spec.zero_sum else mean_of(points)
            known = (deals, effective(mine, deal), effective(mine > 0.75, deal)) if deals else (0, 0.0, 0.0)
            ahead = np.concatenate([_ahead(match.points, order.index(me)) for order, match in rotations])
            told = (*known, mean_by_deal(ahead, deal))
            names = spec.role_of(0).milestones
            reached = np.concatenate([match.reached for _, match in rotations]).sum(0).tolist()
            rows.append(Result(player.name, role, "+".join(others), *counted, returned, *told,
                               dict(zip(names, reached)) if names else None))
        return rows
