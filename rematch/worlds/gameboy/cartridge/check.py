"""What somebody who presses random buttons reaches, on the model: matches won, badges, levels, maps."""

from __future__ import annotations

from dataclasses import dataclass

from rematch import keys
from rematch.worlds.gameboy.cartridge import rules
from rematch.worlds.gameboy.cartridge.atlas import Atlas
from rematch.worlds.gameboy.cartridge.model import start

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
        for action in (keys.words(seed, keys.ACT, count, first) % len(rules.ACTIONS)).tolist():
            game.press(action)
            if game.battle != before:
                walk.matches += not before
                walk.won += not game.battle and before != 0xFF and not game.enemy_hp
                before = game.battle
                maps.add(game.map)
    walk.badges, walk.level, walk.maps = game.badges.bit_count(), game.level, len(maps)
    return walk
