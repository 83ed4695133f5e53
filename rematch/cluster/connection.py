"""Connects to a Ray cluster, or starts one on this machine: token authentication on, dashboard off.

`ray` starts a cluster that listens on 127.0.0.1 alone and ends with this process; where RAY_ADDRESS is set,
it joins the cluster of that address, as a process on one of its machines. `ray://HOST:PORT` is a client of a
cluster elsewhere. With the token, programs can be run on all machines of a cluster.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from rematch.cluster.driver import VANISHED_LINE, ClusterError, Driver
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.system import system_memory
from rematch.rollout.remote_collector import PlayerLost

LOCAL = "ray"
ADDRESS = re.compile(r"ray://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
HEAD = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([1-9][0-9]{0,4})")  # of RAY_ADDRESS
LOOPBACK = re.compile(r"(127\.|localhost:|\[::1\]:)")  # a cluster that no other machine can reach
EXPECTED = "expected ray, or ray://HOST:PORT"
OBJECT_STORE = 256 << 20  # bytes of shared memory of a cluster that this process starts
TOKEN_FILE = Path(".ray") / "auth_token"  # in the home folder: where Ray looks for a token
SETTINGS = {  # of Ray, for this process and those that it starts
    "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": str(os.nice(0)),  # that of this process; Ray's own choice is 15
}  # fmt: skip
# Ray replaces 127.0.0.1 by the machine's own address and listens on all of them, unless clusters of several
# machines are switched off.
ONE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
VANISHED_SECONDS = 20.0  # without an answer, after which a cluster has vanished
CHECK_SECONDS = 2.0
CONNECT_SECONDS = 180.0  # for a cluster that is started on a busy machine
ATTEMPTS = 3  # to connect; the Ray Client server of Ray 2.60 crashes at times when it starts a process
SERVER_CRASHED = "Starting Ray client server failed"
SLOW = "timed out during startup"  # Ray waits 30 seconds for a node that it starts, and cannot be told more
POLL_SECONDS = 0.5  # between two checks for a stop request


def check_address(address: str) -> str:
    """ConfigError for an address that is neither `ray` nor ray://HOST:PORT."""
    match = ADDRESS.fullmatch(address)
    if address != LOCAL and not (match and 0 < int(match[2]) < 65536):
        raise ConfigError(f"--cluster = {address!r}: {EXPECTED}")
    return address


class Stored:
    """Bytes in the object store of a cluster, until no code here refers to them any more."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.number = number
        weakref.finalize(self, lambda: driver.unused.append(number))


class Actor:
    """An object of a class of Rematch in a process of a cluster."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver, self.number = driver, number

    def call(self, method: str, *arguments: bytes | Stored | float | None) -> Future[Any]:
        """Call a method with numbers, stored bytes, and at most one argument of other bytes. The result is
        its reply; PlayerLost where the actor has died."""
        payload, entries = b"", []
        for argument in arguments:
            if isinstance(argument, bytes):
                payload = argument
            entries.append([] if isinstance(argument, bytes)
                           else [argument.number] if isinstance(argument, Stored) else argument)
        request = {"request": "call", "actor": self.number, "method": method, "arguments": entries}
        return self.driver.ask(request, payload)

    def kill(self) -> None:
        self.driver.tell({"request": "kill", "actor": self.number})


class Cluster:
    """A connected cluster. `check` raises ClusterError once it has vanished."""

    def __init__(self, name: str, endpoint: tuple[str, int], driver: Driver) -> None:
        self.name, self.endpoint, self.driver = name, endpoint, driver
        self.numbers = itertools.count()  # of stored bytes and actors
        self.last_answer = time.monotonic()
        self.closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.closed.wait(CHECK_SECONDS):
            if listens(*self.endpoint):
                self.last_answer = time.monotonic()

    def check(self) -> None:
        if time.monotonic() - self.last_answer > VANISHED_SECONDS:
            raise ClusterError(VANISHED_LINE.format(self.name, "its head does not answer"))
        self.driver.check()

    def result(self, future: Future[Any], check: Callable[[], None] = lambda: None) -> Any:
        """The result of a request; calls `check`, which may raise, while it waits."""
        while not wait([future], POLL_SECONDS).done:
            check()
            self.check()
        return future.result()

    def put(self, message: bytes) -> Stored:
        """Store bytes, which any actor can then read."""
        number = next(self.numbers)
        self.result(self.driver.ask({"request": "put", "object": number}, message))
        return Stored(self.driver, number)

    def actor(self, kind: type[Any], options: Mapping[str, Any]) -> Actor:
        """Start an actor; the options are those of Ray."""
        number = next(self.numbers)
        self.result(self.driver.ask({"request": "actor", "actor": number, "options": dict(options),
                                     "kind": f"{kind.__module__}:{kind.__qualname__}"}))
        return Actor(self.driver, number)

    @property
    def processors(self) -> int:
        """Processors that Ray counts on all nodes together."""
        return int(sum(node["Resources"].get("CPU", 0) for node in self.nodes()))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive, as Ray describes them."""
        nodes: list[dict[str, Any]] = self.result(self.driver.ask({"request": "nodes"}))
        return nodes

    def node_entries(self) -> list[tuple[str, dict[str, str]]]:
        """The name of every node that is alive, and what it has (node_report.describe)."""
        return [(name, entries) for name, entries in self.result(self.driver.ask({"request": "probe"}))]


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
    joined = joined_address() if address == LOCAL else ""
    starts = address == LOCAL and not joined
    environment = prepare(one_machine=starts or bool(LOOPBACK.match(joined)), own_token=starts)
    if importlib.util.find_spec("ray") is None:
        raise NotInstalled("Ray", '"ray[client]>=2.54"')
    match = ADDRESS.fullmatch(address)
    if match and not listens(match[1], int(match[2])):
        raise ClusterError(f"--cluster = {address}: nothing listens there; expected the port of a Ray Client "
                           "server (ray start --head --ray-client-server-port)")
    head_of = HEAD.fullmatch(joined)
    if head_of and not listens(head_of[1], int(head_of[2])):
        raise ClusterError(f"RAY_ADDRESS = {joined}: nothing listens there; expected the address of a "
                           "cluster's head (ray start --head prints it)")
    options: dict[str, Any] = {}
    if starts:
        store = min(OBJECT_STORE, max(80 << 20, system_memory.available_bytes() // 8))
        options = {"num_cpus": processors or len(os.sched_getaffinity(0)), "include_dashboard": False,
                   "object_store_memory": store, "_node_ip_address": "127.0.0.1"}
    target = "local" if starts else joined or address
    request = {"request": "connect", "address": target, "options": options}
    driver, head = connect(address, environment, request)
    cluster = Cluster(address, (match[1], int(match[2])) if match else (head[0], head[1]), driver)
    try:
        yield cluster
    finally:
        cluster.closed.set()
        driver.close()


def joined_address() -> str:
    """RAY_ADDRESS: the head of a cluster on one of whose machines this is; empty: start a cluster."""
    text = os.environ.get("RAY_ADDRESS", "")
    if text not in ("", "auto", "local") and not HEAD.fullmatch(text):
        raise ConfigError(f"RAY_ADDRESS = {text!r}: expected HOST:PORT of a cluster's head; a client of a "
                          "cluster is --cluster ray://HOST:PORT")
    return "" if text == "local" else text


def connect(address: str, environment: dict[str, str], request: dict[str, Any]) -> tuple[Driver, list[Any]]:
    """A driver process that is connected, and the address of the cluster's head."""
    reason = ""
    for _ in range(ATTEMPTS):
        driver = Driver(address, environment)
        try:
            return driver, driver.ask(request).result(CONNECT_SECONDS)
        except TimeoutError:
            reason = "timed out"
        except (ClusterError, PlayerLost) as error:
            reason = str(error)
        except BaseException:  # Ctrl-C
            driver.close()
            raise
        driver.close()
        if SERVER_CRASHED not in reason and SLOW not in reason:
            break
    if SLOW in reason:
        raise ClusterError(f"--cluster = {address}: Ray did not start on this machine, in {ATTEMPTS} "
                           "attempts of 30 seconds: is it too busy?")
    raise ClusterError(refusal(address, reason))


def prepare(one_machine: bool, own_token: bool) -> dict[str, str]:
    """The environment variables of a process that uses Ray; ConfigError where no token is known."""
    variables = dict(os.environ) | SETTINGS | (ONE_MACHINE if one_machine else {})
    file = Path(variables.get("RAY_AUTH_TOKEN_PATH") or Path.home() / TOKEN_FILE)
    if variables.get("RAY_AUTH_TOKEN") or file.is_file():
        return variables
    if not own_token:
        raise ConfigError(f"--cluster: no token; expected that of the cluster in RAY_AUTH_TOKEN, in the file "
                          f"of RAY_AUTH_TOKEN_PATH, or in {file}")
    return variables | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}


def refusal(address: str, text: str) -> str:
    """One line about a failed connection."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    lower = text.lower()
    if "version" in lower:
        version = " ".join(text.split())[:300]
        return f"--cluster = {address}: another version of Ray or Python runs there: {version}"
    if "unauthenticated" in lower or "token" in lower:
        return f"--cluster = {address}: the cluster refused the token (RAY_AUTH_TOKEN): {line[:200]}"
    if any(words in lower for words in ("timeout", "timed out", "failed to connect")):
        return (f"--cluster = {address}: something listens there, but does not answer as Ray: expected the "
                "cluster's token in RAY_AUTH_TOKEN, and the port of its Ray Client server")
    return f"--cluster = {address}: {line[:300]}"
