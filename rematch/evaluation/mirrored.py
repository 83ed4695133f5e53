"""What mirrored games are worth: a deal that was played from every seat is one observation, not several.

Games with the same cards are not independent. The deal is the unit, and its games only enter together.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.evaluation.returns import Mean, student

Z95 = 1.959963984540054


def _spread(values: NDArray[np.float64], deal: NDArray[Any]) -> tuple[float, int]:
    """The variance of the mean of `values` [n] when whole deals [n] vary, and how many deals there are.

    The cluster-robust variance of a ratio (Cochran 1977, section 11.3): residuals are added up per deal.
    """
    which, at = np.unique(deal, return_inverse=True)
    off = np.bincount(at, values - values.mean(), len(which))
    deals = len(which)
    return float((off**2).sum()) * deals / max(deals - 1, 1) / len(values) ** 2, deals


def effective(values: NDArray[Any], deal: NDArray[Any]) -> float:
    """How many independent games tell as much as these: values [n] from 0 to 1, each of a deal [n].

    The effective sample size of Korn and Graubard (1998), with their correction for few deals, for Wilson's
    interval as Dean and Pagano (2015) advise. Games that are all won or all lost say nothing about how
    deals vary and count as they are. Luck of the cards that cancels makes it larger than n, at most by as
    many times as a deal was played: few deals could by chance seem to agree completely.
    """
    n, x = len(values), np.asarray(values, np.float64)
    p = float(x.mean()) if n else 0.0
    if len(np.unique(deal)) in (0, n) or p * (1 - p) == 0:
        return float(n)
    variance, deals = _spread(x, deal)
    if deals < 2:
        return 1.0
    most = n * n / deals
    if variance * most <= p * (1 - p):
        found = most
    else:
        found = p * (1 - p) / variance
    return max(1.0, found * (Z95 / student(deals - 1)) ** 2)


def mean_by_deal(values: NDArray[Any], deal: NDArray[Any]) -> Mean | None:
    """Mean of values [n] with Student's interval over deals [n]; games without a value (nan) are left out."""
    told = ~np.isnan(values)
    x, of = np.asarray(values, np.float64)[told], deal[told]
    if not len(x):
        return None
    variance, deals = _spread(x, of)
    if deals < 2:
        return Mean(float(x.mean()), None, None, len(x))
    half = student(deals - 1) * sqrt(variance)
    return Mean(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, len(x))
