"""A fake training in a run folder: every file it writes depends only on the iteration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.core.errors import ConfigError
from rematch.storage.checkpoint import Checkpoint
from rematch.storage.run_folder import Run

CPU = {"cpu": "x", "threads": "2"}


def state_parts(iteration: int) -> dict[str, Any]:
    weights = np.full((4, 3), iteration, np.float32)
    return {"learner": {"w": weights, "step": iteration}, "league": {"names": ["a"]}}


def train_iteration(run: Run, iteration: int, **keep: bool) -> None:
    """One iteration of the fake training."""
    run.log_line(f"Eval iteration {iteration} SR_P {iteration / 7:.3f}")
    run.log({"iteration": iteration, "loss": 1 / (1 + iteration), "sr": np.float32(0.5)})
    run.table("episodes.csv", f"{iteration},{iteration / 7:.3f}", "episode_id,return_env")
    if iteration % 2:
        run.event({"event": "milestone", "step": iteration})
        run.append_history({"iteration": iteration, "gap": iteration / 3})
        run.write_policy(f"p{iteration}", {"w": np.arange(iteration)}, {"iteration": iteration})
    run.save(iteration, state_parts(iteration), CPU, **keep)


def continue_run(folder: Path, until: int) -> None:
    with Run.open(folder, write=True) as run:
        checkpoint = run.load()
        assert run.rewind(checkpoint) == []
        for iteration in range(checkpoint.iteration + 1 if checkpoint else 0, until):
            train_iteration(run, iteration)


def train_run(folder: Path, until: int) -> Path:
    Run.create(folder, "seed: 1\n").close()
    continue_run(folder, until)
    return folder


def compared_files(folder: Path) -> dict[str, bytes]:
    """The files that equal runs have in common: all but timing.jsonl and damaged/."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()
            if name != "timing.jsonl" and not name.startswith("damaged/")}


def load_newest(folder: Path) -> Checkpoint:
    with Run.open(folder, write=False) as run:
        loaded = run.load()
    assert loaded is not None
    assert loaded.parts["learner"]["step"] == loaded.iteration
    assert np.array_equal(loaded.parts["learner"]["w"], state_parts(loaded.iteration)["learner"]["w"])
    return loaded


def single_line(caught: pytest.ExceptionInfo[ConfigError]) -> str:
    assert "\n" not in str(caught.value)
    return str(caught.value)


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1 << bit
    path.write_bytes(raw)


def fork(work: Callable[[], int]) -> int:
    """Start `work` in a child process; its result is the exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return pid


def wait_for_exit(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
