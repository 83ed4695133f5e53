"""A lattice as a matrix [pursuer states, evader states] with its transitions, and backward induction over it.

With symmetry a row is a pursuer state that is the smallest of its eight images, so a position and its images
are one entry. Every entry is a position of the board, and its actions are those of the board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Ints
from rematch.core.native_build import refuse_stale
from rematch.core.system.progress import PROGRESS

from . import solver
from .config import Config, free_cells, moves, reach, squared_distances, start_pairs

SOLUTION, BEST_PURSUER, BEST_EVADER, PLAYED = range(4)  # kinds of value tables in solver.h

Doubles = NDArray[np.float64]
ActionProbs = tuple[Doubles | None, Doubles | None]  # of pursuer and evader, [rows, cols, 3]
Out = Mapping[str, tuple[NDArray[Any], NDArray[Any]]]


def images(n: int) -> Ints:
    """[8, 8 n * n] every robot state under the symmetries of the square: rotations by 0 to 3 quarter turns,
    then the same after a reflection in the middle row. A reflection swaps left and right."""
    state = np.arange(8 * n * n)
    heading, x, y = state % 8, state // 8 % n, state // 8 // n
    out = []
    for mirrored in (False, True):
        h, u, v = (-heading, x, n - 1 - y) if mirrored else (heading, x, y)
        for _ in range(4):
            out.append((v * n + u) * 8 + h % 8)
            h, u, v = h + 2, n - 1 - v, u
    return np.array(out, np.int32)


class Board:
    """The tables of one configuration. `pursuers` [rows] and `evaders` [cols] are robot states."""

    def __init__(self, config: Config) -> None:
        self.config = config
        image = images(config.n)[: 8 if config.symmetry else 1]
        self.evaders: Ints = np.flatnonzero(np.repeat(free_cells(config), 8)).astype(np.int32)
        smallest = image.min(0)
        self.pursuers: Ints = self.evaders[smallest[self.evaders] == self.evaders]
        self.rows, self.cols = len(self.pursuers), len(self.evaders)
        number = np.full(8 * config.n**2, -1, np.int32)
        number[self.evaders] = np.arange(self.cols)
        row = np.full(8 * config.n**2, -1, np.int32)
        row[self.pursuers] = np.arange(self.rows)
        row, frame = row[smallest], image.argmin(0)
        self._row, self._frame, self._columns = row, frame, number[image[:, self.evaders]]
        self._number = number
        after = np.stack([moves(config, stays)[self.pursuers] for stays in (False, True)])
        columns = number[image[:, moves(config)[self.evaders]]]
        self.solver = solver.Solver(row[after], frame[after], columns)
        # The number of pursuer states that each row represents.
        self.copies: Ints = np.bincount(row[self.evaders], minlength=self.rows).astype(np.int32)

    @property
    def states(self) -> int:
        """Joint states that are solved for each number of moves left."""
        return self.rows * self.cols

    def entry(self, pursuer: int, evader: int) -> tuple[tuple[int, int], bool]:
        """The entry (row, column) of two robot states, and whether it is a reflection of their position."""
        frame = int(self._frame[pursuer])
        return (int(self._row[pursuer]), int(self._columns[frame, self._number[evader]])), frame >= 4

    def pairs(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[rows, cols] a relation between cells [n * n, n * n] for every entry."""
        return cells[np.ix_(self.pursuers // 8, self.evaders // 8)]

    def caught(self) -> NDArray[np.bool_]:
        return self.pairs(squared_distances(self.config.n) <= reach(self.config))

    def starts(self) -> NDArray[np.bool_]:
        """[rows, cols] the start positions."""
        return self.pairs(start_pairs(self.config))

    def by_cells(self, table: Doubles) -> Doubles:
        """[n * n, n * n] means over all headings by the cells of pursuer and evader; NaN where blocked."""
        n = self.config.n
        out = np.full((n * n, n * n), np.nan)
        free = self.evaders[::8] // 8
        out[np.ix_(free, free)] = 0.0
        for pursuer in self.evaders.tolist():
            line = table[self._row[pursuer], self._columns[self._frame[pursuer]]]
            out[pursuer // 8, free] += line.reshape(-1, 8).sum(1) / 64
        return out

    def mean(self, table: NDArray[Any], starts: NDArray[np.bool_]) -> float:
        """The average of a table over all starts of the board."""
        sums = np.where(starts, table, 0.0).sum(1)  # numpy's pairwise summation: errors near 1e-16
        return float(self.copies @ sums / (self.copies @ starts.sum(1)))

    def induction(
        self,
        kinds: tuple[int, ...],
        action_probs: Callable[[int], ActionProbs],
        threads: int,
        out: Callable[[int], Out] = lambda moves_left: {},
    ) -> dict[int, Doubles]:
        """kind -> probability of capture [rows, cols] with all moves left; the start itself is no capture.

        `action_probs` and `out` (see solver.pyi) are called for every number of moves left, from 1 on.
        """
        config, caught = self.config, self.caught()
        after: dict[int, Doubles] = {kind: caught.astype(np.float64) for kind in kinds}
        now: dict[int, Doubles] = {kind: np.empty((self.rows, self.cols)) for kind in kinds}
        for moves_left in range(1, config.horizon + 1):
            if moves_left > 1:  # a position within the radius is a capture, whatever the moves left
                for table in after.values():
                    np.copyto(table, 1.0, where=caught)
            stays = config.skip > 0 and (moves_left - 1) % config.skip == 0
            PROGRESS.report((moves_left - 1) / config.horizon, f"{moves_left} moves left")
            self.solver.back(stays, after, now, action_probs(moves_left), out(moves_left), threads)
            after, now = now, after
        return after


refuse_stale(solver.__name__, solver.BUILD, Path(__file__).with_name("solver.pyx"))
