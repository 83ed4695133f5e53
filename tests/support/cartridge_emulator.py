"""For the cartridge tests: an emulator that takes one action at a time, and comparisons with the model."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest

from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge.game_model import Game

RNG, MODE = 0xC52A, 0xC510  # work RAM of our own game (core.asm)


class Emulator:
    """A Game Boy without a window. Skips the test where PyBoy is not installed."""

    def __init__(self, rom: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pyboy = pytest.importorskip(
                "pyboy", reason="PyBoy is not installed"
            )
        self.boy = pyboy.PyBoy(io.BytesIO(rom), window="null", sound_emulated=False)
        self.memory: Any = self.boy.memory

    def press(self, action: int, show: bool = False) -> None:
        name = constants.ACTIONS[action]
        self.boy.button_press(name)
        self.boy.tick(constants.PRESS, False)
        self.boy.button_release(name)
        self.boy.tick(constants.TICKS - constants.PRESS, show)

    def differences(self, game: Game) -> dict[str, tuple[int, int]]:
        """Addresses where the cartridge's memory is not what the model says: (cartridge, model)."""
        ram = self.memory[0xC000:0xE000]
        expected = {**game.wram(), MODE: game.mode}
        if game.mode:
            expected[RNG] = game.random_byte
        return {
            f"{at:04X}": (ram[at - 0xC000], want) for at, want in expected.items() if ram[at - 0xC000] != want
        }
