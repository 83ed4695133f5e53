"""How fast the world is beside bare PyBoy doing the same ticks, and how much memory its emulators take.

Everything is timed in turns, several times, on the same inputs; ratios are of medians. Bare PyBoy is as many
emulators, ticked in turn, in as many threads: whatever else the machine has to do is the same for both.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rematch.core import rng

from . import titles
from .cartridge.constants import ACTIONS
from .emulator import pyboy_emulator

GAMES, TURNS, THREADS, MACHINES = 32, 5, 2, 32
WANTED, MOST_MEMORY = 0.9, 100.0  # of bare PyBoy's speed; megabytes of 32 emulators


def resident() -> float:
    """Megabytes of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0.0
    return pages * 4096 / 1e6


def bare(rom: bytes, threads: int) -> Callable[[int], None]:
    """`steps` actions on bare machines, a share of them a thread."""
    machines = [pyboy_emulator.ready(rom) for _ in range(GAMES)]

    def one(mine: list[pyboy_emulator.Machine], first: int, rounds: int) -> None:
        for turn in range(rounds):
            drawn = rng.words(first, rng.ACT, len(mine), turn) % len(ACTIONS)
            for boy, action in zip(mine, drawn.tolist()):
                boy.press(action)

    def run(steps: int) -> None:
        cuts = [GAMES * k // threads for k in range(threads + 1)]
        rounds = max(1, steps // GAMES)
        run_side_by_side([partial(one, machines[a:b], a, rounds) for a, b in pairwise(cuts)])

    return run


def whole(config: Any, threads: int) -> Callable[[int], None]:
    """`steps` actions through the world, its parts one a thread, as a rollout steps them."""
    from .bots import ROLE
    from .world import GameboyWorld

    world = GameboyWorld(config, GAMES)
    parts = world.parts(threads)

    def one(part: Any, rounds: int) -> None:
        for turn in range(rounds):
            drawn = rng.words(part.first, rng.ACT, part.games, turn) % len(ACTIONS)
            part.step({ROLE: drawn.astype(np.int32)[:, None]})

    def run(steps: int) -> None:
        run_side_by_side([partial(one, part, max(1, steps // GAMES)) for part in parts])

    return run


def run_side_by_side(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(seconds: float) -> dict[str, Any]:
    """Everything as plain data; about `seconds` for each thing."""
    from .config import Config

    rom = titles.cartridge("small", 0).rom
    first = pyboy_emulator.ready(rom)  # the library itself is not counted
    before = resident()
    held = [pyboy_emulator.ready(rom) for _ in range(MACHINES)]
    memory = resident() - before
    pyboy_emulator.give_back(dict(enumerate([first, *held])))
    subjects = {"bare PyBoy, 1 thread": bare(rom, 1), f"bare PyBoy, {THREADS} threads": bare(rom, THREADS)}
    subjects["world, 1 thread"] = whole(Config(), 1)
    subjects[f"world, {THREADS} threads"] = whole(Config(), THREADS)
    subjects[f"world, {THREADS} worker processes"] = whole(Config(workers=THREADS), THREADS)
    steps = max(GAMES, round(1500 * seconds / TURNS) // GAMES * GAMES)
    rates: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(TURNS):
        for name, run in subjects.items():
            start = time.perf_counter()
            run(steps)
            rates[name].append(steps / (time.perf_counter() - start))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    best = max(medians[f"world, {THREADS} threads"], medians[f"world, {THREADS} worker processes"])
    ratios = {
        "one thread": medians["world, 1 thread"] / medians["bare PyBoy, 1 thread"],
        "two cores": best / max(medians["bare PyBoy, 1 thread"], medians[f"bare PyBoy, {THREADS} threads"]),
    }
    return {
        "world": "gameboy", "games": GAMES, "steps_a_turn": steps, "turns": TURNS, "wanted_ratio": WANTED,
        "steps_per_second": {name: {"median": medians[name], "all": found} for name, found in rates.items()},
        "ratio_to_bare": ratios, "emulators": MACHINES, "megabytes": memory, "most_megabytes": MOST_MEMORY,
    }  # fmt: skip


def lines(about: dict[str, Any]) -> list[str]:
    out = [f"{about['world']}: environment steps a second, medians of {about['turns']} turns"]
    for name, found in about["steps_per_second"].items():
        low, high = min(found["all"]), max(found["all"])
        out.append(f"  {name:<28} {found['median']:>8.0f}   ({low:.0f} to {high:.0f})")
    for name, ratio in about["ratio_to_bare"].items():
        met = "met" if ratio >= about["wanted_ratio"] else "missed"
        out.append(f"  world over bare, {name:<11} {ratio:>8.2f}   (wanted {about['wanted_ratio']}: {met})")
    out.append(f"  {about['emulators']} emulators               {about['megabytes']:>8.0f} MB")
    return out
