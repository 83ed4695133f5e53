"""Elastic weight consolidation (Kirkpatrick et al. 2017): a penalty for changes to important weights.

    penalty(theta) = weight / 2 * sum_i F_i (theta_i - theta*_i)^2        (their eq. 3)
    gradient_i     = weight * F_i (theta_i - theta*_i)

theta* are the weights at the newest anchor, F the diagonal of the Fisher information of the policy there.
Weights of the value function alone do not affect the policy: their F is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks import fused
from rematch.agents.networks.layout import network_bytes
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.rollout.rollout_buffer import RolloutBuffer

# coefficients of the loss of agents/learners/ppo.py; the ratio is 1, far from the clip range
POLICY_TERM_ONLY = (1.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class EwcConfig:
    """Elastic weight consolidation: a penalty for changes to weights that earlier levels need."""

    weight: float = knob(0.0, "weight of the penalty; 0: off", low=0)
    fisher_samples: int = knob(
        1024, "decisions from which the Fisher information is estimated", unit="decisions", low=1,
        needs="weight",
    )  # fmt: skip
    roles: str = knob(
        "last", "roles that the penalty applies to; last: the last role; all: every role",
        choices=("last", "all"), needs="weight",
    )  # fmt: skip


def fisher(policy: Policy, obs: Floats, mask: Bytes | None, key: int) -> Floats:
    """[P] diagonal of the Fisher information: the mean of squared gradients of log pi(a | s), one per sample.

    obs [n, F], mask [n, A]. The actions are sampled from the present policy, as in the definition; those of a
    rollout come from an older one. Each gradient is squared before the mean is taken.
    """
    n, size, actions = len(obs), policy.weights.size, policy.role.actions
    shape = (n,) if actions.kind == "discrete" else (n, actions.size)
    action: NDArray[Any] = np.zeros(shape, np.int32 if actions.kind == "discrete" else np.float32)
    logp, value, ones = np.zeros(n, np.float32), np.zeros(n, np.float32), np.ones(n, np.float32)
    number, slot = np.arange(n, dtype=np.uint32), np.zeros(n, np.int32)
    policy.network.act(policy.packed, slot, obs, number, (key, 0), action, logp, value, mask=mask)
    total, grad = np.zeros(size, np.float64), np.empty(size, np.float32)
    if not isinstance(policy.network, fused.Network):
        return _by_autograd(policy, obs, mask, action)
    batch: dict[str, NDArray[Any]] = {"obs": obs, "action": action, "logp": logp, "value": value,
                                      "target": value, "advantage": ones}
    if mask is not None:
        batch["mask"] = mask
    if policy.config.reads_privileged:  # no effect, but the critic needs an input
        batch["privileged"] = np.zeros((n, policy.role.privileged_size), np.float32)
    for i in range(n):  # with advantage 1 and ratio 1 the gradient is that of -log pi
        policy.network.gradient(policy.packed[0], np.array([i]), batch, POLICY_TERM_ONLY, 1, grad)
        total += grad.astype(np.float64) ** 2
    return (total / max(n, 1)).astype(np.float32)


def _by_autograd(policy: Policy, obs: Floats, mask: Bytes | None, action: NDArray[Any]) -> Floats:
    """The same for networks that torch computes."""
    import torch

    from rematch.agents.networks import mlp

    flat = torch.from_numpy(policy.weights.copy()).requires_grad_()
    total = torch.zeros(flat.shape, dtype=torch.float64)
    for i in range(len(obs)):
        row_mask = None if mask is None else torch.from_numpy(mask[i : i + 1])
        output = mlp.forward(flat, policy.role, policy.config, torch.from_numpy(obs[i : i + 1]), row_mask)
        logp = output.distribution.log_prob(torch.from_numpy(action[i : i + 1])).sum()
        (grad,) = torch.autograd.grad(logp, flat)
        total += grad.double() ** 2
    return np.asarray((total / max(len(obs), 1)).float().numpy())


class Anchor:
    """The anchor of one role: weights theta* [P] and their importance F [P]; both start at 0."""

    name = "ewc"

    def __init__(self, config: EwcConfig, policy: Policy, seed: int) -> None:
        self.config, self.policy, self.seed = config, policy, seed
        self.anchor: Floats = np.zeros_like(policy.weights)
        self.fisher: Floats = np.zeros_like(policy.weights)
        self.marks = 0

    def state_dict(self) -> Tree:
        return {"anchor": self.anchor, "fisher": self.fisher, "marks": self.marks}

    def load_state_dict(self, tree: Tree) -> None:
        self.anchor[:], self.fisher[:] = tree["anchor"], tree["fisher"]
        self.marks = tree["marks"]

    def penalty(self, policy: Policy) -> tuple[float, Floats]:
        """The penalty and its gradient [P], in closed form."""
        anchor, curvature = self.parabola()
        difference = policy.weights - anchor
        grad = curvature * difference
        return 0.5 * float(np.sum(grad * difference, dtype=np.float64)), grad

    def parabola(self) -> tuple[Floats, Floats]:
        return self.anchor, np.float32(self.config.weight) * self.fisher

    def update(self, rollout: RolloutBuffer) -> int:
        """Anchor the present weights; returns the number of decisions used for the Fisher information."""
        role_rollout = rollout[self.policy.role.name]
        decisions = np.flatnonzero((role_rollout.host("acted") != 0) & (role_rollout.host("slot") == 0))
        generator = rng.generator(self.seed, rng.FISHER, 0, self.marks)
        rows = generator.permutation(decisions)[: self.config.fisher_samples]
        if len(rows):  # without decisions the old anchor stays
            role, mask = role_rollout.role, None
            obs = role_rollout.host("obs").reshape(-1, role.size)[rows]
            if role_rollout.mask is not None:
                mask = role_rollout.host("mask").reshape(-1, role.actions.size)[rows]
            self.fisher[:] = fisher(self.policy, obs, mask, rng.key(self.seed, rng.FISHER, 1, self.marks))
            self.anchor[:] = self.policy.weights
            self.marks += 1
        return len(rows)


class Ewc(Component):
    """Anchors the weights of chosen roles whenever the curriculum climbs."""

    name = "ewc"
    Config = EwcConfig
    needs = "learner=ppo|expert"
    reads_rollout_after_evaluation = True  # the Fisher information is taken over the newest rollout

    def __init__(self, config: EwcConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.anchors: dict[str, Anchor] = {}

    @classmethod
    def check(cls, config: EwcConfig, setup: Setup) -> None:
        if config.weight and setup.config.curriculum.kind == "none":
            raise ConfigError(
                f"ewc.weight = {config.weight:g}: weights are anchored when a curriculum moves up, and "
                "there is no curriculum; expected 0"
            )

    @classmethod
    def off(cls, config: EwcConfig, setup: Setup) -> str:
        return "" if config.weight else "ewc.weight is 0"

    @classmethod
    def memory_bytes(cls, config: EwcConfig, setup: Setup) -> int:
        if not config.weight:
            return 0
        return 2 * sum(network_bytes(role, setup.config) for role in setup.spec.roles.values())

    @classmethod
    def shrink(cls, config: EwcConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"fisher_samples": min(config.fisher_samples, 64)}

    def connect(self) -> None:
        learners = self.setup.learners
        for index, (role, learner) in enumerate(learners.items()):
            if self.config.roles == "all" or index == len(learners) - 1:
                seed = self.setup.config.seed << 8 | index
                self.anchors[role] = Anchor(self.config, learner.policy, seed)
                learner.regularizers.append(self.anchors[role])

    def after_evaluation(self, evaluation: Any, rollout: RolloutBuffer, clock: Clock) -> None:
        for role, anchor in self.anchors.items() if evaluation.row.get("moved", 0) > 0 else ():
            decisions = anchor.update(rollout)
            evaluation.lines.append(f"EWC: the weights of {role} at step {clock.step:,} are anchored "
                                    f"({decisions} decisions)")

    def evidence(self, record: Record) -> Iterable[Evidence]:
        penalty = record.largest("ewc_penalty")
        yield Evidence(self.name, f"penalty up to {penalty:.2g}" if penalty > 0 else "")

    def state_dict(self) -> Tree:
        return {role: anchor.state_dict() for role, anchor in self.anchors.items()}

    def load_state_dict(self, tree: Tree) -> None:
        for role, anchor in self.anchors.items():
            anchor.load_state_dict(tree[role])
