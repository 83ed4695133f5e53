"""The bot of a Gymnasium world: uniformly random actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.player import Decision, RngKey, Seat
from rematch.worlds.game import check_bot

ROLE = "player"
BOTS = {ROLE: ("random",)}


class RandomPlayer:
    """Uniformly random actions; the random numbers of a game do not depend on the other games."""

    name = "random"

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
        actions = seat.role.actions
        all_games = int(games.max(initial=-1)) + 1
        count = 1 if actions.kind == "discrete" else actions.size
        keys = [rng.key(rng_key.seed, rng_key.stream, seat.seat + 1 + i) for i in range(count)]
        columns = [rng.units(key, rng_key.stream, all_games, rng_key.step)[games] for key in keys]
        uniform = np.stack(columns, 1)
        if actions.kind == "discrete":
            return Decision(action=(uniform[:, 0] * actions.size).astype(np.int32))
        return Decision(action=(2 * uniform - 1).astype(np.float32))


def bot(name: str, role: str) -> RandomPlayer:
    check_bot(BOTS, name, role)
    return RandomPlayer()
