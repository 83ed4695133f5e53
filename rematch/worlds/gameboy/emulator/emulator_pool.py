"""N emulators with one interface: in this process, or in worker processes that share memory with it.

`step` presses a button on each emulator and writes `frames` [N, 72, 80] and `ram` [N, R]. An error in an
emulator is returned as a `Fault`, not raised: the emulator is replaced, and the owner of the game decides how
to continue. A worker that dies or does not answer in time is replaced. The game that it was stepping is the
culprit; its other games are `lost`. Their faults are returned with their next call, because another thread
may own them.
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

from . import hang_watch
from .pyboy_emulator import HEIGHT, WIDTH, Region, acquire, release

HEAD = struct.Struct("<cII")  # command or reply, row, number of bytes that follow
STEP, SAVE, LOAD, SCREEN, FINE, FAILED = b"s", b"v", b"l", b"p", b"+", b"!"
START_TIMEOUT = 120.0  # seconds that a worker may take to start, on a busy computer
IDLE = 255  # an action: this emulator is not stepped


@dataclass(frozen=True)
class Fault:
    """An error in one emulator."""

    row: int
    trace: str
    lost: bool = False  # another game caused it: their common worker died

    @property
    def line(self) -> str:
        return self.trace.strip().splitlines()[-1]


@dataclass(frozen=True)
class PoolSpec:
    """The cartridge, the memory regions to read, and the number of emulators."""

    rom: bytes
    regions: tuple[Region, ...]
    count: int

    @property
    def width(self) -> int:
        return sum(end - first for first, end in self.regions)

    def layout(self, buffer: Any) -> tuple[Bytes, Bytes, Bytes, Bytes]:
        """(actions [N], busy [N], frames [N, 72, 80], ram [N, R]) over one buffer."""
        n = self.count
        data = np.frombuffer(buffer, np.uint8)
        cuts = np.cumsum([n, n, n * HEIGHT * WIDTH, n * self.width])
        actions, busy, frames, ram = np.split(data[: cuts[-1]], cuts[:-1])
        return actions, busy, frames.reshape(n, HEIGHT, WIDTH), ram.reshape(n, self.width)

    @property
    def size(self) -> int:
        """Bytes of the arrays of `layout`; in shared memory the cartridge follows them."""
        return self.count * (2 + HEIGHT * WIDTH + self.width)


class EmulatorPool(Protocol):
    """N emulators; rows are their numbers."""

    frames: Bytes
    ram: Bytes

    def step(self, first: int, actions: Sequence[int]) -> list[Fault]: ...
    def save(self, row: int) -> bytes: ...
    def load(self, row: int, state: bytes) -> Fault | None: ...
    def screen(self, row: int) -> Bytes: ...
    def close(self) -> None: ...


class LocalPool:
    """Emulators in this process. PyBoy releases the GIL while it ticks, so threads run in parallel.

    A call that hangs ends the process (hang_watch.py); in a worker process its owner notices it. `load` and
    `step` of one row must not be called by two threads at once.
    """

    def __init__(self, spec: PoolSpec, buffer: Any = None, rows: range | None = None) -> None:
        self.spec, self.rows = spec, range(spec.count) if rows is None else rows
        self.limited = hang_watch.limited if buffer is None else contextlib.nullcontext
        shared = bytearray(spec.size) if buffer is None else buffer
        self.actions, self.busy, self.frames, self.ram = spec.layout(shared)
        self.emulators = {}
        for row in self.rows:
            with self.limited():
                self.emulators[row] = acquire(spec.rom)
        weakref.finalize(self, release, self.emulators)
        for row in self.rows:
            self._show(row)

    def step(self, first: int, actions: Sequence[int]) -> list[Fault]:
        faults = []
        for row, action in enumerate(actions, first):
            if action == IDLE:
                continue
            self.busy[row] = 1
            try:
                with self.limited():
                    self.emulators[row].press(action)
                self._show(row)
            except Exception:
                faults.append(self._replace(row))
            self.busy[row] = 0
        return faults

    def save(self, row: int) -> bytes:
        return self.emulators[row].save()

    def load(self, row: int, state: bytes) -> Fault | None:
        self.busy[row] = 1
        try:
            self.emulators[row].load(state)
            self._show(row)
        except Exception:
            return self._replace(row)
        finally:
            self.busy[row] = 0
        return None

    def screen(self, row: int) -> Bytes:
        return self.emulators[row].screen()

    def close(self) -> None:
        release(self.emulators)

    def _show(self, row: int) -> None:
        emulator = self.emulators[row]
        emulator.frame(self.frames[row])
        emulator.read(self.spec.regions, self.ram[row])

    def _replace(self, row: int) -> Fault:
        trace = traceback.format_exc()
        self.emulators[row] = acquire(self.spec.rom)
        return Fault(row, trace)


class WorkerUnresponsive(Exception):
    """A worker died or does not answer."""


class Worker:
    """One child process and its rows of the pool; emulator_worker.py runs in the child."""

    def __init__(self, spec: PoolSpec, fd: int, rows: range, patience: float) -> None:
        self.spec, self.fd, self.rows, self.patience = spec, fd, rows, patience
        self.lock = threading.Lock()
        self.lost: dict[int, str] = {}  # rows lost with an earlier process -> cause
        self.culprits: set[int] = set()  # those that it was stepping then
        self.start()

    def start(self) -> None:
        """Start the process without waiting, so that several workers load at the same time."""
        module = f"{__package__}.emulator_worker"  # a copy of this folder has its own worker
        path = os.pathsep.join(place or os.getcwd() for place in sys.path)
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        spec, rows = self.spec, self.rows
        words = [str(number) for number in (self.fd, spec.count, rows.start, rows.stop, len(spec.rom))]
        words += [f"{first}-{end}" for first, end in spec.regions]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (it is read and closed in `end`)
        self.child = subprocess.Popen(
            [sys.executable, "-m", module, *words], env=environment, pass_fds=(self.fd,),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0,
        )  # fmt: skip

    def wait(self) -> None:
        """Wait until the process has started."""
        try:
            self._read(HEAD.size, max(self.patience, START_TIMEOUT))
        except WorkerUnresponsive as cause:
            self.end()
            raise ConfigError(f"gameboy: a worker process does not start: {cause.args[0].strip()}") from None

    def send(self, command: bytes, row: int, data: bytes = b"") -> None:
        self._write(HEAD.pack(command, row, len(data)) + data)

    def receive(self) -> tuple[bytes, int, bytes]:
        reply, row, size = HEAD.unpack(self._read(HEAD.size))
        return reply, row, self._read(size)

    def fault(self, row: int) -> Fault:
        """The fault of a row; it is returned once."""
        return Fault(row, self.lost.pop(row), lost=row not in self.culprits)

    def ended(self) -> int | None:
        """The exit code; None: it still runs. Its pipes close shortly before it ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.child.wait(0.5)
        return None

    def end(self) -> str:
        """Stop the process. Returns its last error output."""
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
            message = file.read()[-4000:].decode(errors="replace").strip()
        return message or f"the worker process ended with code {self.child.returncode}"

    def _write(self, data: bytes) -> None:
        pipe, remaining = self.child.stdin, memoryview(data)
        assert pipe is not None
        try:
            while remaining:
                remaining = remaining[pipe.write(remaining) or 0 :]
        except OSError:
            raise WorkerUnresponsive("the worker process has ended") from None

    def _read(self, size: int, patience: float = 0.0) -> bytes:
        pipe, parts = self.child.stdout, b""
        assert pipe is not None
        while len(parts) < size:
            if not select.select([pipe], [], [], patience or self.patience)[0]:
                limit = patience or self.patience
                raise WorkerUnresponsive(f"the worker process gave no answer within {limit:g} s")
            more = pipe.read(size - len(parts))
            if not more:
                raise WorkerUnresponsive("the worker process has ended")
            parts += more
        return parts


class WorkerPool:
    """Emulators in worker processes: a crash ends only one of them, and a hang does not stop the run."""

    def __init__(self, spec: PoolSpec, workers: int, patience: float) -> None:
        self.spec = spec
        self.workers: list[Worker] = []
        with tempfile.TemporaryFile() as file:  # shared by its descriptor, without a name
            in_memory = hasattr(os, "memfd_create")
            fd = os.memfd_create("gameboy") if in_memory else os.dup(file.fileno())
        size = spec.size + len(spec.rom)
        os.ftruncate(fd, size)
        self.shared = mmap.mmap(fd, size)
        self.shared[spec.size :] = spec.rom
        self.actions, self.busy, self.frames, self.ram = spec.layout(self.shared)
        self.close = weakref.finalize(self, _end, self.workers, fd)  # runs once: on close or at exit
        workers = min(workers, spec.count)
        cuts = [spec.count * k // workers for k in range(workers + 1)]
        try:
            for low, high in pairwise(cuts):
                self.workers.append(Worker(spec, fd, range(low, high), patience))
            for worker in self.workers:
                worker.wait()
        except ConfigError:
            self.close()
            raise

    def worker_of(self, row: int) -> Worker:
        return next(worker for worker in self.workers if row in worker.rows)

    def step(self, first: int, actions: Sequence[int]) -> list[Fault]:
        rows = range(first, first + len(actions))
        self.actions[first : rows.stop] = actions
        # Locks are taken in the order of workers, so that two threads never wait for each other; all are
        # released, also if a worker cannot be replaced.
        with contextlib.ExitStack() as locks:
            return self._step(rows, locks)

    def _step(self, rows: range, locks: contextlib.ExitStack) -> list[Fault]:
        pending: list[tuple[Worker, range]] = []
        faults: list[Fault] = []
        for worker in self.workers:
            own_rows = range(max(rows.start, worker.rows.start), min(rows.stop, worker.rows.stop))
            if not own_rows:
                continue
            locks.enter_context(worker.lock)
            pending.append((worker, own_rows))
            for row in [row for row in own_rows if row in worker.lost]:
                faults.append(Fault(row, worker.lost.pop(row), lost=True))
                self.actions[row] = IDLE
            with contextlib.suppress(WorkerUnresponsive):  # noticed below
                worker.send(STEP, own_rows.start, struct.pack("<I", own_rows.stop))
        for worker, own_rows in pending:
            try:
                faults += self._results(worker)
            except WorkerUnresponsive as cause:
                self._replace(worker, cause)
                stepped = [row for row in own_rows if self.actions[row] != IDLE]
                faults += [worker.fault(row) for row in stepped]
        return faults

    def save(self, row: int) -> bytes:
        return self._query(SAVE, row)

    def screen(self, row: int) -> Bytes:
        return np.frombuffer(self._query(SCREEN, row), np.uint8).reshape(144, 160)

    def load(self, row: int, state: bytes) -> Fault | None:
        worker = self.worker_of(row)
        with worker.lock:
            worker.lost.pop(row, None)
            for last in (False, True):
                try:
                    worker.send(LOAD, row, state)
                    reply, _, message = worker.receive()
                    break
                except WorkerUnresponsive as cause:
                    self._replace(worker, cause)
                    fault = worker.fault(row)
                    if last or not fault.lost:  # else it had ended before: try the new process
                        return Fault(row, fault.trace)
        return Fault(row, message.decode()) if reply == FAILED else None

    def _query(self, command: bytes, row: int) -> bytes:
        worker = self.worker_of(row)
        with worker.lock:
            if row not in worker.lost:
                try:
                    worker.send(command, row)
                    return worker.receive()[2]
                except WorkerUnresponsive as cause:
                    self._replace(worker, cause)
            raise EmulatorLost(worker.fault(row))

    def _results(self, worker: Worker) -> list[Fault]:
        faults: list[Fault] = []
        while True:
            reply, row, message = worker.receive()
            if reply == FINE:
                return faults
            faults.append(Fault(row, message.decode()))

    def _replace(self, worker: Worker, cause: WorkerUnresponsive) -> None:
        """Replace a worker. The row that it was stepping is the culprit; all others are lost with it.

        After SIGKILL there is no culprit: an emulator never sends that signal to itself.
        """
        killed = worker.ended() == -signal.SIGKILL
        message = worker.end()
        culprits = [row for row in worker.rows if self.busy[row] and not killed]
        where = f", in game {culprits[0]}" if culprits else ""
        worker.lost = dict.fromkeys(worker.rows, f"{message}\n{cause.args[0]}{where}")
        worker.culprits = set(culprits)
        self.busy[worker.rows.start : worker.rows.stop] = 0
        worker.start()
        worker.wait()


def _end(workers: list[Worker], fd: int) -> None:
    while workers:
        workers.pop().end()
    os.close(fd)


class EmulatorLost(Exception):
    """The emulator of this row was lost with its worker; its game must be replayed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.trace)
        self.fault = fault
