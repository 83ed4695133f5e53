"""Values that change with progress through a run."""

from __future__ import annotations

import math

SHAPES = ("linear", "cosine", "none")


def anneal(shape: str, start: float, end: float, progress: float) -> float:
    """From `start` at progress 0 to `end` at progress 1 (clamped); `none` stays at `start`."""
    progress = min(max(progress, 0.0), 1.0)
    if shape == "none":
        return start
    if shape == "cosine":
        progress = (1.0 - math.cos(math.pi * progress)) / 2.0
    return start + (end - start) * progress
