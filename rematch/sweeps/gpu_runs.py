"""The runs of a sweep on one GPU: all seeds of a cell train in one process, then each run ends alone.

The one process is rematch/verbs/on_gpu/together.py. When it has ended, every run is resumed in a process of
its own, which writes its report and film; a run that failed fails there again, with its own message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import rematch
from rematch.storage.run_lock import lock_holder
from rematch.sweeps.processes import Children, Task

TOGETHER = ("import sys; from rematch.core.system.interrupts import stop_with_parent; "
            "stop_with_parent(int(sys.argv.pop(1))); "
            "from rematch.verbs.on_gpu.together import main; sys.exit(main(sys.argv[1:]))")
LOG = "together.log"  # output of the process that trains the runs of a cell, beside their folders


class GpuChildren(Children):
    """As Children; the tasks of each group are trained by one process first."""

    def __init__(
        self, tasks: Sequence[Task], jobs: int, need: int, log: Callable[[str], None],
        groups: Sequence[Sequence[Task]],
    ) -> None:  # fmt: skip
        super().__init__(tasks, jobs, need, log)
        waiting = [[task for task in group if task in self.todo] for group in groups]
        self.waiting = [group for group in waiting if group]
        self.training: list[Task] = []  # of the process that trains now

    def start_more(self) -> None:
        """Start the process of the next group; single runs follow when all groups have trained."""
        if self.training:
            return
        if not self.waiting:
            super().start_more()
            return
        group = [task for task in self.waiting.pop(0) if not lock_holder(task.folder)]
        if group:
            self.start_group(group)

    def start_group(self, group: Sequence[Task]) -> None:
        """Train these runs in one process."""
        folders = {str(task.folder): list(task.command[1:-1]) for task in group}  # without train and --name
        package = str(Path(rematch.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        output = group[0].folder.parent / LOG
        output.parent.mkdir(0o700, parents=True, exist_ok=True)
        with output.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-c", TOGETHER, str(os.getpid()), "", json.dumps(folders)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                process_group=0,
            )
        self.training = list(group)
        for task in group:
            self.todo.remove(task)
            self.running.append((task, child))
            task.state = "running"
        self.log(f"{len(group)} runs train together on the GPU (process {child.pid}, output in {output})")

    def reap(self, stopping: bool) -> None:
        """As Children.reap; the runs of a group whose process has ended are resumed one by one."""
        training = [pair for pair in self.running if pair[0] in self.training]
        ended = [(task, child) for task, child in training if child.poll() is not None]
        for task, child in ended:
            self.running.remove((task, child))
            self.training.remove(task)
            task.state = "unfinished"
            if not stopping:
                self.todo.append(task)
        if ended:
            code = ended[0][1].returncode
            end = "stopped" if stopping else "ended" if not code else f"ended with exit code {code}"
            self.log(f"the process of {len(ended)} runs {end}")
        super().reap(stopping)
