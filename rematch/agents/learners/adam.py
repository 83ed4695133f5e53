"""Adam (Kingma and Ba 2015, algorithm 1) over a policy's flat weights; the sums are in
agents/networks/fused_ppo.h."""

from __future__ import annotations

import numpy as np

from rematch.agents.networks import fused
from rematch.agents.networks.layout import named
from rematch.agents.policy import Policy
from rematch.core.arrays import Floats, Tree

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-5


class Adam:
    """Two moments [P] and the number of steps made."""

    def __init__(self, size: int) -> None:
        self.first: Floats = np.zeros(size, np.float32)
        self.second: Floats = np.zeros(size, np.float32)
        self.updates = 0

    def state(self) -> Tree:
        return {"first": self.first, "second": self.second, "updates": self.updates}

    def restore(self, tree: Tree) -> None:
        self.first[:], self.second[:] = tree["first"], tree["second"]
        self.updates = int(tree["updates"])

    def descend(self, policy: Policy, grad: Floats, lr: float, most: float) -> tuple[float, float]:
        """`step` along `grad`, shortened to length `most` where it is longer and that is above 0; its length
        before and after. Nothing is done where it is not finite."""
        before = float(np.sqrt(np.dot(grad, grad)))
        scale = most / before if before > most > 0 else 1.0
        if np.isfinite(before):
            self.step(policy, grad, lr, scale)
        return before, before * scale

    def step(self, policy: Policy, grad: Floats, lr: float, scale: float = 1.0) -> None:
        """One step along `grad` times `scale`, then the bounds of the standard deviation."""
        self.updates += 1
        weights, t = policy.weights, self.updates
        numbers = (lr / (1 - BETA_1**t), BETA_1, BETA_2, EPSILON, 1 - BETA_2**t, scale)
        fused.adam(weights, grad, self.first, self.second, numbers)
        log_std = named(weights, policy.layout).get("policy.log_std")
        if log_std is not None:
            log_std.clip(policy.config.log_std_low, policy.config.log_std_high, out=log_std)
        policy.set(weights)
