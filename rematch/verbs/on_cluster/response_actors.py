"""Best responses on the actors of a cluster: each is trained as a whole, several at a time."""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rematch import api
from rematch.cluster import folder_copy
from rematch.cluster.connection import connected
from rematch.cluster.node_report import exact_entries
from rematch.cluster.request import ClusterRequest, actor_count
from rematch.cluster.rollout_actors import RayPlayers
from rematch.core.arrays import Floats, stored_int, stored_text
from rematch.core.errors import ConfigError
from rematch.evaluation.past_policies import load_past_policies
from rematch.rollout.remote_collector import ATTEMPTS, ERROR, PlayerLost, in_thread
from rematch.storage.tree_bytes import decode, encode
from rematch.training.best_response import (
    ExploitRequest,
    ResponseKey,
    TrainElsewhere,
    TrainOne,
    train_response,
)
from rematch.training.response_training import PAST, FrozenAgents
from rematch.training.trained_run import world_builder
from rematch.verbs.arguments import Log, silent

LEFT_OUT = {"chunks", "replays", "damaged", "metrics.jsonl"}  # of a run: no response needs them
PATIENCE = 300.0  # seconds without a step: between the steps of training a checkpoint plays matches


def frozen_agents(folder: Path, log: Log = silent) -> FrozenAgents:
    """The newest policies of a run, and its past ones."""
    trained = api.load(folder)
    make = world_builder(trained.config)
    past, problems = load_past_policies(folder, trained.config, make, trained.iteration, PAST)
    for line in problems:
        log(line)
    return FrozenAgents(config=trained.config, players=trained.policies, iteration=trained.iteration,
                        level=trained.curriculum, past=[stored.players for stored in past])


class ResponseActor:
    """Trains one response after another. The methods are those of RolloutActor."""

    def __init__(self) -> None:
        self.counted = 0
        self.lock = threading.Lock()

    def build(self, order: bytes) -> bytes:
        try:
            tree = decode(order, "the order for best responses")
            request = dict(tree["request"])
            self.request = ExploitRequest(**request | {"roles": tuple(request["roles"])})
            with tempfile.TemporaryDirectory(prefix="rematch-") as folder:
                run = Path(folder) / stored_text(tree, "name")
                folder_copy.apply(run, tree["run"])
                self.frozen = frozen_agents(run)
            return encode({"fingerprint": exact_entries(), "node": os.uname().nodename})
        except (ConfigError, ImportError, OSError, MemoryError) as error:
            return encode({ERROR: str(error), "node": os.uname().nodename})

    def play(self, shared: None, message: bytes) -> bytes:
        try:
            tree = decode(message)
            role, start = stored_text(tree, "role"), stored_text(tree, "start")
            key = ResponseKey(role, start, stored_int(tree, "number"))
            with self.lock:
                weights, steps = train_response(self.frozen, self.request, key, self._count)
            return encode({"weights": weights, "steps": steps})
        except (ConfigError, OSError, MemoryError, ValueError, KeyError, TypeError) as error:
            return encode({ERROR: str(error) or type(error).__name__})

    def _count(self) -> None:
        self.counted += 1

    def steps(self) -> int:
        """Steps played so far."""
        return self.counted


@contextlib.contextmanager
def response_actors(
    request: ClusterRequest | None, folder: Path, ask: ExploitRequest
) -> Iterator[TrainElsewhere | None]:
    """Trains responses on a cluster until the end of the block; None: they are trained here."""
    if request is None:
        yield None
        return
    with connected(request.address, request.actors or None) as cluster:
        count = actor_count(cluster, request)

        def elsewhere(keys: Sequence[ResponseKey]) -> TrainOne:
            order = encode({"request": asdict(ask) | {"roles": list(ask.roles)}, "name": folder.name,
                            "run": folder_copy.whole(folder, LEFT_OUT)})
            actors = RayPlayers(cluster, [order] * min(count, max(1, len(keys))), exact_entries(), silent,
                                PATIENCE, kind=ResponseActor)
            return start_training(actors, keys)

        yield elsewhere


def start_training(actors: RayPlayers, keys: Sequence[ResponseKey]) -> TrainOne:
    """Train all responses, as many at a time as there are actors; the function waits for one of them."""
    free: queue.Queue[int] = queue.Queue()
    for part in range(len(actors.orders)):
        free.put(part)
    stopped = threading.Event()

    def train(key: ResponseKey) -> tuple[Floats, int]:
        part = free.get()
        try:
            return _trained(actors, part, key, stopped)
        finally:
            free.put(part)

    jobs: dict[ResponseKey, Future[Any]] = {key: in_thread(train, key) for key in keys}

    def result(key: ResponseKey) -> tuple[Floats, int]:
        try:
            weights, steps = jobs[key].result()
            return weights, steps
        except BaseException:  # Ctrl-C, or a lost cluster: the other threads must not wait
            stopped.set()
            raise

    return result


def _trained(
    actors: RayPlayers, part: int, key: ResponseKey, stopped: threading.Event
) -> tuple[Floats, int]:
    def check() -> None:
        if stopped.is_set():
            raise ConfigError("the command was stopped")

    for _ in range(ATTEMPTS):
        with contextlib.suppress(PlayerLost):
            reply = decode(actors.play(part, None, encode(asdict(key)), check), "a trained response")
            if ERROR in reply:
                raise ConfigError(str(reply[ERROR]))
            return reply["weights"], stored_int(reply, "steps")
    raise ConfigError(f"{key.name} was lost {ATTEMPTS} times")
