"""Runs of a sweep on the nodes of a cluster; their folders here grow with those on the nodes.

A run whose node is lost goes on elsewhere, from the newest checkpoint that has arrived here, to the same
bytes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rematch.cluster import folder_copy
from rematch.cluster.connection import Cluster
from rematch.cluster.driver import ClusterError
from rematch.cluster.node_report import ERROR, describe
from rematch.cluster.run_actor import RunActor
from rematch.core.arrays import Tree
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system import user_code
from rematch.rollout.remote_collector import PlayerLost
from rematch.storage.run_lock import RunLock
from rematch.storage.tree_bytes import decode, encode
from rematch.sweeps.processes import Children, Task, gib
from rematch.training import memory_estimate

SYNC_SECONDS = 1.0  # between two looks at a folder on a node
PATIENCE = 60.0  # seconds without an answer after which a node is lost
PLACE_SECONDS = 30.0  # without a node that takes a run, after which a line says so
ATTEMPTS = 8  # nodes that a run may lose


class RemoteRun:
    """A run on a node, with the methods of subprocess.Popen that a sweep uses."""

    pid = 0

    def __init__(self, cluster: Cluster, task: Task, options: dict[str, Any], top: Path,
                 log: Callable[[Task, str], None]) -> None:
        self.cluster, self.task = cluster, task
        self.options, self.top, self.log = options, top, log
        self.code: int | None = None
        self.lost, self.signal, self.waits = 0, 0, False  # waits: a line says that no node takes it
        task.folder.mkdir(0o700, parents=True, exist_ok=True)
        self.lock = RunLock(task.folder)  # `rematch status` sees that it is running
        self._start()

    def _start(self) -> None:
        """Send the folder as it is here to an actor, and let it continue."""
        task = self.task
        name = os.path.relpath(task.folder, self.top)
        words = ["resume", f"{{TOP}}/{name}"] if task.started else [
            word.replace(str(self.top), "{TOP}") for word in task.command]
        named = [Path(word.partition("=")[2] or word) for word in task.command]
        files = [str(path.relative_to(self.top)) for path in named
                 if path.is_relative_to(self.top) and path.is_file()]
        beside = {"files": folder_copy.whole_files(self.top, files), "removed": []}
        order = {"machine": describe(), "folder": name, "beside": beside,
                 "command": [*words, *user_code.child_flags()],
                 "run": folder_copy.whole(task.folder), "threads": max(1, int(self.options["num_cpus"]))}
        self.actor = self.cluster.actor(RunActor, self.options)
        self.reply = self.actor.call("start", encode(order))
        self.started, self.since = False, time.monotonic()

    def poll(self) -> int | None:
        """Take the changes that have arrived; the exit code once the run has ended."""
        if self.code is None:
            try:
                self._take()
                self.cluster.check()
            except PlayerLost as lost:
                self._move(str(lost))
        return self.code

    def _take(self) -> None:
        if not self.reply.done():
            waited = time.monotonic() - self.since
            if not self.started:
                self._pending(waited)
            elif waited > PATIENCE:
                raise PlayerLost(f"no answer for {PATIENCE:.0f} seconds")
            return
        reply = decode(self.reply.result(), "the reply of a run")
        self.since = time.monotonic()
        if self.started:
            self._store(reply)
        elif ERROR in reply:
            self._end(1)
            raise ClusterError(f"node {reply['node']} cannot train for this machine: {reply[ERROR]}")
        else:
            self.log(self.task, f"runs on node {reply['node']} (process {reply['process']})")
            self.started, self.waits = True, False
            if self.signal:
                self.actor.call("stop", self.signal)
        if self.code is None:
            self.reply = self.actor.call("changes", SYNC_SECONDS)

    def _pending(self, waited: float) -> None:
        """No node has started the run yet: perhaps the last one with a place for it was lost."""
        if self.signal:
            self.actor.kill()
            self._end(-self.signal)
        elif waited > PLACE_SECONDS and not self.waits:
            self.waits = True
            self.log(self.task, f"waits for a node that has room for it: {size_of(self.options)}")

    def _store(self, reply: Tree) -> None:
        folder_copy.apply(self.task.folder, reply["run"])
        with self.task.output.open("ab") as file:
            file.write(reply["output"].tobytes())
        if "code" in reply:
            actor = self.actor  # another run needs its processors, as soon as its folder is gone
            actor.call("remove").add_done_callback(lambda _: actor.kill())
            self._end(int(reply["code"]))

    def _end(self, code: int) -> None:
        self.code = code
        self.lock.release()

    def _move(self, reason: str) -> None:
        """The node was lost: continue on another one."""
        self.lost += 1
        if self.lost > ATTEMPTS:
            self._end(1)
            raise ConfigError(f"{self.task.name} lost {self.lost} nodes: {reason}")
        self.log(self.task, f"lost its node ({reason}): it continues on another one")
        self.actor.kill()
        self._start()

    def terminate(self) -> None:
        self.signal = signal.SIGTERM
        if self.started and self.code is None:
            self.actor.call("stop", int(signal.SIGTERM))

    def kill(self) -> None:
        self.actor.kill()
        if self.code is None:
            self._end(-signal.SIGKILL)

    def wait(self) -> int:
        assert self.code is not None, "kill comes first"
        return self.code


class ClusterChildren(Children):
    """Runs of a sweep as actors; Ray places them where processors, memory and GPUs are free."""

    def __init__(
        self, cluster: Cluster, configs: Sequence[Config], tasks: Sequence[Task], jobs: int, need: int,
        log: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(tasks, jobs, need, log)
        self.cluster = cluster
        self.options = needed(configs, need) | {"max_concurrency": 4, "scheduling_strategy": "SPREAD"}

    def fits(self) -> bool:
        return True

    def start(self, task: Task) -> None:
        task.output.parent.mkdir(0o700, parents=True, exist_ok=True)
        task.offset = task.output.stat().st_size if task.output.exists() else 0
        resumed = task.started
        top = self.tasks_folder(task)
        run: Any = RemoteRun(self.cluster, task, self.options, top, self.report)
        self.running.append((task, run))
        task.state = "running"
        self.report(task, f"{'resumed' if resumed else 'started'} on the cluster")

    @staticmethod
    def tasks_folder(task: Task) -> Path:
        """The folder of the sweep: the task's name is the rest of its path."""
        return task.folder.parents[len(Path(task.name).parts) - 1]


def size_of(options: dict[str, Any]) -> str:
    """What a run needs, as Ray's options have it."""
    gpu = ", a GPU" if options["num_gpus"] else ""
    count = options["num_cpus"]
    processors = f"{count} processor{'s' if count > 1 else ''}"
    return f"a run needs {processors}{gpu} and about {gib(options['memory'])} GiB of memory"


def _on_gpu(config: Config) -> bool:
    return "cuda" in (config.device, config.network.device, config.dqn.device)


def choose_jobs(
    cluster: Cluster, configs: Sequence[Config], runs: int, jobs_flag: int | None
) -> tuple[int, int, str]:
    """Runs at a time, bytes of memory of each, and a line about both; refuses runs that fit on no node."""
    need = max(memory_estimate.process_bytes(config) for config in configs)
    options = needed(configs, need)
    nodes = [node["Resources"] for node in cluster.nodes()]
    wanted = {"CPU": options["num_cpus"], "memory": need, "GPU": options["num_gpus"]}
    places = 0
    for node in nodes:
        places += min(int(node.get(name, 0)) // count for name, count in wanted.items() if count)
    if not places:
        raise ConfigError(f"{size_of(options)}: no node of the cluster at {cluster.name} has that")
    jobs = min(runs, places if jobs_flag is None else jobs_flag)
    return jobs, need, f"{jobs} at a time on {len(nodes)} nodes; {size_of(options)}"


def needed(configs: Sequence[Config], memory: int) -> dict[str, Any]:
    """The resources that each run reserves on its node."""
    return {"num_cpus": max(config.threads for config in configs), "memory": memory,
            "num_gpus": int(any(map(_on_gpu, configs)))}
