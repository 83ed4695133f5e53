"""Solve a world exactly, where it is small enough."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rematch.core.config import apply, refuse_inert, validate
from rematch.core.errors import ConfigError
from rematch.reporting.result import Block, Lines, Result
from rematch.reporting.text import solution_lines
from rematch.verbs.arguments import check_integer, check_picture_file, world_name
from rematch.worlds import registry
from rematch.worlds.game import Game

MOST_THREADS = 64


class Solution(Result):
    """The exact value of a game."""

    def blocks(self) -> Iterator[Block]:
        yield Lines(solution_lines(self))


def solve(
    world: str, changes: Mapping[str, Any] | None = None, *, threads: int | None = None,
    picture: Path | str | None = None,
) -> Solution:
    """The exact value of `world`; `changes` are settings of the world, {"n": 5}.

    `picture` is a PNG file for the value of each start position.
    """
    config = apply(solvable(world).Config(), changes or {}, "changes")
    return solve_config(world, config, list(changes or {}), threads=threads, picture=picture)


def solvable(world: str) -> Game:
    """The game of this name; ConfigError where it has no exact solver."""
    game = registry.find(world_name(world))
    if game.solver is None or game.solver.solve is None:
        solvers = {name: registry.find(name).solver for name in registry.names()}
        worlds = ", ".join(name for name, solver in solvers.items() if solver and solver.solve)
        raise ConfigError(f"solve {world}: this world has no exact solver; expected one of {worlds}")
    return game


def solve_config(
    world: str, config: Any, changed_keys: list[str], *, threads: int | None = None,
    picture: Path | str | None = None, source: str = "changes",
) -> Solution:
    """As `solve`, with settings as a config; `changed_keys` are the keys that the user set."""
    validate(config)
    refuse_inert(config, changed_keys, source)
    count = min(os.cpu_count() or 1, MOST_THREADS) if threads is None else threads
    check_integer("threads", count, 1, MOST_THREADS)
    file = None if picture is None else check_picture_file(picture)
    solver = solvable(world).solver
    assert solver is not None and solver.solve is not None
    return Solution(solver.solve(config, count, file))
