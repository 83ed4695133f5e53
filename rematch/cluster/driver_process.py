"""The process that uses Ray for a command (Ray calls it a driver).

Ray ends such a process, by `_exit` and without an exception, when the Ray node of its machine is lost. So a
command starts this one as a child and talks to it in bytes: when it ends, the command still has its run.

Every request has a number, and is answered once under that number: with a result, or with the kind of an
error and one line about it. Objects and actors have numbers too, which the command gives them.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rematch.cluster.messages import Header, Link

# Kinds of errors; UNABLE: a node on which no actor starts.
FULL, TASK, LOST, VANISHED, REFUSED, UNABLE = "full", "task", "lost", "vanished", "refused", "unable"
CREATION = "error raised in its creation task"  # so Ray says that an actor's class could not be made there
PROBE_SECONDS = 60.0  # for the answer of a node
END_SECONDS = 8.0  # for the end of the connection
MOST_CALLS = 1024  # that are waited for at the same time


def probe_function() -> Callable[[], str]:
    """A function that a node runs even where Rematch is not installed: it refers to nothing here."""

    def probe() -> str:
        import json
        import platform

        try:
            from rematch.cluster.node_report import describe

            return json.dumps(describe())
        except Exception as error:
            reason = f"rematch cannot be imported: {type(error).__name__}: {error}"
            return json.dumps({"python": platform.python_version(), "error": reason})

    return probe


class Refused(Exception):
    """The connection failed."""


class Driver:
    """Answers the requests of one command."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.ray: Any = None
        self.objects: dict[int, Any] = {}
        self.actors: dict[int, Any] = {}
        self.pool = ThreadPoolExecutor(MOST_CALLS)
        self.requests: dict[str, Callable[[Header, bytes], Any]] = {
            "connect": self._connect, "put": self._put, "actor": self._actor,
            "call": self._call, "kill": self._kill, "nodes": self._nodes, "probe": self._probe,
        }  # fmt: skip

    def serve(self) -> None:
        """Until the command ends, or ends the connection."""
        while True:
            try:
                header, payload = self.link.receive()
            except EOFError:
                return
            if header["request"] == "end":
                return
            for number in header["unused"]:
                self.objects.pop(number, None)
            self._answer(header, self.requests[header["request"]], header, payload)

    def _answer(self, header: Header, work: Callable[..., Any], *arguments: Any) -> None:
        """Answer with a result; a call is answered later, by the thread that waits for it."""
        try:
            result = work(*arguments)
            if result is self.pool:
                return
            answer, payload = ({}, result) if isinstance(result, bytes) else ({"result": result}, b"")
        except Exception as error:  # of Ray: of many kinds, plain Exceptions too
            answer, payload = {"error": self._kind(error), "line": self._line(error)}, b""
        try:
            self.link.send({"number": header["number"], **answer}, payload)
        except OSError:  # the command has ended
            os._exit(1)

    # --- requests ---

    def _connect(self, header: Header, payload: bytes) -> list[Any]:
        """ray.init with these options; the address of the head's store, where this process knows it."""
        try:
            self.ray = importlib.import_module("ray")
            with warnings.catch_warnings(action="ignore"):  # Ray warns before it raises
                self.ray.init(header["address"], logging_level="CRITICAL", log_to_driver=False,
                              **header["options"])
        except Exception as error:  # Ray raises plain Exceptions too: a node that starts too slowly
            raise Refused(str(error) or type(error).__name__) from None
        if header["address"].startswith("ray://"):
            return []
        host, _, port = self.ray.get_runtime_context().gcs_address.rpartition(":")
        return [host, int(port)]

    def _put(self, header: Header, payload: bytes) -> None:
        self.objects[header["object"]] = self.ray.put(payload)

    def _actor(self, header: Header, payload: bytes) -> None:
        module, _, name = header["kind"].partition(":")
        kind = self.ray.remote(getattr(importlib.import_module(module), name))
        self.actors[header["actor"]] = kind.options(**header["options"]).remote()

    def _call(self, header: Header, payload: bytes) -> Any:
        """Call a method of an actor; a thread waits for its result."""
        arguments = [self._argument(entry, payload) for entry in header["arguments"]]
        reference = getattr(self.actors[header["actor"]], header["method"]).remote(*arguments)
        self.pool.submit(self._answer, header, self.ray.get, reference)
        return self.pool

    def _argument(self, entry: Any, payload: bytes) -> Any:
        """[] is the payload, [n] is object n, and any number is itself."""
        if not isinstance(entry, list):
            return entry
        return self.objects[entry[0]] if entry else payload

    def _kill(self, header: Header, payload: bytes) -> None:
        if (actor := self.actors.pop(header["actor"], None)) is not None:
            self.ray.kill(actor)

    def _nodes(self, header: Header, payload: bytes) -> list[dict[str, Any]]:
        """The nodes that are alive, as Ray describes them."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _probe(self, header: Header, payload: bytes) -> Any:
        """What each node has; a thread waits for them."""
        probe = self.ray.remote(probe_function())
        strategy = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        tasks = []
        for node in self._nodes(header, payload):
            place = strategy(node["NodeID"], soft=False)
            task = probe.options(num_cpus=0, scheduling_strategy=place, max_retries=0)
            tasks.append((f"{node['NodeManagerHostname']} ({node['NodeID'][:6]})", task.remote()))
        self.pool.submit(self._answer, header,
                         lambda: [[name, self._entries(task)] for name, task in tasks])
        return self.pool

    def _entries(self, task: Any) -> dict[str, str]:
        try:
            entries = json.loads(self.ray.get(task, timeout=PROBE_SECONDS))
            return {str(name): str(text) for name, text in entries.items()}
        except Exception as error:  # of Ray or of a foreign answer: the node cannot be used
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return {"error": f"no answer: {lines[-1][:200]}"}

    # --- errors ---

    def _kind(self, error: Exception) -> str:
        """Whether another actor may help (LOST), or what else has happened."""
        if isinstance(error, Refused):
            return REFUSED
        if isinstance(error, ImportError) or CREATION in str(error):
            return UNABLE
        errors = self.ray.exceptions
        if isinstance(error, errors.ObjectStoreFullError | errors.OutOfDiskError):
            return FULL
        if isinstance(error, errors.RayTaskError):
            return TASK
        return LOST if isinstance(error, errors.RayError) else VANISHED

    def _line(self, error: Exception) -> str:
        """The line of an error that names its cause; all of them where the connection failed."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        lines_of = {TASK: lines[-1], UNABLE: lines[-1], REFUSED: " ".join(lines)}
        return lines_of.get(self._kind(error), lines[0])[:400]

    def end(self) -> None:
        """End the connection; a cluster that has vanished must not keep this process waiting."""
        closing = threading.Thread(target=self.ray.shutdown if self.ray else int, daemon=True)
        closing.start()
        closing.join(END_SECONDS)


def main() -> None:
    """The process's only argument is the number of its socket."""
    driver = Driver(Link(socket.socket(fileno=int(sys.argv[1]))))
    driver.serve()
    driver.end()
    os._exit(0)  # threads that wait for lost machines do not keep the process alive


if __name__ == "__main__":
    main()
