"""The bots of gameboy: `random` presses any button, `wander` often the same one again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Ints
from rematch.core.player import Seat
from rematch.worlds.game import check_bot
from rematch.worlds.numpy_world import ScriptedPlayer

from .cartridge.constants import ACTIONS

ROLE = "joypad"
BOTS = {ROLE: ("random", "wander")}
AGAIN = 0.4  # probability that `wander` presses the same button again


def bot(name: str, role: str) -> ScriptedPlayer:
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name, wander if name == "wander" else any_button)


def any_button(seat: Seat, luck: NDArray[np.float64]) -> Ints:
    return (luck * seat.role.actions.size).astype(np.int32)


def wander(seat: Seat, luck: NDArray[np.float64]) -> Ints:
    """Often the button pressed last, else any: who walks on sees more than who turns at every step."""
    first = seat.role.columns.index(f"structured.action_1_ago_{ACTIONS[0]}")
    last = seat.obs[:, first : first + len(ACTIONS)]
    again = (luck < AGAIN) & last.any(1)
    return np.where(again, last.argmax(1), any_button(seat, np.maximum(luck - AGAIN, 0) / (1 - AGAIN)))
