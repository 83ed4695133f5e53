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
from rematch.worlds.gameboy.emulator import emulator_pool as banks
from rematch.worlds.gameboy.emulator import pyboy_emulator

GAMES = 3


def plan() -> banks.Plan:
    gameboy_worlds.need_pyboy()
    made = gameboy_worlds.tiny()
    return banks.Plan(made.rom, titles.ours(made).regions, GAMES)


@pytest.fixture(scope="module")
def remote() -> Iterator[banks.Remote]:
    """Two workers: one plays game 0, the other games 1 and 2."""
    bank = banks.Remote(plan(), 2, 20.0)
    yield bank
    bank.close()


def begin(bank: banks.Bank) -> None:
    for row in range(GAMES):
        assert bank.load(row, pyboy_emulator.power_on(plan().rom)) is None


def walk(bank: banks.Bank, steps: int) -> list[banks.Fault]:
    faults = []
    for action in gameboy_worlds.tiny().solution[:steps]:
        faults += bank.step(0, [action, 0, (action + 3) % 7])
    return faults


def test_workers_show_what_this_process_shows(remote: banks.Remote) -> None:
    local = banks.Local(plan())
    for bank in (local, remote):
        begin(bank)
        assert walk(bank, 12) == []
        assert bank.step(1, [6, banks.IDLE]) == []  # some rows only, and one of them not at all
    assert np.array_equal(local.frames, remote.frames) and np.array_equal(local.ram, remote.ram)
    for row in range(GAMES):
        state = local.save(row)
        assert state == remote.save(row) and np.array_equal(local.screen(row), remote.screen(row))
    assert len({local.save(row) for row in range(GAMES)}) == GAMES


def test_signals_to_all_processes_are_for_whoever_started_the_workers(remote: banks.Remote) -> None:
    begin(remote)
    children = [worker.child for worker in remote.workers]
    for child in children:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(child.pid, number)
    assert walk(remote, 2) == [] and [child.poll() for child in children] == [None, None]


def test_a_killed_worker_is_replaced_and_its_games_are_lost(remote: banks.Remote) -> None:
    begin(remote)
    walk(remote, 4)
    before, child = remote.save(0), remote.workers[1].child
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    faults = remote.step(0, [banks.IDLE, 0, 0])
    assert [(fault.row, fault.lost) for fault in faults] == [(1, True), (2, True)]  # nobody was at work
    assert "gone" in faults[0].line
    assert remote.save(0) == before and remote.save(1) == pyboy_emulator.power_on(plan().rom)
    assert remote.step(0, [0, 0, 0]) == []


def test_a_state_loads_though_its_worker_was_killed_before(remote: banks.Remote) -> None:
    """Scouts begin anew in every iteration: loading is the first that a dead worker is asked for."""
    begin(remote)
    walk(remote, 4)
    state, child = remote.save(2), remote.workers[1].child
    os.kill(child.pid, signal.SIGKILL)
    assert remote.load(2, state) is None and remote.save(2) == state
    assert [(fault.row, fault.lost) for fault in remote.step(0, [0, 0, 0])] == [(1, True)]


def test_nobody_is_to_blame_for_a_worker_that_was_killed_from_outside(remote: banks.Remote) -> None:
    begin(remote)
    remote.busy[2] = 1  # as if it had been in the midst of game 2
    os.kill(remote.workers[1].child.pid, signal.SIGKILL)
    assert [(fault.row, fault.lost) for fault in remote.step(0, [0, 0, 0])] == [(1, True), (2, True)]


def test_who_asks_for_a_lost_game_is_told(remote: banks.Remote) -> None:
    begin(remote)
    remote.workers[1].child.kill()
    with pytest.raises(banks.Lost):
        remote.save(2)  # that of game 1 is lost, too: its thread learns so when it steps
    faults = remote.step(0, [0, 0, 0])
    assert [(fault.row, fault.lost) for fault in faults] == [(1, True)]
    assert remote.step(0, [0, 0, 0]) == []


def test_a_hung_worker_is_found_out_and_the_game_at_work_is_to_blame(remote: banks.Remote) -> None:
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


class Bad(pyboy_emulator.Machine):
    def press(self, action: int) -> None:
        raise RuntimeError("the cartridge caught fire")


def test_a_machine_that_fails_is_replaced() -> None:
    bank = banks.Local(plan())
    begin(bank)
    bank.machines[1] = Bad(plan().rom)
    (fault,) = bank.step(0, [0, 0, 0])
    assert (fault.row, fault.lost, fault.line) == (1, False, "RuntimeError: the cartridge caught fire")
    assert bank.step(0, [0, 0, 0]) == []


def test_bytes_that_are_no_state_are_a_fault(remote: banks.Remote) -> None:
    for bank in (banks.Local(plan()), remote):
        fault = bank.load(1, b"\xff" * 100)
        assert fault is not None and not fault.lost and fault.row == 1
        begin(bank)
        assert bank.step(0, [0, 0, 0]) == []


def test_workers_that_do_not_start_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banks, "__package__", "no.such.package")
    with pytest.raises(ConfigError, match=r"a worker process does not start: .*gone") as caught:
        banks.Remote(plan(), 1, 20.0)
    assert "\n" not in str(caught.value)


def test_banks_that_go_leave_no_file_open() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("only Linux tells which files are open")
    banks.Remote(plan(), 1, 20.0)
    gc.collect()
    before = open_files()
    for _ in range(3):
        banks.Remote(plan(), 1, 20.0)
    gc.collect()
    assert open_files() <= before


def test_a_worker_that_cannot_be_replaced_leaves_no_lock_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = banks.Remote(plan(), 2, 20.0)
    begin(bank)

    def refuse(self: banks.Worker) -> None:
        raise ConfigError("no more processes")

    monkeypatch.setattr(banks.Worker, "start", refuse)
    bank.workers[0].child.kill()
    bank.workers[0].child.wait()
    with pytest.raises(ConfigError, match="no more processes"):
        bank.step(0, [0, 0, 0])
    assert not any(worker.lock.locked() for worker in bank.workers)
    bank.close()
