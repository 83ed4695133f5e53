"""A Ray cluster of several nodes on one machine, each with processes and ports of its own, on 127.0.0.1.

For checks and tests: nodes can be killed by SIGKILL and replaced. Import this module before Ray.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from rematch.cluster.connection import ONE_MACHINE, SETTINGS

ATTEMPTS = 6  # to start a node
STORE = 100 << 20  # bytes of shared memory of each node
FAST_DETECTION = {  # a lost node is noticed after about three seconds
    "RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000", "RAY_health_check_failure_threshold": "4",
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def retried(start: Callable[[], Any]) -> Any:
    """Ray waits 30 seconds for a node; on a busy machine it may take longer."""
    for _ in range(ATTEMPTS - 1):
        with suppress(Exception):
            return start()
    return start()


def children_of(process: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                words = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(words[1])
    found, new = [], [process]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


class RayNodes:
    """A head without processors for games, and `nodes` others with `processors` each."""

    addresses = "one"  # how many network addresses the nodes have together

    def __init__(self, nodes: int, processors: int = 1, port: int | None = None,
                 variables: Mapping[str, str] | None = None, system: Mapping[str, Any] | None = None) -> None:
        """`variables`: of the processes of the nodes, but not of the head; `system`: settings of Ray."""
        os.environ.update(SETTINGS | ONE_MACHINE | FAST_DETECTION | {"GRPC_ENABLE_FORK_SUPPORT": "0"})
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        self.processors, self.count, self.variables = processors, nodes, dict(variables or {})
        self.system = dict(system or {})
        self.port = port or free_port()
        self.nodes: list[Any] = []
        self.start()

    def start(self) -> None:
        """Start the head and all nodes."""
        from ray.cluster_utils import Cluster

        head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False,
                                "ray_client_server_port": self.port}
        if self.system:
            head["_system_config"] = self.system
        self.cluster: Any = retried(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.nodes = []
        for _ in range(self.count):
            self.add()

    @property
    def address(self) -> str:
        """For `--cluster`: of the Ray Client server on the head."""
        return f"ray://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a command on this machine joins the cluster by `--cluster ray`."""
        return dict(os.environ) | {"RAY_ADDRESS": str(self.cluster.address)}

    def add(self) -> None:
        """Start one more node."""
        options = {"num_cpus": self.processors, "object_store_memory": STORE}
        with patch.dict(os.environ, self.variables):  # the processes of the node inherit them
            self.nodes.append(retried(lambda: self.cluster.add_node(**options)))

    def kill(self, index: int) -> None:
        """SIGKILL to all processes of a node at once."""
        node = self.nodes.pop(index)
        kill_all(self._processes(node))
        self.cluster.worker_nodes.discard(node)

    def workers(self, index: int) -> list[int]:
        """The processes of a node that run actors and tasks."""
        (raylet,) = self._raylets(self.nodes[index])
        return [process for process in children_of(raylet) if command_of(process).startswith("ray::")]

    @staticmethod
    def _raylets(node: Any) -> list[int]:
        return [entry.process.pid for entry in node.all_processes["raylet"]]

    def _processes(self, node: Any) -> list[int]:
        own = [entry.process.pid for entries in node.all_processes.values() for entry in entries]
        return own + [child for process in own for child in children_of(process)]

    def restart_head(self) -> None:
        """Kill everything, as when the machine of the head goes down, and start the cluster again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """SIGKILL to all processes of the cluster."""
        if self.cluster.head_node is None:  # stopped before
            return
        kill_all([process for node in (*self.nodes, self.cluster.head_node)
                  for process in self._processes(node)])
        time.sleep(0.2)
        with suppress(Exception):  # Ray finds its processes dead
            self.cluster.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()


def kill_all(processes: Sequence[int]) -> None:
    """SIGKILL to all of them."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def command_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
