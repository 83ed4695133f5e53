"""Runs of a sweep on a cluster, here with a stand-in for the cluster and its actors."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.rollout.remote_collector import PlayerLost
from rematch.storage.tree_bytes import encode
from rematch.sweeps.cluster_runs import RemoteRun
from rematch.sweeps.processes import Task

NOTHING_NEW = {"run": {"files": [], "removed": [], "complete": True}, "output": np.zeros(0, np.uint8)}


class Actor:
    """Answers at once: the run ends with its second message, unless the actor is lost."""

    def __init__(self, events: list[str], lost: bool) -> None:
        self.events, self.lost, self.asked = events, lost, 0

    def call(self, method: str, *arguments: Any) -> Future[bytes]:
        self.events.append(method)
        future: Future[bytes] = Future()
        self.asked += method == "changes"
        if method == "changes" and self.lost:
            future.set_exception(PlayerLost("the node is gone"))
        elif method == "changes":
            future.set_result(encode(NOTHING_NEW | ({"code": 0} if self.asked == 2 else {})))
        else:
            future.set_result(encode({"node": "n1", "process": 7}) if method == "start" else b"")
        return future

    def kill(self) -> None:
        self.events.append("kill")


class Cluster:
    def __init__(self, lost: int) -> None:
        self.events: list[str] = []
        self.lost = lost

    def actor(self, kind: type[Any], options: Any) -> Actor:
        self.lost -= 1
        return Actor(self.events, self.lost >= 0)

    def check(self) -> None:
        pass


@pytest.mark.parametrize("lost", [0, 2])
def test_run_that_has_ended_leaves_its_place_to_another(lost: int, tmp_path: Path) -> None:
    """A living actor holds its processors: a sweep of more runs than places would wait for ever."""
    cluster: Any = Cluster(lost)
    task = Task("seed-0", tmp_path / "seed-0", ["train"])
    run = RemoteRun(cluster, task, {"num_cpus": 1}, tmp_path, lambda task, line: None)
    polls = 0
    while run.poll() is None:
        polls += 1
        assert polls < 20
    assert run.poll() == 0 and run.lost == lost
    assert cluster.events == ["start", "changes", "kill"] * lost + [
        "start", "changes", "changes", "remove", "kill"]
