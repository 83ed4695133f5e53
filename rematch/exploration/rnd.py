"""Random network distillation (Burda et al. 2019): what a role has seen seldom is worth something by itself.

A predictor learns to say what a frozen random network says of a sight. Its error is small where it has been
often. The bonus of a decision is that of the sight it was made at,

    b = coef * e(s) / sd,      e(s) = mean_j (predictor_j(s) - target_j(s))^2

sd being the deviation of all errors so far. It stands apart from the world's own reward on the tape, and only
the advantages see it: outcomes, scoreboards and returns never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learners.adam import Adam
from rematch.agents.networks import fused
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import named
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Floats, Tree
from rematch.core.config import knob
from rematch.core.spec import Actions, Role
from rematch.rollout.rollout_buffer import Tape

MAGNET_ALONE = (0.0, 0.0, 0.0, 0.0, 1.0)  # of the terms of agents/learners/ppo.py


@dataclass(frozen=True, kw_only=True)
class RndConfig:
    """The bonus for what is new."""

    coef: float = knob(0.0, "weight of the bonus for what is new; 0 is off", low=0)
    hidden: int = knob(128, "width of both hidden layers", low=1, high=4096, needs="coef")
    embed: int = knob(64, "numbers to be predicted", low=1, high=4096, needs="coef")
    update_every: int = knob(
        256, "the predictor makes a gradient step per so many decisions, over them", low=1, needs="coef"
    )
    lr: float = knob(1e-3, "learning rate of the predictor", low=0, needs="coef")
    roles: str = knob("last", "who is curious: the last role, or all", choices=("last", "all"), needs="coef")


class Deviation:
    """The running standard deviation of everything met so far (Welford 1962; batches: Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        n, mean = len(values), float(values.mean())
        total, apart = self.count + n, mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + apart**2 * self.count * n / total
        self.mean += apart * n / total
        self.count = total

    def __float__(self) -> float:
        return float(np.sqrt(self.squares / max(self.count, 1)))


class Distilled:
    """What a distillation keeps with a run, of decisions or of pictures."""

    predictor: Policy
    adam: Adam
    deviation: Deviation

    def state(self) -> Tree:
        """The target follows from the seed."""
        d = self.deviation
        seen = {"count": d.count, "mean": d.mean, "squares": d.squares}
        return {"predictor": self.predictor.weights, "deviation": seen} | self.adam.state()

    def restore(self, tree: Tree) -> None:
        self.predictor.set(tree["predictor"])
        self.adam.restore(tree)
        for name, value in tree["deviation"].items():
            setattr(self.deviation, name, value)


class Rnd(Distilled):
    """One role's bonus. Both networks see all fields side by side; columns that name things are looked up."""

    def __init__(self, config: RndConfig, role: Role, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        numbers = Actions(kind="continuous", names=tuple(f"e{i}" for i in range(config.embed)))
        about = replace(role, actions=numbers)
        shape = NetworkConfig(hidden=(config.hidden, config.hidden), activation="relu", log_std=0.0)
        self.target, self.predictor = (Policy(about, shape, name) for name in ("target", "predictor"))
        for index, network in enumerate((self.target, self.predictor)):
            network.initialise(rng.key(seed, rng.RND, index))
            head = named(network.weights, network.layout)["policy.head.weight"]
            head *= 100.0  # a policy's head begins at a hundredth
            network.set(network.weights)
        self.adam = Adam(self.predictor.weights.size)
        self.grad: Floats = np.empty_like(self.predictor.weights)
        self.deviation = Deviation()

    def score(self, tape: Tape, iteration: int) -> dict[str, float]:
        """Put the bonus of the learner's decisions beside the rewards, then learn from their sights.

        The whole tape is scored before the predictor moves: within an update nothing is new only because it
        came first. Means are told per step of the games in which the learner sits.
        """
        track = tape[self.role.name]
        mine = track.slot == 0
        rows = np.flatnonzero(mine & (track.acted != 0))
        track.bonus = np.zeros_like(track.reward)
        if len(rows) == 0:
            return {}
        sight = track.sight.reshape(-1, self.role.size)[rows]
        target = self.target.forward(sight)[0]
        error = ((self.predictor.forward(sight)[0].astype(np.float64) - target) ** 2).mean(1)
        self.deviation.add(error)
        bonus = self.config.coef * error / max(float(self.deviation), 1e-8)
        track.bonus.reshape(-1)[rows] = bonus
        self._learn(sight, target, iteration)
        given, added = (float(x[mine].mean(dtype=np.float64)) for x in (track.reward, track.bonus))
        return {"rnd_intrinsic": added, "rnd_extrinsic": given, "rnd_total": given + added}

    def _learn(self, sight: Floats, target: Floats, iteration: int) -> None:
        """A shuffled pass over the sights [n, F].

        Of two Gaussians with equal deviation 1 the divergence KL is half the squared distance of their means:
        the magnet's term of the fused gradient, alone, is the gradient of the predictor's error.
        """
        n, size = self.config.update_every, self.config.embed
        order = rng.generator(self.seed, rng.RND, 2, iteration).permutation(len(sight))
        none, still = np.zeros(n, np.float32), np.zeros((n, size), np.float32)
        std = np.zeros(size, np.float32)
        for at in range(0, len(order), n):
            rows = order[at : at + n]
            m = len(rows)
            batch = {"sight": sight[rows], "magnet": target[rows], "magnet_log_std": std, "action": still[:m]}
            batch |= dict.fromkeys(("logp", "advantage", "target", "value"), none[:m])
            net = self.predictor.network
            assert isinstance(net, fused.Network), "its own network has no encoder"
            net.gradient(self.predictor.packed[0], np.arange(m), batch, MAGNET_ALONE, 1, self.grad)
            self.adam.step(self.predictor, self.grad, self.config.lr)


def curious(config: RndConfig, roles: Sequence[Role], seed: int) -> dict[str, Rnd]:
    """The bonus of each role that has one; none where it is off."""
    if not config.coef:
        return {}
    last = len(roles) - 1
    return {
        role.name: Rnd(config, role, seed << 8 | i)
        for i, role in enumerate(roles)
        if config.roles == "all" or i == last
    }
