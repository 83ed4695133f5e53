"""A card game beside those of OpenSpiel and RLCard, in one process, in turns: games and decisions a second.

Everybody plays at random in the fastest way that a library offers: OpenSpiel's own bots and match, in C++;
RLCard's own agents and loop. What is not installed is left out, and that is said.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from rematch.bench.timing import REPETITIONS, Measurement, Subject, in_turns, load, ratio
from rematch.core.errors import NotInstalled
from rematch.worlds.capabilities import CardGameSpeed

OPENSPIEL = ("leduc_poker", "gin_rummy", "hearts")
RLCARD = ("leduc-holdem", "uno", "gin-rummy")
MISSING = {
    "open_spiel": f"{NotInstalled('OpenSpiel', 'open_spiel')}; its games are left out",
    "rlcard": f"{NotInstalled('RLCard', 'rlcard')}; its games are left out",
}
BUSY = 0.9  # processors of one thread below which a machine is too busy to tell what a second thread gains
COUNTED = 20  # every so many games OpenSpiel's decisions are counted


class Peer:
    """Random games of another library; `play(k)` plays game k and gives how many decisions it took."""

    unit, threads = "games", 1

    def __init__(self, name: str, play: Callable[[int], int], version: str) -> None:
        self.name, self.play = name, play
        self.settings: dict[str, Any] = {"games": 1, "version": version}
        self._games, self._decisions = 0, 0

    def run(self, seconds: float) -> int:
        until, games = time.perf_counter() + seconds, 0
        while games == 0 or time.perf_counter() < until:
            self._decisions += self.play(self._games + games)
            games += 1
        self._games += games
        self.settings["decisions_per_game"] = self._decisions / self._games
        return games


def openspiel(name: str) -> Peer:
    import pyspiel

    game: Any = pyspiel.load_game(name)
    counted = [0]
    bots = [pyspiel.make_uniform_random_bot(player, 1 + player) for player in range(game.num_players())]

    def play(k: int) -> int:
        state = game.new_initial_state()
        pyspiel.evaluate_bots(state, bots, k)
        # Counting costs more than a short game: a sample of games tells how many decisions they take.
        if k % COUNTED == 0:
            counted[0] = sum(move.player >= 0 for move in state.full_history())
        return counted[0]

    return Peer(f"OpenSpiel {name}", play, str(getattr(pyspiel, "__version__", "")))


def rlcard(name: str) -> Peer:
    library: Any = importlib.import_module("rlcard")
    RandomAgent: Any = importlib.import_module("rlcard.agents").RandomAgent

    table: Any = library.make(name, config={"seed": 1})
    asked = [0]

    class Counting(RandomAgent):  # type: ignore[misc]
        """RLCard's own random player; counts how often it is asked."""

        def eval_step(self, state: Any) -> Any:
            asked[0] += 1
            return super().eval_step(state)

    table.set_agents([Counting(num_actions=table.num_actions) for _ in range(table.num_players)])

    def play(k: int) -> int:
        before = asked[0]
        table.run(is_training=False)
        return asked[0] - before

    return Peer(f"RLCard {name}", play, str(getattr(library, "__version__", "")))


def peers() -> tuple[list[Subject], list[str]]:
    """The other libraries' games that can be played here, and a line for every library that is missing."""
    found: list[Subject] = []
    missing: list[str] = []
    for library, make, names in (("open_spiel", openspiel, OPENSPIEL), ("rlcard", rlcard, RLCARD)):
        try:
            found += [make(name) for name in names]
        except ImportError:
            missing.append(MISSING[library])
    return found, missing


def measure(world: str, speed: CardGameSpeed, seconds: float, machine: dict[str, Any]) -> dict[str, Any]:
    """Everything that the table shows, as plain data. `speed`: the world's own subjects and targets."""
    started = load()
    ours = speed.subjects
    others, missing = peers()
    measured = in_turns([*ours, *others], seconds / REPETITIONS)
    rows = []
    for m in measured:
        row = m.row()
        decisions = m.subject.settings.get("decisions_per_game", 0.0)
        row["decisions_per_second"] = m.median * decisions or None
        rows.append(row)
    return {
        "world": world, "seconds": seconds, "repetitions": REPETITIONS, "machine": machine,
        "measurements": rows, "missing": missing, "targets": targets(speed, measured[: len(ours)]),
        "load": {"before": started, "after": load()},
    }  # fmt: skip


def targets(speed: CardGameSpeed, ours: list[Measurement]) -> list[dict[str, Any]]:
    """What is asked of one core, by CPU time; and of two threads over one, by the clock (None: not told)."""
    by = {(getattr(m.subject, "key", ""), m.subject.threads): m for m in ours}
    out = []
    for (key, threads), m in by.items():
        if threads == 1 and key in speed.targets:
            value, wanted = m.per_core, speed.targets[key]
            out.append(
                {
                    "name": f"{m.subject.name}, games per CPU second on one thread",
                    "value": value,
                    "wanted": wanted,
                    "met": value >= wanted,
                }
            )
        elif threads == 2 and (key, 1) in by:
            times, got = ratio("two threads over one", m, by[key, 1]), by[key, 1].processors
            about = {"name": f"{m.subject.name}, two threads over one", "value": times["value"],
                     "wanted": speed.two_threads, "met": times["value"] >= speed.two_threads, "ratio": times}
            if got < BUSY:  # then a second thread has nowhere to run, whatever it could do
                about |= {"met": None, "name": f"{about['name']} (one thread got {got:.2f} of a processor)"}
            out.append(about)
    return out


def lines(about: dict[str, Any], short: Callable[[float], str]) -> list[str]:
    """The table for people."""
    m, rows = about["machine"], about["measurements"]
    out = [
        f"world {about['world']}; {m['processor']}, {m['processors']} processors; "
        f"load {about['load']['before']:.2f} before, {about['load']['after']:.2f} after",
        f"{about['repetitions']} repetitions in turns; median (range) of whole games a second, and the "
        "processors it got on average",
        "",
    ]
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        span = f"({short(row['min'])} to {short(row['max'])})"
        decisions = row["decisions_per_second"]
        told = f"{short(decisions):>7} decisions/s" if decisions else ""
        out.append(
            f"{row['name']:<{width}}  threads {row['threads']}  {short(row['median']):>7} {span:<20} "
            f"games/s  CPU {row['cpu_seconds'] / row['wall_seconds']:.2f}  "
            f"{short(row['median_per_cpu_second']):>7} per CPU second  {told}".rstrip()
        )
    out += [*about["missing"], ""]
    for t in about["targets"]:
        met = "not told" if t["met"] is None else "met" if t["met"] else "MISSED"
        out.append(f"{met:<8} {t['name']}: {short(t['value'])}; wanted {short(t['wanted'])}")
    return out
