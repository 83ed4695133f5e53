"""Whether a long run stays as large as it is: resident size of its process, step by step.

    python tools/checks/steady_memory.py tiny --total_steps 1000000 --dqn.replay_size 50000

Trains the recipe in a temporary folder, with the flags that follow, and prints the resident size at each
twentieth of the way. A replay takes its memory as it fills: choose one that is full within a quarter of the
run. Exit code 1: the last quarter's median is more than 3 % above the second quarter's.
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

MOST = 1.03  # of the second quarter's size


class Gauge(Console):
    """Notes how large the process is, and says so now and then."""

    def __init__(self, total: int) -> None:
        super().__init__(live=False)
        self.off, self.every, self.sizes = True, max(1, total // 20), list[tuple[int, int]]()

    def progress(self, step: int, rate: float, metrics: Mapping[str, Any]) -> None:
        before = self.sizes[-1][0] if self.sizes else 0
        self.sizes.append((step, system_memory.process_bytes(os.getpid())[0]))
        if step // self.every > before // self.every:
            print(f"step {step:>9,}  {self.sizes[-1][1] / 1e6:7.1f} MB  {rate:.0f} steps/s", flush=True)


def grown(sizes: Sequence[tuple[int, int]], total: int) -> tuple[float, float]:
    """Median bytes in the second and in the last quarter of the run."""
    second = [size for step, size in sizes if total / 4 < step <= total / 2]
    last = [size for step, size in sizes if step > total * 3 / 4]
    return float(statistics.median(second)), float(statistics.median(last))


def main(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return 2
    try:
        config = api.configure(words[0], flags=words[1:])
        total = config.iterations * config.games * config.steps
        gauge = Gauge(total)
        with tempfile.TemporaryDirectory(prefix="rematch-steady-") as place:
            api.train(config, folder=Path(place) / "run", console=gauge)
    except ConfigError as error:
        print(f"steady: {error}", file=sys.stderr)
        return 2
    second, last = grown(gauge.sizes, total)
    print(f"second quarter {second / 1e6:.1f} MB, last quarter {last / 1e6:.1f} MB: "
          f"{100 * (last / second - 1):+.1f} % over {total:,} steps")
    return int(last > MOST * second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
