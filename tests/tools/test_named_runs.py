"""tools/experiments/named_runs.py: which commands it starts, when it ends, and what it stores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import named_runs
import pytest
from support.patience import PATIENCE, wait_until

TOOL = Path(named_runs.__file__)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were started; each makes the folder of its run, as a training does."""
    commands: list[list[str]] = []

    class Process:
        """A training that ends at once."""

        returncode = 0

        def __init__(self, command: list[str], **options: Any) -> None:
            commands.append(command)
            folder = Path(command[command.index("--name") + 1] if "--name" in command else command[4])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.yaml").write_text("seed: 0\n")

        def poll(self) -> int:
            return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(named_runs.subprocess, "Popen", Process)
    monkeypatch.setattr(named_runs, "store", lambda runs, out: 0)
    monkeypatch.setattr(named_runs, "PAUSE", 0.01)
    monkeypatch.setattr(named_runs.signal, "signal", lambda number, act: None)
    return commands


def test_runs_are_started_once_and_then_continued(started: list[list[str]]) -> None:
    arguments = ["w", "y", "--seeds", "0-1", "--processes", "1", "--device", "cuda", "--minutes", "2"]
    assert named_runs.main(arguments) == 0
    assert [command[3:5] for command in started] == [["train", name] for name in ("w", "y", "w", "y")]
    assert [command[command.index("--seed") + 1] for command in started] == ["0", "0", "1", "1"]
    assert all("cuda" in command and 1.7 < float(command[-1]) < 1.9 for command in started)
    started.clear()
    named_runs.main(arguments)
    assert [command[3:5] for command in started[:2]] == [["resume", f"runs/named/{n}-0"] for n in "wy"]


def test_no_run_is_started_without_time(started: list[list[str]]) -> None:
    assert named_runs.main(["h", "--seeds", "0", "--minutes", "0.1"]) == 0
    assert not started


def test_the_default_is_every_named_run(started: list[list[str]]) -> None:
    assert named_runs.main([]) == 0
    assert len(started) == 24 and {command[4] for command in started} == {*"wxyhiv", "z2", "z1"}


def test_processes_that_do_not_end_are_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A report that takes longer than the time limit does not delay the end of the command."""
    monkeypatch.chdir(tmp_path)
    code = ("import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
            "pathlib.Path('begun').touch(); time.sleep(600)")  # fmt: skip
    monkeypatch.setattr(named_runs.NamedRun, "command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(named_runs, "LEAST", 0.1)
    stored: list[float] = []
    monkeypatch.setattr(named_runs, "STORED_EVERY", 0.1)
    monkeypatch.setattr(named_runs, "PAUSE", 0.01)

    def monotonic() -> float:
        """The time is over once the child sleeps and all was stored twice."""
        return time.monotonic() + (1000.0 if len(stored) >= 2 and Path("begun").exists() else 0.0)

    monkeypatch.setattr(named_runs, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
    began = time.monotonic()
    codes = named_runs.train([named_runs.NamedRun("w", 0)], "cpu", 2, began + 900.0,
                             lambda: stored.append(time.monotonic()))  # fmt: skip
    assert time.monotonic() - began < 300 and list(codes.values()) == [0]


def test_complete_run_that_has_to_be_killed_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a busy machine the film takes longer than the time to stop; nothing else is missing."""
    monkeypatch.chdir(tmp_path)
    code = ("import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
            "pathlib.Path('begun').touch(); time.sleep(600)")  # fmt: skip
    monkeypatch.setattr(named_runs.NamedRun, "command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(named_runs.NamedRun, "started", property(lambda _: Path("begun").exists()))
    monkeypatch.setattr(named_runs.NamedRun, "complete", property(lambda _: Path("begun").exists()))
    monkeypatch.setattr(named_runs, "STOPPING", 0.1)
    monkeypatch.setattr(named_runs, "PAUSE", 0.01)
    codes = named_runs.train([named_runs.NamedRun("w", 0)], "cpu", 2, time.monotonic() + 900, lambda: None)
    assert list(codes.values()) == [0]


@pytest.mark.slow
def test_interrupted_trainings_are_stored_and_continued(tmp_path: Path) -> None:
    """Two small trainings of `h`: SIGTERM to the command, then the command again, to the end."""
    small = ["--total_steps", "20000", "--evaluation.every", "80", "--evaluation.games", "2", "--games", "2",
             "--steps", "32", "--network.hidden", "8", "--schedule.warmup_steps", "0",
             "--world.max_steps", "40", "--past_policies.count", "0"]  # fmt: skip
    wrapper = tmp_path / "small.py"
    wrapper.write_text(
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import named_runs\n"
        "command = named_runs.NamedRun.command\n"
        "def smaller(self, device, minutes):\n"
        "    words = command(self, device, minutes)\n"
        f"    return words + {small!r} if 'train' in words else words\n"
        "named_runs.NamedRun.command = smaller\n"
        "sys.exit(named_runs.main(sys.argv[1:]))\n"
    )
    words = [sys.executable, str(wrapper), "h", "--seeds", "0-1", "--device", "cpu", "--minutes", "5",
             "--out", "out"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(TOOL.parents[2])}
    child = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: child.poll() is not None or any(tmp_path.glob("runs/named/h-0/checkpoints/iter_*")))
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert "the same command continues" in child.communicate(timeout=PATIENCE)[0]
    assert (tmp_path / "out/named-0.tar.gz").exists()
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out/reproductions.jsonl").read_text().splitlines()]
    finished = {line["seed"]: line for line in lines if line["recipe"] == "h"}
    assert finished.keys() == {0, 1}
    assert all(line["complete"] and line["steps"] >= 20_000 and line["rows"] for line in finished.values())
