"""The scoreboard: who beat whom, how often, how surely. Scores are read off outcomes, never off rewards.

Rewards only enter as returns, where they do not cancel: beside the score, never into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rematch import keys
from rematch.engine.returns import Mean, mean_of
from rematch.engine.rollout import side_by_side
from rematch.spec import RUNNING, Floats, Ints, Noise, Player, Seat, World

Z95 = 1.959963984540054


def wilson(score: float, games: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's (1927) 95 % interval of a rate of `score` successes (draws count half) in `games`."""
    if games == 0:
        return 0.0, 1.0
    p = score / games
    middle = (p + z * z / (2 * games)) / (1 + z * z / games)
    half = z / (1 + z * z / games) * sqrt(p * (1 - p) / games + z * z / (4 * games * games))
    return max(0.0, middle - half), min(1.0, middle + half)


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

    @property
    def score(self) -> float:
        return (self.wins + 0.5 * self.draws) / max(self.games, 1)

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.wins + 0.5 * self.draws, self.games)

    def row(self) -> dict[str, Any]:
        low, high = self.interval
        row = asdict(self) | {"score": self.score, "low": low, "high": high}
        won = wilson(self.wins, self.games)  # draws counted as not won
        row |= {"win": self.wins / max(self.games, 1), "win_low": won[0], "win_high": won[1]}
        return {name: value for name, value in row.items() if name != "returned" or value is not None}


class Played(NamedTuple):
    """Whole games: outcomes [N, seats], steps [N], and the points each seat collected [N, seats]."""

    outcome: Floats
    length: Ints
    returns: NDArray[np.float64]


def play(world: World, players: Sequence[Player], seed: int) -> Played:
    """One whole game per copy, players by seat.

    Every copy counts exactly once, so long games weigh as much as short ones.
    """
    spec, n = world.spec, world.games
    outcome: Floats = np.zeros((n, spec.seats), np.float32)
    length: Ints = np.zeros(n, np.int32)
    returns = np.zeros((n, spec.seats))
    left = np.ones(n, bool)
    step = 0
    while left.any():
        actions: dict[str, NDArray[Any]] = {}
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
                    act[rows, j] = players[seat].act(at, Noise(seed, keys.ACT, step)).action
            actions[role] = act
        view = world.step(actions)
        returns += view.reward * left[:, None]
        over = left & (view.ended != RUNNING)
        outcome[over] = view.outcome[over]
        length[over] = view.length[over]
        left &= ~over
        step += 1
    return Played(outcome, length, returns / spec.reward_scale)


class Scoreboard:
    """Plays matches in worlds from one builder, `make(games, first) -> World`, over some threads."""

    def __init__(self, make: Callable[[int, int, int], World], seed: int, threads: int) -> None:
        self.make, self.seed, self.threads = make, seed, threads

    def match(self, players: Sequence[Player], games: int, index: int) -> Played:
        """`games` games between players by seat; no two values of `index` share random numbers."""
        seed = keys.key(self.seed, keys.EVALUATE, index & 0xFFFFFFFF, index >> 32)
        world = self.make(games, 0, seed)
        parts = world.parts(max(1, min(self.threads, games)))
        if len(parts) == 1:
            return play(world, players, seed)
        with ThreadPoolExecutor(len(parts)) as pool:
            out = list(pool.map(lambda part: play(part, players, seed), parts))
        return Played(*(np.concatenate(arrays) for arrays in zip(*out)))

    def results(self, players: Sequence[Player], games: int, index: int) -> list[Result]:
        """A row per seat. With several seats of one role, every player sits everywhere equally often."""
        spec = self.make(1, 0, 0).spec
        if len(spec.roles) > 1 or spec.seats == 1:
            rotations = [(list(range(spec.seats)), self.match(players, games, index))]
        else:
            rotations = []
            for turn in range(spec.seats):
                order = [(seat + turn) % spec.seats for seat in range(spec.seats)]
                share = games // spec.seats + (turn < games % spec.seats)
                if share:
                    seated = [players[order[seat]] for seat in range(spec.seats)]
                    rotations.append((order, self.match(seated, share, index * 16 + turn)))
        rows = []
        for me, player in enumerate(players):
            mine = np.concatenate([match.outcome[:, order.index(me)] for order, match in rotations])
            steps = np.concatenate([match.length for _, match in rotations])
            points = np.concatenate([match.returns[:, order.index(me)] for order, match in rotations])
            others = [p.name for i, p in enumerate(players) if i != me]
            wins, draws = int((mine > 0.75).sum()), int((np.abs(mine - 0.5) <= 0.25).sum())
            role = spec.role_of(me).name
            counted = (len(mine), wins, draws, float(steps.mean()))
            returned = None if spec.zero_sum else mean_of(points)
            rows.append(Result(player.name, role, "+".join(others), *counted, returned))
        return rows
