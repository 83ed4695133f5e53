"""Speed of the world compared with PyBoy alone, and memory of its emulators.

All subjects are timed in turns, several times, on the same inputs; ratios are of medians. "Bare PyBoy" is the
same number of emulators, stepped one after the other in the same number of threads.
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

GAMES, TURNS, THREADS, EMULATORS = 32, 5, 2, 32
WANTED, MAX_MEMORY = 0.9, 100.0  # fraction of the speed of bare PyBoy; megabytes of 32 emulators


def resident_memory() -> float:
    """Megabytes of this process; 0 where the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0.0
    return pages * 4096 / 1e6


def bare(rom: bytes, threads: int) -> Callable[[int], None]:
    """A function that makes `steps` actions on bare emulators, divided among threads."""
    emulators = [pyboy_emulator.acquire(rom) for _ in range(GAMES)]

    def one(emulators: list[pyboy_emulator.Emulator], first: int, rounds: int) -> None:
        for turn in range(rounds):
            actions = rng.words(first, rng.ACT, len(emulators), turn) % len(ACTIONS)
            for boy, action in zip(emulators, actions.tolist()):
                boy.press(action)

    def run(steps: int) -> None:
        cuts = [GAMES * k // threads for k in range(threads + 1)]
        rounds = max(1, steps // GAMES)
        run_side_by_side([partial(one, emulators[a:b], a, rounds) for a, b in pairwise(cuts)])

    return run


def through_world(config: Any, threads: int) -> Callable[[int], None]:
    """A function that makes `steps` actions through the world, one part per thread, as in a rollout."""
    from .bots import ROLE
    from .world import GameboyWorld

    world = GameboyWorld(config, GAMES)
    parts = world.parts(threads)

    def one(part: Any, rounds: int) -> None:
        for turn in range(rounds):
            actions = rng.words(part.first, rng.ACT, part.games, turn) % len(ACTIONS)
            part.step({ROLE: actions.astype(np.int32)[:, None]})

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
    """All results as plain data; about `seconds` per subject."""
    from .config import Config

    rom = titles.cartridge("small", 0).rom
    first = pyboy_emulator.acquire(rom)  # the memory of the library itself is not counted
    before = resident_memory()
    others = [pyboy_emulator.acquire(rom) for _ in range(EMULATORS)]
    memory = resident_memory() - before
    pyboy_emulator.release(dict(enumerate([first, *others])))
    subjects = {"bare PyBoy, 1 thread": bare(rom, 1), f"bare PyBoy, {THREADS} threads": bare(rom, THREADS)}
    subjects["world, 1 thread"] = through_world(Config(), 1)
    subjects[f"world, {THREADS} threads"] = through_world(Config(), THREADS)
    subjects[f"world, {THREADS} worker processes"] = through_world(Config(workers=THREADS), THREADS)
    steps = max(GAMES, round(1500 * seconds / TURNS) // GAMES * GAMES)
    rates: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(TURNS):
        for name, run in subjects.items():
            start = time.perf_counter()
            run(steps)
            rates[name].append(steps / (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = max(medians[f"world, {THREADS} threads"], medians[f"world, {THREADS} worker processes"])
    ratios = {
        "one thread": medians["world, 1 thread"] / medians["bare PyBoy, 1 thread"],
        "two cores": best / max(medians["bare PyBoy, 1 thread"], medians[f"bare PyBoy, {THREADS} threads"]),
    }
    return {
        "world": "gameboy", "games": GAMES, "steps_a_turn": steps, "turns": TURNS, "wanted_ratio": WANTED,
        "steps_per_second": {name: {"median": medians[name], "all": all_} for name, all_ in rates.items()},
        "ratio_to_bare": ratios, "emulators": EMULATORS, "megabytes": memory, "most_megabytes": MAX_MEMORY,
    }  # fmt: skip


def lines(result: dict[str, Any]) -> list[str]:
    out = [f"{result['world']}: environment steps per second, medians of {result['turns']} turns"]
    for name, rates in result["steps_per_second"].items():
        low, high = min(rates["all"]), max(rates["all"])
        out.append(f"  {name:<28} {rates['median']:>8.0f}   ({low:.0f} to {high:.0f})")
    for name, ratio in result["ratio_to_bare"].items():
        met = "met" if ratio >= result["wanted_ratio"] else "missed"
        out.append(f"  world over bare, {name:<11} {ratio:>8.2f}   (wanted {result['wanted_ratio']}: {met})")
    out.append(f"  {result['emulators']} emulators               {result['megabytes']:>8.0f} MB")
    return out
