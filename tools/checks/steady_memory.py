"""Checks that the memory of a long run does not grow: resident size of its process over steps.

    python tools/checks/steady_memory.py tiny --total_steps 1000000 --dqn.replay_size 50000

Trains the recipe in a temporary folder with the given flags, and prints the resident size twenty times. A
replay buffer grows until it is full: choose a size that is reached within a quarter of the run. Exit code 1:
the median of the last quarter is more than 3 % above the median of the second quarter.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.system import system_memory
from rematch.reporting.console import Console

MAX_GROWTH = 1.03  # last quarter over second quarter


class MemoryConsole(Console):
    """Records the resident size of the process, and prints it twenty times."""

    def __init__(self, total: int) -> None:
        super().__init__(live=False)
        self.off, self.every, self.sizes = True, max(1, total // 20), list[tuple[int, int]]()

    def progress(self, step: int, rate: float, metrics: Mapping[str, Any]) -> None:
        before = self.sizes[-1][0] if self.sizes else 0
        self.sizes.append((step, system_memory.process_bytes(os.getpid())[0]))
        if step // self.every > before // self.every:
            print(f"step {step:>9,}  {self.sizes[-1][1] / 1e6:7.1f} MB  {rate:.0f} steps/s", flush=True)


def quarter_medians(sizes: Sequence[tuple[int, int]], total: int) -> tuple[float, float]:
    """Median bytes in the second and in the last quarter of the run."""
    second = [size for step, size in sizes if total / 4 < step <= total / 2]
    last = [size for step, size in sizes if step > total * 3 / 4]
    return float(statistics.median(second)), float(statistics.median(last))


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 2
    try:
        config = api.configure(arguments[0], flags=arguments[1:])
        total = config.iterations * config.games * config.steps
        console = MemoryConsole(total)
        with tempfile.TemporaryDirectory(prefix="rematch-steady-") as temporary:
            api.train(config, folder=Path(temporary) / "run", console=console)
    except ConfigError as error:
        print(f"steady: {error}", file=sys.stderr)
        return 2
    second, last = quarter_medians(console.sizes, total)
    print(
        f"second quarter {second / 1e6:.1f} MB, last quarter {last / 1e6:.1f} MB: "
        f"{100 * (last / second - 1):+.1f} % over {total:,} steps"
    )
    return int(last > MAX_GROWTH * second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
