"""Speed of a card game compared with games of OpenSpiel and RLCard: games and decisions per second.

All games are timed in one process, in turns. Players are random and use the fastest loop of each library: the
C++ bots of OpenSpiel, the agents and the loop of RLCard. The report names libraries that are not installed.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from rematch.bench.timing import REPETITIONS, Measurement, Subject, load_average, measure_in_turns, ratio
from rematch.core.errors import NotInstalled
from rematch.worlds.capabilities import CardGameSpeed

OPENSPIEL = ("leduc_poker", "gin_rummy", "hearts")
RLCARD = ("leduc-holdem", "uno", "gin-rummy")
MISSING = {
    "open_spiel": f"{NotInstalled('OpenSpiel', 'open_spiel')}; its games are left out",
    "rlcard": f"{NotInstalled('RLCard', 'rlcard')}; its games are left out",
}
MIN_CPU_SHARE = (
    0.9  # below this CPU share of one thread, the machine is too busy to measure the gain of a second one
)
COUNT_EVERY = 20  # games of OpenSpiel between two counts of decisions


class RandomGames:
    """Random games of another library; `play(k)` plays game k and returns its number of decisions."""

    unit, threads = "games", 1

    def __init__(self, name: str, play: Callable[[int], int], version: str) -> None:
        self.name, self.play = name, play
        self.settings: dict[str, Any] = {"games": 1, "version": version}
        self._games, self._decisions = 0, 0

    def run(self, seconds: float) -> int:
        end, games = time.perf_counter() + seconds, 0
        while games == 0 or time.perf_counter() < end:
            self._decisions += self.play(self._games + games)
            games += 1
        self._games += games
        self.settings["decisions_per_game"] = self._decisions / self._games
        return games


def openspiel_games(name: str) -> RandomGames:
    import pyspiel

    game: Any = pyspiel.load_game(name)
    decisions = [0]
    bots = [pyspiel.make_uniform_random_bot(player, 1 + player) for player in range(game.num_players())]

    def play(seed: int) -> int:
        state = game.new_initial_state()
        pyspiel.evaluate_bots(state, bots, seed)
        # Counting takes longer than a short game: decisions are counted in a sample of games.
        if seed % COUNT_EVERY == 0:
            decisions[0] = sum(move.player >= 0 for move in state.full_history())
        return decisions[0]

    return RandomGames(f"OpenSpiel {name}", play, str(getattr(pyspiel, "__version__", "")))


def rlcard_games(name: str) -> RandomGames:
    library: Any = importlib.import_module("rlcard")
    RandomAgent: Any = importlib.import_module("rlcard.agents").RandomAgent

    env: Any = library.make(name, config={"seed": 1})
    decisions = [0]

    class CountingAgent(RandomAgent):  # type: ignore[misc]
        """Random agent of RLCard that counts its decisions."""

        def eval_step(self, state: Any) -> Any:
            decisions[0] += 1
            return super().eval_step(state)

    env.set_agents([CountingAgent(num_actions=env.num_actions) for _ in range(env.num_players)])

    def play(seed: int) -> int:
        before = decisions[0]
        env.run(is_training=False)
        return decisions[0] - before

    return RandomGames(f"RLCard {name}", play, str(getattr(library, "__version__", "")))


def peers() -> tuple[list[Subject], list[str]]:
    """Games of the installed libraries, and one line per missing library."""
    games: list[Subject] = []
    missing: list[str] = []
    for library, make, names in (
        ("open_spiel", openspiel_games, OPENSPIEL),
        ("rlcard", rlcard_games, RLCARD),
    ):
        try:
            games += [make(name) for name in names]
        except ImportError:
            missing.append(MISSING[library])
    return games, missing


def measure(world: str, speed: CardGameSpeed, seconds: float, machine: dict[str, Any]) -> dict[str, Any]:
    """All values of the report, as JSON-compatible data. `speed`: subjects and targets of the world."""
    load_before = load_average()
    own_games = speed.subjects
    peer_games, missing = peers()
    measured = measure_in_turns([*own_games, *peer_games], seconds / REPETITIONS)
    rows = []
    for m in measured:
        row = m.row()
        decisions = m.subject.settings.get("decisions_per_game", 0.0)
        row["decisions_per_second"] = m.median * decisions or None
        rows.append(row)
    return {
        "world": world, "seconds": seconds, "repetitions": REPETITIONS, "machine": machine,
        "measurements": rows, "missing": missing, "targets": targets(speed, measured[: len(own_games)]),
        "load": {"before": load_before, "after": load_average()},
    }  # fmt: skip


def targets(speed: CardGameSpeed, measurements: list[Measurement]) -> list[dict[str, Any]]:
    """Targets of one thread (per CPU second) and of two threads over one (wall clock); met None: unknown."""
    by_key = {(getattr(m.subject, "key", ""), m.subject.threads): m for m in measurements}
    results = []
    for (key, threads), m in by_key.items():
        if threads == 1 and key in speed.targets:
            value, target = m.per_core, speed.targets[key]
            results.append(
                {
                    "name": f"{m.subject.name}, games per CPU second on one thread",
                    "value": value,
                    "wanted": target,
                    "met": value >= target,
                }
            )
        elif threads == 2 and (key, 1) in by_key:
            speedup, cpu_share = ratio("two threads over one", m, by_key[key, 1]), by_key[key, 1].processors
            result = {
                "name": f"{m.subject.name}, two threads over one",
                "value": speedup["value"],
                "wanted": speed.two_threads,
                "met": speedup["value"] >= speed.two_threads,
                "ratio": speedup,
            }
            if cpu_share < MIN_CPU_SHARE:  # no free processor for a second thread: the ratio says nothing
                result |= {
                    "met": None,
                    "name": f"{result['name']} (one thread got {cpu_share:.2f} of a processor)",
                }
            results.append(result)
    return results


def lines(report: dict[str, Any], short: Callable[[float], str]) -> list[str]:
    """The report as lines of text."""
    m, rows = report["machine"], report["measurements"]
    text = [
        f"world {report['world']}; {m['processor']}, {m['processors']} processors; "
        f"load {report['load']['before']:.2f} before, {report['load']['after']:.2f} after",
        f"{report['repetitions']} repetitions in turns; median (range) of games per second; CPU: processors "
        "used on average",
        "",
    ]
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        rate_range = f"({short(row['min'])} to {short(row['max'])})"
        decisions = row["decisions_per_second"]
        decision_rate = f"{short(decisions):>7} decisions/s" if decisions else ""
        text.append(
            f"{row['name']:<{width}}  threads {row['threads']}  {short(row['median']):>7} {rate_range:<20} "
            f"games/s  CPU {row['cpu_seconds'] / row['wall_seconds']:.2f}  "
            f"{short(row['median_per_cpu_second']):>7} per CPU second  {decision_rate}".rstrip()
        )
    text += [*report["missing"], ""]
    for t in report["targets"]:
        met = "unknown" if t["met"] is None else "met" if t["met"] else "MISSED"
        text.append(f"{met:<8} {t['name']}: {short(t['value'])}; target {short(t['wanted'])}")
    return text
