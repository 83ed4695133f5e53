"""Emulators in this process and in workers: the same bytes, and faults that cost one game and no more."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import gameboy_worlds

from rematch.core.errors import ConfigError
from rematch.worlds.gameboy import titles
from rematch.worlds.gameboy.emulator import emulator_pool as emulator_pool
from rematch.worlds.gameboy.emulator import pyboy_emulator

GAMES = 3


def spec() -> emulator_pool.PoolSpec:
    gameboy_worlds.need_pyboy()
    made = gameboy_worlds.tiny()
    return emulator_pool.PoolSpec(made.rom, titles.included_title(made).regions, GAMES)


@pytest.fixture(scope="module")
def remote() -> Iterator[emulator_pool.WorkerPool]:
    """Two workers: one plays game 0, the other games 1 and 2."""
    pool = emulator_pool.WorkerPool(spec(), 2, 20.0)
    yield pool
    pool.close()


def begin(pool: emulator_pool.EmulatorPool) -> None:
    for row in range(GAMES):
        assert pool.load(row, pyboy_emulator.power_on(spec().rom)) is None


def walk(pool: emulator_pool.EmulatorPool, steps: int) -> list[emulator_pool.Fault]:
    faults = []
    for action in gameboy_worlds.tiny().solution[:steps]:
        faults += pool.step(0, [action, 0, (action + 3) % 7])
    return faults


def test_workers_show_what_this_process_shows(remote: emulator_pool.WorkerPool) -> None:
    local = emulator_pool.LocalPool(spec())
    for pool in (local, remote):
        begin(pool)
        assert walk(pool, 12) == []
        assert pool.step(1, [6, emulator_pool.IDLE]) == []  # some rows only, and one of them not at all
    assert np.array_equal(local.frames, remote.frames) and np.array_equal(local.ram, remote.ram)
    for row in range(GAMES):
        state = local.save(row)
        assert state == remote.save(row) and np.array_equal(local.screen(row), remote.screen(row))
    assert len({local.save(row) for row in range(GAMES)}) == GAMES


def test_workers_ignore_signals_to_all_processes(remote: emulator_pool.WorkerPool) -> None:
    begin(remote)
    children = [worker.child for worker in remote.workers]
    for child in children:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(child.pid, number)
    assert walk(remote, 2) == [] and [child.poll() for child in children] == [None, None]


def test_a_killed_worker_is_replaced_and_its_games_are_lost(remote: emulator_pool.WorkerPool) -> None:
    begin(remote)
    walk(remote, 4)
    before, child = remote.save(0), remote.workers[1].child
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    faults = remote.step(0, [emulator_pool.IDLE, 0, 0])
    assert [(fault.row, fault.lost) for fault in faults] == [(1, True), (2, True)]  # nobody was at work
    assert "ended" in faults[0].line
    assert remote.save(0) == before and remote.save(1) == pyboy_emulator.power_on(spec().rom)
    assert remote.step(0, [0, 0, 0]) == []


def test_a_state_loads_though_its_worker_was_killed_before(remote: emulator_pool.WorkerPool) -> None:
    """Scouts begin anew in every iteration: loading is the first that a dead worker is asked for."""
    begin(remote)
    walk(remote, 4)
    state, child = remote.save(2), remote.workers[1].child
    os.kill(child.pid, signal.SIGKILL)
    assert remote.load(2, state) is None and remote.save(2) == state
    assert [(fault.row, fault.lost) for fault in remote.step(0, [0, 0, 0])] == [(1, True)]


def test_worker_killed_from_outside_has_no_culprit(remote: emulator_pool.WorkerPool) -> None:
    begin(remote)
    remote.busy[2] = 1  # as if it had been in the midst of game 2
    os.kill(remote.workers[1].child.pid, signal.SIGKILL)
    assert [(fault.row, fault.lost) for fault in remote.step(0, [0, 0, 0])] == [(1, True), (2, True)]


def test_request_for_a_lost_game_is_an_error(remote: emulator_pool.WorkerPool) -> None:
    begin(remote)
    remote.workers[1].child.kill()
    with pytest.raises(emulator_pool.EmulatorLost):
        remote.save(2)  # that of game 1 is lost, too: its thread learns so when it steps
    faults = remote.step(0, [0, 0, 0])
    assert [(fault.row, fault.lost) for fault in faults] == [(1, True)]
    assert remote.step(0, [0, 0, 0]) == []


def test_hung_worker_is_replaced_and_its_game_is_the_culprit(remote: emulator_pool.WorkerPool) -> None:
    begin(remote)
    worker = remote.workers[1]
    os.kill(worker.child.pid, signal.SIGSTOP)
    worker.patience, remote.busy[2] = 0.3, 1  # as if it had stopped in the midst of game 2
    try:
        faults = remote.step(0, [0, 0, 0])
    finally:
        worker.patience = 20.0
    assert [(fault.row, fault.lost) for fault in faults] == [(1, True), (2, False)]
    assert "no answer within 0.3 s, in game 2" in faults[0].line
    assert remote.step(0, [0, 0, 0]) == []


class Bad(pyboy_emulator.Emulator):
    def press(self, action: int) -> None:
        raise RuntimeError("the cartridge caught fire")


def test_a_machine_that_fails_is_replaced() -> None:
    pool = emulator_pool.LocalPool(spec())
    begin(pool)
    pool.emulators[1] = Bad(spec().rom)
    (fault,) = pool.step(0, [0, 0, 0])
    assert (fault.row, fault.lost, fault.line) == (1, False, "RuntimeError: the cartridge caught fire")
    assert pool.step(0, [0, 0, 0]) == []


def test_bytes_that_are_no_state_are_a_fault(remote: emulator_pool.WorkerPool) -> None:
    for pool in (emulator_pool.LocalPool(spec()), remote):
        fault = pool.load(1, b"\xff" * 100)
        assert fault is not None and not fault.lost and fault.row == 1
        begin(pool)
        assert pool.step(0, [0, 0, 0]) == []


def test_workers_that_do_not_start_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator_pool, "__package__", "no.such.package")
    with pytest.raises(ConfigError, match=r"a worker process does not start: .*ended") as caught:
        emulator_pool.WorkerPool(spec(), 1, 20.0)
    assert "\n" not in str(caught.value)


def test_banks_that_go_leave_no_file_open() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("only Linux tells which files are open")
    emulator_pool.WorkerPool(spec(), 1, 20.0)
    gc.collect()
    before = open_files()
    for _ in range(3):
        emulator_pool.WorkerPool(spec(), 1, 20.0)
    gc.collect()
    assert open_files() <= before


def test_a_worker_that_cannot_be_replaced_leaves_no_lock_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = emulator_pool.WorkerPool(spec(), 2, 20.0)
    begin(pool)

    def refuse(self: emulator_pool.Worker) -> None:
        raise ConfigError("no more processes")

    monkeypatch.setattr(emulator_pool.Worker, "start", refuse)
    pool.workers[0].child.kill()
    pool.workers[0].child.wait()
    with pytest.raises(ConfigError, match="no more processes"):
        pool.step(0, [0, 0, 0])
    assert not any(worker.lock.locked() for worker in pool.workers)
    pool.close()
