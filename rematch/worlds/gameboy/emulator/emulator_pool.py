"""N machines behind one face: in this process, or in worker processes that share memory with it.

`step` presses a button on each and leaves frames in `frames` [N, 72, 80] and memory in `ram` [N, R]. What
goes wrong in a machine is a `Fault`, not an exception: the machine is replaced, and who owns the game decides
what becomes of it. A worker that dies or is silent too long is replaced whole: the game that it was at is to
blame, its others are `lost` and told so when they are next asked for, since another thread may play them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from rematch.core.arrays import Bytes
from rematch.core.errors import ConfigError

from .pyboy_emulator import HEIGHT, WIDTH, Region, give_back, ready

HEAD = struct.Struct("<cII")  # command or answer, row, bytes that follow
STEP, SAVE, LOAD, SCREEN, FINE, FAILED = b"s", b"v", b"l", b"p", b"+", b"!"
STARTING = 120.0  # seconds that a worker may take to start, on a busy machine
IDLE = 255  # an action: this machine is not stepped


@dataclass(frozen=True)
class Fault:
    """What happened to one machine."""

    row: int
    trace: str
    lost: bool = False  # not its own doing: the worker it shared died

    @property
    def line(self) -> str:
        return self.trace.strip().splitlines()[-1]


@dataclass(frozen=True)
class Plan:
    """What the machines are made of."""

    rom: bytes
    regions: tuple[Region, ...]
    count: int

    @property
    def width(self) -> int:
        return sum(end - first for first, end in self.regions)

    def layout(self, buffer: Any) -> tuple[Bytes, Bytes, Bytes, Bytes]:
        """(actions [N], row at work [N], frames [N, 72, 80], ram [N, R]) over one buffer."""
        n = self.count
        whole = np.frombuffer(buffer, np.uint8)
        cuts = np.cumsum([n, n, n * HEIGHT * WIDTH, n * self.width])
        actions, busy, frames, ram = np.split(whole[: cuts[-1]], cuts[:-1])
        return actions, busy, frames.reshape(n, HEIGHT, WIDTH), ram.reshape(n, self.width)

    @property
    def size(self) -> int:
        """Bytes of what `layout` lays out; where it is shared, the cartridge follows."""
        return self.count * (2 + HEIGHT * WIDTH + self.width)


class Bank(Protocol):
    """The machines."""

    frames: Bytes
    ram: Bytes

    def step(self, first: int, actions: Sequence[int]) -> list[Fault]: ...
    def save(self, row: int) -> bytes: ...
    def load(self, row: int, state: bytes) -> Fault | None: ...
    def screen(self, row: int) -> Bytes: ...
    def close(self) -> None: ...


class Local:
    """Machines in this process. PyBoy lets go of the interpreter while it ticks, so threads need not wait.

    `load` and `step` of one row come from one thread at a time.
    """

    def __init__(self, plan: Plan, buffer: Any = None, rows: range | None = None) -> None:
        self.plan, self.rows = plan, range(plan.count) if rows is None else rows
        shared = bytearray(plan.size) if buffer is None else buffer
        self.actions, self.busy, self.frames, self.ram = plan.layout(shared)
        self.machines = {row: ready(plan.rom) for row in self.rows}
        weakref.finalize(self, give_back, self.machines)
        for row in self.rows:
            self._show(row)

    def step(self, first: int, actions: Sequence[int]) -> list[Fault]:
        faults = []
        for row, action in enumerate(actions, first):
            if action == IDLE:
                continue
            self.busy[row] = 1
            try:
                self.machines[row].press(action)
                self._show(row)
            except Exception:
                faults.append(self._replace(row))
            self.busy[row] = 0
        return faults

    def save(self, row: int) -> bytes:
        return self.machines[row].save()

    def load(self, row: int, state: bytes) -> Fault | None:
        self.busy[row] = 1
        try:
            self.machines[row].load(state)
            self._show(row)
        except Exception:
            return self._replace(row)
        finally:
            self.busy[row] = 0
        return None

    def screen(self, row: int) -> Bytes:
        return self.machines[row].screen()

    def close(self) -> None:
        give_back(self.machines)

    def _show(self, row: int) -> None:
        machine = self.machines[row]
        machine.frame(self.frames[row])
        machine.read(self.plan.regions, self.ram[row])

    def _replace(self, row: int) -> Fault:
        trace = traceback.format_exc()
        self.machines[row] = ready(self.plan.rom)
        return Fault(row, trace)


class Silent(Exception):
    """A worker died or does not answer."""


class Worker:
    """One child process and the rows of the bank that it plays; see emulator_worker.py for its side."""

    def __init__(self, plan: Plan, fd: int, rows: range, patience: float) -> None:
        self.plan, self.fd, self.rows, self.patience = plan, fd, rows, patience
        self.lock = threading.Lock()
        self.lost: dict[int, str] = {}  # rows whose games went with an earlier process -> why
        self.guilty: set[int] = set()  # those that were at work then
        self.start()

    def start(self) -> None:
        """Workers are started one after the other, and then waited for: they load at the same time."""
        module = f"{__package__}.emulator_worker"  # a copy of this folder has a worker of its own
        path = os.pathsep.join(place or os.getcwd() for place in sys.path)
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        plan, rows = self.plan, self.rows
        words = [str(number) for number in (self.fd, plan.count, rows.start, rows.stop, len(plan.rom))]
        words += [f"{first}-{end}" for first, end in plan.regions]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (it is read and closed in `end`)
        self.child = subprocess.Popen(
            [sys.executable, "-m", module, *words], env=environment, pass_fds=(self.fd,),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0,
        )  # fmt: skip

    def wait(self) -> None:
        """Until it has started."""
        try:
            self._read(HEAD.size, max(self.patience, STARTING))
        except Silent as why:
            self.end()
            raise ConfigError(f"gameboy: a worker process does not start: {why.args[0].strip()}") from None

    def send(self, command: bytes, row: int, data: bytes = b"") -> None:
        self._write(HEAD.pack(command, row, len(data)) + data)

    def receive(self) -> tuple[bytes, int, bytes]:
        answer, row, size = HEAD.unpack(self._read(HEAD.size))
        return answer, row, self._read(size)

    def fault(self, row: int) -> Fault:
        """Tell once what became of a row."""
        return Fault(row, self.lost.pop(row), lost=row not in self.guilty)

    def ended(self) -> int | None:
        """The code it ended with; None: it still runs. Its pipes are closed a little before its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.child.wait(0.5)
        return None

    def end(self) -> str:
        """Stop it; what it said last."""
        if self.errors.closed:
            return ""
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        with self.errors as file:
            file.seek(0)
            said = file.read()[-4000:].decode(errors="replace").strip()
        return said or f"the worker process ended with code {self.child.returncode}"

    def _write(self, data: bytes) -> None:
        pipe, left = self.child.stdin, memoryview(data)
        assert pipe is not None
        try:
            while left:
                left = left[pipe.write(left) or 0 :]
        except OSError:
            raise Silent("the worker process is gone") from None

    def _read(self, size: int, patience: float = 0.0) -> bytes:
        pipe, parts = self.child.stdout, b""
        assert pipe is not None
        while len(parts) < size:
            if not select.select([pipe], [], [], patience or self.patience)[0]:
                raise Silent(f"the worker process gave no answer within {patience or self.patience:g} s")
            more = pipe.read(size - len(parts))
            if not more:
                raise Silent("the worker process is gone")
            parts += more
        return parts


class Remote:
    """Machines in worker processes: what kills an emulator kills one of them, and none hangs the run."""

    def __init__(self, plan: Plan, workers: int, patience: float) -> None:
        self.plan = plan
        self.workers: list[Worker] = []
        with tempfile.TemporaryFile() as file:  # shared by its number, it needs no name
            in_memory = hasattr(os, "memfd_create")
            fd = os.memfd_create("gameboy") if in_memory else os.dup(file.fileno())
        whole = plan.size + len(plan.rom)
        os.ftruncate(fd, whole)
        self.shared = mmap.mmap(fd, whole)
        self.shared[plan.size :] = plan.rom
        self.actions, self.busy, self.frames, self.ram = plan.layout(self.shared)
        self.close = weakref.finalize(self, _end, self.workers, fd)  # once: asked for, or with the last of us
        workers = min(workers, plan.count)
        cuts = [plan.count * k // workers for k in range(workers + 1)]
        try:
            for low, high in pairwise(cuts):
                self.workers.append(Worker(plan, fd, range(low, high), patience))
            for worker in self.workers:
                worker.wait()
        except ConfigError:
            self.close()
            raise

    def of(self, row: int) -> Worker:
        return next(worker for worker in self.workers if row in worker.rows)

    def step(self, first: int, actions: Sequence[int]) -> list[Fault]:
        rows = range(first, first + len(actions))
        self.actions[first : rows.stop] = actions
        # Locks in the order of workers, so that two threads whose rows share workers never wait in a circle;
        # all are given back, also where a worker cannot be replaced.
        with contextlib.ExitStack() as locks:
            return self._step(rows, locks)

    def _step(self, rows: range, locks: contextlib.ExitStack) -> list[Fault]:
        asked: list[tuple[Worker, range]] = []
        faults: list[Fault] = []
        for worker in self.workers:
            mine = range(max(rows.start, worker.rows.start), min(rows.stop, worker.rows.stop))
            if not mine:
                continue
            locks.enter_context(worker.lock)
            asked.append((worker, mine))
            for row in [row for row in mine if row in worker.lost]:
                faults.append(Fault(row, worker.lost.pop(row), lost=True))
                self.actions[row] = IDLE
            with contextlib.suppress(Silent):  # found out below
                worker.send(STEP, mine.start, struct.pack("<I", mine.stop))
        for worker, mine in asked:
            try:
                faults += self._results(worker)
            except Silent as why:
                self._replace(worker, why)
                stepped = [row for row in mine if self.actions[row] != IDLE]
                faults += [worker.fault(row) for row in stepped]
        return faults

    def save(self, row: int) -> bytes:
        return self._ask(SAVE, row)

    def screen(self, row: int) -> Bytes:
        return np.frombuffer(self._ask(SCREEN, row), np.uint8).reshape(144, 160)

    def load(self, row: int, state: bytes) -> Fault | None:
        worker = self.of(row)
        with worker.lock:
            worker.lost.pop(row, None)
            for last in (False, True):
                try:
                    worker.send(LOAD, row, state)
                    answer, _, said = worker.receive()
                    break
                except Silent as why:
                    self._replace(worker, why)
                    fault = worker.fault(row)
                    if last or not fault.lost:  # else it was gone already: a new one has not been asked yet
                        return Fault(row, fault.trace)
        return Fault(row, said.decode()) if answer == FAILED else None

    def _ask(self, command: bytes, row: int) -> bytes:
        worker = self.of(row)
        with worker.lock:
            if row not in worker.lost:
                try:
                    worker.send(command, row)
                    return worker.receive()[2]
                except Silent as why:
                    self._replace(worker, why)
            raise Lost(worker.fault(row))

    def _results(self, worker: Worker) -> list[Fault]:
        faults: list[Fault] = []
        while True:
            answer, row, said = worker.receive()
            if answer == FINE:
                return faults
            faults.append(Fault(row, said.decode()))

    def _replace(self, worker: Worker, why: Silent) -> None:
        """A new worker. The row at work when the old one went is to blame; all others are lost with it.

        Nobody is where somebody else killed it: no emulator does that to itself.
        """
        killed = worker.ended() == -signal.SIGKILL
        said = worker.end()
        guilty = [row for row in worker.rows if self.busy[row] and not killed]
        blamed = f", in game {guilty[0]}" if guilty else ""
        worker.lost = dict.fromkeys(worker.rows, f"{said}\n{why.args[0]}{blamed}")
        worker.guilty = set(guilty)
        self.busy[worker.rows.start : worker.rows.stop] = 0
        worker.start()
        worker.wait()


def _end(workers: list[Worker], fd: int) -> None:
    while workers:
        workers.pop().end()
    os.close(fd)


class Lost(Exception):
    """The machine of this row went with its worker; its game has to be played again."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.trace)
        self.fault = fault
