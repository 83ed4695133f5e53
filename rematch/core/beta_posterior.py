"""Beta posteriors of success probabilities with exponential forgetting; the incomplete beta function."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class BetaPosteriors:
    """M independent posteriors Beta(alpha, beta) of success probabilities theta; alpha and beta are [M]."""

    def __init__(self, count: int, prior: tuple[float, float], forgetting: float) -> None:
        self.prior, self.forgetting = prior, forgetting
        self.alpha, self.beta = (np.full(count, value, np.float64) for value in prior)

    def update(self, index: int, success: bool) -> None:
        """Add one trial; the weight of earlier trials shrinks by the factor `forgetting`."""
        for counts, prior, new in zip((self.alpha, self.beta), self.prior, (success, not success)):
            counts[index] = prior + self.forgetting * (counts[index] - prior) + new

    def append(self) -> None:
        """Add one posterior that equals the prior."""
        self.alpha = np.append(self.alpha, self.prior[0])
        self.beta = np.append(self.beta, self.prior[1])

    @property
    def mean(self) -> Numbers:
        return self.alpha / (self.alpha + self.beta)

    @property
    def deviation(self) -> Numbers:
        """[M] standard deviations."""
        total = self.alpha + self.beta
        return np.sqrt(self.alpha * self.beta / (total + 1)) / total

    def cdf(self, index: int, x: float) -> float:
        """P(theta < x)."""
        return incomplete_beta(x, float(self.alpha[index]), float(self.beta[index]))

    def interval(self, index: int, mass: float = 0.95) -> tuple[float, float]:
        """The central credible interval with probability `mass`, by bisection."""
        bounds = []
        for quantile in ((1 - mass) / 2, (1 + mass) / 2):
            low, high = 0.0, 1.0
            for _ in range(40):
                middle = (low + high) / 2
                low, high = (middle, high) if self.cdf(index, middle) < quantile else (low, middle)
            bounds.append((low + high) / 2)
        return bounds[0], bounds[1]


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function (DLMF 8.17.22, by Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges slowly: DLMF 8.17.4
        return 1 - incomplete_beta(1 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    tiny, fraction = 1e-300, 1.0
    c, d = 1.0, 0.0
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
        fraction *= c * d
        if k and abs(c * d - 1) < 1e-15:
            break
    return min(1.0, max(0.0, front * (fraction - 1)))
