"""Speed of this tree beside the baseline commit's: both alternate, CPU time of whole iterations.

    python tools/checks/same_speed.py [--pairs 20] [--only pursuit beasty gameboy] [--json FILE]

Each pair trains the same recipe for the same iterations in both trees, one after the other, on one thread, in
processes of their own; which tree goes first alternates. Where arrays lie in memory changes the speed by a
few percent, so each process first takes blocks of random sizes. Printed are the median of the ratios
(baseline's CPU seconds over ours) and its 95 % interval by order statistics; the lower bound must be at least
0.97.
"""

from __future__ import annotations

import argparse
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
BOUND = 0.97
Case = tuple[str, dict[str, Any], int, int]
CASES: dict[str, Case] = {  # recipe, changes, iterations before and timed
    "pursuit": ("pursuit", {"threads": 1}, 3, 12),
    "beasty": ("beasty", {"threads": 1}, 2, 6),
    "gameboy": ("small", {"threads": 1, "bands.scouts": 0, "stagger": 0, "world.workers": 0,
                          "dqn.warmup": 2000}, 4, 4),
}  # fmt: skip
OLD = """
import json, random, sys, tempfile, time
from pathlib import Path
from rematch import api, config as settings
from rematch.engine.run import Run
from rematch.engine.train import Session, iterate
class Show:
    def line(self, text): pass
    def progress(self, *a): pass
    def evaluation(self, row): pass
    def film(self, take): return {}
recipe, changes, first, timed, seed = json.loads(sys.argv[1])
draw = random.Random(seed)
blocks = [bytearray(draw.randrange(1 << 20)) for _ in range(32)]
del blocks[::2]
config = api.configure(recipe, changes=changes)
session = Session(config)
with tempfile.TemporaryDirectory() as place, Run.create(Path(place) / "run", settings.to_yaml(config)) as run:
    session.begin()
    for _ in range(first): iterate(session, run, Show())
    began = time.process_time()
    for _ in range(timed): iterate(session, run, Show())
    print(time.process_time() - began)
"""
NEW = """
import json, random, sys, tempfile, time
from pathlib import Path
from rematch.core import config as settings
from rematch.storage.run_folder import Run
from rematch.training.loop import iterate
from rematch.training.recipes import configure
from rematch.training.trainer import Trainer
class Show:
    def line(self, text): pass
    def progress(self, *a): pass
    def evaluation(self, row): pass
    def film(self, take): return {}
recipe, changes, first, timed, seed = json.loads(sys.argv[1])
draw = random.Random(seed)
blocks = [bytearray(draw.randrange(1 << 20)) for _ in range(32)]
del blocks[::2]
config = configure(recipe, changes=changes)
trainer = Trainer(config)
with tempfile.TemporaryDirectory() as place, Run.create(Path(place) / "run", settings.to_yaml(config)) as run:
    trainer.bind(run, Show())
    trainer.start()
    for _ in range(first): iterate(trainer)
    began = time.process_time()
    for _ in range(timed): iterate(trainer)
    print(time.process_time() - began)
"""


def cpu_seconds(tree: Path, script: str, case: Case, seed: int) -> float:
    """CPU seconds of the timed iterations, in a process of its own; `seed` of the blocks of memory."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", script, json.dumps([*case, seed])]
    done = subprocess.run(words, env=environment, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"same_speed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.strip().splitlines()[-1])


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Median and a 95 % interval of it by order statistics (sign test)."""
    ordered, n = sorted(values), len(values)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    below, rank = 0.0, 0
    while rank < n // 2 and below + comb(n, rank) / 2**n <= 0.025:
        below += comb(n, rank) / 2**n
        rank += 1
    rank = max(rank - 1, 0)
    return middle, ordered[rank], ordered[n - 1 - rank]


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
    old_tree = baseline.tree
    results, slow = {}, False
    for name in options.only:
        ratios: list[float] = []
        for pair in range(options.pairs):
            order = [(old_tree, OLD), (ROOT, NEW)]
            turn = 1 - 2 * (pair % 2)
            seconds = [cpu_seconds(tree, script, CASES[name], 2 * pair + i)
                       for i, (tree, script) in enumerate(order[::turn])]  # fmt: skip
            old, new = seconds[::turn]
            ratios.append(old / new)
            print(f"\r{name}: pair {pair + 1} of {options.pairs}, ratio {old / new:.3f}", end="", flush=True)
        middle, low, high = median_interval(ratios)
        slow |= low < BOUND
        results[name] = {"median": middle, "low": low, "high": high, "pairs": len(ratios), "ratios": ratios}
        print(f"\r{name}: speed {middle:.3f} [{low:.3f}, {high:.3f}] of the baseline's, n {len(ratios)}"
              f"{'' if low >= BOUND else f': below {BOUND}'}        ")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
