"""Actions and comparisons for the tests of pursuit."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.worlds.pursuit.config import Config

ROLES = ("pursuer", "evader")



def rollout_actions(rng: np.random.Generator, games: int, width: int) -> np.ndarray:
    """[n, 2, A]: mostly long straight drives, so that walls and obstacles are met; some out of range."""
    action = rng.uniform(-1.3, 1.3, (games, 2, width)).astype(np.float32)
    action[:, :, -1] *= rng.choice([0.05, 1.0], (games, 1))
    if width == 2:
        action[:, :, 0] = np.where(rng.random((games, 2)) < 0.8, 1.0, action[:, :, 0])
    return action



def split(action: np.ndarray) -> dict[str, np.ndarray]:
    return {role: action[:, seat : seat + 1] for seat, role in enumerate(ROLES)}



def same_bits(ours: Any, theirs: Any) -> bool:
    """Equal as bytes; a zero has one sign here, for no rule looks at it."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.shape == theirs.shape and (ours + 0).tobytes() == (theirs.astype(ours.dtype) + 0).tobytes()



def core_width(config: Config) -> int:
    return 1 if config.fixed_speed else 2

