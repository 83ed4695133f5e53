"""The driver process with a stand-in for Ray: every fault is one line, and none ends the command."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rematch.cluster.connection import ATTEMPTS, Cluster, connected
from rematch.cluster.driver import ClusterError
from rematch.cluster.rollout_actors import RayPlayers
from rematch.rollout.remote_collector import PlayerLost
from rematch.storage.tree_bytes import encode

RAY = '''
import os, threading, time
from concurrent.futures import Future

class exceptions:
    class RayError(Exception): pass
    class RayTaskError(RayError): pass
    class ActorDiedError(RayError): pass
    class ObjectStoreFullError(RayError): pass
    class OutOfDiskError(RayError): pass

live = 0

class Reference:
    def __init__(self, value):
        global live
        live, self.value = live + 1, value
    def __del__(self):
        global live
        live -= 1

def init(address, **options):
    fault = os.environ["STUB_FAULT"]
    if fault == "exit":
        os._exit(1)
    if fault == "version":
        raise RuntimeError("Version mismatch: The cluster has:\\n    Ray: 2.50.0\\n    Python: 3.9")
    if fault == "token":
        raise RuntimeError("Unauthenticated: wrong token")
    if fault == "slow" or fault == "slow once" and not os.path.exists(os.environ["STUB_FILE"]):
        open(os.environ["STUB_FILE"], "a").write("x")
        raise Exception("The current node timed out during startup. This could happen because some of the "
                        "raylet failed to startup or the GCS has become overloaded.")
    if fault == "crash" and not os.path.exists(os.environ["STUB_FILE"]):
        open(os.environ["STUB_FILE"], "w").close()
        raise RuntimeError("RuntimeError: Starting Ray client server failed. See the log")

class Context:
    gcs_address = "127.0.0.1:" + os.environ["STUB_PORT"]

def get_runtime_context():
    return Context

def put(value):
    if os.environ["STUB_FAULT"] == "full":
        raise exceptions.ObjectStoreFullError("The object store is full of objects\\nthat are still in scope")
    return Reference(value)

class Method:
    def __init__(self, method):
        self.method = method
    def remote(self, *arguments):
        future = Future()
        def work():
            try:
                values = [each.value if isinstance(each, Reference) else each for each in arguments]
                future.set_result(self.method(*values))
            except Exception as error:
                future.set_exception(error)
        threading.Thread(target=work, daemon=True).start()
        return future

class Handle:
    def __init__(self, actor):
        self.actor = actor
    def __getattr__(self, name):
        return Method(getattr(self.actor, name))

class Remote:
    def __init__(self, kind):
        self.kind = kind
    def options(self, **options):
        return self
    def remote(self):
        return Handle(self.kind())

remote = Remote

def get(future, timeout=None):
    return future.result(timeout)

def kill(actor):
    pass

def nodes():
    return [{"Alive": True, "Resources": {"CPU": float(live)}}, {"Alive": False, "Resources": {"CPU": 9}}]

def shutdown():
    pass
'''
ACTORS = '''
import os, time
import ray
from rematch.storage.tree_bytes import decode, encode

class Player:
    steps_played = 0

    def build(self, order):
        self.order = decode(order)
        if self.order["fault"] == "core":
            return encode({"error": "core of networks missing: no compiler", "node": "n1"})
        return encode({"fingerprint": {"numpy": self.order["numpy"]}, "node": "n1"})

    def play(self, shared, message):
        fault = self.order["fault"]
        if fault == "dies":
            raise ray.exceptions.ActorDiedError("The actor died\\nbecause of a lost node")
        if fault == "raises":
            raise ray.exceptions.RayTaskError("Traceback\\n  File\\nZeroDivisionError: division by zero")
        if fault == "missing":  # a client of Ray gets the exception itself
            raise ModuleNotFoundError("No module named 'rematch'")
        if fault == "creation":
            raise ray.exceptions.ActorDiedError("The actor died because of an error raised in its creation "
                                                "task, ray::P()\\nImportError: No module named 'rematch'")
        if fault == "vanishes":
            os._exit(1)
        if fault == "hangs":
            time.sleep(60)
        return bytes(shared or b"") + message

    def steps(self):
        return self.steps_played
'''
Connect = Callable[[str], Cluster]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connects to a stand-in cluster with a fault."""
    for name, text in (("ray", RAY), ("stub_actors", ACTORS)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("STUB_FILE", str(tmp_path / "crashed"))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    open_blocks: list[Any] = []
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        monkeypatch.setenv("STUB_PORT", str(head.getsockname()[1]))

        def start(fault: str) -> Cluster:
            monkeypatch.setenv("STUB_FAULT", fault)
            block = connected("ray")
            cluster: Cluster = block.__enter__()
            open_blocks.append(block)
            return cluster

        yield start
        for block in open_blocks:
            block.__exit__(None, None, None)


def players(cluster: Cluster, fault: str, numpy: str = "1", patience: float = 30.0) -> RayPlayers:
    kind = importlib.import_module("stub_actors").Player
    order = encode({"fault": fault, "numpy": numpy})
    return RayPlayers(cluster, [order], {"numpy": "1"}, lambda line: None, patience, kind=kind)


def nothing() -> None:
    pass


@pytest.mark.parametrize(("fault", "line"), [
    ("exit", "--cluster = ray: the Ray cluster at ray has vanished: Ray has ended the connection"),
    ("version", "--cluster = ray: another version of Ray or Python runs there: .* Ray: 2.50.0 Python: 3.9"),
    ("token", r"--cluster = ray: the cluster refused the token \(RAY_AUTH_TOKEN\): Unauthenticated"),
])
def test_failed_connection_is_one_line(connect: Connect, fault: str, line: str) -> None:
    with pytest.raises(ClusterError, match=line) as caught:
        connect(fault)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("fault", ["crash", "slow once"])
def test_connection_is_tried_again(connect: Connect, fault: str, tmp_path: Path) -> None:
    """Where the Ray Client server crashed, and where Ray gave up after 30 seconds on a busy machine."""
    assert connect(fault).nodes()
    assert (tmp_path / "crashed").exists()


def test_cluster_that_starts_too_slowly_is_one_line(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"^--cluster = ray: Ray did not start .* too busy\?$") as caught:
        connect("slow")
    assert "token" not in str(caught.value)
    assert (tmp_path / "crashed").read_text() == "x" * ATTEMPTS


def test_bytes_arrive_unchanged_and_objects_are_freed(connect: Connect) -> None:
    cluster = connect("")
    playing = players(cluster, "")
    large = os.urandom(5 << 20)
    shared = playing.share(large)
    assert playing.play(0, shared, b"\0tail", nothing) == large + b"\0tail"
    assert playing.play(0, None, b"tail", nothing) == b"tail"
    assert cluster.processors == 1  # the stand-in counts its objects there
    del shared
    cluster.nodes()
    assert cluster.processors == 0


def test_full_object_store_is_one_line(connect: Connect) -> None:
    with pytest.raises(ClusterError, match=r"^the object store of the Ray cluster is full: The object store"):
        players(connect("full"), "").share(b"weights")


def test_node_with_another_version_or_without_a_core_is_refused(connect: Connect) -> None:
    cluster = connect("")
    with pytest.raises(ClusterError, match="node n1 has another numpy than this machine: its games would"):
        players(cluster, "", numpy="2").play(0, None, b"x", nothing)
    with pytest.raises(ClusterError, match="node n1: core of networks missing: no compiler"):
        players(cluster, "core").play(0, None, b"x", nothing)


@pytest.mark.parametrize("fault", ["missing", "creation"])
def test_node_without_rematch_is_one_line_and_no_lost_player(connect: Connect, fault: str) -> None:
    line = r"^Rematch does not start on a node \(.*\): .*No module named 'rematch'$"
    with pytest.raises(ClusterError, match=line):
        players(connect(""), fault).play(0, None, b"x", nothing)


def test_lost_actor_is_no_failing_actor(connect: Connect) -> None:
    cluster = connect("")
    lost = players(cluster, "dies")
    with pytest.raises(PlayerLost, match=r"^The actor died$"):
        lost.play(0, None, b"x", nothing)
    assert lost.lost == 1
    with pytest.raises(ClusterError, match=r"^an actor failed: ZeroDivisionError: division by zero$"):
        players(cluster, "raises").play(0, None, b"x", nothing)
    with pytest.raises(PlayerLost, match="no step for 1 seconds"):
        players(cluster, "hangs", patience=1.0).play(0, None, b"x", nothing)


def test_process_that_ray_ends_is_a_vanished_cluster(connect: Connect) -> None:
    """Ray calls _exit in the process that uses it: the command and every later call see one line."""
    cluster = connect("")
    line = "^the Ray cluster at ray has vanished: Ray has ended the connection$"
    began = time.monotonic()
    with pytest.raises(ClusterError, match=line):
        players(cluster, "vanishes").play(0, None, b"x", nothing)
    for call in (cluster.check, cluster.nodes, lambda: cluster.put(b"x")):
        with pytest.raises(ClusterError, match=line):
            call()
    assert time.monotonic() - began < 120
