"""`--cluster` and `--actors`: where the games of a run are played, as a user asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rematch.cluster.connection import Cluster, connected
from rematch.cluster.driver import ClusterError
from rematch.cluster.place import RemotePlace
from rematch.cluster.rollout_actors import PATIENCE, RayPlayers
from rematch.rollout.remote_collector import PartPlayers
from rematch.training.fingerprint import fingerprint
from rematch.training.setup import RunSetup


@dataclass(frozen=True)
class ClusterRequest:
    """A cluster, and the number of actors that play a run's games; 0: one per processor of the cluster."""

    address: str
    actors: int = 0
    patience: float = PATIENCE  # seconds without a step after which an actor is replaced


@contextlib.contextmanager
def place_of(request: ClusterRequest | None) -> Iterator[RemotePlace | None]:
    """The place where a run's games are played; None: in this process."""
    if request is None:
        yield None
        return
    with connected(request.address, request.actors or None) as cluster:
        yield RemotePlace(lambda setup, orders: make_players(cluster, request, setup, orders),
                          actor_count(cluster, request))


def actor_count(cluster: Cluster, request: ClusterRequest) -> int:
    processors = cluster.processors
    if request.actors > processors:
        raise ClusterError(f"--actors = {request.actors}: the cluster at {cluster.name} has {processors} "
                           "processors; expected that number at most")
    if not processors:
        raise ClusterError(f"the cluster at {cluster.name} has no processor for actors")
    return request.actors or processors


def make_players(
    cluster: Cluster, request: ClusterRequest, setup: RunSetup, orders: Sequence[bytes]
) -> PartPlayers:
    return RayPlayers(cluster, orders, fingerprint(setup.config), setup.log.console, request.patience)
