"""The lattice solved slowly, straight from the rulebook (pursuit specification, section 9).

Plain Python over (x, y, heading) triples; no table, no symmetry and no line of the package's solver.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

Robot = tuple[int, int, int]  # x, y, heading in eighths of a circle, counter-clockwise from east
Pair = tuple[Robot, Robot]  # pursuer, evader
Values = dict[Pair, float]
ActionProbs = Callable[[Pair, int], Sequence[float]]  # (position, moves left) -> of left, straight, right
Row = Sequence[float]

STEP = {0: (1, 0), 1: (1, 1), 2: (0, 1), 3: (-1, 1), 4: (-1, 0), 5: (-1, -1), 6: (0, -1), 7: (1, -1)}


class Lattice:
    """One set of rules; `value`, `best` and `played` are chances of capture."""

    def __init__(self, n: int, block: int = 0, radius: float = 1.0, skip: int = 0, horizon: int = 20) -> None:
        self.n, self.radius, self.skip, self.horizon = n, radius, skip, horizon
        first = (n - block) // 2
        self.blocked = {(x, y) for x in range(first, first + block) for y in range(first, first + block)}
        cells = [(x, y) for x in range(n) for y in range(n) if (x, y) not in self.blocked]
        self.robots = [(x, y, heading) for x, y in cells for heading in range(8)]

    def after(self, robot: Robot, action: int, stays: bool) -> Robot:
        x, y, heading = robot
        heading = (heading + (1, 0, -1)[action]) % 8  # left, straight, right
        if stays:
            return x, y, heading
        dx, dy = STEP[heading]
        to = min(max(x + dx, 0), self.n - 1), min(max(y + dy, 0), self.n - 1)
        return (x, y, heading) if to in self.blocked else (*to, heading)

    def far(self, pair: Pair) -> float:
        (px, py, _), (ex, ey, _) = pair
        return ((px - ex) ** 2 + (py - ey) ** 2) ** 0.5

    def starts(self, nearest: float, furthest: float = 1e9) -> list[Pair]:
        pairs = itertools.product(self.robots, self.robots)
        return [pair for pair in pairs if nearest - 1e-9 <= self.far(pair) <= furthest + 1e-9]

    def games(self, after: Values, pair: Pair, moves_left: int) -> list[list[float]]:
        """The three by three chances of capture behind a position."""
        stays = self.skip > 0 and (moves_left - 1) % self.skip == 0
        pursuers = [self.after(pair[0], action, stays) for action in range(3)]
        evaders = [self.after(pair[1], action, False) for action in range(3)]
        return [[1.0 if self.far((p, e)) <= self.radius + 1e-9 else after[p, e] for e in evaders]
                for p in pursuers]

    def induction(self, evaluate: Callable[[list[list[float]], Pair, int], float]) -> Values:
        """Values with all moves left; `evaluate` gives the value of the matrix game of each position."""
        pairs = list(itertools.product(self.robots, self.robots))
        values: Values = dict.fromkeys(pairs, 0.0)
        for moves_left in range(1, self.horizon + 1):
            values = {
                pair: evaluate(self.games(values, pair, moves_left), pair, moves_left) for pair in pairs
            }
        return values

    def value(self) -> Values:
        return self.induction(lambda game, pair, moves_left: game_value(game))

    def best_pursuer(self, evader: ActionProbs) -> Values:
        return self.induction(
            lambda game, pair, moves_left: max(dot(row, evader(pair, moves_left)) for row in game))

    def best_evader(self, pursuer: ActionProbs) -> Values:
        return self.induction(
            lambda game, pair, moves_left: min(dot(col, pursuer(pair, moves_left)) for col in zip(*game)))

    def played(self, pursuer: ActionProbs, evader: ActionProbs) -> Values:
        return self.induction(
            lambda game, pair, moves_left: dot(
                [dot(row, evader(pair, moves_left)) for row in game], pursuer(pair, moves_left)))


def dot(a: Row, b: Row) -> float:
    return sum(x * y for x, y in zip(a, b))


def game_value(game: Sequence[Row]) -> float:
    """Of a small zero-sum game: the best row mixture is a vertex, so the best of all vertices is best."""
    rows = best_vertex(game)
    columns = -best_vertex([[-x for x in column] for column in zip(*game)])
    assert abs(rows - columns) < 1e-9, (game, rows, columns)
    return rows


def best_vertex(game: Sequence[Row]) -> float:
    """The largest value that a row mixture guarantees, over those with equal values in as many columns."""
    best = max(min(row) for row in game)
    if best >= min(max(column) for column in zip(*game)):
        return best
    for size in range(2, min(len(game), len(game[0])) + 1):
        for rows in itertools.combinations(range(len(game)), size):
            for columns in itertools.combinations(range(len(game[0])), size):
                mix = equalising([[game[r][c] for c in columns] for r in rows])
                if mix is not None:
                    promise = min(dot(mix, [game[r][c] for r in rows]) for c in range(len(game[0])))
                    best = max(best, promise)
    return best


def equalising(game: Sequence[Row]) -> list[float] | None:
    """The row mixture under which all columns of a square game have the same value, if there is one."""
    size = len(game)
    # Unknowns: the mixture and the common value. Gauss-Jordan with the largest pivots.
    system = [[game[r][c] for r in range(size)] + [-1.0, 0.0] for c in range(size)]
    system.append([1.0] * size + [0.0, 1.0])
    for at in range(size + 1):
        pivot = max(range(at, size + 1), key=lambda r: abs(system[r][at]))
        if abs(system[pivot][at]) < 1e-13:
            return None
        system[at], system[pivot] = system[pivot], system[at]
        system[at] = [x / system[at][at] for x in system[at]]
        for r in range(size + 1):
            if r != at:
                factor = system[r][at]
                system[r] = [x - factor * y for x, y in zip(system[r], system[at])]
    mix = [row[-1] for row in system[:size]]
    if min(mix) < -1e-12:
        return None
    mix = [max(x, 0.0) for x in mix]
    return [x / sum(mix) for x in mix]
