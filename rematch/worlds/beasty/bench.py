"""How fast this world is: what `rematch bench beasty` times beside other libraries' card games."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .config import Config
from .reference.bots import BOTS
from .reference.compare import match
from .world import make

GAMES, STEPS = 2048, 32  # a batch, and steps of it between two looks at the clock
DEALS = 4  # of a match with search, between two looks at the clock

# What is asked of one core (specification, section 2; and of `search` against `heuristic`), by subject.
TARGETS = {"random": 500_000.0, "observed": 200_000.0, "heuristic": 20_000.0, "outcome_heuristic": 20_000.0,
           "search": 30.0}  # fmt: skip
TWO_THREADS = 1.7  # two threads over one

Work = Callable[[int], tuple[int, int]]  # (number of the call) -> games, decisions


class Played:
    """Whole games played for a while on some threads, each with games of its own."""

    unit = "games"

    def __init__(self, key: str, name: str, works: list[Work], threads: int) -> None:
        self.key, self.name, self.works, self.threads = key, name, works, threads
        self.settings: dict[str, Any] = {"world": "beasty", "games": GAMES}
        self._calls, self._games, self._decisions = 0, 0, 0
        self._pool = ThreadPoolExecutor(len(works))

    def run(self, seconds: float) -> int:
        """Games played in about so long; the settings then say how many decisions a game took."""
        until = time.perf_counter() + seconds
        found = list(self._pool.map(lambda work: self._loop(work, until), self.works))
        games, decisions, calls = (int(sum(column)) for column in zip(*found))
        self._calls, self._games = self._calls + calls, self._games + games
        self._decisions += decisions
        self.settings["decisions_per_game"] = self._decisions / max(self._games, 1)
        return games

    def _loop(self, work: Work, until: float) -> tuple[int, int, int]:
        games, decisions, calls = 0, 0, 0
        while calls == 0 or time.perf_counter() < until:
            more, turns = work(self._calls + calls)
            games, decisions, calls = games + more, decisions + turns, calls + 1
        return games, decisions, calls


def subjects(config: Config | None = None) -> list[Played]:
    """Random play, the same with all arrays written, opponents, search; the first two on two threads too."""
    config = config or Config()
    rules = make(config, 1).shared.rules

    def scripted(bot: str, games: int, lane: int = 0) -> Work:
        return lambda k: (games, rules.play(BOTS.index(bot), 2 * k + lane, 0, games))

    def observed(threads: int) -> Work:
        world = make(config, GAMES)
        return lambda k: (world.stroll(STEPS, k, threads), GAMES * STEPS)

    def searched(k: int) -> tuple[int, int]:
        match(config, ("search", "heuristic"), DEALS, k)
        return 2 * DEALS, 0

    out = [
        Played("random", "random play", [scripted("random", 2000)], 1),
        Played("random", "random play", [scripted("random", 2000, lane) for lane in (0, 1)], 2),
        Played("observed", "random play, observations written", [observed(1)], 1),
        Played("observed", "random play, observations written", [observed(2)], 2),
        Played("heuristic", "heuristic in all seats", [scripted("heuristic", 100)], 1),
        Played(
            "outcome_heuristic", "outcome_heuristic in all seats", [scripted("outcome_heuristic", 100)], 1
        ),
    ]
    if config.players == 2:
        out.append(Played("search", "search at 100 completions against heuristic", [searched], 1))
    return out
