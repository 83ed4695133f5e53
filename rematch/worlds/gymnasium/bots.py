"""The bot of a Gymnasium world: any action, all alike."""

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
    """Any action, all alike; one game's draws do not depend on who else plays."""

    name = "random"

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
        actions = seat.role.actions
        most = int(games.max(initial=-1)) + 1
        count = 1 if actions.kind == "discrete" else actions.size
        own = [rng.key(rng_key.seed, rng_key.stream, seat.seat + 1 + i) for i in range(count)]
        drawn = np.stack([rng.units(key, rng_key.stream, most, rng_key.step)[games] for key in own], 1)
        if actions.kind == "discrete":
            return Decision(action=(drawn[:, 0] * actions.size).astype(np.int32))
        return Decision(action=(2 * drawn - 1).astype(np.float32))


def bot(name: str, role: str) -> RandomPlayer:
    check_bot(BOTS, name, role)
    return RandomPlayer()
