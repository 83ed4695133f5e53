"""The bot of an OpenSpiel world: any legal move, all alike."""

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
    return ScriptedPlayer(name, any_legal)


def any_legal(seat: Seat, luck: NDArray[np.float64]) -> NDArray[Any]:
    assert seat.mask is not None
    upto = seat.mask.astype(np.int64).cumsum(1)
    return np.asarray((upto <= (luck * upto[:, -1])[:, None]).sum(1))
