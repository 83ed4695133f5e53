"""The bots of gameboy: `random` presses a random button, `wander` often repeats the last one."""

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
REPEAT = 0.4  # probability that `wander` repeats the last button


def bot(name: str, role: str) -> ScriptedPlayer:
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name, wander if name == "wander" else random_button)


def random_button(seat: Seat, uniform: NDArray[np.float64]) -> Ints:
    return (uniform * seat.role.actions.size).astype(np.int32)


def wander(seat: Seat, uniform: NDArray[np.float64]) -> Ints:
    """Repeats the last button with probability REPEAT, else presses a random one: so it walks further."""
    first = seat.role.columns.index(f"structured.action_1_ago_{ACTIONS[0]}")
    last = seat.obs[:, first : first + len(ACTIONS)]
    repeat = (uniform < REPEAT) & last.any(1)
    others = random_button(seat, np.maximum(uniform - REPEAT, 0) / (1 - REPEAT))
    return np.where(repeat, last.argmax(1), others)
