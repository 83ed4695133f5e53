"""Actions, games by name and comparisons for the tests of pursuit."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.config import Config
from rematch.worlds.pursuit.world import PursuitWorld

ROLES = ("pursuer", "evader")


def rollout_actions(rng: np.random.Generator, games: int, width: int) -> np.ndarray:
    """[n, 2, A]: mostly long straight drives, so that robots hit walls and obstacles; some out of range."""
    action = rng.uniform(-1.3, 1.3, (games, 2, width)).astype(np.float32)
    action[:, :, -1] *= rng.choice([0.05, 1.0], (games, 1))
    if width == 2:
        action[:, :, 0] = np.where(rng.random((games, 2)) < 0.8, 1.0, action[:, :, 0])
    return action


def split(action: np.ndarray) -> dict[str, np.ndarray]:
    return {role: action[:, seat : seat + 1] for seat, role in enumerate(ROLES)}


def named(world: PursuitWorld) -> np.ndarray:
    """[N] a copy of the games as a structured array, without their optional state."""
    states = world.save(np.arange(world.games))
    return states[:, : native.GAME_TYPE.itemsize].copy().view(native.GAME_TYPE)[:, 0]


def same_bits(ours: Any, theirs: Any) -> bool:
    """Equal as bytes; -0 counts as 0, because no rule reads the sign of a zero."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.shape == theirs.shape and (ours + 0).tobytes() == (theirs.astype(ours.dtype) + 0).tobytes()


def core_width(config: Config) -> int:
    return 1 if config.fixed_speed else 2
