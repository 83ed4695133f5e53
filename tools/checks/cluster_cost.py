"""What rollouts on actors cost: beside threads, by the number of actors, and a model for many machines.

Called by `python tools/checks/cluster.py cost`. A rollout of the Game Boy (32 emulators) is played on threads
and on actors of a cluster on the same processors, in turns. Seconds by the clock depend on what else the
machine does; seconds of processor time hardly do, and count Ray's own processes too. The model takes the
measured processor time and message sizes: m machines of ACTORS_PER_MACHINE processors, each with games of its
own, take for a rollout

    games / ACTORS_PER_MACHINE * seconds of a game + (m * bytes of the games + m * weights) / bandwidth

The weights go to every machine and all rollouts come back over one network card: that of the learner.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray_nodes import children_of

from rematch.cluster.connection import Cluster, connected
from rematch.cluster.place import RemotePlace
from rematch.cluster.request import ClusterRequest, make_players
from rematch.core import config as settings
from rematch.rollout.remote_collector import PartPlayers
from rematch.storage.tree_bytes import encode
from rematch.training.recipes import configure
from rematch.training.setup import RunSetup
from rematch.training.trainer import Trainer

CHANGES: dict[str, Any] = {"stagger": 0, "world.workers": 0, "explorers.games": 0, "threads": 2}
BANDWIDTHS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9}  # bytes per second
MACHINES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ACTORS_PER_MACHINE = 8


class CountedPlayers:
    """Players that count the bytes of their messages."""

    def __init__(self, players: PartPlayers) -> None:
        self.players = players
        self.bytes = {"shared": 0, "inputs": 0, "replies": 0}

    def share(self, message: bytes) -> Any:
        self.bytes["shared"] += len(message)
        return self.players.share(message)

    def check(self) -> None:
        self.players.check()

    def play(self, part: int, shared: Any, message: bytes, check: Any) -> bytes:
        reply = self.players.play(part, shared, message, check)
        self.bytes["inputs"] += len(message)
        self.bytes["replies"] += len(reply)
        return reply


class CountedPlace(RemotePlace):
    """Games on the actors of a cluster, with counted messages."""

    counted: CountedPlayers

    def __init__(self, cluster: Cluster, actors: int) -> None:
        super().__init__(self._make, actors)
        self.cluster, self.request = cluster, ClusterRequest("ray", actors)

    def _make(self, setup: RunSetup, orders: Sequence[bytes]) -> PartPlayers:
        self.counted = CountedPlayers(make_players(self.cluster, self.request, setup, orders))
        return self.counted


def processor_seconds(with_children: bool) -> float:
    """Processor time of this process so far; with that of all processes that it has started."""
    total = time.process_time()
    for process in children_of(os.getpid()) if with_children else ():
        with suppress(OSError, IndexError, ValueError):  # it has ended
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return total


def rollouts(trainer: Trainer, first: int, count: int, on_actors: bool = False) -> list[tuple[float, float]]:
    """Seconds of each rollout by the clock, and of processor time; nothing is learned."""
    seconds = []
    for iteration in range(first, first + count):
        trainer.before_rollout()
        began, used = time.perf_counter(), processor_seconds(on_actors)
        trainer.setup.collect(iteration)
        seconds.append((time.perf_counter() - began, processor_seconds(on_actors) - used))
    return seconds


def measure(
    top: Path, recipe: str = "small", counts: Sequence[int] = (1, 2, 4), rounds: int = 5
) -> dict[str, Any]:
    """Median seconds of a rollout on threads and on actors, and the model."""
    config = settings.replace(configure(recipe), CHANGES)
    local = Trainer(config)
    rollouts(local, 0, 2)
    results: dict[str, Any] = {"recipe": recipe, "games": config.games, "steps": config.steps,
                               "rollouts": 2 * rounds, "processors": len(os.sched_getaffinity(0)),
                               "load_average": round(os.getloadavg()[0], 1), "actors": {}}
    for actors in counts:
        with connected("ray", max(actors, 2)) as cluster:
            place = CountedPlace(cluster, actors)
            remote = Trainer(config, place=place)
            rollouts(remote, 0, 2)
            counted = place.counted
            counted.bytes = dict.fromkeys(counted.bytes, 0)
            times: dict[str, list[tuple[float, float]]] = {"threads": [], "actors": []}
            for number in range(rounds):  # in turns: other work on the machine hits both
                times["threads"] += rollouts(local, 2 + 2 * number, 2)
                times["actors"] += rollouts(remote, 2 + 2 * number, 2, on_actors=True)
            entry: dict[str, Any] = {}
            for name, values in times.items():
                entry[f"{name}_seconds"] = round(statistics.median(clock for clock, _ in values), 3)
                entry[f"{name}_processor_seconds"] = round(statistics.mean(used for _, used in values), 3)
            ratio = entry["actors_processor_seconds"] / entry["threads_processor_seconds"]
            entry["processor_time_ratio"] = round(ratio, 3)
            entry |= {name: size // (2 * rounds) for name, size in counted.bytes.items()}
            entry["encode_seconds"] = encode_seconds(remote)
        results["actors"][str(actors)] = entry
    results["model"] = model(results, config.games)
    return results


def encode_seconds(trainer: Trainer) -> float:
    """Seconds to write the message for all parts."""
    began = time.perf_counter()
    encode(trainer.setup.collector._shared())
    return round(time.perf_counter() - began, 5)


def model(results: dict[str, Any], games: int) -> dict[str, Any]:
    """Seconds of a rollout of `games` games per actor and iteration, on 1 to 256 machines."""
    most = results["actors"][max(results["actors"], key=int)]
    per_game = most["actors_processor_seconds"] / games
    reply, shared = most["replies"] / games, most["shared"]  # bytes per game; per machine
    table: dict[str, Any] = {"processor_seconds_per_game": round(per_game, 5),
                             "reply_bytes_per_game": round(reply), "shared_bytes": shared}
    for name, bandwidth in BANDWIDTHS.items():
        rows = {}
        for machines in MACHINES:
            all_games = games * machines  # every machine brings its own games
            play = all_games / (machines * ACTORS_PER_MACHINE) * per_game
            network = (all_games * reply + machines * shared) / bandwidth
            seconds = play + network
            rows[str(machines)] = {"seconds": round(seconds, 3), "network_share": round(network / seconds, 3),
                                   "games_per_second": round(all_games / seconds, 1)}
        table[name] = rows
    return table
