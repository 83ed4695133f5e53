"""What rollouts on actors cost: beside threads, by the number of actors, and a model for many machines.

Called by `python tools/checks/cluster.py cost`. A rollout of the Game Boy (32 emulators) is timed on threads
and on actors of a cluster on the same processors, in turns, so that other work on the machine hits both. The
model takes the measured times and message sizes: with m machines of `actors` each, an iteration's rollout is

    games / (m actors) * seconds of a game + fixed + shared * m / bandwidth + part bytes / bandwidth

The weights go to every machine, one after the other, and all rollouts come back over one network card.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def rollouts(trainer: Trainer, first: int, count: int) -> list[float]:
    """Seconds of each rollout; nothing is learned."""
    seconds = []
    for iteration in range(first, first + count):
        trainer.before_rollout()
        began = time.perf_counter()
        trainer.setup.collect(iteration)
        seconds.append(time.perf_counter() - began)
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
            times: dict[str, list[float]] = {"threads": [], "actors": []}
            for number in range(rounds):  # in turns: other work on the machine hits both
                times["threads"] += rollouts(local, 2 + 2 * number, 2)
                times["actors"] += rollouts(remote, 2 + 2 * number, 2)
            entry = {name: round(statistics.median(values), 4) for name, values in times.items()}
            entry["ratio"] = round(entry["actors"] / entry["threads"], 3)
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
    one, most = results["actors"]["1"], results["actors"][max(results["actors"], key=int)]
    fixed = max(0.0, one["actors"] - 2 * one["threads"]) if results["processors"] > 1 else 0.0
    per_game = (one["actors"] - fixed) / games
    reply, shared = most["replies"] / games, most["shared"]  # bytes per game; per machine
    table: dict[str, Any] = {"seconds_per_game": round(per_game, 5), "fixed_seconds": round(fixed, 4),
                             "reply_bytes_per_game": round(reply), "shared_bytes": shared}
    for name, bandwidth in BANDWIDTHS.items():
        rows = {}
        for machines in MACHINES:
            all_games = games * machines  # every machine brings its own games
            play = all_games / (machines * ACTORS_PER_MACHINE) * per_game
            network = (all_games * reply + machines * shared) / bandwidth
            rows[str(machines)] = {"seconds": round(play + fixed + network, 3),
                                   "games_per_second": round(all_games / (play + fixed + network), 1),
                                   "network_share": round(network / (play + fixed + network), 3)}
        table[name] = rows
    return table
