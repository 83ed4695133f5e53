"""Run lock: one process writes in a run folder; others get its name."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_training import continue_run, fork, single_line, train_run, wait_for_exit

from rematch.core.errors import ConfigError
from rematch.storage import run_lock
from rematch.storage.run_folder import Run
from rematch.storage.run_lock import lock_holder

LOCK_AND_SLEEP = """if 1:
    import sys, time; from pathlib import Path; from rematch.storage.run_folder import Run
    run = Run.open(Path(sys.argv[1]), write=True)
    print("locked", flush=True); time.sleep(60)
"""


def test_locked_run_names_the_process_and_a_killed_one_unlocks_it(tmp_path: Path) -> None:
    folder = train_run(tmp_path / "x", 1)
    command = [sys.executable, "-c", LOCK_AND_SLEEP, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"locked\n"
        holder = f"process {process.pid} on "
        with pytest.raises(ConfigError, match=f"is locked by {holder}.* since 20") as caught:
            Run.open(folder, write=True)
        assert str(folder) in single_line(caught)
        with pytest.raises(ConfigError, match=holder):
            Run.create(folder, "")
        assert lock_holder(folder).startswith(holder)
        Run.open(folder, write=False).close()  # reading needs no lock
        process.kill()
    assert (folder / "lock").exists() and lock_holder(folder) == ""
    continue_run(folder, 2)
    assert not (folder / "lock").exists()


def test_concurrent_creates_of_one_run_leave_one_winner(tmp_path: Path) -> None:
    for attempt in range(5):
        folder, start = tmp_path / str(attempt), time.time() + 0.03

        def work(folder: Path = folder, start: float = start) -> int:
            time.sleep(max(0.0, start - time.time()))
            try:
                run = Run.create(folder, "seed: 1\n")
            except ConfigError:
                return 1
            time.sleep(0.2)
            run.close()
            return 0

        assert sorted(wait_for_exit(pid) for pid in [fork(work) for _ in range(4)]) == [0, 1, 1, 1]


def test_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    folder = train_run(tmp_path / "x", 1)
    read, write = os.pipe()

    def parent() -> int:
        run = Run.open(folder, write=True)
        worker = fork(lambda: time.sleep(30) or 0)
        os.write(write, b"%d" % worker)
        os.kill(os.getpid(), signal.SIGKILL)
        run.close()
        return 0

    assert wait_for_exit(fork(parent)) == -signal.SIGKILL
    worker = int(os.read(read, 20))
    try:
        Run.open(folder, write=True).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failed_lock_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    folder = train_run(tmp_path / "x", 1)

    def fail(fd: int, data: bytes) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(run_lock, "write_all", fail)
        with pytest.raises(ConfigError, match=os.strerror(code)) as caught:
            Run.open(folder, write=True)
        single_line(caught)
    Run.open(folder, write=True).close()
    assert lock_holder(folder) == ""


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_lock_that_is_not_a_regular_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    folder = train_run(tmp_path / "x", 1)
    make(folder / "lock")
    with pytest.raises(ConfigError, match="lock") as caught:
        Run.open(folder, write=True)
    single_line(caught)
