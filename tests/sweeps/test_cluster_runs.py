"""Runs of a sweep on a cluster, here with a stand-in for the cluster and its actors."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.rollout.remote_collector import PlayerLost
from rematch.storage.tree_bytes import encode
from rematch.sweeps import cluster_runs
from rematch.sweeps.cluster_runs import ClusterChildren, RemoteRun, choose_jobs
from rematch.sweeps.processes import Task
from rematch.training import memory_estimate
from rematch.training.recipes import configure

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


# --- resources ----------------------------------------------------------------------------------------------

GIB = 1 << 30
OPTIONS = {"num_cpus": 2, "memory": GIB, "num_gpus": 0}


class Nodes:
    """A cluster of nodes with these resources."""

    name = "ray"

    def __init__(self, *resources: dict[str, float]) -> None:
        self.resources = resources

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Resources": entry} for entry in self.resources]


@pytest.mark.parametrize(("device", "nodes", "jobs"), [
    ("cpu", [{"CPU": 8.0, "memory": 100 * GIB}], 4),
    ("cpu", [{"CPU": 8.0, "memory": 3 * GIB}, {"memory": 100 * GIB}, {"CPU": 5.0, "memory": 100 * GIB}], 5),
    ("cuda", [{"CPU": 8.0, "memory": 100 * GIB}, {"CPU": 8.0, "memory": 100 * GIB, "GPU": 1.0}], 1),
])
def test_runs_at_a_time_follow_from_processors_memory_and_gpus(
        device: str, nodes: list[dict[str, float]], jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "process_bytes", lambda config: GIB)
    configs = [settings.replace(configure("quick"), {"threads": 2, "device": device})]
    cluster: Any = Nodes(*nodes)
    assert choose_jobs(cluster, configs, 20, None)[0] == jobs
    options = ClusterChildren(cluster, configs, [], jobs, GIB, lambda line: None).options
    assert (options["num_cpus"], options["memory"], options["num_gpus"]) == (2, GIB, int(device == "cuda"))


@pytest.mark.parametrize("node", [
    {"CPU": 1.0, "memory": 9.0 * GIB, "GPU": 1.0}, {"CPU": 8.0, "memory": 0.5 * GIB, "GPU": 1.0},
    {"CPU": 8.0, "memory": 9.0 * GIB}, {},
])
def test_run_that_no_node_can_hold_is_one_line(
        node: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "process_bytes", lambda config: GIB)
    configs = [settings.replace(configure("quick"), {"threads": 2, "device": "cuda"})]
    cluster: Any = Nodes(node)
    with pytest.raises(ConfigError, match=r"2 processors, a GPU and about 1\.00 GiB.*no node of the cluster"):
        choose_jobs(cluster, configs, 4, None)


class Unplaced(Cluster):
    """A cluster that has no room for an actor."""

    def actor(self, kind: type[Any], options: Any) -> Any:
        actor = Actor(self.events, False)
        actor.call = lambda method, *arguments: Future()  # type: ignore[method-assign]
        return actor


def test_run_without_a_node_says_so_and_can_be_stopped(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes with room for it were lost: Ray starts its actor when another node joins."""
    monkeypatch.setattr(cluster_runs, "PLACE_SECONDS", 0.0)
    cluster: Any = Unplaced(0)
    lines: list[str] = []
    task = Task("seed-0", tmp_path / "seed-0", ["train"])
    run = RemoteRun(cluster, task, OPTIONS, tmp_path, lambda task, line: lines.append(line))
    assert [run.poll() for _ in range(3)] == [None] * 3
    assert lines == ["waits for a node that has room for it: a run needs 2 processors and about 1.00 GiB of "
                     "memory"]
    run.terminate()
    assert run.poll() == -15 and cluster.events == ["kill"]
