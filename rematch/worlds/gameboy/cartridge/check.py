"""Checks of a finished cartridge: what random buttons reach on the model, the solution on the emulator."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge import ram_addresses as ram
from rematch.worlds.gameboy.cartridge.compiler import Cartridge
from rematch.worlds.gameboy.cartridge.game_model import start
from rematch.worlds.gameboy.cartridge.world_text import Atlas
from rematch.worlds.gameboy.emulator.pyboy_emulator import library

CHUNK = 1 << 16


@dataclass
class Walk:
    """A random walk's score."""

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


def random_walk(atlas: Atlas, seed: int, steps: int) -> Walk:
    """Presses `steps` buttons, each of the seven as likely, keyed by the seed."""
    game, walk = start(atlas, seed), Walk(steps)
    maps, before = {0}, 0
    for first in range(0, steps, CHUNK):
        count = min(CHUNK, steps - first)
        for action in (rng.words(seed, rng.ACT, count, first) % len(constants.ACTIONS)).tolist():
            game.press(action)
            if game.battle != before:
                walk.matches += not before
                walk.won += not game.battle and before != 0xFF and not game.enemy_hp
                before = game.battle
                maps.add(game.map)
    walk.badges, walk.level, walk.maps = game.badges.bit_count(), game.level, len(maps)
    return walk


def replay(made: Cartridge) -> str:
    """Plays the solution on the emulator, from power-on; says what it reached, or raises."""
    boy = library().PyBoy(io.BytesIO(made.rom), window="null", sound_emulated=False)
    for action in made.solution:
        name = constants.ACTIONS[action]
        boy.button_press(name)
        boy.tick(constants.PRESS, False)
        boy.button_release(name)
        boy.tick(constants.TICKS - constants.PRESS, False)
    badges, hall = boy.memory[ram.BADGES].bit_count(), boy.memory[ram.HALL_OF_FAME]
    boy.stop(save=False)
    if not hall:
        raise ConfigError(
            f"hall of fame 0 after {len(made.solution)} actions and {badges} badges: expected 1"
        )
    return f"{len(made.solution)} actions on the emulator: {badges} badges, hall of fame"
