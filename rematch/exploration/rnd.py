"""Random network distillation (Burda et al. 2019): intrinsic reward for rare observations.

A predictor network learns the output of a frozen random network; its error is small for frequent
observations. The reward of a decision is that of its observation s,

    r = weight * e(s) / sd,      e(s) = mean_j (predictor_j(s) - target_j(s))^2

where sd is the standard deviation of all errors so far. The reward term is a separate column that only
learners read: outcomes, matches and returns do not contain it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learners.adam import Adam
from rematch.agents.networks import fused
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Floats, Tree, stored_float, stored_int
from rematch.core.component import Metrics, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.spec import Actions, Role
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer

MAGNET_TERM_ONLY = (0.0, 0.0, 0.0, 0.0, 1.0)  # coefficients of the loss of agents/learners/ppo.py


@dataclass(frozen=True, kw_only=True)
class RndConfig:
    """Intrinsic reward for new observations: random network distillation."""

    weight: float = knob(0.0, "weight of the reward term; 0: off", low=0)
    hidden: int = knob(
        128, "width of the two hidden layers of both networks", unit="units", low=1, high=4096,
        needs="weight",
    )  # fmt: skip
    embed: int = knob(64, "output size of both networks", unit="units", low=1, high=4096, needs="weight")
    update_every: int = knob(
        256, "decisions per gradient step of the predictor network", unit="decisions", low=1, needs="weight"
    )
    lr: float = knob(1e-3, "learning rate of the predictor network", low=0, needs="weight")
    roles: str = knob(
        "last", "roles that receive the reward term; last: the last role; all: every role",
        choices=("last", "all"), needs="weight",
    )  # fmt: skip


class RunningStd:
    """Running standard deviation (Welford 1962; batches: Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        n, mean = len(values), float(values.mean())
        total, difference = self.count + n, mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + difference**2 * self.count * n / total
        self.mean += difference * n / total
        self.count = total

    def __float__(self) -> float:
        return float(np.sqrt(self.squares / max(self.count, 1)))


class DistillationState:
    """The checkpoint state of a distillation: predictor, optimiser and deviation."""

    predictor: Policy
    adam: Adam
    deviation: RunningStd

    def state_dict(self) -> Tree:
        """Without the target network, which the seed determines."""
        d = self.deviation
        deviation = {"count": d.count, "mean": d.mean, "squares": d.squares}
        return {"predictor": self.predictor.weights, "deviation": deviation} | self.adam.state()

    def load_state_dict(self, tree: Tree) -> None:
        self.predictor.set(tree["predictor"])
        self.adam.restore(tree)
        stored, deviation = tree["deviation"], self.deviation
        deviation.count, deviation.mean = stored_int(stored, "count"), stored_float(stored, "mean")
        deviation.squares = stored_float(stored, "squares", 0)

    def copy_from(self, other: DistillationState) -> None:
        self.load_state_dict(copy.deepcopy(other.state_dict()))


class Distillation(DistillationState):
    """The target and predictor networks of one role; both read its whole observation."""

    def __init__(self, config: RndConfig, role: Role, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        outputs = Actions(kind="continuous", names=tuple(f"e{i}" for i in range(config.embed)))
        embedding_role = replace(role, actions=outputs)
        shape = NetworkConfig(hidden=(config.hidden, config.hidden), activation="relu", log_std=0.0)
        self.target = Policy(embedding_role, shape, "target")
        self.predictor = Policy(embedding_role, shape, "predictor")
        for index, network in enumerate((self.target, self.predictor)):
            network.initialise(rng.key(seed, rng.RND, index))
            head = weight_views(network.weights, network.layout)["policy.head.weight"]
            head *= 100.0  # Policy.initialise scales its head by 0.01
            network.set(network.weights)
        self.adam = Adam(self.predictor.weights.size)
        self.grad: Floats = np.empty_like(self.predictor.weights)
        self.deviation = RunningStd()

    def score(self, rollout: RolloutBuffer, iteration: int) -> NDArray[np.float64]:
        """Score the observations of the learner's decisions, then learn from them.

        The whole rollout is scored before the predictor learns: the order of its rows has no effect.
        """
        role_rollout = rollout[self.role.name]
        acted = role_rollout.host("acted") != 0
        rows = np.flatnonzero((role_rollout.host("slot") == 0) & acted)
        values = np.zeros(acted.shape, np.float64)
        if len(rows) == 0:
            return values
        obs = role_rollout.host("obs").reshape(-1, self.role.size)[rows]
        target = self.target.forward(obs)[0]
        error = ((self.predictor.forward(obs)[0].astype(np.float64) - target) ** 2).mean(1)
        self.deviation.add(error)
        values.reshape(-1)[rows] = error / max(float(self.deviation), 1e-8)
        self._learn(obs, target, iteration)
        return values

    def _learn(self, obs: Floats, target: Floats, iteration: int) -> None:
        """One shuffled pass over the observations [n, F].

        The KL divergence of two Gaussians with standard deviation 1 is half the squared distance of their
        means: the magnet term of the fused gradient alone is the gradient of the predictor's error.
        """
        n, size = self.config.update_every, self.config.embed
        order = rng.generator(self.seed, rng.RND, 2, iteration).permutation(len(obs))
        zeros, no_action = np.zeros(n, np.float32), np.zeros((n, size), np.float32)
        std = np.zeros(size, np.float32)
        for at in range(0, len(order), n):
            rows = order[at : at + n]
            m = len(rows)
            batch = {"obs": obs[rows], "magnet": target[rows], "magnet_log_std": std, "action": no_action[:m]}
            batch |= dict.fromkeys(("logp", "advantage", "target", "value"), zeros[:m])
            net = self.predictor.network
            assert isinstance(net, fused.Network), "the predictor has no encoder"
            net.gradient(self.predictor.packed[0], np.arange(m), batch, MAGNET_TERM_ONLY, 1, self.grad)
            self.adam.step(self.predictor, self.grad, self.config.lr)


class Rnd(RewardTermComponent):
    """Random network distillation over the observations of chosen roles."""

    name = "rnd"
    Config = RndConfig
    credit = "decision"

    @classmethod
    def receivers(cls, config: RndConfig, setup: Setup) -> list[tuple[int, Role]]:
        roles = super().receivers(config, setup)
        return roles if config.roles == "all" else roles[-1:]

    @classmethod
    def make_scorer(cls, config: RndConfig, role: Role, games: int, seed: int) -> Distillation:
        return Distillation(config, role, seed)

    @classmethod
    def memory_bytes(cls, config: RndConfig, setup: Setup) -> int:
        """The column; observations, targets and predictions of a rollout's decisions."""
        if not config.weight:
            return 0
        roles = setup.spec.roles.values()
        sizes = [len(role.seats) * (4 * role.size + 4 * 3 * config.embed) for role in roles]
        return int(setup.config.games * setup.config.steps) * max(sizes)

    @classmethod
    def shrink(cls, config: RndConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"update_every": min(config.update_every, small.steps_per_iteration // 4)}

    def numbers(self, rollout: RolloutBuffer, role: str) -> Metrics:
        """Means per step over the seats of the learner."""
        role_rollout = rollout[role]
        learner = role_rollout.host("slot") == 0
        if not (learner & (role_rollout.host("acted") != 0)).any():
            return {}
        weighted = (self.weight * role_rollout.reward_terms[self.name].values).astype(np.float32)
        extrinsic = float(role_rollout.host("reward")[learner].mean(dtype=np.float64))
        intrinsic = float(weighted[learner].mean(dtype=np.float64))
        return {"rnd_intrinsic": intrinsic, "rnd_extrinsic": extrinsic, "rnd_total": extrinsic + intrinsic}
