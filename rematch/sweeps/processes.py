"""Runs as child processes, a few at a time: started, watched, stopped, and never left running.

When a child dies, the others continue: its folder is a run like any other, and the next start resumes it. A
child ends when its parent ends (`interrupts.stop_with_parent`); while it still saves, it holds the lock of
its folder, and the next sweep waits for it.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rematch
from rematch.core.errors import ConfigError
from rematch.core.system import system_memory, user_code
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.text import human, number
from rematch.reporting.status import status
from rematch.reporting.terminal.progress_display import bar
from rematch.reporting.untrusted_folder import Unreadable, last_lines, loads
from rematch.storage.append_log import plain_line
from rematch.storage.run_folder import CONFIG_FILE, LOG_FILES
from rematch.storage.run_lock import lock_holder

POLL = 0.05  # seconds between two checks of the children
PROGRESS_SECONDS = 1.0  # between two reports of the progress
METRICS_TAIL = 1 << 16  # bytes at the end of metrics.jsonl that hold its last line
WARNING = "rematch: "  # start of a line with a warning (cli/main.py)
MOST_OUTPUT = 1 << 20  # bytes of a child's output that are searched for warnings
TAIL = 4096  # bytes at the end of a child's output that are searched for its last line
CHILD = ("import sys; from rematch.core.system.interrupts import stop_with_parent; "
         "stop_with_parent(int(sys.argv.pop(1))); "
         "from rematch.cli.main import main; sys.exit(main())")


@dataclass
class Task:
    """One run: its name in the sweep, its folder, and the arguments of the command that starts it."""

    name: str
    folder: Path
    command: Sequence[str]
    state: str = "waiting"  # then running, and in the end finished, failed or unfinished
    why: str = ""  # of a failed run its last line, of a finished run its verdict
    holder: str = field(default="", repr=False)  # the process that holds its lock, as last reported
    offset: int = field(default=0, repr=False)  # bytes of its output before the newest start
    total: int = 0  # steps of all games until its end; 0: not known

    @property
    def started(self) -> bool:
        return os.path.lexists(self.folder / CONFIG_FILE)

    @property
    def output(self) -> Path:
        """The file with the output of its processes, beside its folder."""
        return self.folder.with_name(self.folder.name + ".log")

    def finished(self) -> bool:
        """Whether the run and its output files are complete; then `why` is its verdict."""
        if not self.started:
            return False
        with suppress(ConfigError):  # not a run: its resume reports the reason
            facts: dict[str, Any] = status(self.folder)
            if facts["state"] == "complete":
                self.state, self.why = "finished", facts["verdict"]
        return self.state == "finished"

    def warnings(self) -> list[str]:
        """The warnings that its newest process has printed, such as those of Python."""
        output = b""
        with suppress(OSError), self.output.open("rb") as file:
            file.seek(self.offset)
            output = file.read(MOST_OUTPUT)
        lines = output.decode(errors="replace").splitlines()
        return [plain_line(line)[:500] for line in lines if line.startswith(WARNING)]

    def progress(self) -> tuple[float, str]:
        """The share of its steps that are done, and its newest rates, from the last line of its metrics."""
        row: dict[str, Any] = {}
        with suppress(Unreadable, ValueError, IndexError):
            lines = last_lines(self.folder / LOG_FILES[1], METRICS_TAIL)
            row = dict(loads([line for line in lines if line.strip()][-1]))
        step = row.get("step")
        if not isinstance(step, int) or not self.total:
            return 0.0, "starting"
        rates = [f"{plain_line(key.removeprefix('rollout/win_'))[:20]} wins {number(value)}"
                 for key, value in row.items() if key.startswith("rollout/win_")]
        share = min(1.0, step / self.total)
        return share, "  ".join([f"{human(step)} of {human(self.total)} steps", *rates[:3]])

    def last_line(self, code: int) -> str:
        """The end of its process in one line: the last line of its output, or the signal."""
        output = b""
        with suppress(OSError), self.output.open("rb") as file:
            file.seek(max(self.offset, os.fstat(file.fileno()).st_size - TAIL))
            output = file.read(TAIL)
        lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
        last = plain_line(lines[-1]).removeprefix("rematch: ")[:500] if lines else "no output"
        if code >= 0:
            return last if code else f"the process ended before the run was complete: {last}"
        killed = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        memory = ", perhaps because memory ran out" if killed == "SIGKILL" else ""
        return f"killed by {killed}{memory}; last line of output: {last}"


class Children:
    """Runs tasks, at most `jobs` at a time; each needs about `need` bytes of memory."""

    def __init__(self, tasks: Sequence[Task], jobs: int, need: int, log: Callable[[str], None]) -> None:
        self.tasks, self.log = tasks, log
        self.jobs, self.need = jobs, need
        self.todo = [task for task in tasks if not task.finished()]
        self.running: list[tuple[Task, subprocess.Popen[bytes]]] = []
        self.warnings: set[str] = set()  # those that were reported; each once, whichever runs have it
        self.shown = -math.inf  # time.monotonic() of the newest progress report
        self.memory_reported = False  # whether a line about too little memory was printed

    def run(self, stop: Callable[[], bool]) -> None:
        """Run until all have ended or `stop` is true; then each child saves after its iteration."""
        stopping = False
        try:
            while self.running or (self.todo and not stopping):
                if stop() and not stopping:
                    stopping = True
                    self.log(f"stopping: {len(self.running)} runs save at the end of their iteration; press "
                             "Ctrl-C again to stop now")
                    for _, child in self.running:
                        child.terminate()
                self.reap(stopping)
                if not stopping:
                    self.start_more()
                self.show_progress()
                time.sleep(POLL)
        finally:  # a second Ctrl-C, or an error in this process
            for task, child in self.running:
                child.kill()
                child.wait()
                task.state = "unfinished"
            for task in self.todo:
                task.state = "unfinished" if task.started else "waiting"

    def show_progress(self) -> None:
        """Report the progress of all runs once a second, and the warnings of those that run."""
        now = time.monotonic()
        if now - self.shown < PROGRESS_SECONDS:
            return
        self.shown = now
        ended = sum(task.state in ("finished", "failed") for task in self.tasks)
        share, rows = float(ended), []
        for task, _ in self.running:
            self.hoist_warnings(task)
            done, text = task.progress()
            share += done
            rows.append(f"  {task.name}  {bar(done, 16)} {100 * done:3.0f} %  {text}")
        runs = len(self.tasks)
        PROGRESS.report(share / max(runs, 1), "\n".join([f"{ended} of {runs} runs ended", *rows]))

    def hoist_warnings(self, task: Task) -> None:
        """Report each warning that a run has printed; once, whichever runs have it."""
        for warning in task.warnings():
            if warning not in self.warnings:
                self.report(task, f"warned: {warning.removeprefix(WARNING)}")
            self.warnings.add(warning)

    def report(self, task: Task, event: str) -> None:
        """Print an event of a task, after the counts of the sweep."""
        done = sum(each.state == "finished" for each in self.tasks)
        failed = sum(each.state == "failed" for each in self.tasks)
        self.log(f"[{done}/{len(self.tasks)}{f', {failed} failed' if failed else ''}] {task.name} {event}")

    # --- starting ---

    def start_more(self) -> None:
        """Start waiting tasks while there are free jobs and memory."""
        for task in list(self.todo):
            if len(self.running) >= self.jobs or not self.fits():
                return
            if process := lock_holder(task.folder):
                if process != task.holder:
                    self.report(task, f"is locked by {process}: waiting for it")
                task.holder = process
                continue
            self.todo.remove(task)
            if task.holder and task.finished():
                self.report(task, f"finished: {task.why}")
            else:
                self.start(task)

    def fits(self) -> bool:
        """Whether memory holds one more run; the first must finish an iteration, which shows its size."""
        if not self.running:
            return True
        sizes = [system_memory.process_bytes(child.pid) for _, child in self.running]
        self.need = max(self.need, *(most for _, most in sizes))
        if not any(_has_iteration(task) for task, _ in self.running):
            return False
        growth = sum(self.need - now for now, _ in sizes)
        free = system_memory.available_bytes()
        if free >= self.need + growth:
            return True
        if not self.memory_reported:
            self.log(f"memory: a run takes {gib(self.need)} GiB and {gib(free)} GiB are free beside the "
                     f"{len(self.running)} running: no more runs start until one ends")
        self.memory_reported = True
        return False

    def start(self, task: Task) -> None:
        """Start or resume a run in a child process."""
        arguments = ["resume", str(task.folder)] if task.started else list(task.command)
        package = str(Path(rematch.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        task.output.parent.mkdir(0o700, parents=True, exist_ok=True)
        log = os.open(task.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            task.offset = os.fstat(log).st_size
            # its own process group: Ctrl-C reaches this process, which stops its children
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(os.getpid()), *arguments, *user_code.child_flags()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                process_group=0,
            )
        finally:
            os.close(log)
        self.running.append((task, child))
        task.state = "running"
        self.report(task, f"{'resumed' if arguments[0] == 'resume' else 'started'} (process {child.pid})")

    # --- ending ---

    def reap(self, stopping: bool) -> None:
        """Take the children that have ended out of the running ones, and report how they ended."""
        for task, child in list(self.running):
            code = child.poll()
            if code is None:
                continue
            self.running.remove((task, child))
            task.state = "unfinished"
            if task.finished():
                self.hoist_warnings(task)
                self.report(task, f"finished: {task.why}")
            elif process := lock_holder(task.folder):  # another process was faster
                self.todo.append(task)
                self.report(task, f"is locked by {process}: waiting for it")
                task.holder = process
            elif stopping and code in (0, -signal.SIGTERM):
                self.report(task, "stopped")
            else:
                task.state, task.why = "failed", task.last_line(code)
                self.report(task, f"FAILED: {task.why}")


def _has_iteration(task: Task) -> bool:
    """Whether the run has finished an iteration."""
    try:
        return os.stat(task.folder / LOG_FILES[1]).st_size > 0
    except OSError:
        return False


def gib(size: int) -> str:
    return f"{size / 2**30:.2f}"
