"""The bot of a PettingZoo world: uniformly random legal actions, for any role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.player import Decision, RngKey, Seat

RANDOM = "random"


class BotsOfAnyRole(Mapping[str, tuple[str, ...]]):
    """Every role has the bot `random`; the names of the roles depend on the game."""

    def __getitem__(self, role: str) -> tuple[str, ...]:
        return (RANDOM,)

    def __iter__(self) -> Iterator[str]:
        return iter(("player",))

    def __len__(self) -> int:
        return 1


BOTS = BotsOfAnyRole()


class RandomPlayer:
    """Uniformly random legal actions; the random numbers of a game do not depend on the other games."""

    name = RANDOM

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
        actions, all_games = seat.role.actions, int(games.max(initial=-1)) + 1
        keys = [rng.key(rng_key.seed, rng_key.stream, seat.seat + 1, i) for i in range(actions.size)]
        columns = [rng.units(key, rng_key.stream, all_games, rng_key.step)[games] for key in keys]
        uniform = np.stack(columns, 1)
        if actions.kind == "continuous":
            return Decision(action=(2 * uniform - 1).astype(np.float32))
        legal = np.ones(uniform.shape, bool) if seat.mask is None else seat.mask != 0
        return Decision(action=np.where(legal, uniform, -1.0).argmax(1).astype(np.int32))
