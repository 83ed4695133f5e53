"""The bot of an OpenSpiel world: a uniformly random legal move."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.player import Seat
from rematch.worlds.game import check_bot
from rematch.worlds.numpy_world import ScriptedPlayer

ROLE = "player"
BOTS = {ROLE: ("random",)}


def bot(name: str, role: str) -> ScriptedPlayer:
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name, random_legal)


def random_legal(seat: Seat, uniform: NDArray[np.float64]) -> NDArray[Any]:
    """A legal move per game [n], from uniform numbers [n] in [0, 1)."""
    assert seat.mask is not None
    legal_count = seat.mask.astype(np.int64).cumsum(1)  # [n, A] legal moves up to each
    return np.asarray((legal_count <= (uniform * legal_count[:, -1])[:, None]).sum(1))
