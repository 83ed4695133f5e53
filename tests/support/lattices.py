"""Lattices for tests: some boards, moves known beforehand, positions, saved games by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.worlds.lattice import config as rules
from rematch.worlds.lattice import native
from rematch.worlds.lattice.config import Config
from rematch.worlds.lattice.world import LatticeWorld
from support.native_worlds import save_all

ROLES = ("pursuer", "evader")
BOARDS = [
    Config(n=9, block=3, horizon=20),
    Config(n=8, block=2, horizon=15, radius=1.5, skip=4),
    Config(n=5, horizon=10, skip=3, radius=0.0, min_distance=0.0),
    Config(n=6, horizon=9, radius=2.0, max_distance=4.0, symmetry=False),
    Config(n=2, horizon=4, radius=0.9, min_distance=1.0),
    Config(n=7, block=5, horizon=12, skip=2, radius=1.4142135, min_distance=2.0),
    Config(n=12, block=4, horizon=25, symmetry=False),
]


def named(world: LatticeWorld) -> Any:
    return save_all(world).view(native.GAME_TYPE)[:, 0]


def actions(world: LatticeWorld, step: int) -> dict[str, Any]:
    """Moves that depend on the game's number and the step alone."""
    game = np.arange(world.first, world.first + world.games)
    return {role: ((game * 7 + step * 5 + (game * step + k) // 3 * 11 + k) % 3).astype(np.int32)[:, None]
            for k, role in enumerate(ROLES)}


def positions(config: Config, count: int, seed: int) -> Any:
    """[count, 2] states on free cells, and moves left [count]."""
    draw = np.random.default_rng(seed)
    free = np.flatnonzero(np.repeat(rules.free_cells(config), 8))
    return draw.choice(free, (count, 2)).astype(np.int32), draw.integers(1, config.horizon, count) + 1
