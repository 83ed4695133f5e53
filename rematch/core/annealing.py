"""Annealing: values that change with the progress of a run."""

from __future__ import annotations

import math

ANNEALING_SHAPES = ("linear", "cosine", "none")


def anneal(shape: str, start: float, end: float, progress: float) -> float:
    """`start` at progress 0, `end` at progress 1 and beyond; with shape `none` always `start`."""
    progress = min(max(progress, 0.0), 1.0)
    if shape == "none":
        return start
    if shape == "cosine":
        progress = (1.0 - math.cos(math.pi * progress)) / 2.0
    return start + (end - start) * progress
