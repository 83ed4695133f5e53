"""Runs a role schedule without training."""

from __future__ import annotations

from rematch.selfplay.role_schedule import Phase, Schedule

ROLES = ("pursuer", "evader")



def run_through(schedule: Schedule, count: int) -> list[Phase]:
    """The phase of each of the first `count` iterations."""
    out = []
    for iteration in range(count):
        schedule.advance(iteration)
        out.append(schedule.phase)
    return out

