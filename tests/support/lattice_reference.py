"""A slow and readable implementation of the lattice (pursuit specification, section 9).

A robot is (x, y, heading), one game is one object, and it uses no table of the world. Random numbers are
those of rematch/core/rng.py, so that games can be compared with the world move by move.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rematch.core import rng

Robot = tuple[int, int, int]  # x, y, heading: eighths of a circle counter-clockwise from east
NUDGE = 1e-5  # lengths are 32-bit numbers
TURN = {"left": 1, "straight": 0, "right": -1}
NAMES = ("left", "straight", "right")
MIRROR = {"left": "right", "straight": "straight", "right": "left"}


def direction(heading: int) -> tuple[int, int]:
    angle = heading * math.pi / 4
    return round(math.cos(angle)), round(math.sin(angle))


@dataclass(frozen=True)
class Board:
    n: int
    block: int

    def free(self, x: int, y: int) -> bool:
        """At least block / 2 from the middle in one direction."""
        middle = (self.n - 1) / 2
        return max(abs(x - middle), abs(y - middle)) >= self.block / 2

    @functools.cache  # noqa: B019  (boards are few)
    def move(self, robot: Robot, action: str, skips: bool = False) -> Robot:
        x, y, heading = robot
        heading = (heading + TURN[action]) % 8
        if skips:
            return x, y, heading
        dx, dy = direction(heading)
        to_x, to_y = min(max(x + dx, 0), self.n - 1), min(max(y + dy, 0), self.n - 1)
        return (to_x, to_y, heading) if self.free(to_x, to_y) else (x, y, heading)

    @functools.cache  # noqa: B019
    def images(self, robot: Robot) -> list[Robot]:
        """A robot under the four rotations and then the four reflections of the board, about its middle."""
        x, y, heading = robot
        dx, dy = direction(heading)
        u, v = 2 * x - (self.n - 1), 2 * y - (self.n - 1)
        rotations = [(1, 0, 0, 1), (0, -1, 1, 0), (-1, 0, 0, -1), (0, 1, -1, 0)]
        reflections = [(1, 0, 0, -1), (0, 1, 1, 0), (-1, 0, 0, 1), (0, -1, -1, 0)]
        out = []
        for a, b, c, d in rotations + reflections:
            place = a * u + b * v + self.n - 1, c * u + d * v + self.n - 1
            pointing = math.atan2(c * dx + d * dy, a * dx + b * dy)
            out.append((place[0] // 2, place[1] // 2, round(pointing / (math.pi / 4)) % 8))
        return out

    def number(self, robot: Robot) -> int:
        return (robot[1] * self.n + robot[0]) * 8 + robot[2]

    def robot(self, number: int) -> Robot:
        cell, heading = divmod(number, 8)
        return cell % self.n, cell // self.n, heading

    @functools.cache  # noqa: B019
    def pairs(self) -> list[tuple[float, tuple[int, int], tuple[int, int]]]:
        """(distance, pursuer's cell, evader's cell), the nearest first, then by the cells' numbers."""
        cells = [(x, y) for y in range(self.n) for x in range(self.n) if self.free(x, y)]
        return sorted(((math.dist(a, b), a, b) for a in cells for b in cells), key=lambda pair: pair[0])


@dataclass
class Game:
    """One game. Stage is (anywhere, nearest, furthest)."""

    config: Any
    seed: int
    stage: tuple[float, float, float]
    episode: int = 0
    robots: list[Robot] = field(default_factory=list)  # pursuer, evader
    moves_left: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        self.board = board(self.config.n, self.config.block)
        self.begin(self.episode)

    def begin(self, episode: int) -> None:
        anywhere, near, far = self.stage
        if anywhere:
            pairs = [pair for pair in self.board.pairs() if pair[0] > self.config.radius + NUDGE]
        else:
            pairs = starts(self.board, near, far)
        words = [int(w) for w in rng.philox(self.seed, np.array([episode, 0, rng.RESET, 0], np.uint64))]
        _, pursuer, evader = pairs[(words[0] << 32 | words[1]) * len(pairs) >> 64]
        self.robots = [(*pursuer, words[2] % 8), (*evader, words[2] // 8 % 8)]
        horizon: int = self.config.horizon
        self.moves_left = 1 + (words[3] * horizon >> 32) if anywhere else horizon
        self.episode, self.step = episode, 0

    def frame(self) -> tuple[list[Robot], bool]:
        """Both robots in the canonical frame, and whether that is a reflection."""
        if not self.config.symmetry:
            return self.robots, False
        options = list(zip(*(self.board.images(robot) for robot in self.robots), strict=True))
        numbers = [tuple(self.board.number(robot) for robot in option) for option in options]
        best = numbers.index(min(numbers))
        return list(options[best]), best >= 4

    def obs(self) -> list[list[int]]:
        """The observations of pursuer and evader."""
        robots, _ = self.frame()
        out, width = [], 2 * self.board.n - 1
        for own, other in (robots, robots[::-1]):
            dx, dy = other[0] - own[0] + self.board.n - 1, other[1] - own[1] + self.board.n - 1
            relative = (dy * width + dx) * 8
            states = [self.board.number(own), self.board.number(other)]
            numbers = [*states, relative + own[2], relative + other[2]]
            out.append([*numbers, self.moves_left - 1])
        return out

    def play(self, actions: tuple[int, int]) -> dict[str, Any]:
        """One move, with actions in the frame of the observation; restarts an ended game."""
        mirrored = self.frame()[1]
        words = [MIRROR[NAMES[a]] if mirrored else NAMES[a] for a in actions]
        skips = self.config.skip > 0 and (self.moves_left - 1) % self.config.skip == 0
        self.robots = [self.board.move(self.robots[0], words[0], skips),
                       self.board.move(self.robots[1], words[1])]  # fmt: skip
        self.moves_left, self.step = self.moves_left - 1, self.step + 1
        captured = math.dist(self.robots[0][:2], self.robots[1][:2]) <= self.config.radius + NUDGE
        ended = captured or self.moves_left == 0
        result = {"ended": int(ended), "length": self.step, "reward": [0.0, 0.0], "outcome": [0.0, 0.0]}
        if ended:
            result["reward"] = [1.0, -1.0] if captured else [-1.0, 1.0]
            result["outcome"] = [1.0, 0.0] if captured else [0.0, 1.0]
            self.begin(self.episode + 1)
        return result


@functools.cache
def board(n: int, block: int) -> Board:
    return Board(n, block)


@functools.cache
def starts(on: Board, near: float, far: float) -> list[Any]:
    return [pair for pair in on.pairs() if near - NUDGE <= pair[0] <= far + NUDGE]
