"""Times several subjects in turns, several times, and records the load of the machine."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rematch.core.system.progress import PROGRESS

REPETITIONS = 5


class Subject(Protocol):
    """Something to be timed."""

    name: str
    unit: str  # unit of the number that `run` returns
    threads: int
    settings: dict[str, Any]

    def run(self, seconds: float) -> int:
        """Works for about `seconds`, at least one iteration; returns the number of units done."""


@dataclass
class Measurement:
    """Rates of one subject, one per repetition, and the time they took."""

    subject: Subject
    rates: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)  # load average of the machine before each repetition
    wall: float = 0.0
    cpu: float = 0.0  # CPU seconds of all threads of this process
    cpu_rates: list[float] = field(default_factory=list)  # units per CPU second

    @property
    def median(self) -> float:
        return statistics.median(self.rates)

    @property
    def per_core(self) -> float:
        """Median rate per CPU second: the speed of one core, also on a busy machine."""
        return statistics.median(self.cpu_rates)

    @property
    def processors(self) -> float:
        """Number of processors used on average."""
        return self.cpu / max(self.wall, 1e-9)

    def row(self) -> dict[str, Any]:
        s = self.subject
        return {
            "name": s.name, "unit": f"{s.unit}/s", "threads": s.threads, "settings": s.settings,
            "n": len(self.rates), "median": self.median, "min": min(self.rates), "max": max(self.rates),
            "rates": self.rates, "wall_seconds": self.wall, "cpu_seconds": self.cpu, "load": self.load,
            "median_per_cpu_second": self.per_core,
        }  # fmt: skip


def load_average() -> float:
    """Load average over the last minute; 0 if the system has none."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return 0.0


def announce(line: str) -> None:
    """Write a line to stderr, so that redirected results stay clean."""
    start = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print(f"{start}{line}", file=sys.stderr, flush=True)


def measure_in_turns(subjects: Sequence[Subject], seconds: float) -> list[Measurement]:
    """Runs each subject REPETITIONS times for about `seconds`, round by round; reports to PROGRESS."""
    measurements = [Measurement(subject) for subject in subjects]
    each, total = seconds * REPETITIONS, seconds * REPETITIONS * len(subjects)
    announce(f"{len(subjects)} measurements of {each:g} s each, in {REPETITIONS} rounds: {total:.0f} s "
             "in all, plus warm-up")
    parts = (REPETITIONS + 1) * len(subjects)
    for number, subject in enumerate(subjects, 1):
        PROGRESS.report((number - 1) / parts, f"warm-up {number} of {len(subjects)}: {subject.name}")
        subject.run(0.0)  # caches, thread pools, first-time costs
    for round_number in range(1, REPETITIONS + 1):
        for number, measurement in enumerate(measurements, 1):
            done = round_number * len(subjects) + number - 1
            text = f"round {round_number} of {REPETITIONS}, measurement {number} of {len(subjects)}"
            PROGRESS.report(done / parts, f"{text}: {measurement.subject.name}, "
                            f"threads {measurement.subject.threads}")
            measurement.load.append(load_average())
            wall, cpu = time.perf_counter(), time.process_time()
            units = measurement.subject.run(seconds)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            measurement.rates.append(units / wall)
            measurement.cpu_rates.append(units / max(cpu, 1e-9))
            measurement.wall += wall
            measurement.cpu += cpu
    PROGRESS.report(1.0)
    return measurements


def best(measurements: Sequence[Measurement]) -> Measurement:
    """The measurement with the highest median."""
    return max(measurements, key=lambda m: m.median)


def ratio(name: str, numerator: Measurement, denominator: Measurement) -> dict[str, Any]:
    """Ratio of the medians, with the lowest and highest ratio over the rounds."""
    rounds = [a / b for a, b in zip(numerator.rates, denominator.rates)]
    return {
        "name": name, "value": numerator.median / denominator.median, "min": min(rounds), "max": max(rounds),
        "over": f"{numerator.subject.name}, threads {numerator.subject.threads}",
        "under": f"{denominator.subject.name}, threads {denominator.subject.threads}",
    }  # fmt: skip
