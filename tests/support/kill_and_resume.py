"""Runs that are killed again and again in one process's children, and compared with an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import torch

from rematch.core.run_config import Config
from rematch.rehearsal.compare import differences
from support.trainers import resume_run, start_run

PER_RUN = 11  # kills before a run may end


def go_on(folder: Path, config: Config) -> None:
    """Start the run in `folder`, or resume it; without pictures."""
    torch.set_num_threads(1)
    if (folder / "config.yaml").exists():
        resume_run(folder)
    else:
        start_run(folder, config)


def kill(folder: Path, config: Config, draw: random.Random, seconds: float) -> bool:
    """Let a child go on in `folder` and SIGKILL it at an instant of `draw`; False if it had ended.

    Half of the instants are by the clock, within so many seconds; the others inside a save.
    """
    child = os.fork()  # torch is imported once, by whoever asks: each child starts in a blink
    if not child:
        code = 1
        try:
            go_on(folder, config)
            code = 0
        finally:
            os._exit(code)
    by_clock, until = draw.random() < 0.5, time.monotonic() + draw.uniform(0.02, seconds)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, f"it failed by itself: {status}"
            return False
        saving = any(folder.glob("ch*/.tmp-*"))
        if time.monotonic() > until and (by_clock or saving):
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1] == signal.SIGKILL
        time.sleep(0.0005)


def kill_often(config: Config, place: Path, kills: int, seed: int, seconds: float = 0.6) -> None:
    """Kill runs so many times in all, let each come to its end, and compare it with an undisturbed one."""
    draw, done, number = random.Random(seed), 0, 0
    go_on(place / "twin", config)
    while done < kills:
        number += 1
        folder = place / f"run-{number}"
        for _ in range(PER_RUN):
            done += kill(folder, config, draw, seconds)
        go_on(folder, config)
        unlike = differences(place / "twin", folder)
        assert not unlike, f"run {number}: {', '.join(unlike)}"
    print(f"{done} kills")
