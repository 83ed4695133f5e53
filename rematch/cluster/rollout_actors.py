"""Ray actors that play parts of a run's games; one that dies or hangs is replaced.

Messages are bytes in both directions (storage/tree_bytes.py): Ray passes them on as they are, and nothing
that an actor sends is unpickled.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rematch.cluster.connection import Actor, Cluster, Stored
from rematch.cluster.driver import ClusterError
from rematch.cluster.rollout_worker import RolloutWorker
from rematch.core.errors import ConfigError
from rematch.rollout.remote_collector import ERROR, PlayerLost
from rematch.storage.tree_bytes import decode, encode

PATIENCE = 30.0  # seconds without a step after which an actor hangs
BUILD_PATIENCE = 300.0  # seconds in which a new actor must have built its world


class RolloutActor:
    """One RolloutWorker in a process of Ray; `steps` answers while it plays."""

    def __init__(self) -> None:
        self.worker: RolloutWorker | None = None
        self.lock = threading.Lock()

    def build(self, order: bytes) -> bytes:
        """Build the worker; the reply names the node, or has the reason why it cannot play."""
        try:
            self.worker = RolloutWorker(order)
            return encode({"fingerprint": self.worker.fingerprint(), "process": os.getpid(),
                           "node": os.uname().nodename})
        except (ConfigError, ImportError, OSError, MemoryError) as error:
            return encode({ERROR: str(error), "node": os.uname().nodename})

    def play(self, shared: bytes | None, message: bytes) -> bytes:
        with self.lock:  # a rollout that was given up may still be played
            assert self.worker is not None, "build comes first"
            return self.worker.play(shared, message)

    def steps(self) -> int:
        """Steps played so far."""
        return self.worker.steps if self.worker is not None else 0


class RayPlayers:
    """An actor per part of the games. See rematch.rollout.remote_collector.PartPlayers."""

    def __init__(
        self, cluster: Cluster, orders: Sequence[bytes], fingerprint: Mapping[str, str],
        log: Callable[[str], None], patience: float = PATIENCE, *, kind: type[Any] = RolloutActor,
    ) -> None:  # fmt: skip
        """fingerprint: the entries in which every node must equal this machine. kind: of other actors, with
        the methods of RolloutActor."""
        self.cluster, self.orders, self.kind = cluster, orders, kind
        self.fingerprint = {name: str(entry) for name, entry in fingerprint.items()}
        self.log, self.patience = log, patience
        self.lost = 0  # actors that were replaced
        self.actors = [self._start(1) for _ in orders]
        self.built = [False] * len(orders)

    def _start(self, processors: int) -> Actor:
        """A new actor, on the node with the fewest of them. A replacement reserves no processor: it must find
        a place on the nodes that are left."""
        return self.cluster.actor(self.kind, {"num_cpus": processors, "max_concurrency": 4,
                                              "scheduling_strategy": "SPREAD"})

    # --- PartPlayers ---

    def check(self) -> None:
        self.cluster.check()

    def close(self) -> None:
        for actor in self.actors:
            actor.kill()

    def share(self, message: bytes) -> Stored:
        return self.cluster.put(message)

    def play(self, part: int, shared: Any, message: bytes, check: Callable[[], None]) -> bytes:
        try:
            if not self.built[part]:
                self._build(part, check)
            reply: bytes = self._wait(part, self.actors[part].call("play", shared, message), check,
                                      self.patience)
            return reply
        except PlayerLost as lost:
            self._replace(part, str(lost))
            raise

    def _build(self, part: int, check: Callable[[], None]) -> None:
        answer = self.actors[part].call("build", self.orders[part])
        reply = decode(self._wait(part, answer, check, BUILD_PATIENCE), "the reply of a new actor")
        node = str(reply.get("node", ""))
        if ERROR in reply:
            raise ClusterError(f"node {node}: {reply[ERROR]}")
        theirs, differ = dict(reply["fingerprint"]), []
        for name in sorted(self.fingerprint.keys() | theirs.keys()):
            if self.fingerprint.get(name) != theirs.get(name):
                differ.append(name)
        if differ:
            raise ClusterError(f"node {node} has another {', '.join(differ)} than this machine: its games "
                               "would have other bits; `rematch cluster check` shows the nodes")
        self.built[part] = True

    def _wait(self, part: int, answer: Future[Any], check: Callable[[], None], patience: float) -> Any:
        """The result of a call; PlayerLost where the actor died, or made no step for `patience` seconds."""
        steps, deadline = -1, time.monotonic() + patience

        def check_actor() -> None:
            nonlocal steps, deadline
            check()
            if time.monotonic() > deadline:
                now = self._steps(part)
                if now is None or now <= steps:
                    raise PlayerLost(f"no step for {patience:.0f} seconds")
                steps, deadline = now, time.monotonic() + patience

        return self.cluster.result(answer, check_actor)

    def _steps(self, part: int) -> int | None:
        """The steps that an actor has played; None where it does not answer."""
        try:
            count: int = self.actors[part].call("steps").result(min(10.0, self.patience))
            return count
        except (PlayerLost, TimeoutError):
            return None

    def _replace(self, part: int, reason: str) -> None:
        """Another actor for a part whose actor was lost."""
        self.lost += 1
        self.log(f"the actor of part {part} was lost ({reason}): its games are restored and played again")
        self.actors[part].kill()
        self.actors[part], self.built[part] = self._start(0), False
