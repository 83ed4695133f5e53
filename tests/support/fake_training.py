"""A pretended training in a run folder: what it writes depends on the iteration alone."""

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


def parts(iteration: int) -> dict[str, Any]:
    weights = np.full((4, 3), iteration, np.float32)
    return {"learner": {"w": weights, "step": iteration}, "league": {"names": ["a"]}}


def advance(run: Run, iteration: int, **keep: bool) -> None:
    """One iteration of a pretended training: everything it writes depends on `iteration` alone."""
    run.log_line(f"Eval iteration {iteration} SR_P {iteration / 7:.3f}")
    run.log({"iteration": iteration, "loss": 1 / (1 + iteration), "sr": np.float32(0.5)})
    run.table("episodes.csv", f"{iteration},{iteration / 7:.3f}", "episode_id,return_env")
    if iteration % 2:
        run.event({"event": "milestone", "step": iteration})
        run.append_history({"iteration": iteration, "gap": iteration / 3})
        run.write_policy(f"p{iteration}", {"w": np.arange(iteration)}, {"iteration": iteration})
    run.save(iteration, parts(iteration), CPU, **keep)


def go_on(folder: Path, until: int) -> None:
    with Run.open(folder, write=True) as run:
        checkpoint = run.load()
        assert run.rewind(checkpoint) == []
        for iteration in range(checkpoint.iteration + 1 if checkpoint else 0, until):
            advance(run, iteration)


def new(folder: Path, until: int) -> Path:
    Run.create(folder, "seed: 1\n").close()
    go_on(folder, until)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every compared byte: all files but timing.jsonl and damaged/."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()
            if name != "timing.jsonl" and not name.startswith("damaged/")}


def newest(folder: Path) -> Checkpoint:
    with Run.open(folder, write=False) as run:
        found = run.load()
    assert found is not None
    assert found.parts["learner"]["step"] == found.iteration
    assert np.array_equal(found.parts["learner"]["w"], parts(found.iteration)["learner"]["w"])
    return found


def one_line(caught: pytest.ExceptionInfo[ConfigError]) -> str:
    assert "\n" not in str(caught.value)
    return str(caught.value)


def damage(path: Path, position: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1 << bit
    path.write_bytes(raw)


def forked(work: Callable[[], int]) -> int:
    """Start `work` in a process of its own; its result is the exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return pid


def exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
