"""Elastic weight consolidation (Kirkpatrick et al. 2017): weights that mattered stay near what they were.

    penalty(theta) = weight / 2 * sum_i F_i (theta_i - theta*_i)^2        (their eq. 3)
    slope_i        = weight * F_i (theta_i - theta*_i)

theta* are the weights at the newest mark, F the diagonal of the Fisher information of the play there. The
value's own weights have no part in the play: their F is 0, and they are free.
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

# of the terms of agents/learners/ppo.py; the ratio is 1, far from its clip
LOGP_ALONE = (1.0, 0.0, 0.0, 0.0, 0.0)


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

    sight [n, F], mask [n, A]. The actions are drawn from the policy as it is now, as the definition has it;
    those on a tape are of its earlier self. Squares of single gradients: the square of their mean is not it.
    """
    n, size, actions = len(obs), policy.weights.size, policy.role.actions
    shape = (n,) if actions.kind == "discrete" else (n, actions.size)
    action: NDArray[Any] = np.zeros(shape, np.int32 if actions.kind == "discrete" else np.float32)
    logp, value, one = np.zeros(n, np.float32), np.zeros(n, np.float32), np.ones(n, np.float32)
    number, slot = np.arange(n, dtype=np.uint32), np.zeros(n, np.int32)
    policy.network.act(policy.packed, slot, obs, number, (key, 0), action, logp, value, mask=mask)
    total, grad = np.zeros(size, np.float64), np.empty(size, np.float32)
    if not isinstance(policy.network, fused.Network):
        return _by_autograd(policy, obs, mask, action)
    batch: dict[str, NDArray[Any]] = {"obs": obs, "action": action, "logp": logp, "value": value,
                                      "target": value, "advantage": one}
    if mask is not None:
        batch["mask"] = mask
    if policy.config.reads_privileged:  # no part of it, but the critic's tower needs an input
        batch["privileged"] = np.zeros((n, policy.role.privileged_size), np.float32)
    for i in range(n):  # with advantage 1 and ratio 1 the surrogate's slope is that of -log pi
        policy.network.gradient(policy.packed[0], np.array([i]), batch, LOGP_ALONE, 1, grad)
        total += grad.astype(np.float64) ** 2
    return (total / max(n, 1)).astype(np.float32)


def _by_autograd(policy: Policy, obs: Floats, mask: Bytes | None, action: NDArray[Any]) -> Floats:
    """The same for networks with an encoder, whose gradients are torch's."""
    import torch

    from rematch.agents.networks import mlp

    flat = torch.from_numpy(policy.weights.copy()).requires_grad_()
    total = torch.zeros(flat.shape, dtype=torch.float64)
    for i in range(len(obs)):
        here = None if mask is None else torch.from_numpy(mask[i : i + 1])
        said = mlp.answer(flat, policy.role, policy.config, torch.from_numpy(obs[i : i + 1]), here)
        logp = said.play.log_prob(torch.from_numpy(action[i : i + 1])).sum()
        (slope,) = torch.autograd.grad(logp, flat)
        total += slope.double() ** 2
    return np.asarray((total / max(len(obs), 1)).float().numpy())


class Anchor:
    """One role's anchor: weights theta* [P] and their importance F [P]; both 0 until the first mark."""

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
        """The penalty and its slope [P], in closed form."""
        away = policy.weights - self.anchor
        slope = np.float32(self.config.weight) * self.fisher * away
        return 0.5 * float(np.sum(slope * away, dtype=np.float64)), slope

    def mark(self, tape: RolloutBuffer) -> int:
        """Anchor the weights as they are now; how many of its own decisions on the tape that rests on."""
        track = tape[self.policy.role.name]
        own = np.flatnonzero((track.acted != 0) & (track.slot == 0))
        draw = rng.generator(self.seed, rng.FISHER, 0, self.marks)
        rows = draw.permutation(own)[: self.config.fisher_samples]
        if len(rows):  # else nobody of this role played: the old anchor holds
            obs = track.obs.reshape(-1, track.role.size)[rows]
            mask = None if track.mask is None else track.mask.reshape(-1, track.role.actions.size)[rows]
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
                f"ewc.weight = {config.weight:g}: weights are anchored when a curriculum climbs, and there "
                "is no curriculum; expected 0"
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
            decisions = anchor.mark(rollout)
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
