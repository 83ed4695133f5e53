"""Whether `rematch search` finds a learning rate that is known to be good, on a real training.

    python tools/checks/search.py [--searches 10] [--folder FOLDER] [--record FILE]

The task is a lattice of 4 x 4 cells, whose exact NashConv every evaluation computes. First a grid of learning
rates is trained on GRID_SEEDS seeds each. A learning rate is good where the 95 % interval of the paired
difference to the best one contains zero; the good range reaches half a step of the grid beyond. Then searches
with different seeds look for the learning rate, on seeds that the grid has not. With --folder the runs are
kept there, and the same command continues after a stop. Exit code 1: fewer than eight of ten end inside the
good range.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import rematch  # noqa: E402
from rematch.core.system.interrupts import StopRequest  # noqa: E402
from rematch.evaluation.statistics import student  # noqa: E402
from rematch.sweeps.search_training import advance  # noqa: E402
from rematch.training.recipes import configure  # noqa: E402

TASK: dict[str, Any] = {
    "games": 64, "steps": 8, "total_steps": 32768, "world.n": 4, "world.block": 0, "world.horizon": 5,
    "network.hidden": [16], "evaluation.every": 16, "evaluation.games": 4, "ppo.minibatch_size": 128,
    "threads": 1, "save_every": 1000,
}  # fmt: skip
LOW, HIGH, PER_DECADE = 1e-5, 1.0, 2
GRID_SEEDS = range(500, 506)
TRIALS, SEEDS = 12, 2


def nash_conv(folder: Path, rate: float, seed: int) -> float:
    """The NashConv of the final policies of one run."""
    config = configure("lattice", changes=TASK | {"ppo.lr": rate, "seed": seed})
    with StopRequest(None) as stop:
        return float(advance(folder, config, 1000, stop)[-1]["exact"]["nash_conv"])


def good_range(top: Path) -> tuple[list[dict[str, Any]], float, float]:
    """The grid, and the ends of the range of good learning rates."""
    steps = round(PER_DECADE * math.log10(HIGH / LOW))
    rates = [LOW * 10 ** (step / PER_DECADE) for step in range(steps + 1)]
    values = {rate: [nash_conv(top / f"{rate:.3g}-{seed}", rate, seed) for seed in GRID_SEEDS]
              for rate in rates}
    best = min(rates, key=lambda rate: statistics.fmean(values[rate]))
    rows, good = [], []
    for rate in rates:
        worse = [one - two for one, two in zip(values[rate], values[best])]
        half = student(len(worse) - 1) * statistics.stdev(worse) / math.sqrt(len(worse))
        if rate == best or statistics.fmean(worse) - half <= 0:
            good.append(rate)
        rows.append({"rate": float(f"{rate:.3g}"), "mean": round(statistics.fmean(values[rate]), 4),
                     "worse": round(statistics.fmean(worse), 4), "half": round(half, 4)})
    beyond = 10 ** (0.5 / PER_DECADE)
    return rows, min(good) / beyond, max(good) * beyond


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="where the runs are kept")
    parser.add_argument("--record", type=Path, help="append the result to this file")
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True).stdout.strip()
    with contextlib.ExitStack() as stack:
        top = options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="rematch-search-"))
        rows, low, high = good_range(Path(top) / "grid")
        for row in rows:
            print(json.dumps(row), flush=True)
        print(f"good learning rates: {low:.2g} to {high:.2g}", flush=True)
        winners = []
        for seed in range(options.searches):
            request = rematch.SearchRequest(
                objective="nash_conv", trials=TRIALS, seeds=SEEDS, confirm=0, seed=seed)
            result = rematch.search("lattice", over={"ppo.lr": f"{LOW}..{HIGH}:log"}, request=request,
                                    changes=TASK, folder=Path(top) / f"search-{seed}")
            winners.append(float(result["winner"]["values"]["ppo.lr"]))
            print(f"search {seed}: {winners[-1]:.3g}", flush=True)
    found = sum(low <= rate <= high for rate in winners)
    entry = {"check": "search", "grid": rows, "good": [float(f"{low:.3g}"), float(f"{high:.3g}")],
             "winners": [float(f"{rate:.3g}") for rate in winners], "found": found,
             "searches": len(winners), "trials": TRIALS, "seeds": SEEDS, "commit": commit}
    print(f"{found} of {len(winners)} searches end inside")
    if options.record:
        with options.record.open("a") as file:
            file.write(json.dumps(entry) + "\n")
    return 0 if found >= 0.8 * len(winners) else 1


if __name__ == "__main__":
    sys.exit(main())
