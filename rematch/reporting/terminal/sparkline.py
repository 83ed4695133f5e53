"""The trend of a number as a row of small bars."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
POINTS = 24  # bars of a trend


class Trend:
    """The values of a number since the start, as means of equally many neighbours: at most 2 * POINTS."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.each = 1  # values in one mean
        self.pending: list[float] = []  # of the next mean

    def add(self, value: object) -> None:
        """Add a value; one that is not a finite number is left out."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return
        self.pending.append(float(value))
        if len(self.pending) < self.each:
            return
        self.values.append(sum(self.pending) / len(self.pending))
        self.pending = []
        if len(self.values) == 2 * POINTS:
            pairs = zip(self.values[::2], self.values[1::2])
            self.values, self.each = [(a + b) / 2 for a, b in pairs], 2 * self.each

    def bars(self, low: float | None = None, high: float | None = None) -> str:
        """The newest POINTS means between `low` and `high` (default: their own range)."""
        return sparkline(self.values[-POINTS:], low, high)


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """A bar for each value; the lowest bar is `low`, the highest `high`."""
    if not values:
        return ""
    bottom = min(values) if low is None else low
    top = max(values) if high is None else high
    height = top - bottom
    if height <= 0:
        return BARS[len(BARS) // 2] * len(values)
    shares = [min(max((value - bottom) / height, 0.0), 1.0) for value in values]
    return "".join(BARS[min(int(share * len(BARS)), len(BARS) - 1)] for share in shares)
