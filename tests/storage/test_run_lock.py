"""One process writes in a run's folder; others are told which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.fake_training import exit_status, forked, go_on, new, one_line

from rematch.core.errors import ConfigError
from rematch.storage.run_folder import Run
from rematch.storage.run_lock import lock_holder

HOLD = """if 1:
    import sys, time; from pathlib import Path; from rematch.storage.run_folder import Run
    run = Run.open(Path(sys.argv[1]), write=True)
    print("held", flush=True); time.sleep(60)
"""


def test_second_process_is_told_who_holds_the_run_and_a_killed_one_is_no_obstacle(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 1)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        told = f"process {process.pid} on "
        with pytest.raises(ConfigError, match=f"is locked by {told}.* since 20") as caught:
            Run.open(folder, write=True)
        assert str(folder) in one_line(caught)
        with pytest.raises(ConfigError, match=told):
            Run.create(folder, "")
        assert lock_holder(folder).startswith(told)
        Run.open(folder, write=False).close()  # readers are welcome
        process.kill()
    assert (folder / "lock").exists() and lock_holder(folder) == ""
    go_on(folder, 2)
    assert not (folder / "lock").exists()


def test_of_many_that_create_one_run_at_once_one_wins(tmp_path: Path) -> None:
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

        assert sorted(exit_status(pid) for pid in [forked(work) for _ in range(4)]) == [0, 1, 1, 1]


def test_a_forked_worker_that_outlives_us_does_not_hold_the_run(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 1)
    read, write = os.pipe()

    def parent() -> int:
        run = Run.open(folder, write=True)
        worker = forked(lambda: time.sleep(30) or 0)
        os.write(write, b"%d" % worker)
        os.kill(os.getpid(), signal.SIGKILL)
        run.close()
        return 0

    assert exit_status(forked(parent)) == -signal.SIGKILL
    worker = int(os.read(read, 20))
    try:
        Run.open(folder, write=True).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(read)
        os.close(write)
