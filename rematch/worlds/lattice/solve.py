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
    """A board that needs more memory or time than this machine has."""


def memory_bytes(config: Config, kinds: int) -> int:
    """Bytes of memory for an induction of `kinds` value tables."""
    states = 8 * int(free_cells(config).sum())
    rows = states // 8 + 2 * config.n if config.symmetry else states  # 2 n: states on an axis of symmetry
    tables = 8 * states * 3 * (8 if config.symmetry else 1) * 2
    relations = 12 * config.n**4  # pairs of cells
    return rows * states * (16 * kinds + 12) + tables + relations


def check_memory(config: Config, kinds: int) -> None:
    """TooLarge if the induction needs more memory than this machine has."""
    bytes_needed, available = memory_bytes(config, kinds), total_bytes()
    if bytes_needed > available:
        hint = "a smaller n" if config.symmetry else "a smaller n, or symmetry"
        raise TooLarge(
            f"n = {config.n}: the exact solution needs about {bytes_needed / 2**30:.1f} GiB of memory, this "
            f"machine has {available / 2**30:.1f}; expected {hint}")


def solution(config: Config, threads: int) -> Doubles:
    """[rows, cols] of Board: the value of the game at each start. Read-only."""
    return _solution(untracked(config), threads)


@functools.lru_cache(maxsize=4)  # every evaluation of a run needs the same one
def _solution(config: Config, threads: int) -> Doubles:
    check_memory(config, 1)
    table = Board(config).induction((SOLUTION,), lambda moves_left: (None, None), threads)[SOLUTION]
    table.setflags(write=False)
    return table


def solve(config: Config, threads: int, picture: Path | None = None) -> dict[str, Any]:
    """Value, states, seconds and the exploitability of the computed strategies, an independent check of
    the value. `picture`: path of a PNG with the values of all starts."""
    validate(config)
    checked = memory_bytes(config, 3) <= total_bytes()  # else only the value: a third of the memory
    kinds = (SOLUTION, BEST_PURSUER, BEST_EVADER) if checked else (SOLUTION,)
    check_memory(config, len(kinds))
    started = time.perf_counter()
    board = Board(config)
    tables = board.induction(kinds, lambda moves_left: (None, None), threads)
    seconds = time.perf_counter() - started
    starts = board.starts()
    means = {kind: board.mean(table, starts) for kind, table in tables.items()}
    if picture is not None:
        from .heatmap import values  # loads matplotlib only when a picture is drawn

        picture.write_bytes(values(board, tables[SOLUTION]))
    return {
        "value": means[SOLUTION],
        "states": board.states,
        "starts": int(board.copies @ starts.sum(1)),
        "horizon": config.horizon,
        "nash_conv": means[BEST_PURSUER] - means[BEST_EVADER] if checked else None,
        "seconds": seconds,
    }
