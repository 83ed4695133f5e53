"""The levels of the lattice: the largest start distance grows up to the whole board."""

from __future__ import annotations

import math

from rematch.core.errors import ConfigError
from rematch.core.spec import Ladder, Level

from .config import Config, stage_of

QUARTERS = (2, 3, 4)  # discrete: start distances up to n / 2, up to 3 n / 4, any


def build_levels(config: Config, ladder: Ladder) -> list[Level]:
    """The smallest start distance is that of the config (by default n / 4); the largest one grows."""
    if ladder.min_obstacles:
        raise ConfigError(
            f"curriculum.min_obstacles = {ladder.min_obstacles}: a lattice has none; expected 0")
    near = float(stage_of(config)[1])
    furthest = math.hypot(config.n - 1, config.n - 1)
    if ladder.kind == "discrete":
        tops = [config.n * quarters / 4 for quarters in QUARTERS[:-1]]
    else:
        first = config.n / 2
        tops = [first + k * ladder.increment for k in range(math.ceil((furthest - first) / ladder.increment))]
    tops = [*(top for top in tops if near <= top < furthest), furthest]
    return [Level(f"{near:g}-{top:.3g} cells", {"max_distance": top}) for top in tops]
