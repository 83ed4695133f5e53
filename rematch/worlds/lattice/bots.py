"""The scripted players. Each is a distribution over the three actions, given the observation of its seat.

    random    any action
    straight  never turns
    chase     the action whose next cell is nearest to the evader's present cell; ties at random
    flee      the action whose next cell is furthest from the pursuer's present cell; ties at random
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Ints
from rematch.core.player import Decision, RngKey, Seat
from rematch.worlds.game import check_bot

from .config import Config, moves, squared_distances

ACTIONS = ("left", "straight", "right")
BOT_NAMES = ("random", "straight", "chase", "flee")  # in the order of the enum in bots.h
BOTS = {"pursuer": ("random", "straight", "chase"), "evader": ("random", "straight", "flee")}


@lru_cache(maxsize=8)
def _tables(config: Config) -> tuple[Ints, Ints, Ints]:
    """Moves, moves of a pursuer that only turns, squared distances between cells."""
    return moves(config), moves(config, stays=True), squared_distances(config.n)


def _distances(seat: Seat) -> Ints:
    """[n, 3] squared distance between the cell after each action and the other robot's present cell.

    Computed in the frame of the observation: the board is the same in all eight.
    """
    world: Any = seat.world
    moved, turned, squares = _tables(world.config)
    own, other, to_go = seat.obs[:, [0, 1, 4]].astype(np.int32).T
    after = moved[own]
    if world.config.skip and seat.role.name == "pursuer":
        after = np.where((to_go % world.config.skip == 0)[:, None], turned[own], after)
    return np.asarray(squares[after // 8, (other // 8)[:, None]])


class ScriptedPlayer:
    """Plays one of `BOTS`. The action depends on game, key and step only, not on the batch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def action_probs(self, seat: Seat) -> Floats:
        """[n, 3] the exact probability of each action."""
        count = len(seat.obs)
        if self.name == "straight":
            return np.tile(np.array([0, 1, 0], np.float32), (count, 1))
        if self.name == "random":
            return np.full((count, 3), 1 / 3, np.float32)
        score = _distances(seat) * (1 if self.name == "flee" else -1)
        best = score == score.max(1, keepdims=True)
        return np.asarray(best / best.sum(1, keepdims=True), np.float32)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        action_probs = self.action_probs(seat)
        uniform = _uniform(seat, rng_key)[:, None]
        action = (uniform >= np.cumsum(action_probs[:, :-1].astype(np.float64), 1)).sum(1)
        return Decision(action.astype(np.int32))


def _uniform(seat: Seat, rng_key: RngKey) -> NDArray[np.float64]:
    """[n] random numbers in [0, 1), a function of seat, game number and step."""
    counter = np.zeros((len(seat.rows), 4), np.uint64)
    counter[:, 0] = seat.rows + seat.world.first
    counter[:, 1:] = rng_key.step & 0xFFFFFFFF, rng_key.stream, rng_key.step >> 32
    words = rng.philox(rng.key(rng_key.seed, rng_key.stream, seat.seat), counter)
    return words[:, 0].astype(np.float64) * 2.0**-32


def bot(name: str, role: str) -> ScriptedPlayer:
    """The scripted player `name` of a role."""
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name)
