"""Connects to a Ray cluster, or starts one on this machine: token authentication on, dashboard off.

`ray` starts a cluster that listens on 127.0.0.1 alone and ends with this process; where RAY_ADDRESS is set,
it joins the cluster of that address, as a process on one of its machines. `ray://HOST:PORT` is a client of a
cluster elsewhere. Whoever has the token can run programs on all machines of a cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import re
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.system import system_memory

LOCAL = "ray"
ADDRESS = re.compile(r"ray://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
EXPECTED = "expected ray, or ray://HOST:PORT"
OBJECT_STORE = 256 << 20  # bytes of shared memory of a cluster that this process starts
TOKEN_FILE = Path(".ray") / "auth_token"  # in the home folder: where Ray looks for a token
SETTINGS = {  # of Ray, for this process and those that it starts
    "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}  # fmt: skip
# Ray replaces 127.0.0.1 by the machine's own address and listens on all of them, unless clusters of several
# machines are switched off.
ONE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
VANISHED_SECONDS = 20.0  # without an answer, after which a cluster has vanished
CHECK_SECONDS = 2.0
SHUTDOWN_SECONDS = 10.0
VANISHED = "the Ray cluster at {} has vanished: {}"


class ClusterError(ConfigError):
    """A cluster that cannot be used: one line with the reason; the run's folder can be resumed."""


def load_ray() -> Any:
    """The module ray; NotInstalled where it is missing."""
    if importlib.util.find_spec("ray") is None:
        raise NotInstalled("Ray", '"ray[client]>=2.54"')
    return importlib.import_module("ray")


def check_address(address: str) -> str:
    """ConfigError for an address that is neither `ray` nor ray://HOST:PORT."""
    match = ADDRESS.fullmatch(address)
    if address != LOCAL and not (match and 0 < int(match[2]) < 65536):
        raise ConfigError(f"--cluster = {address!r}: {EXPECTED}")
    return address


class Cluster:
    """A connected cluster. `check` raises ClusterError once it has vanished."""

    def __init__(self, name: str, endpoint: tuple[str, int], ray: Any) -> None:
        self.name, self.endpoint, self.ray = name, endpoint, ray
        self.last_answer = time.monotonic()
        self.closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.closed.wait(CHECK_SECONDS):
            if listens(*self.endpoint):
                self.last_answer = time.monotonic()

    @property
    def answers(self) -> bool:
        """Whether its head has answered lately."""
        return time.monotonic() - self.last_answer <= VANISHED_SECONDS

    def check(self) -> None:
        if not self.answers:
            raise ClusterError(VANISHED.format(self.name, "its head does not answer"))

    @property
    def processors(self) -> int:
        """Processors that Ray counts on all nodes together."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive, as Ray describes them."""
        return [node for node in self.ray.nodes() if node["Alive"]]


def listens(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=CHECK_SECONDS):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def connected(address: str, processors: int | None = None) -> Iterator[Cluster]:
    """A cluster until the end of the block. `processors`: of a cluster that is started here."""
    check_address(address)
    joins = address == LOCAL and bool(os.environ.get("RAY_ADDRESS"))
    prepare(one_machine=address == LOCAL and not joins, own_token=address == LOCAL and not joins)
    ray = load_ray()
    match = ADDRESS.fullmatch(address)
    if match and not listens(match[1], int(match[2])):
        raise ClusterError(f"--cluster = {address}: nothing listens there; expected the port of a Ray Client "
                           "server (ray start --head --ray-client-server-port)")
    if ray.is_initialized():
        raise ClusterError("this process is connected to a cluster already")
    quiet = {"logging_level": "CRITICAL", "log_to_driver": False}
    try:
        with warnings.catch_warnings(action="ignore"):  # Ray warns before it raises
            if match or joins:
                ray.init(os.environ["RAY_ADDRESS"] if joins else address, **quiet)
            else:
                count = processors or len(os.sched_getaffinity(0))
                store = min(OBJECT_STORE, max(80 << 20, system_memory.available_bytes() // 8))
                ray.init("local", num_cpus=count, include_dashboard=False, object_store_memory=store,
                         _node_ip_address="127.0.0.1", **quiet)
    except Exception as error:  # Ray raises plain Exceptions too: a node that starts too slowly
        raise ClusterError(refusal(address, str(error))) from None
    host, port = (match[1], int(match[2])) if match else _head_of(ray)
    cluster = Cluster(address, (host, port), ray)
    try:
        yield cluster
    finally:
        cluster.closed.set()
        disconnect(ray)


def disconnect(ray: Any) -> None:
    """End the connection; a cluster that has vanished must not keep this process waiting."""
    closing = threading.Thread(target=ray.shutdown, daemon=True)
    closing.start()
    closing.join(SHUTDOWN_SECONDS)
    if closing.is_alive():
        atexit.unregister(importlib.import_module("ray._private.worker").shutdown)


def _head_of(ray: Any) -> tuple[str, int]:
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return host, int(port)


def prepare(one_machine: bool, own_token: bool) -> None:
    """Set Ray's environment variables, before Ray is imported; ConfigError where no token is known."""
    os.environ.update(SETTINGS)
    if one_machine:
        os.environ.update(ONE_MACHINE)
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / TOKEN_FILE)
    if os.environ.get("RAY_AUTH_TOKEN") or file.is_file():
        return
    if not own_token:
        raise ConfigError(f"--cluster: no token; expected that of the cluster in RAY_AUTH_TOKEN, in the file "
                          f"of RAY_AUTH_TOKEN_PATH, or in {file}")
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def refusal(address: str, text: str) -> str:
    """One line about a failed connection."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    lower = text.lower()
    if "version" in lower:
        version = " ".join(text.split())[:300]
        return f"--cluster = {address}: another version of Ray or Python runs there: {version}"
    if "unauthenticated" in lower or "token" in lower:
        return f"--cluster = {address}: the cluster refused the token (RAY_AUTH_TOKEN): {line[:200]}"
    if "timeout" in lower or "timed out" in lower:
        return (f"--cluster = {address}: something listens there, but does not answer as Ray: expected the "
                "cluster's token in RAY_AUTH_TOKEN, and the port of its Ray Client server")
    return f"--cluster = {address}: {line[:300]}"
