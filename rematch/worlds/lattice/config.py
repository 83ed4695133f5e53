"""The settings of the lattice, and its moves as tables for the world, the solver and the bots.

The state of a robot is (y * n + x) * 8 + heading; heading k is k * 45 degrees counter-clockwise from east.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats, Ints
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.native_build import refuse_stale
from rematch.worlds.native_world import compare_with_struct

from . import native

HEADINGS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))  # dx, dy of a king's step
TURNS = (1, 0, -1)  # of the actions left, straight, right: eighths of a circle, counter-clockwise
STAGE = ("anywhere", "min_distance", "max_distance")  # start values that a curriculum sets per episode
SLACK = 1e-5  # cells; tolerance of lengths as in rules.h: 1.41421 reaches the diagonal neighbour


@dataclass(frozen=True, kw_only=True)
class Config:
    """The rules of pursuit on a lattice. Lengths in cells."""

    n: int = knob(9, "side length of the board", unit="cells", low=2, high=64)
    block: int = knob(
        0, "side length of the square of blocked cells in the middle; 0: none", unit="cells", low=0, high=62
    )
    radius: float = knob(
        1.0, "distance between centres at which the evader is caught", unit="cells", low=0.0, high=90.0
    )
    skip: int = knob(
        0, "k: the pursuer only turns, without moving, when (moves left - 1) mod k = 0; 0: it always moves",
        unit="moves", low=0, high=1000,
    )  # fmt: skip
    horizon: int = knob(20, "moves after which the evader wins", unit="moves", low=1, high=1000)
    min_distance: float = knob(
        -1.0, "smallest distance between centres at the start; -1: n / 4", unit="cells", low=-1.0, high=90.0
    )
    max_distance: float = knob(
        -1.0, "largest distance between centres at the start; -1: no limit", unit="cells", low=-1.0,
        high=90.0,
    )  # fmt: skip
    symmetry: bool = knob(
        True, "observations are rotated and mirrored into one eighth of the board, which leaves an eighth "
        "of the states",
    )  # fmt: skip

    def check(self) -> None:
        if self.block >= self.n:
            raise ConfigError(
                f"block = {self.block}: expected less than n = {self.n}; the block covers the board")
        if self.block and (self.n - self.block) % 2:
            kind = "an odd" if self.n % 2 else "an even"
            raise ConfigError(
                f"block = {self.block}: expected {kind} number, to lie in the middle of n = {self.n}")
        if self.skip == 1:
            raise ConfigError("skip = 1: expected 0 or at least 2; the pursuer would never move")
        if not start_pairs(self).any():
            far = "" if self.max_distance < 0 else f" and at most max_distance = {self.max_distance:g}"
            raise ConfigError(
                f"min_distance = {self.nearest_start:g}: no two free cells of n = {self.n}, "
                f"block = {self.block} are that far apart{far}")

    @property
    def nearest_start(self) -> float:
        return self.n / 4 if self.min_distance < 0 else self.min_distance

    @property
    def furthest_start(self) -> float:
        return math.inf if self.max_distance < 0 else self.max_distance


def free_cells(config: Config) -> NDArray[np.bool_]:
    """[n * n] the cells that are not blocked."""
    free = np.ones((config.n, config.n), bool)
    edge = (config.n - config.block) // 2
    free[edge : edge + config.block, edge : edge + config.block] = False
    return free.reshape(-1)


def squared_distances(n: int) -> Ints:
    """[n * n, n * n] between the centres of two cells."""
    cell = np.arange(n * n)
    x, y = cell % n, cell // n
    return ((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2).astype(np.int32)


def roots_below(length: float, equal: bool) -> int:
    """The number of integers m >= 0 with sqrt(m) < length; with `equal`: sqrt(m) <= length.

    Lengths are rounded to 32 bits, as in a stage and in the struct of the rules, and compared with SLACK.
    """
    reach = float(np.float32(length)) + (SLACK if equal else -SLACK)
    if not reach >= 0:
        return 0
    square = min(reach * reach, 1e8)
    return math.floor(square) + 1 if equal else math.ceil(square)


def reach(config: Config) -> int:
    """The largest squared distance between two cells that is a capture."""
    return roots_below(config.radius, True) - 1


def start_pairs(config: Config) -> NDArray[np.bool_]:
    """[n * n, n * n] the pairs of cells (pursuer, evader) that games start from, with any headings."""
    free, square = free_cells(config), squared_distances(config.n)
    near, beyond = roots_below(config.nearest_start, False), roots_below(config.furthest_start, True)
    return np.asarray(free[:, None] & free & (square >= near) & (square < beyond))


def stage_of(config: Config) -> Floats:
    """[3] the start values of the config."""
    furthest = min(config.furthest_start, 2.0 * config.n)  # at most 2 n: longer than the diagonal
    return np.array([0.0, config.nearest_start, furthest], np.float32)


def moves(config: Config, stays: bool = False) -> Ints:
    """[8 n * n, 3] the state after each action; `stays`: only the heading changes (the pursuer's skip).

    Walls clip x and y separately, so a robot slides along them. If the target cell is blocked, the robot
    does not move; it may cut a corner of the block.
    """
    n, free = config.n, free_cells(config)
    state = np.arange(8 * n * n)
    heading, cell = state % 8, state // 8
    out = np.zeros((len(state), 3), np.int32)
    step = np.array(HEADINGS)
    for action, turn in enumerate(TURNS):
        new_heading = (heading + turn) % 8
        x = np.clip(cell % n + step[new_heading, 0], 0, n - 1)
        y = np.clip(cell // n + step[new_heading, 1], 0, n - 1)
        target = y * n + x
        target = cell if stays else np.where(free[target], target, cell)
        out[:, action] = target * 8 + new_heading
    return out


refuse_stale(native.__name__, native.BUILD, Path(__file__).with_name("native.pyx"))
compare_with_struct(Config, native.RULES, "rules.h")
