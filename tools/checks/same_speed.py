"""Compares the speed of this tree with that of the baseline commit: CPU time of whole iterations.

    python tools/checks/same_speed.py [--pairs 20] [--only pursuit beasty gameboy] [--json FILE]

Each pair trains the same recipe for the same iterations in both trees, on one thread, in two processes. After
the warm-up they take turns, one iteration each, so that a machine that becomes slower slows both; which one
is first alternates. The memory addresses of arrays change the speed by a few percent, so each process first
allocates blocks of random sizes. The output is the median ratio (CPU seconds of the baseline over those of
this tree) and its 95 % interval by order statistics; the lower bound must be at least 0.97. Ctrl-C ends the
series and prints the result of the pairs so far.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from math import comb
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from same_run_baseline import COMMIT, Baseline, Commands

ROOT = Path(__file__).resolve().parents[2]
MIN_RATIO = 0.97
Case = tuple[str, dict[str, Any], int, int]
CASES: dict[str, Case] = {  # recipe, changes, warm-up iterations, timed iterations
    "pursuit": ("pursuit", {"threads": 1}, 3, 12),
    "beasty": ("beasty", {"threads": 1}, 2, 6),
    "gameboy": ("small", {"threads": 1, "bands.scouts": 0, "stagger": 0, "world.workers": 0,
                          "dqn.warmup": 2000}, 4, 16),
}  # fmt: skip
BASELINE_SCRIPT = """
import json, random, sys, tempfile, time
from pathlib import Path
from rematch import api, config as settings
from rematch.engine.run import Run
from rematch.engine.train import Session, iterate
class Console:
    def line(self, text): pass
    def progress(self, *a): pass
    def evaluation(self, row): pass
    def film(self, recording): return {}
    def activity(self, text): ...
recipe, changes, warmup, timed, seed = json.loads(sys.argv[1])
rng = random.Random(seed)
blocks = [bytearray(rng.randrange(1 << 20)) for _ in range(32)]
del blocks[::2]
config = api.configure(recipe, changes=changes)
session = Session(config)
with tempfile.TemporaryDirectory() as place, Run.create(Path(place) / "run", settings.to_yaml(config)) as run:
    session.begin()
    for _ in range(warmup): iterate(session, run, Console())
    started = time.process_time()
    print("ready", flush=True)
    for _ in range(timed):
        input()
        iterate(session, run, Console())
        print(time.process_time() - started, flush=True)
"""
CURRENT_SCRIPT = """
import json, random, sys, tempfile, time
from pathlib import Path
from rematch.core import config as settings
from rematch.storage.run_folder import Run
from rematch.training.loop import iterate
from rematch.training.recipes import configure
from rematch.training.trainer import Trainer
class Console:
    def line(self, text): pass
    def progress(self, *a): pass
    def evaluation(self, row): pass
    def film(self, recording): return {}
    def activity(self, text): ...
recipe, changes, warmup, timed, seed = json.loads(sys.argv[1])
rng = random.Random(seed)
blocks = [bytearray(rng.randrange(1 << 20)) for _ in range(32)]
del blocks[::2]
config = configure(recipe, changes=changes)
trainer = Trainer(config)
with tempfile.TemporaryDirectory() as place, Run.create(Path(place) / "run", settings.to_yaml(config)) as run:
    trainer.bind(run, Console())
    trainer.start()
    for _ in range(warmup): iterate(trainer)
    started = time.process_time()
    print("ready", flush=True)
    for _ in range(timed):
        input()
        iterate(trainer)
        print(time.process_time() - started, flush=True)
"""


class Training:
    """A process that trains a case in one tree, iteration by iteration; `seed` determines its blocks."""

    def __init__(self, tree: Path, script: str, case: Case, seed: int) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, json.dumps([*case, seed])], env=environment, cwd=tree, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def answer(self) -> str:
        assert self.process.stdout and self.process.stderr
        if line := self.process.stdout.readline():
            return line
        raise SystemExit(f"same_speed: {self.process.stderr.read().strip().splitlines()[-1]}")

    def iterate(self) -> float:
        """Train one iteration; CPU seconds of the process since the warm-up."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.answer())


def speed_ratio(name: str, pair: int, baseline_tree: Path) -> float:
    """CPU seconds of the baseline over those of this tree, for the same iterations in turns."""
    trees = [(baseline_tree, BASELINE_SCRIPT), (ROOT, CURRENT_SCRIPT)]
    trainings = [
        Training(tree, script, CASES[name], 2 * pair + i) for i, (tree, script) in enumerate(trees)
    ]
    try:
        for training in trainings:
            assert training.answer() == "ready\n"
        seconds = [0.0, 0.0]
        for turn in range(CASES[name][3]):
            for i in (0, 1) if (pair + turn) % 2 else (1, 0):
                seconds[i] = trainings[i].iterate()
    finally:
        for training in trainings:
            training.process.kill()
            training.process.communicate()
    return seconds[0] / seconds[1]


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """(median, low, high): a 95 % interval by order statistics (sign test)."""
    ordered, n = sorted(values), len(values)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    tail, rank = 0.0, 0
    while rank < n // 2 and tail + comb(n, rank) / 2**n <= 0.025:
        tail += comb(n, rank) / 2**n
        rank += 1
    rank = max(rank - 1, 0)
    return median, ordered[rank], ordered[n - 1 - rank]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    default = Path(tempfile.gettempdir()) / f"rematch-{COMMIT}"
    parser.add_argument("--baseline", type=Path, default=default, help="folder of the baseline tree")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        baseline = Baseline(options.baseline, Commands(Path(scratch)))
        baseline.build()
    baseline_tree = baseline.tree
    results, too_slow = {}, False
    for name in options.only:
        ratios: list[float] = []
        with contextlib.suppress(KeyboardInterrupt):
            for pair in range(options.pairs):
                ratios.append(speed_ratio(name, pair, baseline_tree))
                counted = f"{name}: pair {pair + 1} of {options.pairs}, ratio {ratios[-1]:.3f}"
                print(f"\r{counted}", end="", flush=True)
        if not ratios:
            raise SystemExit("same_speed: interrupted")
        median, low, high = median_interval(ratios)
        too_slow |= low < MIN_RATIO
        results[name] = {"median": median, "low": low, "high": high, "pairs": len(ratios), "ratios": ratios}
        print(
            f"\r{name}: speed {median:.3f} [{low:.3f}, {high:.3f}] of the baseline's, n {len(ratios)}"
            f"{'' if low >= MIN_RATIO else f': below {MIN_RATIO}'}        "
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(too_slow)


if __name__ == "__main__":
    sys.exit(main())
