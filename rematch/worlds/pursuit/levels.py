"""The levels of pursuit (specification, section 6): start distances and numbers of obstacles."""

from __future__ import annotations

import math

from rematch.core.errors import ConfigError
from rematch.core.spec import Ladder, Level

from .config import Config, check_stage

# smallest and largest start distance in metres, obstacles
DISCRETE = ((2, 5, 0), (5, 15, 0), (2, 5, 3), (5, 8, 3), (5, 12, 3), (2, 15, 3))
NEAREST, FIRST, FURTHEST = 2.0, 5.0, 15.0  # smooth: 2-5 m at first, to 2-15 m
OBSTACLES_FROM = 8.0  # smooth: largest start distance (m) from which on there are obstacles


def build_levels(config: Config, ladder: Ladder) -> list[Level]:
    """From short distances without obstacles to the whole arena; never more obstacles than the world has."""
    most = config.n_obstacles_max
    steps: list[tuple[float, float, int]] = list(DISCRETE)
    if ladder.kind == "smooth":
        if ladder.min_obstacles > most:
            raise ConfigError(
                f"curriculum.min_obstacles = {ladder.min_obstacles}: expected at most {most}, "
                "world.n_obstacles_max")
        count = math.ceil((FURTHEST - FIRST) / ladder.increment - 1e-9)
        tops = [min(FIRST + step * ladder.increment, FURTHEST) for step in range(count + 1)]
        fewest = ladder.min_obstacles
        steps = [(NEAREST, top, most if top >= OBSTACLES_FROM else fewest) for top in tops]
    elif most < max(count for _, _, count in DISCRETE):
        raise ConfigError(
            f"world.n_obstacles_max = {most}: the discrete levels have up to 3; expected at least 3")
    out = []
    for near, far, count in steps:
        start = {"min_init_distance": near, "max_init_distance": far}
        obstacles = {"n_obstacles_min": float(count), "n_obstacles_max": float(count)}
        check_stage(config, start | obstacles)
        out.append(Level(f"{near:g}-{far:g} m, {count} obstacles", start, obstacles))
    return out
