"""Checks of a compiled cartridge: a random walk on the model, a replay of the solution on the emulator."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge import ram_addresses as ram
from rematch.worlds.gameboy.cartridge.compiler import Cartridge
from rematch.worlds.gameboy.cartridge.game_model import new_game
from rematch.worlds.gameboy.cartridge.world_text import Atlas
from rematch.worlds.gameboy.emulator.pyboy_emulator import load_pyboy

CHUNK = 1 << 16


@dataclass
class WalkResult:
    """What a random walk reached."""

    steps: int
    matches: int = 0
    won: int = 0
    badges: int = 0
    level: int = 0
    maps: int = 0

    def __str__(self) -> str:
        share = f"{self.won / self.matches:.1%}" if self.matches else "-"
        return (
            f"{self.steps} random steps: {self.matches} matches, {self.won} won ({share}), "
            f"{self.badges} badges, level {self.level}, {self.maps} maps"
        )


def random_walk(atlas: Atlas, seed: int, steps: int) -> WalkResult:
    """Presses `steps` uniformly random buttons on the model; the seed keys the random numbers."""
    game, result = new_game(atlas, seed), WalkResult(steps)
    maps, last_battle = {0}, 0
    for first in range(0, steps, CHUNK):
        count = min(CHUNK, steps - first)
        for action in (rng.words(seed, rng.ACT, count, first) % len(constants.ACTIONS)).tolist():
            game.press(action)
            if game.battle != last_battle:
                result.matches += not last_battle
                result.won += not game.battle and last_battle != 0xFF and not game.enemy_hp
                last_battle = game.battle
                maps.add(game.map)
    result.badges, result.level, result.maps = game.badges.bit_count(), game.level, len(maps)
    return result


def replay(cartridge: Cartridge) -> str:
    """Plays the solution on the emulator from power-on; returns a summary, or raises ConfigError."""
    emulator = load_pyboy().PyBoy(io.BytesIO(cartridge.rom), window="null", sound_emulated=False)
    for action in cartridge.solution:
        name = constants.ACTIONS[action]
        emulator.button_press(name)
        emulator.tick(constants.PRESS, False)
        emulator.button_release(name)
        emulator.tick(constants.TICKS - constants.PRESS, False)
    badges, in_hall_of_fame = emulator.memory[ram.BADGES].bit_count(), emulator.memory[ram.HALL_OF_FAME]
    emulator.stop(save=False)
    if not in_hall_of_fame:
        raise ConfigError(
            f"hall of fame 0 after {len(cartridge.solution)} actions and {badges} badges: expected 1"
        )
    return f"{len(cartridge.solution)} actions on the emulator: {badges} badges, hall of fame"
