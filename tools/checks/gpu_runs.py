"""Checks of several runs on one GPU, for tools/checks/gpu.py: their speed, their bytes, where time goes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import kill_runs
from gpu_series import EvaluationTimes

from rematch import api
from rematch.evaluation.evaluation import Evaluation
from rematch.rehearsal.compare import differences
from rematch.storage.run_folder import Run
from rematch.training.loop import iteration
from rematch.training.trainer import Trainer
from rematch.verbs.on_gpu.together import Group, RunInTurns, train_together

Record = dict[str, Any]
SEEDS = 16
SIZES = ((2048, 32, 8192), (8192, 32, 8192), (16384, 32, 8192), (16384, 32, 65536), (32768, 32, 65536))
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


def seeds(size: tuple[int, int, int], count: int = SEEDS, iterations: int = 20) -> Record:
    """Learner steps per second of whole iterations of `count` seeds in one process."""
    import torch

    groups = _groups(count, 2, _size(*size))
    _play(groups, 4)
    started = time.perf_counter()
    learned = _play(groups, iterations)
    seconds = time.perf_counter() - started
    del groups
    torch.cuda.empty_cache()
    return {"learner_steps_per_second": learned / seconds, "milliseconds": 1000 * seconds / iterations}


SPEED_OF_SEEDS = {f"{SEEDS} seeds, {size[0]}x{size[1]}, minibatch {size[2]}": partial(seeds, size)
                  for size in SIZES}  # fmt: skip


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


def _start(folders: dict[str, list[str]]) -> subprocess.Popen[bytes]:
    """The process that trains these runs together."""
    code = "import sys; from rematch.verbs.on_gpu.together import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "", json.dumps(folders)]
    return subprocess.Popen(command, cwd=kill_runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _finish(folders: dict[str, list[str]]) -> None:
    child = _start(folders)
    output = child.communicate()[0].decode(errors="replace")
    if child.returncode:
        raise SystemExit(f"exit code {child.returncode}: {output[-2000:]}")


def _compare(first: Path, second: Path) -> None:
    if different := differences(first, second):
        raise SystemExit(f"{first.name} and {second.name} differ in {', '.join(different)}")


def alone() -> Record:
    """Runs that trained together beside runs that trained alone: all files must be equal."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _finish({str(place / f"together-{seed}"): [*SHORT, f"--seed={seed}"] for seed in range(5)})
        for seed in (0, 3):
            _finish({str(place / f"alone-{seed}"): [*SHORT, f"--seed={seed}"]})
            _compare(place / f"together-{seed}", place / f"alone-{seed}")
    return {"together": 5, "alone": 2, "differences": 0}


def sweep() -> Record:
    """`rematch sweep` as a command, with reports and films; one of its runs beside the same run alone."""
    with tempfile.TemporaryDirectory() as folder:
        place, words = Path(folder), SHORT[1:]
        command = [sys.executable, "-m", "rematch"]
        started = time.perf_counter()
        name = ["--name", str(place / "sweep")]
        run = subprocess.run([*command, "sweep", SHORT[0], "--seeds", "0-7", *words, *name],
                             cwd=kill_runs.ROOT, capture_output=True, text=True)  # fmt: skip
        seconds = time.perf_counter() - started
        if run.returncode:
            raise SystemExit(f"exit code {run.returncode}: {(run.stdout + run.stderr)[-3000:]}")
        subprocess.run([*command, "train", SHORT[0], *words, "--seed=5", "--name", str(place / "alone")],
                       cwd=kill_runs.ROOT, check=True, capture_output=True)  # fmt: skip
        _compare(place / "sweep" / "seed-5", place / "alone")
        table = json.loads((place / "sweep" / "sweep.json").read_text())
    return {"seconds": seconds, "finished": table["finished"], "failed": table["failed"], "differences": 0}


def sweep_kills(kills: int = 20, seeds: int = 4, seed: int = 0) -> Record:
    """Seeds that train together, killed and started again: the files of runs that trained alone."""
    flags = ["pursuit", *(f"--{key}={value}" for key, value in kill_runs.ON_GPU.items())]
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place, done, series = Path(folder), 0, 0
        runs = {f"seed-{seed}": [*flags, f"--seed={seed}"] for seed in range(seeds)}
        started = time.perf_counter()
        for name, words in runs.items():
            _finish({str(place / "twin" / name): words})
        seconds = (time.perf_counter() - started) / seeds
        while done < kills:
            series += 1
            together = {str(place / f"series-{series}" / name): words for name, words in runs.items()}
            for _ in range(min(7, kills - done)):
                child = _start(together)
                time.sleep(generator.uniform(0.4, 1.1) * seconds)
                child.kill()
                child.communicate()
                done += 1
            _finish(together)
            for name in runs:
                _compare(place / "twin" / name, place / f"series-{series}" / name)
            print(f"{done} kills, {series} series equal", flush=True)
    return {"kills": done, "seeds": seeds, "series": series, "differences": 0}


# --- whole trainings ---


def _trained(words: Sequence[str], seeds: int = 1) -> Record:
    """Train seeds of a recipe together, with evaluations and checkpoints, without report and film."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        started, times = time.perf_counter(), EvaluationTimes(place / "0")
        with times:
            train_together({place / f"{seed}": ["pursuit", "--device=cuda", *words, f"--seed={seed}"]
                            for seed in range(seeds)})  # fmt: skip
        seconds, below, weakest = time.perf_counter() - started, [], []
        history = json.loads((place / "0" / "history.json").read_text())
        counts = [len(Evaluation.from_json(row).below_baseline) for row in history]
        for seed in range(seeds):
            with Run.open(place / f"{seed}", write=False) as run:
                newest = Evaluation.from_json(run.history[-1])
            below.append(len(newest.below_baseline))
            rows = [f"{row.role} against {row.opponent} {row.score:.3f} [{row.low:.3f}, {row.high:.3f}]"
                    for row in newest.below_baseline]  # fmt: skip
            weakest.append(rows)
    none_below = times.until([not count for count in counts])
    first = {"below": counts, "at_seconds": times.seconds, "seconds_to_none_below": none_below}
    return {"seconds": seconds, "below": below, "pairings": len(newest.matches), "weakest": weakest,
            "first_seed": first}  # fmt: skip


def _compile() -> None:
    _trained(["--total_steps=262144", "--evaluation.every=2"])


def train() -> Record:
    """The recipe `pursuit`, whole, with its evaluations; kernels are compiled before."""
    _compile()
    return {"recipe": _trained([])}


STRENGTH = {
    "2048x32, 8192, 100 M": ["--total_steps=100000000"],
    "8192x32, 8192, 150 M": ["--games=8192", "--total_steps=150000000", "--evaluation.every=50"],
    "16384x32, 16384, 200 M": ["--games=16384", "--ppo.minibatch_size=16384", "--total_steps=200000000",
                               "--evaluation.every=50"],
    "16384x32, 32768, lr 0.006, 200 M": ["--games=16384", "--ppo.minibatch_size=32768", "--ppo.lr=0.006",
                                         "--total_steps=200000000", "--evaluation.every=50"],
    "65536x16, 65536, lr 0.006, 400 M": ["--games=65536", "--steps=16", "--ppo.minibatch_size=65536",
                                         "--ppo.lr=0.006", "--total_steps=400000000",
                                         "--evaluation.every=50"],
    "65536x16, 8192, 200 M": ["--games=65536", "--steps=16", "--total_steps=200000000",
                              "--evaluation.every=50"],
}  # fmt: skip


def strength(words: Sequence[str]) -> Record:
    """Seconds of a whole training, and the pairings below the best scripted player."""
    _compile()
    return _trained(words)


STRENGTH_OF_SIZES = {name: partial(strength, words) for name, words in STRENGTH.items()}


def band() -> Record:
    """The recipe `pursuit` with 16 seeds together: seconds, and pairings below in each."""
    _compile()
    record = _trained([], SEEDS)
    steps = SEEDS * 100_000_000
    return record | {"arena_steps_per_second": steps / record["seconds"]}
