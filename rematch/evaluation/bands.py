"""Several runs of one kind as one curve: interquartile means over seeds with their 95 % bands.

Interquartile mean and bootstrap as Agarwal et al. (2021) recommend for few seeds; docs/strength.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rematch.evaluation.spread import draws, iqm

Array = NDArray[np.float64]

def band(values: Array) -> tuple[Array, Array, Array]:
    """values [n, points] of n seeds: interquartile mean, and its 95 % interval by resampling the seeds.

    Of one seed nothing is known about others: its interval is all of the line and says nothing, so low and
    high are not numbers then.
    """
    n, points = values.shape
    centre = iqm(values.T)
    if n < 2:
        nothing = np.full(points, np.nan)
        return centre, nothing, nothing
    drawn = draws(n)
    low, high = np.empty(points), np.empty(points)
    for i in range(points):
        low[i], high[i] = np.quantile(iqm(values[drawn, i]), (0.025, 0.975))
    return centre, low, high


def aligned(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[Array, Array]:
    """Curves (steps, values) at common steps [p], as values [n, p]: those of the curve with the fewest.

    Where another one was not measured at such a step, a straight line between its neighbours stands in.
    """
    until = min(x[-1] for x, _ in curves)
    since = max(x[0] for x, _ in curves)
    fewest = min((x for x, _ in curves), key=len)
    grid = np.array([x for x in fewest if since <= x <= until], np.float64)
    return grid, np.array([np.interp(grid, x, y) for x, y in curves]).reshape(len(curves), len(grid))
