"""A Ray cluster whose nodes have network namespaces of their own, each with an address of its own.

Like ray_nodes.py, for checks on one machine, but nodes reach each other only through a virtual Ethernet
bridge: no node can connect to 127.0.0.1 of another, and every byte between nodes crosses the bridge, where
its rate can be limited (`rate`). Linux, needs root, `ip` and `tc`.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_nodes import STORE, RayNodes, children_of, command_of, free_port, kill_all

from rematch.cluster.connection import ONE_MACHINE, listens

NETWORK = "10.77"  # first half of all addresses
HEAD = f"{NETWORK}.0.1"
START_SECONDS = 90.0


class NamespaceNode:
    """One `ray start` in a namespace; the head is in that of the machine."""

    def __init__(self, name: str, address: str, words: list[str]) -> None:
        self.name, self.address = name, address
        enter = ["ip", "netns", "exec", name] if name else []
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
        options = ["--block", "--node-ip-address", address, "--object-store-memory", str(STORE)]
        self.process = subprocess.Popen([*enter, *ray, "start", *options, *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def processes(self) -> list[int]:
        return [self.process.pid, *children_of(self.process.pid)]


class NamespaceNodes(RayNodes):
    """A head without processors for games, and `nodes` others, each in a namespace."""

    addresses = "one per node"

    def __init__(self, nodes: int, processors: int = 1, rate: str = "") -> None:
        """rate: of each node's network, as `tc` writes it: 1gbit."""
        self.tag, self.made, self.rate = secrets.token_hex(3), 0, rate
        self.names: list[str] = []
        self.bridge = f"rm{self.tag}"
        command("ip", "link", "add", self.bridge, "type", "bridge")
        command("ip", "addr", "add", f"{HEAD}/16", "dev", self.bridge)
        command("ip", "link", "set", self.bridge, "up")
        self.gcs_port = free_port()
        self.head: NamespaceNode | None = None
        super().__init__(nodes, processors)

    def start(self) -> None:
        for name in ONE_MACHINE:
            os.environ.pop(name, None)
        self.nodes = []
        words = ["--head", "--port", str(self.gcs_port), "--num-cpus", "0", "--include-dashboard", "false",
                 "--ray-client-server-port", str(self.port)]
        self.head = NamespaceNode("", HEAD, words)
        wait_until(lambda: listens(HEAD, self.gcs_port) and listens(HEAD, self.port))
        for _ in range(self.count):
            self.add()

    @property
    def address(self) -> str:
        return f"ray://{HEAD}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {"RAY_ADDRESS": f"{HEAD}:{self.gcs_port}"}

    def add(self) -> None:
        self.made += 1
        name, address = f"rm{self.tag}-{self.made}", f"{NETWORK}.1.{self.made}"
        outer, inner = f"rm{self.tag}o{self.made}", f"rm{self.tag}i{self.made}"
        command("ip", "netns", "add", name)
        self.names.append(name)
        command("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        command("ip", "link", "set", outer, "master", self.bridge, "up")
        command("ip", "link", "set", inner, "netns", name)
        inside = ("ip", "-n", name)
        command(*inside, "addr", "add", f"{address}/16", "dev", inner)
        command(*inside, "link", "set", inner, "up")
        command(*inside, "link", "set", "lo", "up")
        if self.rate:
            for enter, device in (((), outer), (("ip", "netns", "exec", name), inner)):
                command(*enter, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate,
                        "burst", "1mb", "latency", "50ms")
        words = ["--address", f"{HEAD}:{self.gcs_port}", "--num-cpus", str(self.processors)]
        node = NamespaceNode(name, address, words)
        self.nodes.append(node)
        wait_until(lambda: any("raylet/raylet" in command_of(process) for process in node.processes()))

    def bytes_received(self) -> int:
        """Bytes that have come over the bridge from all nodes so far."""
        folders = Path("/sys/class/net").glob(f"rm{self.tag}o*")
        return sum(int((folder / "statistics/rx_bytes").read_text()) for folder in folders)

    def kill(self, index: int) -> None:
        node = self.nodes.pop(index)
        kill_all(node.processes())
        node.process.wait()
        self._remove(node.name)

    def workers(self, index: int) -> list[int]:
        processes = self.nodes[index].processes()
        return [process for process in processes if command_of(process).startswith("ray::")]

    def stop(self) -> None:
        nodes = [*self.nodes, *([self.head] if self.head is not None else [])]
        kill_all([process for node in nodes for process in node.processes()])
        for node in nodes:
            node.process.wait()
        self.nodes, self.head = [], None
        for name in list(self.names):
            self._remove(name)

    def _remove(self, name: str) -> None:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.names.remove(name)

    def __exit__(self, *error: Any) -> None:
        self.stop()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)


def command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip() or 'failed'}; expected Linux and root")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"a Ray node did not start within {START_SECONDS:.0f} seconds")
        time.sleep(0.2)
