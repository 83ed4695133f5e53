"""How fast this world is, on one core and on two threads: what `rematch bench` asks."""

from __future__ import annotations

import time
from collections.abc import Callable

from .bots_reference import BOTS
from .compare import match
from .rules import Config
from .world import make

GAMES, STEPS = 2048, 32  # a batch, and steps of it between two looks at the clock


def speeds(
    seconds: float = 1.0, config: Config | None = None, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Games a second: random play, the same through a world with all arrays written, opponents, search."""
    config = config or Config()
    world = make(config, GAMES)
    rules = world.shared.rules

    def played(bot: str, games: int) -> Callable[[int], float]:
        return lambda k: games if rules.play(BOTS.index(bot), k, 0, games) else 0

    def searched(k: int) -> float:
        match(config, ("search", "heuristic"), 4, k)
        return 8

    runs: dict[str, Callable[[int], float]] = {
        "random": played("random", 2000),
        "observed": lambda k: world.stroll(STEPS, k),
        "observed_two_threads": lambda k: world.stroll(STEPS, k, threads=2),
        "heuristic": played("heuristic", 100),
        "outcome_heuristic": played("outcome_heuristic", 100),
    }
    if config.players == 2:
        runs["search_100"] = searched
    return {name: _rate(run, seconds, clock) for name, run in runs.items()}


def _rate(run: Callable[[int], float], seconds: float, clock: Callable[[], float]) -> float:
    """Games a second of `run(k)`, which gives how many games it played."""
    run(0)
    games, began, k = 0.0, clock(), 0
    while clock() - began < seconds:
        k += 1
        games += run(k)
    return games / (clock() - began)
