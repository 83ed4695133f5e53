"""Seeds of a sweep on a GPU: one process trains them, then each run is resumed alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rematch.sweeps import gpu_runs
from rematch.sweeps.gpu_runs import GpuChildren
from rematch.sweeps.plan import Plan, make_plan
from rematch.sweeps.processes import Children, Task
from rematch.sweeps.run_place import RunPlace
from rematch.training import device
from rematch.training.recipes import configure

# Stands for the process that trains: it writes what it was asked to do.
STUB = ("import json, pathlib, sys; folders = json.loads(sys.argv[3]); "
        "[pathlib.Path(folder).mkdir(parents=True) for folder in folders]; "
        "pathlib.Path(next(iter(folders))).parent.joinpath('asked.json').write_text(sys.argv[3]); ")


class Alone(GpuChildren):
    """Records the runs that are started alone, and lets them finish."""

    started: list[str]

    def start(self, task: Task) -> None:
        self.started.append(task.name)
        task.state = "finished"


def tasks_in(folder: Path) -> list[Task]:
    tasks = []
    for seed in range(3):
        words = ["train", "settings.yaml", "--ppo.lr=0.1", f"--seed={seed}", "--name=x"]
        tasks.append(Task(f"seed-{seed}", folder / f"seed-{seed}", words))
    return tasks


def run(folder: Path, stub: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Alone, list[str]]:
    lines: list[str] = []
    monkeypatch.setattr(gpu_runs, "TOGETHER", stub)
    tasks = tasks_in(folder)
    children = Alone(tasks, 8, 0, lines.append, [tasks])
    children.started = []
    children.run(lambda: False)
    return children, lines


def test_one_process_trains_all_seeds_and_each_run_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children, lines = run(tmp_path, STUB, monkeypatch)
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked == {str(tmp_path / f"seed-{seed}"): ["settings.yaml", "--ppo.lr=0.1", f"--seed={seed}"]
                     for seed in range(3)}  # fmt: skip
    assert children.started == ["seed-0", "seed-1", "seed-2"]
    assert "3 runs train together on the GPU" in lines[0] and lines[1] == "the process of 3 runs ended"


def test_runs_whose_common_process_failed_are_started_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children, lines = run(tmp_path, STUB + "sys.exit(2)", monkeypatch)
    assert len(children.started) == 3 and lines[1] == "the process of 3 runs ended with exit code 2"


@pytest.mark.parametrize(("changes", "kind"), [({"device": "cuda"}, GpuChildren), ({}, Children)])
def test_seeds_train_together_only_on_a_gpu(
    tmp_path: Path, changes: dict[str, Any], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "needs_cpu", lambda setup: "")
    plan: Plan = make_plan(tmp_path / "sweep", "pursuit", (0, 1), {},
                           lambda flags: configure("pursuit", flags=flags, changes=changes))  # fmt: skip
    children = RunPlace().children(plan.configs, plan.tasks(), (1, 0, ""), print)
    assert type(children) is kind
