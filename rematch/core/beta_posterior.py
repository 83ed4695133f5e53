"""Beta posteriors of success probabilities, with evidence that fades; the incomplete beta function."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


# --- Beta beliefs -----------------------------------------------------------------------------------


class Beliefs:
    """Beta(alpha, beta) of some chances of success, each [M]; see the top of this file."""

    def __init__(self, count: int, prior: tuple[float, float], forgetting: float) -> None:
        self.prior, self.forgetting = prior, forgetting
        self.alpha, self.beta = (np.full(count, value, np.float64) for value in prior)

    def judge(self, which: int, success: bool) -> None:
        """A trial."""
        for counts, prior, new in zip((self.alpha, self.beta), self.prior, (success, not success)):
            counts[which] = prior + self.forgetting * (counts[which] - prior) + new

    def grow(self) -> None:
        """One more chance, of which nothing is known."""
        self.alpha = np.append(self.alpha, self.prior[0])
        self.beta = np.append(self.beta, self.prior[1])

    @property
    def mean(self) -> Numbers:
        return self.alpha / (self.alpha + self.beta)

    @property
    def deviation(self) -> Numbers:
        total = self.alpha + self.beta
        return np.sqrt(self.alpha * self.beta / (total + 1)) / total

    def below(self, which: int, x: float) -> float:
        """P(theta < x)."""
        return incomplete_beta(x, float(self.alpha[which]), float(self.beta[which]))

    def interval(self, which: int, share: float = 0.95) -> tuple[float, float]:
        """The middle `share` of the belief, by bisection."""
        bounds = []
        for goal in ((1 - share) / 2, (1 + share) / 2):
            low, high = 0.0, 1.0
            for _ in range(40):
                middle = (low + high) / 2
                low, high = (middle, high) if self.below(which, middle) < goal else (low, middle)
            bounds.append((low + high) / 2)
        return bounds[0], bounds[1]


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function (DLMF 8.17.22, by Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction converges slowly: DLMF 8.17.4
        return 1 - incomplete_beta(1 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    tiny, c, d, found = 1e-300, 1.0, 0.0, 1.0
    for k in range(1000):
        m = k // 2
        if k == 0:
            term = 1.0
        elif k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        found *= c * d
        if k and abs(c * d - 1) < 1e-15:
            break
    return min(1.0, max(0.0, front * (found - 1)))
