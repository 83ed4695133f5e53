"""Runs that were killed, stopped, damaged or started twice end with the bytes of an uninterrupted run."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kill_runs
import pytest
from support import patience

from rematch.rehearsal.compare import differences

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(folder, seconds) of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("undisturbed") / "twin"
    return folder, kill_runs.undisturbed(folder)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in the middle."""
    folder = tmp_path_factory.mktemp("halfway") / "run"
    child = kill_runs.start_or_resume(folder)
    wait_until(lambda: kill_runs.newest(folder) >= kill_runs.ITERATIONS // 2, child)
    child.kill()
    child.communicate()
    return folder


def wait_until(condition: Any, child: subprocess.Popen[str]) -> None:
    patience.wait_until(lambda: condition() or child.poll() is not None, "it hangs", pause=0.001)
    assert child.poll() is None, "it ended too early"


def wait_for_end(child: subprocess.Popen[str]) -> str:
    output = child.communicate(timeout=patience.PATIENCE)[0]
    assert child.returncode == 0, output
    return output


def test_training_imports_no_torch() -> None:
    """Training on the native path starts without torch, whose import takes seconds."""
    code = "import sys, rematch.api, rematch.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [12, 15])
def test_runs_killed_at_random_end_with_the_same_bytes(seed: int, twin: Any, tmp_path: Path) -> None:
    """Twenty SIGKILLs in total, at random moments and during saves; kill_runs.py sends hundreds."""
    rng, kills, run = random.Random(seed), 0, 0
    while kills < 10:
        run += 1
        try:
            for _ in kill_runs.trial(twin[0], tmp_path / f"run-{run}", rng, (10 - kills, twin[1])):
                kills += 1
        except AssertionError as error:
            pytest.fail(f"seed {seed}, run {run}, kill {kills}: {error}")


def test_the_pictures_are_made_by_a_resume_that_has_nothing_left_to_train(twin: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(twin[0], folder)
    for name in ("learning.png", "match.gif", "report.html"):
        (folder / name).unlink()
    shutil.rmtree(folder / "policies")
    (folder / ".tmp-match.gif").write_bytes(b"GIF")  # a kill inside that write
    output = kill_runs.finish(folder)
    assert f"at iteration {kill_runs.ITERATIONS}" in output and differences(twin[0], folder) == []


def checkpoint_files(folder: Path) -> Iterator[Path]:
    newest = folder / "checkpoints" / f"iter_{kill_runs.newest(folder):08d}"
    yield from sorted(newest.iterdir())


def test_a_flipped_bit_in_any_file_of_a_checkpoint_is_found(twin: Any, halfway: Path, tmp_path: Path) -> None:
    """One bit in one file: the checkpoint is reported and set aside, and the previous one is used."""
    rng = random.Random(21)
    names = [path.name for path in checkpoint_files(halfway)]
    assert len(names) >= 3
    for name in names:
        folder = tmp_path / name / "run"
        shutil.copytree(halfway, folder)
        newest = kill_runs.newest(folder)
        path = folder / "checkpoints" / f"iter_{newest:08d}" / name
        data = bytearray(path.read_bytes())
        position = rng.randrange(8 * len(data))
        data[position // 8] ^= 1 << position % 8
        path.write_bytes(data)
        output = kill_runs.finish(folder)
        assert f"checkpoint iter_{newest:08d} does not verify" in output, (name, position, output)
        assert f"from checkpoint iter_{newest - 1:08d}" in output, (name, position, output)
        assert (folder / "damaged" / f"iter_{newest:08d}" / name).read_bytes() == data
        assert differences(twin[0], folder) == [], (name, position)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_termination_signal_saves_and_prints_the_resume_command(
    number: int, twin: Any, tmp_path: Path
) -> None:
    for attempt in range(10):  # on a busy machine the signal may come after the last iteration
        folder = tmp_path / f"run-{attempt}"
        child = kill_runs.start_or_resume(folder)
        wait_until(lambda folder=folder: kill_runs.newest(folder) >= 3, child)  # type: ignore[misc]
        child.send_signal(number)
        output = wait_for_end(child)
        if kill_runs.newest(folder) < kill_runs.ITERATIONS:
            break
    assert f"stopped ({signal.Signals(number).name})" in output and f"rematch resume {folder}" in output
    assert 3 <= kill_runs.newest(folder) < kill_runs.ITERATIONS
    kill_runs.finish(folder)
    assert differences(twin[0], folder) == []


def test_max_minutes_saves_and_stops(twin: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(2):  # train, then resume; a tiny limit still allows one iteration each
        output = wait_for_end(kill_runs.start_or_resume(folder, "--max-minutes", "0.000001"))
        assert "stopped (time)" in output and f"rematch resume {folder}" in output
    assert kill_runs.newest(folder) == 2
    kill_runs.finish(folder)
    assert differences(twin[0], folder) == []


def test_second_process_names_the_holder_of_the_run(
    twin: Any, halfway: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(halfway, folder)
    first = kill_runs.start_or_resume(folder)
    wait_until(lambda: (folder / "lock").exists() and str(first.pid) in (folder / "lock").read_text(), first)
    first.send_signal(signal.SIGSTOP)  # so that it cannot end before the second process starts
    try:
        for words in (("resume", str(folder)), ("train", "pursuit", "--name", str(folder))):
            second = kill_runs.command(*words)
            output = second.communicate(timeout=patience.PATIENCE)[0]
            assert second.returncode == 2 and f"process {first.pid} on" in output
            assert len(output.splitlines()) == 1 and "Traceback" not in output
    finally:
        first.send_signal(signal.SIGCONT)
    wait_for_end(first)
    assert differences(twin[0], folder) == []
