"""What rollouts on actors cost: beside threads, by the number of actors, and a model for many machines.

Called by `python tools/checks/cluster.py cost`. A rollout of the Game Boy (32 emulators) is played on threads
and on as many actors of a cluster on the same processors, in turns, in blocks of BLOCK rollouts. Seconds by
the clock depend on what else the machine does; seconds of processor time less, and count Ray's own processes
too. The model takes the measured processor time and message sizes: m machines of ACTORS_PER_MACHINE
processors, each with games of its own, take for a rollout

    games / ACTORS_PER_MACHINE * seconds of a game + m * (weights + bytes of the games) / bandwidth

The weights go to every machine, and then all rollouts come back, over one network card: that of the learner.
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
from rematch.training.recipes import configure
from rematch.training.setup import RunSetup
from rematch.training.trainer import Trainer

CHANGES: dict[str, Any] = {"stagger": 0, "world.workers": 0, "explorers.games": 0}
BANDWIDTHS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9}  # bytes per second
MACHINES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ACTORS_PER_MACHINE = 8
BLOCK = 10  # rollouts: as many as are played until the states of these games come back once


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

    def close(self) -> None:
        self.players.close()

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


def children_seconds() -> float:
    """Processor time so far of all processes that this one has started."""
    total = 0.0
    for process in children_of(os.getpid()):
        with suppress(OSError, IndexError, ValueError):  # it has ended
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return total


def rollouts(trainer: Trainer, first: int, on_actors: bool = False) -> tuple[float, float]:
    """Seconds of a rollout by the clock, and of processor time, in a block of BLOCK; nothing is learned."""
    clock, used = 0.0, 0.0
    for iteration in range(first, first + BLOCK):
        trainer.clock.iteration = iteration  # components do more before the first one
        trainer.before_rollout()
        others = children_seconds() if on_actors else 0.0  # reading it takes 3 ms, which do not count
        began, before = time.perf_counter(), time.process_time()
        trainer.setup.collect(iteration)
        used += time.process_time() - before
        clock += time.perf_counter() - began
        used += children_seconds() - others if on_actors else 0.0
    return clock / BLOCK, used / BLOCK


def measure(counts: Sequence[int], rounds: int, recipe: str = "small") -> dict[str, Any]:
    """Seconds of a rollout on threads and on actors, and the model."""
    cores = len(os.sched_getaffinity(0))
    results: dict[str, Any] = {"recipe": recipe, "rollouts": BLOCK * rounds, "processors": cores,
                               "load_average": round(os.getloadavg()[0], 1), "actors": {}}
    for actors in counts:
        config = settings.replace(configure(recipe), CHANGES | {"threads": min(actors, cores)})
        results |= {"games": config.games, "steps": config.steps}
        with connected("ray", max(actors, cores)) as cluster:
            local, place = Trainer(config), CountedPlace(cluster, actors)
            remote = Trainer(config, place=place)
            rollouts(local, 0)
            rollouts(remote, 0, on_actors=True)
            place.counted.bytes = dict.fromkeys(place.counted.bytes, 0)
            pairs = []
            for number in range(1, rounds + 1):  # in turns: other work on the machine hits both
                pairs.append((rollouts(local, BLOCK * number), rollouts(remote, BLOCK * number, True)))
        sizes = {name: size // (BLOCK * rounds) for name, size in place.counted.bytes.items()}
        entry = results["actors"][str(actors)] = {"threads": config.threads, **summary(pairs), **sizes}
        print(f"{actors} actors: {entry}", flush=True)
    results["model"] = model(results)
    return results


def summary(pairs: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> dict[str, Any]:
    """Medians over the pairs of blocks, and all ratios: actors over threads."""
    entry: dict[str, Any] = {}
    for index, name in enumerate(("seconds", "processor_seconds")):
        ratios = [actors[index] / threads[index] for threads, actors in pairs]
        entry[f"threads_{name}"] = round(statistics.median(threads[index] for threads, _ in pairs), 4)
        entry[f"actors_{name}"] = round(statistics.median(actors[index] for _, actors in pairs), 4)
        entry[f"{name}_ratio"] = round(statistics.median(ratios), 3)
        entry[f"{name}_ratios"] = [round(ratio, 3) for ratio in ratios]
    return entry


def model(results: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a rollout on 1 to 256 machines; every machine brings `games` games of its own."""
    one, games = next(iter(results["actors"].values())), results["games"]
    per_game = one["actors_processor_seconds"] / games
    reply, sent = one["replies"] / games, one["shared"] + one["inputs"]  # bytes per game; per machine
    table: dict[str, Any] = {"processor_seconds_per_game": round(per_game, 5),
                             "reply_bytes_per_game": round(reply), "sent_bytes_per_machine": sent}
    for name, bandwidth in BANDWIDTHS.items():
        rows = {}
        for machines in MACHINES:
            play = games / ACTORS_PER_MACHINE * per_game
            network = machines * (sent + games * reply) / bandwidth
            rows[str(machines)] = {"seconds": round(play + network, 3),
                                   "network_share": round(network / (play + network), 3),
                                   "games_per_second": round(machines * games / (play + network), 1)}
        table[name] = rows
    return table
