"""A player that plays the exact solution: at every position the mixture of the backward induction."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats
from rematch.core.config import untracked
from rematch.core.player import Decision, RngKey, Seat

from .bots import _uniform
from .config import Config
from .solve import TooLarge, check_memory
from .transition_matrix import SOLUTION, Board

MOST_BYTES = 1 << 29  # of the mixtures of all positions
ROLES = ("pursuer", "evader")
Mixtures = list[tuple[Floats, Floats]]  # by moves left - 1: of pursuer and evader, [rows, cols, 3]


@lru_cache(maxsize=1)
def _solved(config: Config, threads: int) -> tuple[Board, Mixtures]:
    check_memory(config, 2)
    board = Board(config)
    size = 2 * 3 * 4 * board.states * config.horizon
    if size > MOST_BYTES:
        raise TooLarge(f"n = {config.n}, horizon = {config.horizon}: exact play needs {size >> 20} MiB for "
                       f"its mixtures; expected at most {MOST_BYTES >> 20}")
    mixtures: Mixtures = []
    pair = tuple(np.zeros((board.rows, board.cols, 3)) for _ in ROLES)

    def out(moves_left: int) -> dict[str, Any]:
        if moves_left > 1:
            mixtures.append((pair[0].astype(np.float32), pair[1].astype(np.float32)))
        return {"mixes": pair}

    board.induction((SOLUTION,), lambda moves_left: (None, None), threads, out)
    mixtures.append((pair[0].astype(np.float32), pair[1].astype(np.float32)))
    return board, mixtures


class OptimalPlayer:
    """Plays one role exactly; it solves the board of the first position that it is asked about."""

    name = "optimal"

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def action_probs(self, seat: Seat) -> Floats:
        """[n, 3] the mixture of the solution, in the frame in which the world shows the position."""
        world: Any = seat.world
        board, mixtures = _solved(untracked(world.config), self.threads)
        side = ROLES.index(seat.role.name)
        out: Floats = np.zeros((len(seat.rows), 3), np.float32)
        for i, row in enumerate(seat.rows.tolist()):
            state = world.state_of(row)
            pursuer, evader = (int(robot) for robot in state["robot"])
            entry, mirrored = board.entry(pursuer, evader)
            mixture = mixtures[int(state["moves_left"]) - 1][side][entry]
            # A reflection swaps left and right: that of the entry, and that of the observation.
            out[i] = mixture[::-1] if mirrored != bool(world.mirrored[row]) else mixture
        return out

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        probs = self.action_probs(seat).astype(np.float64)
        uniform = _uniform(seat, rng_key)[:, None] * probs.sum(1, keepdims=True)
        return Decision((uniform >= np.cumsum(probs, 1)[:, :-1]).sum(1).astype(np.int32))
