"""Measures what each component costs a training: time in its hooks, as a share of the whole.

    python tools/checks/component_cost.py [RECIPE] [--steps 100000] [--only world_map] [--set KEY=VALUE ...]

It trains the recipe in a temporary folder and takes the time of every call of a component's hooks, by the
clock and as CPU time of the calling thread. Work of other processes and threads that a hook waits for counts
by the clock only. With --only it fails (exit code 1) where that component takes more than 1 % of the time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rematch
from rematch.core.component import Component
from rematch.training.component_list import COMPONENTS

HOOKS = ("start", "resumed", "finish", "before_rollout", "after_rollout", "update", "after_update",
         "after_evaluation", "end_iteration", "before_checkpoint", "metrics", "state_dict")  # fmt: skip
MOST = 0.01  # share of the time that a component of --only may take


class Cost:
    """Seconds by the clock, CPU seconds and calls of each component."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def measured(self, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return hook(*values, **named)
            finally:
                self.wall[name] += time.perf_counter() - wall
                self.cpu[name] += time.thread_time() - cpu
                self.calls[name] += 1

        return call

    def watch(self, kind: type[Component]) -> None:
        """Measure the hooks that a component overrides."""
        for hook in HOOKS:
            if hook in vars(kind):
                setattr(kind, hook, self.measured(kind.name, vars(kind)[hook]))


def measure(recipe: str, changes: dict[str, str]) -> tuple[Cost, float]:
    """The costs of a training, and its seconds by the clock."""
    cost = Cost()
    for kind in COMPONENTS:
        cost.watch(kind)
    with tempfile.TemporaryDirectory(prefix="rematch-cost-") as temporary:
        config = rematch.configure(recipe, flags=[f"--{key}={value}" for key, value in changes.items()])
        began = time.perf_counter()
        rematch.train(config, folder=Path(temporary) / "run")
        return cost, time.perf_counter() - began


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", nargs="?", default="small")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--only", default="", choices=["", *(kind.name for kind in COMPONENTS)])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings")
    options = parser.parse_args(words)
    changes = dict(word.partition("=")[::2] for word in options.set) | {"total_steps": str(options.steps)}
    cost, seconds = measure(options.recipe, changes)
    print(f"{options.recipe}, {options.steps:,} steps: {seconds:.1f} s")
    for name in sorted(cost.wall, key=lambda name: -cost.wall[name]):
        if options.only in ("", name):
            share = 100 * cost.wall[name] / seconds
            print(f"{name:20} {share:6.2f} % of the time, {cost.wall[name]:7.2f} s, "
                  f"{cost.cpu[name]:7.2f} s CPU, {cost.calls[name]:,} calls")  # fmt: skip
    return int(bool(options.only) and cost.wall[options.only] / seconds > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
