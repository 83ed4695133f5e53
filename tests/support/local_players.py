"""Players of parts of the games inside the test's own process, some of which are lost on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematch.cluster.place import RemotePlace
from rematch.cluster.rollout_actors import RolloutActor
from rematch.rollout.remote_collector import LOAD, SAVE, PlayerLost
from rematch.storage.tree_bytes import decode
from rematch.training.setup import RunSetup


class LocalPlayers:
    """A RolloutActor per part, without Ray. A loss happens before a rollout or after it."""

    def __init__(self, orders: Sequence[bytes], losses: float, seed: int) -> None:
        self.orders = orders
        self.workers = [self._worker(order) for order in orders]
        self.chances = [np.random.default_rng([seed, part]) for part in range(len(orders))]
        self.losses, self.lost, self.calls = losses, 0, 0
        self.with_states, self.saved = 0, 0  # messages that load games, and that save them

    @staticmethod
    def _worker(order: bytes) -> RolloutActor:
        actor = RolloutActor()
        reply = decode(actor.build(order))
        assert reply.keys() == {"fingerprint", "process", "node"}, reply
        return actor

    def share(self, message: bytes) -> Any:
        return message

    def play(self, part: int, shared: Any, message: bytes, check: Callable[[], None]) -> bytes:
        check()
        chance = self.chances[part].random()
        if chance < self.losses / 2:
            self._lose(part)
        reply = self.workers[part].play(shared, message)
        self.calls += 1
        self.with_states += LOAD in decode(message)
        self.saved += SAVE in decode(message)
        if chance > 1 - self.losses / 2:
            self._lose(part)
        return reply

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _lose(self, part: int) -> None:
        self.workers[part] = self._worker(self.orders[part])
        self.lost += 1
        raise PlayerLost("lost by the test")


def local_place(parts: int, losses: float = 0.0, made: list[LocalPlayers] | None = None) -> RemotePlace:
    """A place whose players are lost with this probability per rollout; `made` gets the players."""

    def make(setup: RunSetup, orders: Sequence[bytes]) -> LocalPlayers:
        players = LocalPlayers(orders, losses, 7)
        if made is not None:
            made.append(players)
        return players

    return RemotePlace(make, parts)
