"""Subjects of `rematch bench beasty`, which is timed beside card games of other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .config import Config
from .reference.bots import BOTS
from .reference.compare import match
from .world import make

GAMES, STEPS = 2048, 32  # games of a batch; steps between two checks of the clock
DEALS = 4  # deals of a match with search, between two checks of the clock

# Subject -> games per second that one core should reach; `search` plays against `heuristic`.
TARGETS = {"random": 500_000.0, "observed": 200_000.0, "heuristic": 20_000.0, "outcome_heuristic": 20_000.0,
           "search": 30.0}  # fmt: skip
TWO_THREADS = 1.7  # speed of two threads divided by that of one

Work = Callable[[int], tuple[int, int]]  # (number of the call) -> games, decisions


class GameSubject:
    """Plays games for some seconds on threads, each thread with its own games."""

    unit = "games"

    def __init__(self, key: str, name: str, works: list[Work], threads: int) -> None:
        self.key, self.name = key, name
        self.works, self.threads = works, threads
        self.settings: dict[str, Any] = {"world": "beasty", "games": GAMES}
        self._calls, self._games = 0, 0
        self._decisions = 0
        self._pool = ThreadPoolExecutor(len(works))

    def run(self, seconds: float) -> int:
        """The number of games played in about `seconds`; updates settings["decisions_per_game"]."""
        end_time = time.perf_counter() + seconds
        results = list(self._pool.map(lambda work: self._loop(work, end_time), self.works))
        games, decisions, calls = (int(sum(column)) for column in zip(*results))
        self._calls, self._games = self._calls + calls, self._games + games
        self._decisions += decisions
        self.settings["decisions_per_game"] = self._decisions / max(self._games, 1)
        return games

    def _loop(self, work: Work, end_time: float) -> tuple[int, int, int]:
        games, decisions, calls = 0, 0, 0
        while calls == 0 or time.perf_counter() < end_time:
            new_games, turns = work(self._calls + calls)
            games, decisions = games + new_games, decisions + turns
            calls += 1
        return games, decisions, calls


def subjects(config: Config | None = None) -> list[GameSubject]:
    """Random play, random play with observations, bots, search; the first two also on two threads."""
    config = config or Config()
    rules = make(config, 1).shared.rules

    def scripted(bot: str, games: int, thread: int = 0) -> Work:
        return lambda k: (games, rules.play(BOTS.index(bot), 2 * k + thread, 0, games))

    def observed(threads: int) -> Work:
        world = make(config, GAMES)
        return lambda k: (world.random_steps(STEPS, k, threads), GAMES * STEPS)

    def search_match(k: int) -> tuple[int, int]:
        match(config, ("search", "heuristic"), DEALS, k)
        return 2 * DEALS, 0

    out = [
        GameSubject("random", "random play", [scripted("random", 2000)], 1),
        GameSubject("random", "random play", [scripted("random", 2000, thread) for thread in (0, 1)], 2),
        GameSubject("observed", "random play, observations written", [observed(1)], 1),
        GameSubject("observed", "random play, observations written", [observed(2)], 2),
        GameSubject("heuristic", "heuristic in all seats", [scripted("heuristic", 100)], 1),
        GameSubject(
            "outcome_heuristic", "outcome_heuristic in all seats", [scripted("outcome_heuristic", 100)], 1
        ),
    ]
    if config.players == 2:
        out.append(GameSubject("search", "search at 100 completions against heuristic", [search_match], 1))
    return out
