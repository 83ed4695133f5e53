"""Timing several things beside one another: in turns, several times, with what else the machine was doing."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

REPETITIONS = 5


class Subject(Protocol):
    """One thing to be timed."""

    name: str
    unit: str  # what `run` counts
    threads: int
    settings: dict[str, Any]

    def run(self, seconds: float) -> int:
        """Work for about this long, in whole iterations and at least one; how many units were done."""


@dataclass
class Measurement:
    """Rates of one subject, a number per repetition, and their cost."""

    subject: Subject
    rates: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)  # the machine's load average before each repetition
    wall: float = 0.0
    cpu: float = 0.0  # seconds of all threads of this process
    cpu_rates: list[float] = field(default_factory=list)  # the same, per second of CPU

    @property
    def median(self) -> float:
        return statistics.median(self.rates)

    @property
    def per_core(self) -> float:
        """The median per second of CPU: what a core does, also where it does other people's work besides."""
        return statistics.median(self.cpu_rates)

    @property
    def processors(self) -> float:
        """How many it got on average."""
        return self.cpu / max(self.wall, 1e-9)

    def row(self) -> dict[str, Any]:
        s = self.subject
        return {
            "name": s.name, "unit": f"{s.unit}/s", "threads": s.threads, "settings": s.settings,
            "n": len(self.rates), "median": self.median, "min": min(self.rates), "max": max(self.rates),
            "rates": self.rates, "wall_seconds": self.wall, "cpu_seconds": self.cpu, "load": self.load,
            "median_per_cpu_second": self.per_core,
        }  # fmt: skip


def load() -> float:
    """The load average over the last minute; 0 where the system has none."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return 0.0


def in_turns(subjects: Sequence[Subject], seconds: float) -> list[Measurement]:
    """Each subject REPETITIONS times for about `seconds`, round by round: all meet the same minutes."""
    out = [Measurement(subject) for subject in subjects]
    for subject in subjects:
        subject.run(0.0)  # caches, thread pools, first-time costs
    for _ in range(REPETITIONS):
        for measured in out:
            measured.load.append(load())
            wall, cpu = time.perf_counter(), time.process_time()
            done = measured.subject.run(seconds)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            measured.rates.append(done / wall)
            measured.cpu_rates.append(done / max(cpu, 1e-9))
            measured.wall += wall
            measured.cpu += cpu
    return out


def best(measured: Sequence[Measurement]) -> Measurement:
    """The one with the highest median."""
    return max(measured, key=lambda m: m.median)


def ratio(name: str, over: Measurement, under: Measurement) -> dict[str, Any]:
    """How many times faster: of the medians, and from the worst to the best round."""
    rounds = [a / b for a, b in zip(over.rates, under.rates)]
    return {
        "name": name, "value": over.median / under.median, "min": min(rounds), "max": max(rounds),
        "over": f"{over.subject.name}, threads {over.subject.threads}",
        "under": f"{under.subject.name}, threads {under.subject.threads}",
    }  # fmt: skip
