"""Checks of several runs on one GPU, for tools/checks/gpu.py: their speed, their bytes, where time goes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rematch import api
from rematch.rehearsal.compare import differences
from rematch.training.loop import iteration
from rematch.training.trainer import Trainer
from rematch.verbs.on_gpu.together import Group, RunInTurns, train_together

Record = dict[str, Any]
SEEDS = 16
SIZES = ((2048, 32, 8192), (8192, 32, 8192), (16384, 32, 8192), (16384, 32, 65536))
SHORT = ["pursuit", "--device=cuda", "--games=512", "--steps=16", f"--total_steps={12 * 512 * 16}",
         "--evaluation.every=4", "--evaluation.games=50", "--save_every=3", "--ppo.minibatch_size=1024",
         "--league.snapshot_every=2", "--league.rotate=2"]  # fmt: skip


def _endless(trainer: Trainer) -> Iterator[None]:
    while True:
        yield from iteration(trainer)


def _groups(count: int, groups: int, changes: Record) -> list[Group]:
    """Trainers of `count` seeds, without run folders."""
    runs = []
    for seed in range(count):
        trainer = Trainer(api.configure("pursuit", changes={"device": "cuda", "seed": seed} | changes))
        trainer.start()
        turns: Any = _endless(trainer)
        runs.append(RunInTurns(None, trainer, turns))  # type: ignore[arg-type]
    return [Group(runs[n::groups]) for n in range(groups)]


def _play(groups: Sequence[Group], iterations: int) -> int:
    """Whole iterations of all runs; their learner steps."""
    import torch

    clocks = [run.trainer.clock for group in groups for run in group.runs]
    before = sum(clock.learner_steps for clock in clocks)
    for _ in range(2 * iterations):  # an iteration has two turns
        for group in groups:
            group.advance()
    torch.cuda.synchronize()
    return sum(clock.learner_steps for clock in clocks) - before


def _size(games: int, steps: int, minibatch: int) -> Record:
    return {"games": games, "steps": steps, "ppo.minibatch_size": minibatch}


def seeds(sizes: Any = SIZES, count: int = SEEDS, iterations: int = 20) -> Record:
    """Learner steps per second of whole iterations of `count` seeds in one process."""
    import torch

    record: Record = {}
    for size in sizes:
        groups = _groups(count, 2, _size(*size))
        _play(groups, 4)
        started = time.perf_counter()
        learned = _play(groups, iterations)
        seconds = time.perf_counter() - started
        name = f"{count} seeds, {size[0]}x{size[1]}, minibatch {size[2]}"
        record[name] = {"learner_steps_per_second": learned / seconds,
                        "milliseconds": 1000 * seconds / iterations}  # fmt: skip
        print(name, record[name], flush=True)
        del groups
        torch.cuda.empty_cache()
    return record


def profile() -> Record:
    """Where the time of some iterations goes: kernels of the GPU, functions of the host."""
    import cProfile
    import io
    import pstats

    import torch
    from torch.profiler import ProfilerActivity

    record: Record = {}
    for count, size in ((16, (2048, 32, 8192)), (1, (2048, 32, 8192)), (1, (131072, 16, 65536))):
        groups = _groups(count, min(count, 2), _size(*size))
        _play(groups, 4)
        host = cProfile.Profile()
        host.enable()
        _play(groups, 5)
        host.disable()
        text = io.StringIO()
        pstats.Stats(host, stream=text).sort_stats("tottime").print_stats(28)
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as trace:
            _play(groups, 3)
        rows = sorted(trace.key_averages(), key=lambda row: -row.device_time_total)[:22]
        name = f"{count} seeds, {size}"
        record[name] = {row.key[:60]: [row.count / 3, row.device_time_total / 3000] for row in rows}
        print(name, text.getvalue(), sep="\n")
        for kernel, (calls, milliseconds) in record[name].items():
            print(f"{milliseconds:9.3f} ms {calls:7.1f} {kernel}", flush=True)
        del groups
        torch.cuda.empty_cache()
    return record


def alone() -> Record:
    """Runs that trained together beside runs that trained alone: all files must be equal."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        train_together({place / f"together-{seed}": [*SHORT, f"--seed={seed}"] for seed in range(5)})
        for seed in (0, 3):
            code = "import sys; from rematch.verbs.on_gpu.together import main; sys.exit(main(sys.argv[1:]))"
            run = place / f"alone-{seed}"
            words = str([*SHORT, f"--seed={seed}"]).replace("'", '"')
            subprocess.run([sys.executable, "-c", code, "", f'{{"{run}": {words}}}'], check=True)
            different = differences(place / f"together-{seed}", run)
            if different:
                raise SystemExit(f"seed {seed} differs alone and together: {', '.join(different)}")
        started = time.perf_counter()
        api.resume(place / "together-1")
        return {"runs_compared": 2, "together": 5, "seconds_of_outputs": time.perf_counter() - started}
