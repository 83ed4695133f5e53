"""The best possible scores against a random player in tic_tac_toe and phantom_ttt of OpenSpiel, exactly.

    python tools/experiments/tic_tac_toe_ceilings.py

A score counts a draw half; it is the ceiling of every agent, so an agent that comes near it has nothing more
to learn from random play. In phantom_ttt a player does not see the other's moves: a try of a cell that the
other holds fails and shows that cell, and the player moves again. A random player that tries again until it
succeeds takes a uniformly random empty cell in both games. The belief is the number of ways in which each set
of its cells can have come about; the best response maximises over beliefs (a dynamic program).
"""

from __future__ import annotations

import sys
from functools import cache

LINES = [0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100]
FULL = 0b111111111
Belief = tuple[tuple[int, int], ...]  # (cells of the random player, number of ways), sorted


def has_line(cells: int) -> bool:
    return any(cells & line == line for line in LINES)


def empty_cells(taken: int) -> list[int]:
    return [1 << cell for cell in range(9) if not taken & 1 << cell]


@cache
def best_total(own: int, belief: Belief, hidden: bool) -> float:
    """The largest expected score of the player to move, times the number of ways of the belief."""
    common = belief[0][1] if len(belief) == 1 else 1
    if common > 1:  # a single set: its number of ways is a factor
        return common * best_total(own, ((belief[0][0], 1),), hidden)
    known = FULL
    for cells, _ in belief:
        known &= cells
    return max(total_after(own, belief, cell, hidden) for cell in empty_cells(own | known))


def total_after(own: int, belief: Belief, cell: int, hidden: bool) -> float:
    """The same after a try of one cell."""
    failed = tuple(entry for entry in belief if entry[0] & cell)
    free = tuple(entry for entry in belief if not entry[0] & cell)
    total = best_total(own, failed, hidden) if failed else 0.0
    if not free:
        return total
    ways, own = sum(number for _, number in free), own | cell
    if has_line(own):
        return total + ways
    if (own | free[0][0]) == FULL:  # all sets of a belief have the same size
        return total + ways / 2
    return total + total_after_random_move(own, free, hidden)


def total_after_random_move(own: int, belief: Belief, hidden: bool) -> float:
    """The same before a move of the random player, which takes each empty cell with the same probability."""
    following: dict[int, int] = {}
    draws = 0
    for cells, number in belief:
        for cell in empty_cells(own | cells):
            after = cells | cell
            if has_line(after):
                continue
            if own | after == FULL:
                draws += number
            else:
                following[after] = following.get(after, 0) + number
    entries = tuple(sorted(following.items()))
    beliefs = [entries] if hidden else [(entry,) for entry in entries]
    total = draws / 2 + sum(best_total(own, belief, hidden) for belief in beliefs if belief)
    return total / len(empty_cells(own | belief[0][0]))


def ceilings(hidden: bool) -> tuple[float, float]:
    """Best scores of the player that begins, and of the one that answers."""
    return best_total(0, ((0, 1),), hidden), total_after_random_move(0, ((0, 1),), hidden)


def main() -> int:
    for game, hidden in (("tic_tac_toe", False), ("phantom_ttt", True)):
        first, second = ceilings(hidden)
        print(f"{game}: {first:.4f} moving first, {second:.4f} second, {(first + second) / 2:.4f} on average")
    return 0


if __name__ == "__main__":
    sys.exit(main())
