"""The driver process of a command, seen from the command: requests and their answers (driver_process.py)."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import rematch
from rematch.cluster.driver_process import END_SECONDS, FULL, LOST, REFUSED, TASK, UNABLE
from rematch.cluster.messages import Header, Link
from rematch.core.errors import ConfigError
from rematch.rollout.remote_collector import PlayerLost

VANISHED_LINE = "the Ray cluster at {} has vanished: {}"
NOTHING = 0  # number of requests that get no answer


class ClusterError(ConfigError):
    """A cluster that cannot be used: one line with the reason; the run's folder can be resumed."""


class Driver:
    """A child process that is connected to a cluster; `name` is the cluster's, for messages."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.pending: dict[int, Future[Any]] = {}
        self.numbers = itertools.count(NOTHING + 1)
        self.ended = False
        self.unused: list[int] = []  # objects that no code here refers to any more
        own_end, child_end = socket.socketpair()
        path = os.pathsep.join(filter(None, [str(Path(rematch.__file__).parents[1]),
                                             environment.get("PYTHONPATH")]))
        with child_end:
            self.child = subprocess.Popen(
                [sys.executable, "-P", "-m", "rematch.cluster.driver_process", str(child_end.fileno())],
                pass_fds=[child_end.fileno()], env=environment | {"PYTHONPATH": path}, process_group=0,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self.link = Link(own_end)
        threading.Thread(target=self._receive, daemon=True).start()

    def ask(self, request: Header, payload: bytes = b"") -> Future[Any]:
        """Send a request; the result is its answer, PlayerLost or ClusterError."""
        future: Future[Any] = Future()
        number = next(self.numbers)
        with self.lock:
            if self.ended:
                future.set_exception(self._vanished())
                return future
            self.pending[number] = future
        self._send(request | {"number": number}, payload)
        return future

    def tell(self, request: Header) -> None:
        """Send a request without waiting for its answer."""
        self._send(request | {"number": NOTHING})

    def _send(self, header: Header, payload: bytes = b"") -> None:
        unused, self.unused = self.unused, []
        with suppress(OSError):  # it has ended: the thread that receives notices that too
            self.link.send(header | {"unused": unused}, payload)

    def check(self) -> None:
        """ClusterError where Ray has ended the process."""
        if self.ended:
            raise self._vanished()

    def _vanished(self) -> ClusterError:
        return ClusterError(VANISHED_LINE.format(self.name, "Ray has ended the connection"))

    def _receive(self) -> None:
        with suppress(EOFError):
            while True:
                header, payload = self.link.receive()
                with self.lock:
                    future = self.pending.pop(header["number"], None)
                if future is None:
                    continue
                if "error" in header:
                    future.set_exception(self._exception(header))
                else:
                    future.set_result(header.get("result", payload))
        with self.lock:
            self.ended, waiting = True, list(self.pending.values())
            self.pending.clear()
        for future in waiting:
            future.set_exception(self._vanished())

    def _exception(self, header: Header) -> Exception:
        kind, line = header["error"], header["line"]
        if kind == LOST:
            return PlayerLost(line)
        texts = {FULL: "the object store of the Ray cluster is full: ", TASK: "an actor failed: ",
                 UNABLE: "Rematch does not start on a node (`rematch cluster check` shows the nodes): ",
                 REFUSED: ""}
        return ClusterError(texts.get(kind, VANISHED_LINE.format(self.name, "")) + line)

    def close(self) -> None:
        """End the connection, and the process."""
        self.tell({"request": "end"})
        try:
            self.child.wait(END_SECONDS + 2)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        with suppress(OSError):
            self.link.end.shutdown(socket.SHUT_RDWR)
        self.link.end.close()
