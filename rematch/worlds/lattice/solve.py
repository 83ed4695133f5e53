"""The exact solution of a lattice (pursuit specification, section 9): `rematch solve`."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

from rematch.core.config import untracked, validate
from rematch.core.errors import ConfigError
from rematch.core.system.system_memory import total_bytes

from .config import Config, free_cells
from .transition_matrix import BEST_EVADER, BEST_PURSUER, SOLUTION, Board, Doubles


class TooLarge(ConfigError):
    """A board that this machine cannot solve, or not within reason."""


def need(config: Config, kinds: int) -> int:
    """Bytes for an induction of so many kinds, before anything is allocated."""
    states = 8 * int(free_cells(config).sum())
    rows = states // 8 + 2 * config.n if config.symmetry else states  # rows on a line of symmetry count more
    tables = 8 * states * 3 * (8 if config.symmetry else 1) * 2
    relations = 12 * config.n**4  # of all pairs of cells
    return rows * states * (16 * kinds + 12) + tables + relations


def refuse_large(config: Config, kinds: int) -> None:
    """Say what is needed where this machine does not have it."""
    bytes_needed, have = need(config, kinds), total_bytes()
    if bytes_needed > have:
        hint = "a smaller n" if config.symmetry else "a smaller n, or symmetry"
        raise TooLarge(
            f"n = {config.n}: the exact solution needs about {bytes_needed / 2**30:.1f} GiB of memory, this "
            f"machine has {have / 2**30:.1f}; expected {hint}")


def solution(config: Config, threads: int) -> Doubles:
    """[rows, cols] the value of the game at each start; the board's own order. Not to be written to."""
    return _solution(untracked(config), threads)


@functools.lru_cache(maxsize=4)  # an evaluation asks for the same one again and again
def _solution(config: Config, threads: int) -> Doubles:
    refuse_large(config, 1)
    table = Board(config).induction((SOLUTION,), lambda moves_left: (None, None), threads)[SOLUTION]
    table.setflags(write=False)
    return table


def solve(config: Config, threads: int, picture: Path | None = None) -> dict[str, Any]:
    """Value, states and seconds; and the exploitability of the very strategies that gave the value: a check
    that needs no trust in the matrix games. Draws the starts' values where a picture is asked for."""
    validate(config)
    checked = need(config, 3) <= total_bytes()  # else the value alone: a third of the memory
    kinds = (SOLUTION, BEST_PURSUER, BEST_EVADER) if checked else (SOLUTION,)
    refuse_large(config, len(kinds))
    started = time.perf_counter()
    board = Board(config)
    tables = board.induction(kinds, lambda moves_left: (None, None), threads)
    seconds = time.perf_counter() - started
    starts = board.starts()
    means = {kind: board.mean(table, starts) for kind, table in tables.items()}
    if picture is not None:
        from .heatmap import values  # matplotlib only where pictures are made

        picture.write_bytes(values(board, tables[SOLUTION]))
    return {
        "value": means[SOLUTION],
        "states": board.states,
        "starts": int(board.copies @ starts.sum(1)),
        "horizon": config.horizon,
        "nash_conv": means[BEST_PURSUER] - means[BEST_EVADER] if checked else None,
        "seconds": seconds,
    }
