"""Measures what `lag 1` gains: seconds of whole iterations with lag 0 and with lag 1, in turns.

    python tools/experiments/rollout_lag.py [--only beasty transformer small] [--pairs 9] [--iterations 4]

Both runs live in one process. A pair times some iterations of one and then of the other; the order
alternates. The first iteration of a turn is not timed, and no rollout is played ahead while the other run is
timed. The output is the median of the ratios (seconds with lag 0 over seconds with lag 1; above 1: lag 1 is
faster), its 95 % interval by order statistics, and all ratios. Only ratios mean something on a machine with
other work. docs/results/speed.md has a table.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import wait
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "checks")]
from same_speed import median_interval  # noqa: E402

from rematch.core import config as settings  # noqa: E402
from rematch.training.loop import iterate  # noqa: E402
from rematch.training.recipes import configure  # noqa: E402
from rematch.training.trainer import Trainer  # noqa: E402

CASES: dict[str, tuple[str, dict[str, Any], int]] = {  # recipe, changes, iterations before the first pair
    "pursuit": ("pursuit", {}, 3),
    "beasty": ("beasty", {}, 2),
    "beasty_expert": ("beasty_expert", {}, 2),
    # The earlier project's configuration with fewer games and a smaller network. Updates do not end early at
    # target_kl: both runs make the same number of them.
    "transformer": ("iter600_to_1000", {"games": 128, "start_iteration": 0, "network.width": 64,
                                        "network.layers": 2, "network.heads": 4,
                                        "ppo.minibatch_size": 512, "ppo.target_kl": 0.0}, 1),
    "small": ("small", {"stagger": 32}, 8),
    "tiny": ("tiny", {"stagger": 32}, 8),
}  # fmt: skip


def turn(trainer: Trainer, iterations: int) -> float:
    """Seconds per iteration, without the first one."""
    iterate(trainer)
    started = time.perf_counter()
    for _ in range(iterations):
        iterate(trainer)
    seconds = (time.perf_counter() - started) / iterations
    wait(trainer.setup.collector.jobs)
    return seconds


def measure(name: str, pairs: int, iterations: int, threads: int) -> list[tuple[float, float]]:
    """(seconds with lag 0, with lag 1) of each pair."""
    recipe, changes, warmup = CASES[name]
    config = settings.replace(configure(recipe), changes | {"threads": threads})
    trainers = [Trainer(settings.replace(config, {"lag": lag})) for lag in (0, 1)]
    for trainer in trainers:
        trainer.start()
        for _ in range(warmup):
            iterate(trainer)
        wait(trainer.setup.collector.jobs)
    results = []
    for pair in range(pairs):
        direction = 1 - 2 * (pair % 2)
        seconds = [turn(trainer, iterations) for trainer in trainers[::direction]][::direction]
        results.append((seconds[0], seconds[1]))
        print(f"{name}: pair {pair + 1} of {pairs}: {seconds[0]:.3f} s and {seconds[1]:.3f} s", flush=True)
    trainers[1].setup.queue.drop()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=["beasty", "transformer", "small"], choices=list(CASES))
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for name in options.only:
        results = measure(name, options.pairs, options.iterations, options.threads)
        ratios = [without / ahead for without, ahead in results]
        middle, low, high = median_interval(ratios)
        seconds = [median(column) for column in zip(*results)]
        print(f"{name}: lag 0 {seconds[0]:.3f} s, lag 1 {seconds[1]:.3f} s an iteration (medians); ratio "
              f"{middle:.2f} [{low:.2f}, {high:.2f}], n {len(ratios)} pairs: "
              f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
