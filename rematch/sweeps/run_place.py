"""Where several runs are trained: in child processes of this machine, or on the nodes of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rematch.cluster.connection import Cluster, connected
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system import system_memory
from rematch.core.system.interrupts import StopRequest
from rematch.core.system.processors import processors
from rematch.sweeps import cluster_runs
from rematch.sweeps.gpu_runs import GpuChildren
from rematch.sweeps.processes import Children, Task, gib
from rematch.training import memory_estimate
from rematch.training.device import trains_beside_others
from rematch.training.setup import RunSetup

Sizes = tuple[int, int, str]  # runs at a time, bytes of memory of each, and a line about both
Log = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """How several runs are trained; None: the default."""

    jobs: int | None = None  # runs at a time; as many as cores and memory allow
    minutes: float | None = None  # stop after this time; no limit
    cluster: str | None = None  # address of a Ray cluster whose nodes train the runs; here


class RunPlace:
    """Child processes of this machine; on its GPU, the runs of one configuration train in one process."""

    def sizes(self, configs: Sequence[Config], runs: int, jobs_flag: int | None) -> Sizes:
        """For `runs` runs with these settings; refuses more at a time than memory holds."""
        need = max(map(memory_estimate.process_bytes, configs))
        free = system_memory.available_bytes()
        threads = max(config.threads for config in configs)
        cores = processors()
        fitting = free // need
        jobs = min(runs, max(1, cores // threads) if jobs_flag is None else jobs_flag)
        size = f"a run needs about {gib(need)} GiB of memory, {gib(free)} GiB are free"
        if not fitting:
            raise ConfigError(f"{size}: expected smaller runs, or more memory")
        if jobs_flag is not None and jobs > fitting:
            raise ConfigError(f"--jobs = {jobs_flag}: {size}, enough for {fitting}; expected --jobs "
                              f"{fitting} or fewer")
        jobs = min(jobs, fitting)
        crowded = "; they compete for the cores" if jobs > 1 and jobs * threads > cores else ""
        each = f"{threads} thread{'s' if threads > 1 else ''} each, on {cores} cores"
        return jobs, need, f"{jobs} at a time, {each}{crowded}; {size}"

    def children(self, configs: Sequence[Config], tasks: Sequence[Task], sizes: Sizes, log: Log) -> Children:
        each = len(tasks) // len(configs)  # runs of one configuration follow each other
        groups = [
            tasks[number * each : (number + 1) * each]
            for number, config in enumerate(configs)
            if each > 1 and trains_beside_others(RunSetup(config))
        ]
        return GpuChildren(tasks, *sizes[:2], log, groups) if groups else Children(tasks, *sizes[:2], log)


class ClusterPlace(RunPlace):
    """The nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def sizes(self, configs: Sequence[Config], runs: int, jobs_flag: int | None) -> Sizes:
        return cluster_runs.choose_jobs(self.cluster, configs, runs, jobs_flag)

    def children(self, configs: Sequence[Config], tasks: Sequence[Task], sizes: Sizes, log: Log) -> Children:
        return cluster_runs.ClusterChildren(self.cluster, configs, tasks, *sizes[:2], log)


@contextlib.contextmanager
def run_place(cluster: str | None) -> Iterator[RunPlace]:
    """The nodes of a cluster until the end of the block; None: this machine."""
    if cluster is None:
        yield RunPlace()
        return
    with connected(cluster) as nodes:
        yield ClusterPlace(nodes)


def train_all(
    tasks: Sequence[Task], configs: Sequence[Config], jobs: int | None, cluster: str | None, log: Log
) -> None:
    """Train or resume all runs, at most `jobs` at a time; each task then says how its run ended."""
    with run_place(cluster) as place, StopRequest(None) as stop:
        place.children(configs, tasks, place.sizes(configs, len(tasks), jobs), log).run(stop)
