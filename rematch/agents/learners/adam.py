"""Adam (Kingma and Ba 2015, algorithm 1) over a policy's flat weights; fused_ppo.h computes it."""

from __future__ import annotations

import numpy as np

from rematch.agents.networks import fused
from rematch.agents.networks.layout import Layout
from rematch.agents.policy import Policy
from rematch.core.arrays import Floats, Tree, stored_array, stored_int

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-5


def log_std_place(layout: Layout) -> slice:
    """Where log_std lies in flat weights; empty where there is none."""
    for name, shape, offset in layout:
        if name == "policy.log_std":
            return slice(offset, offset + shape[0])
    return slice(0)


class Adam:
    """Two moments [P] and the number of updates."""

    def __init__(self, size: int) -> None:
        self.first: Floats = np.zeros(size, np.float32)
        self.second: Floats = np.zeros(size, np.float32)
        self.updates = 0
        self.log_std: slice | None = None  # its place in the weights, once it is known

    def state(self) -> Tree:
        return {"first": self.first, "second": self.second, "updates": self.updates}

    def restore(self, tree: Tree) -> None:
        self.first[:] = stored_array(tree, "first", self.first)
        self.second[:] = stored_array(tree, "second", self.second)
        self.updates = stored_int(tree, "updates")

    def clipped_step(self, policy: Policy, grad: Floats, lr: float, max_norm: float) -> tuple[float, float]:
        """`step` with `grad` scaled down to norm `max_norm` (0: no limit); its norms before and after.

        No step where the gradient is not finite.
        """
        before = float(np.sqrt(np.dot(grad, grad)))
        scale = max_norm / before if before > max_norm > 0 else 1.0
        if np.isfinite(before):
            self.step(policy, grad, lr, scale)
        return before, before * scale

    def step(self, policy: Policy, grad: Floats, lr: float, scale: float = 1.0) -> None:
        """One step with the gradient `grad` times `scale`; then log_std is clipped to its bounds."""
        self.updates += 1
        weights, t = policy.weights, self.updates
        coefficients = (lr / (1 - BETA_1**t), BETA_1, BETA_2, EPSILON, 1 - BETA_2**t, scale)
        fused.adam(weights, grad, self.first, self.second, coefficients)
        if self.log_std is None:
            self.log_std = log_std_place(policy.layout)
        log_std = weights[self.log_std]
        if log_std.size:
            log_std.clip(policy.config.log_std_low, policy.config.log_std_high, out=log_std)
        policy.set(weights)
