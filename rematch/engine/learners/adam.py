"""Adam (Kingma and Ba 2015, algorithm 1) over a policy's flat weights; the sums are in nets/fused_ppo.h."""

from __future__ import annotations

import numpy as np

from rematch.engine.nets import fused
from rematch.engine.policy import Policy, named
from rematch.spec import Floats, Tree

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
        self.updates = tree["updates"]

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
