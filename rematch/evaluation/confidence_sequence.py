"""Always-valid intervals: they hold at every number of games at once, so a match may stop when it is precise.

An interval for a fixed number of games (Wilson's) is wrong where the games stop because of their results: the
more often one looks, the more often one look errs. The 95 % intervals here contain the true value at all
times together with probability 95 % or more. They are wider for the same number of games.

`ConfidenceSequence` bounds the mean of values between 0 and 1 by betting: Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", JRSS B 86 (2024), Theorem 3. For every candidate
mean m a gambler bets that the values exceed m, another one that they fall short of it. Where m is the true
mean, their capital is a martingale that exceeds 1/alpha with probability alpha at most (Ville 1939); every m
at which a gambler became that rich is excluded.

`asymptotic_half_width` is for estimates that are nearly sums, such as ratings: Waudby-Smith, Arbour, Sinha,
Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", Annals of
Statistics 52 (2024): the boundary of a Gaussian mixture.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

ALPHA = 0.05
LARGEST_BET = 0.75  # of the bet that could lose everything; Waudby-Smith and Ramdas advise 1/2 or 3/4
BISECTIONS = 40


class ConfidenceSequence:
    """The 95 % confidence sequence of the mean of independent values from 0 to 1.

    The bets are those that reach the precision `half_width` with the fewest values; with `threshold` those
    that show soonest on which side of it the mean lies, where the distance is `half_width` or more. The
    interval is valid at any time and for any other question too.
    """

    def __init__(self, half_width: float, threshold: float | None = None) -> None:
        self.half_width, self.threshold = half_width, threshold
        self.low, self.high = 0.0, 1.0
        self.values: Reals = np.empty(0)
        self.bets: Reals = np.empty(0)

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if self.n else 0.5

    @property
    def precision(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def add(self, values: NDArray[Any]) -> None:
        """Take more values into account; the interval never becomes wider."""
        new = np.asarray(values, np.float64)
        if not len(new):
            return
        if new.min() < 0 or new.max() > 1:
            raise ValueError("a confidence sequence needs values from 0 to 1")
        self.bets = np.concatenate([self.bets, self._bets(new)])
        self.values = np.concatenate([self.values, new])
        self.low = max(self.low, self._bound(self.values))
        self.high = min(self.high, 1 - self._bound(1 - self.values))
        if self.low > self.high:  # has probability 5 % at most; an empty interval would say nothing
            self.low = self.high = (self.low + self.high) / 2

    def _bets(self, new: Reals) -> Reals:
        """The bet on each new value, which depends on earlier values only.

        n values with the bet b exclude means that are L / (n b) + b variance / 2 away, L = log(2 / alpha);
        the least distance for n, and the least n for a distance, has b = distance / variance. Mean and
        variance begin with one value of 1/2 and a variance of 1/4.
        """
        values = np.concatenate([self.values, new])
        count = np.arange(1, len(values) + 1)
        means = (0.5 + np.cumsum(values)) / (count + 1)
        variances = (0.25 + np.cumsum((values - means) ** 2)) / (count + 1)
        distance = np.full(len(values), self.half_width)
        if self.threshold is not None:
            distance = np.maximum(distance, np.abs(np.concatenate([[0.5], means[:-1]]) - self.threshold))
        bets = distance / np.concatenate([[0.25], variances[:-1]])
        return np.asarray(bets[self.n :])

    def _bound(self, values: Reals) -> float:
        """The largest mean that a bet on larger values excludes; each side has half of alpha.

        The capital decreases in m, so that bisection finds where it falls below 2 / alpha.
        """

        def excluded(m: float) -> bool:
            bets = np.minimum(self.bets, LARGEST_BET / m)
            return float(np.log1p(bets * (values - m)).sum()) >= log(2 / ALPHA)

        inside, outside = float(values.mean()), 0.0
        if inside == 0:
            return 0.0
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            if middle == 0 or excluded(middle):
                outside = middle
            else:
                inside = middle
        return outside


def asymptotic_half_width(n: int, planned: int) -> float:
    """The half-width of a 95 % confidence sequence of a mean, in standard deviations of one value.

    It is narrowest near `planned` values, and valid at any `n` that is not very small.
    """
    rho_squared = (-2 * log(ALPHA) + log(-2 * log(ALPHA) + 1)) / max(planned, 1)  # their approximate optimum
    scale = n * rho_squared + 1
    return sqrt(2 * scale / (n * n * rho_squared) * log(sqrt(scale) / ALPHA))
