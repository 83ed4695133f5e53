"""`rematch runs`: every state of a run, sweeps, and folders that are hostile."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import Runner, environment, finished, succeed, workdir

import rematch
from rematch.core.errors import ConfigError
from rematch.verbs.runs import RunInfo, age_text, list_runs

__all__ = ["finished", "succeed", "workdir"]
pytestmark = pytest.mark.usefixtures("blank_pictures")

CONFIG = "game: pursuit\nseed: 0\ngames: 10\nsteps: 5\ntotal_steps: 1000\nworld:\n  games: 7\n"


def make(folder: Path, config: str = CONFIG, iteration: int = 0) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    if iteration:
        (folder / "checkpoints" / f"iter_{iteration:08d}").mkdir(parents=True)
    return folder


def only(root: Path) -> RunInfo:
    (run,) = list_runs(root)
    return run


def test_list_of_a_finished_run(workdir: Path, succeed: Runner) -> None:
    (run,) = rematch.list_runs()
    assert (run.name, run.world, run.state) == ("done", "pursuit", "finished")
    assert (run.step, run.total_steps) == (96, 96)
    history = json.loads((workdir / "runs" / "done" / "history.json").read_text())
    assert run.verdict == history[-1]["verdict"] and run.age is not None and run.age < 600
    head, line = succeed("runs").splitlines()
    assert head.split() == ["run", "world", "steps", "state", "age", "verdict"]
    assert line.split()[:6] == ["done", "pursuit", "96", "of", "96", "finished"]
    assert succeed("runs", "done") == succeed("runs", "runs/done")
    assert json.loads(succeed("runs", "--json"))["runs"][0]["state"] == "finished"


def test_list_states(tmp_path: Path) -> None:
    stopped = make(tmp_path / "a", iteration=3)
    assert only(tmp_path).state == "stopped" and only(tmp_path).step == 150
    (stopped / "lock").write_text("process 1 on elsewhere\n")
    assert only(tmp_path).state == "killed"
    (stopped / "metrics.jsonl").write_text('{"step": 200}\n{"step": 250}\n{"half a li')
    with (stopped / "lock").open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        assert (only(tmp_path).state, only(tmp_path).step) == ("running", 250)
    assert only(tmp_path).step == 150  # after a kill, what was saved counts
    (stopped / "timing.jsonl").write_text('{"event": "failed", "why": "x"}\n{"seconds": 1}\n')
    assert only(tmp_path).state == "failed"
    (stopped / "timing.jsonl").write_text('{"event": "failed"}\n{"event": "resume"}\n')
    assert only(tmp_path).state == "killed"


def test_list_counts_whole_iterations(tmp_path: Path) -> None:
    """1010 steps are 21 iterations of 50: a finished run is not listed as "1.05 K of 1.01 K"."""
    make(tmp_path / "one", CONFIG.replace("total_steps: 1000", "total_steps: 1010"), 21)
    run = only(tmp_path)
    assert (run.step, run.total_steps) == (1050, 1050)


def test_list_order_is_newest_first_and_nested_folders_are_found(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "group/middle", "new")):
        folder = make(tmp_path / name)
        os.utime(folder / "config.yaml", (time.time() - 1000 + number,) * 2)
    make(tmp_path / "a" / "b" / "c" / "too_deep")
    make(tmp_path / ".hidden")
    make(tmp_path / "old" / "inside")
    assert [run.name for run in list_runs(tmp_path)] == ["new", "group/middle", "old"]


def test_list_of_a_sweep_is_one_line(tmp_path: Path) -> None:
    sweep = tmp_path / "seeds"
    make(sweep / "lr=1" / "seed-0", iteration=20)
    make(sweep / "lr=1" / "seed-1", iteration=10)
    for name in ("learning.png", "report.html"):
        (sweep / "lr=1" / "seed-0" / name).write_text("")
    (sweep / "sweep.yaml").write_text("recipe: quick\n")
    run = only(tmp_path)
    assert (run.name, run.world, run.step, run.total_steps) == ("seeds", "pursuit", 1500, 2000)
    assert set(run.state.removeprefix("sweep: ").split(", ")) == {"1 finished", "1 stopped"}
    assert {each.name for each in list_runs(sweep)} == {"lr=1/seed-0", "lr=1/seed-1"}


HOSTILE = {
    "empty config": "", "binary": "\x00\xff", "no game": "games: 3\n", "huge number": "games: " + "9" * 500,
    "escape": "game: \x1b[31mred\n", "negative": "game: x\ngames: -3\nsteps: 2\n",
    "bomb": "a: &a [x]\n" * 20_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_list_of_hostile_settings_is_one_line(tmp_path: Path, what: str) -> None:
    make(tmp_path / "x", HOSTILE[what])
    text = repr(list_runs(tmp_path))
    assert len(text.splitlines()) == 2 and "\x1b" not in text and len(text) < 400


def test_list_of_hostile_folders_is_one_line_each(tmp_path: Path) -> None:
    os.mkfifo(make(tmp_path / "fifo") / "history.json")
    for name, kind in (("config fifo", os.mkfifo), ("config folder", os.mkdir)):
        (tmp_path / name).mkdir()
        kind(tmp_path / name / "config.yaml")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "config.yaml").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path)
    make(tmp_path / "line\nbreak\x1b[2J")
    deep = make(tmp_path / "deep")
    (deep / "history.json").write_text("[" * 100_000)
    (make(tmp_path / "long") / "history.json").write_text('[\n{"verdict": "' + "x" * 10_000 + '"}\n]\n')
    (make(tmp_path / "odd") / "history.json").write_text('[\n{"verdict": {"a": 1}}\n]\n')
    (tmp_path / "plain file").write_text("")
    runs = list_runs(tmp_path)
    lines = repr(runs).splitlines()
    assert len(lines) == 1 + len(runs) and max(map(len, lines)) < 300 and "\x1b" not in repr(runs)
    names = {run.name for run in runs}
    assert {"fifo", "config fifo", "config folder", "link", "deep", "long", "odd"} <= names
    problems = {run.name: run.problem for run in runs}
    assert problems["config fifo"] == "config.yaml is not a plain file" and "config.yaml" in problems["link"]


def test_link_to_a_folder_above_lists_no_run_twice(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for name in ("one", "elsewhere"):
        (root / name).mkdir(parents=True)
        (root / name / "config.yaml").write_text("game: pursuit\ngames: 8\nsteps: 4\ntotal_steps: 96\n")
    (root / "elsewhere").rename(tmp_path / "elsewhere")
    (root / "loop").symlink_to(root)
    (root / "above").symlink_to(tmp_path)
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    assert sorted(run.name for run in list_runs(root)) == ["linked", "one"]
    assert all(run.problem == "" for run in list_runs(root))


def test_list_names_missing_settings(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half/config.yaml").write_text("game: pursuit\ngames: 8\nste")
    (run,) = list_runs(tmp_path)
    assert run.world == "pursuit" and "it lacks steps, total_steps" in run.problem


def test_list_of_an_empty_folder_says_how_to_start(
        tmp_path: Path, succeed: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert succeed("runs") == "No runs in runs. Start one: rematch train quick\n"
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        list_runs("nowhere")


def test_list_of_many_runs_is_quick(tmp_path: Path) -> None:
    for number in range(300):
        make(tmp_path / "runs" / f"run-{number}", CONFIG + "# filler\n" * 500, iteration=number)
    code = ("import sys; from rematch.cli.main import main; main(['runs']);"
            "print(*({'torch', 'matplotlib', 'rich', 'rematch.api'} & set(sys.modules)))")
    began = time.process_time()
    list_runs(tmp_path / "runs")
    assert time.process_time() - began < 1.0
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True,
                          text=True, check=True)
    assert done.stdout.count("\n") == 302 and done.stdout.endswith("\n\n")


def test_age_is_a_number_and_a_unit() -> None:
    texts = [age_text(seconds) for seconds in (None, 0, 59, 61, 7200, 86400 * 3)]
    assert texts == ["-", "0 s", "59 s", "1 min", "2 h", "3 d"]
