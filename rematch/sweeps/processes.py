"""Runs as processes of their own, some at a time: started, watched, told to stop, never left behind.

A child that dies takes nothing with it but itself: its folder is a run like any other, and the next start
resumes it. Children do not outlive us (`stopping.follow`); one that is still saving after we were killed
holds its folder, and whoever comes next waits for it.
"""

from __future__ import annotations

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
from rematch.core import system_memory
from rematch.core.errors import ConfigError
from rematch.reporting.status import status
from rematch.storage.append_log import plain_line
from rematch.storage.run_folder import CONFIG_FILE, LOG_FILES
from rematch.storage.run_lock import lock_holder

POLL = 0.05  # seconds between two looks at the children
TAIL = 4096  # bytes of a child's output in which its last line is looked for
CHILD = ("import sys; from rematch.core.interrupts import stop_with_parent; "
         "stop_with_parent(int(sys.argv.pop(1))); "
         "from rematch.cli.main import main; sys.exit(main())")


@dataclass
class Task:
    """One run: its name among the others, its folder, and the words of the command that begins it."""

    name: str
    folder: Path
    begin: Sequence[str]
    state: str = "waiting"  # then running, and at last finished, failed or unfinished
    why: str = ""  # it failed: its last line; it finished: its verdict
    held: str = field(default="", repr=False)  # by whom, as far as that was told
    offset: int = field(default=0, repr=False)  # of its output so far when it was last started

    @property
    def begun(self) -> bool:
        return os.path.lexists(self.folder / CONFIG_FILE)

    @property
    def output(self) -> Path:
        """What its processes print, beside its folder."""
        return self.folder.with_name(self.folder.name + ".log")

    def finished(self) -> bool:
        """Whether the run is complete, its pictures included; then `why` is its verdict."""
        if not self.begun:
            return False
        with suppress(ConfigError):  # no run: whoever resumes it will say why
            facts: dict[str, Any] = status(self.folder)
            if facts["state"] == "complete":
                self.state, self.why = "finished", facts["verdict"]
        return self.state == "finished"

    def last_line(self, code: int) -> str:
        """How its process ended, in one line."""
        said = b""
        with suppress(OSError), self.output.open("rb") as file:
            file.seek(max(self.offset, os.fstat(file.fileno()).st_size - TAIL))
            said = file.read(TAIL)
        lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
        last = plain_line(lines[-1]).removeprefix("rematch: ")[:500] if lines else "it said nothing"
        if code >= 0:
            return last if code else f"it ended before the run was complete: {last}"
        killed = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        lack = ", perhaps for lack of memory" if killed == "SIGKILL" else ""
        return f"killed by {killed}{lack}; its last line: {last}"


class Children:
    """Brings tasks to their end, at most `jobs` at a time, each of about `need` bytes."""

    def __init__(self, tasks: Sequence[Task], jobs: int, need: int, say: Callable[[str], None]) -> None:
        self.tasks, self.jobs, self.need, self.say = tasks, jobs, need, say
        self.todo = [task for task in tasks if not task.finished()]
        self.running: list[tuple[Task, subprocess.Popen[bytes]]] = []
        self.squeezed = False  # whether it was said that memory holds fewer

    def run(self, stop: Callable[[], bool]) -> None:
        """Until all have ended, or `stop` says so: then each saves at its next boundary."""
        stopping = False
        try:
            while self.running or (self.todo and not stopping):
                if stop() and not stopping:
                    stopping = True
                    self.say(f"stopping: {len(self.running)} running, each saves at the end of its iteration")
                    for _, child in self.running:
                        child.terminate()
                self.reap(stopping)
                if not stopping:
                    self.start_more()
                time.sleep(POLL)
        finally:  # a second Ctrl-C, or an error of ours
            for task, child in self.running:
                child.kill()
                child.wait()
                task.state = "unfinished"
            for task in self.todo:
                task.state = "unfinished" if task.begun else "waiting"

    def tell(self, task: Task, what: str) -> None:
        done = sum(each.state == "finished" for each in self.tasks)
        failed = sum(each.state == "failed" for each in self.tasks)
        self.say(f"[{done}/{len(self.tasks)}{f', {failed} failed' if failed else ''}] {task.name} {what}")

    # --- starting ---

    def start_more(self) -> None:
        for task in list(self.todo):
            if len(self.running) >= self.jobs or not self.fits():
                return
            if who := lock_holder(task.folder):
                if who != task.held:
                    self.tell(task, f"is held by {who}: waiting for it")
                task.held = who
                continue
            self.todo.remove(task)
            if task.held and task.finished():
                self.tell(task, f"finished: {task.why}")
            else:
                self.start(task)

    def fits(self) -> bool:
        """Whether memory holds one more. Before others join, the first must have shown how large it is."""
        if not self.running:
            return True
        sizes = [system_memory.process_bytes(child.pid) for _, child in self.running]
        self.need = max(self.need, *(most for _, most in sizes))
        if not any(_has_learnt(task) for task, _ in self.running):
            return False
        growth = sum(self.need - now for now, _ in sizes)
        free = system_memory.available_bytes()
        if free >= self.need + growth:
            return True
        if not self.squeezed:
            self.say(f"memory: a run takes {gib(self.need)} GiB and {gib(free)} are free beside the "
                     f"{len(self.running)} running: no more are started until there is room")
        self.squeezed = True
        return False

    def start(self, task: Task) -> None:
        words = ["resume", str(task.folder)] if task.begun else list(task.begin)
        ours = str(Path(rematch.__file__).parents[1])
        path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
        task.output.parent.mkdir(0o700, parents=True, exist_ok=True)
        log = os.open(task.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            task.offset = os.fstat(log).st_size
            child = subprocess.Popen(  # a group of its own: a Ctrl-C is for us, and we tell our children
                [sys.executable, "-c", CHILD, str(os.getpid()), *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=os.environ | {"PYTHONPATH": path}, process_group=0)
        finally:
            os.close(log)
        self.running.append((task, child))
        task.state = "running"
        self.tell(task, f"{'resumed' if words[0] == 'resume' else 'started'} (process {child.pid})")

    # --- ending ---

    def reap(self, stopping: bool) -> None:
        for task, child in list(self.running):
            code = child.poll()
            if code is None:
                continue
            self.running.remove((task, child))
            task.state = "unfinished"
            if task.finished():
                self.tell(task, f"finished: {task.why}")
            elif who := lock_holder(task.folder):  # somebody else was quicker
                self.todo.append(task)
                self.tell(task, f"is held by {who}: waiting for it")
                task.held = who
            elif stopping and code in (0, -signal.SIGTERM):
                self.tell(task, "stopped")
            else:
                task.state, task.why = "failed", task.last_line(code)
                self.tell(task, f"FAILED: {task.why}")


def _has_learnt(task: Task) -> bool:
    """Whether the run has an iteration behind it."""
    try:
        return os.stat(task.folder / LOG_FILES[1]).st_size > 0
    except OSError:
        return False


def gib(size: int) -> str:
    return f"{size / 2**30:.2f}"
