"""Proximal policy optimisation (Schulman et al. 2017), whole, in the order it happens.

`learn` is the algorithm. `loss` is its objective in torch, one line per term; the default gradient comes
from agents/networks/fused.h, which computes the same in one pass over memory, and which the tests hold to
`loss`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learners.adam import Adam
from rematch.agents.networks import fused
from rematch.agents.networks.layout import HEAD, named, opponent
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import ANNEALING_SHAPES, anneal
from rematch.core.arrays import Floats, Tree
from rematch.core.config import knob
from rematch.core.errors import LearnError
from rematch.rollout.rollout_buffer import Tape

if TYPE_CHECKING:
    from torch import Tensor

Batch = dict[str, NDArray[Any]]
CHUNK = 1024  # rows that torch differentiates at a time


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """How a role learns from a tape."""

    lr: float = knob(1e-3, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end", low=0, needs="anneal=linear|cosine")
    entropy: float = knob(0.01, "weight of the entropy bonus at the start", low=0)
    entropy_final: float = knob(
        0.001, "weight of the entropy bonus at the end", low=0, needs="anneal=linear|cosine"
    )
    temperature: float = knob(
        1.0, "logits are divided by it, in acting while training and in the update, at the start", low=0.01,
        high=100,
    )  # fmt: skip
    temperature_final: float = knob(
        1.0, "the same at the end", low=0.01, high=100, needs="anneal=linear|cosine"
    )
    anneal: str = knob(
        "linear", "how rate, entropy and temperature go from start to end", choices=ANNEALING_SHAPES
    )
    magnet: float = knob(0.0, "weight of KL(policy || its own slow average); 0 is off", low=0)
    magnet_decay: float = knob(
        0.99, "how much of that average stays per iteration", low=0, high=1, needs="magnet"
    )
    average: float = knob(
        0.0, "share of the training, its last, whose mean weights are the player at the end; 0 is off", low=0,
        high=1,
    )  # fmt: skip
    gamma: float = knob(0.995, "discount per decision", low=0, high=1)
    lam: float = knob(0.95, "lambda of the generalised advantages", low=0, high=1)
    epochs: int = knob(4, "passes over a tape", low=1)
    minibatch: int = knob(8192, "decisions in one gradient step", low=1)
    clip: float = knob(0.2, "how far the ratio may move before its gradient stops", low=0)
    value: float = knob(0.5, "weight of the squared value error", low=0)
    value_clip: float = knob(0.0, "how far a value may move in one iteration; 0 is off", low=0)
    max_grad_norm: float = knob(0.5, "longer gradients are scaled down to this length; 0 is off", low=0)
    target_kl: float = knob(0.0, "an iteration ends early beyond 1.5 times this divergence; 0 is off", low=0)
    gradient: str = knob(
        "native", "who computes it: fused C, or torch's autograd (always, for a network with an encoder)",
        choices=("native", "torch"),
    )  # fmt: skip


class Guard(Protocol):
    """Protects what was learnt by a penalty while learning."""

    name: str

    def penalty(self, policy: Policy) -> tuple[float, Floats]:
        """The penalty on the policy's weights, and its gradient [P]."""


def loss(
    policy: Policy, config: PpoConfig, flat: Tensor, rows: Batch, entropy_weight: float,
    temperature: float = 1.0,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """The objective of one minibatch under weights `flat`, and the means that are logged."""
    import torch

    from rematch.agents.networks import mlp

    b = {name: torch.from_numpy(array).to(flat.device) for name, array in rows.items()}
    told = b.get("dropout" if policy.config.kind == "transformer" else "aside")
    said = mlp.answer(flat, policy.role, policy.config, b["sight"], b.get("mask"), told)
    play, value = said.play, said.value
    assert value is not None
    if temperature != 1.0:  # the policy that acted, so that the ratio is that of two such policies
        play = mlp.Distribution(play.heads / temperature, play.log_std)
    log_ratio = play.log_prob(b["action"]) - b["logp"]
    ratio = log_ratio.exp()
    # eq. 7: the smaller of the plain and the clipped surrogate
    plain = ratio * b["advantage"]
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip) * b["advantage"]
    policy_loss = -torch.minimum(plain, clipped).mean()
    error = (value - b["target"]) ** 2
    if config.value_clip > 0:
        near = b["value"] + (value - b["value"]).clamp(-config.value_clip, config.value_clip)
        error = torch.maximum(error, (near - b["target"]) ** 2)
    value_loss = error.mean()
    entropy = play.entropy().mean()
    total = policy_loss + config.value * value_loss - entropy_weight * entropy
    magnet_kl = torch.zeros((), device=flat.device)
    if "magnet" in b:
        centre = mlp.Distribution(mlp.masked(b["magnet"], b.get("mask")), b.get("magnet_log_std"))
        magnet_kl = play.kl(centre).mean()
        total = total + config.magnet * magnet_kl
    means = {
        "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "magnet_kl": magnet_kl,
        "kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > config.clip).float().mean(),
    }  # fmt: skip
    if said.belief is not None:  # bimdn is taught where the opponent is
        means["belief_nll"] = said.belief.nll(b["aside"][:, opponent(policy.role)]).mean()
        total = total + policy.config.belief_weight * means["belief_nll"]
    return total, means


class Ppo:
    """Learns one role. Its state is vectors: weights, Adam's two moments, the magnet, a mean if asked for."""

    def __init__(self, policy: Policy, config: PpoConfig, seed: int, threads: int) -> None:
        self.policy, self.config, self.seed, self.threads = policy, config, seed, threads
        self.native = config.gradient == "native" and isinstance(policy.network, fused.Network)
        self.rate = self.temperature = 1.0
        self.adam = Adam(policy.weights.size)
        self.grad: Floats = np.empty_like(policy.weights)
        self.magnet: Floats = policy.weights.copy()
        self.mean: Floats = policy.weights.copy()  # of the last `averaged` iterations
        self.averaged = 0
        self.guard: Guard | None = None

    def state(self) -> Tree:
        mean = {"mean": self.mean, "averaged": self.averaged} if self.config.average else {}
        return {"weights": self.policy.weights, "magnet": self.magnet} | mean | self.adam.state()

    def restore(self, tree: Tree) -> None:
        self.policy.set(tree["weights"])
        self.magnet[:] = tree["magnet"]
        if self.config.average:
            self.mean[:], self.averaged = tree["mean"], int(tree["averaged"])
        self.adam.restore(tree)

    def learn(self, tape: Tape, progress: float, iteration: int) -> dict[str, float]:
        """One iteration: advantages once, then `epochs` shuffled passes of minibatches."""
        c = self.config
        lr = anneal(c.anneal, c.lr, c.lr_final, progress) * self.rate
        entropy_weight = anneal(c.anneal, c.entropy, c.entropy_final, progress)
        self.temperature = anneal(c.anneal, c.temperature, c.temperature_final, progress)
        batch, index = self.batch(tape)
        if len(index) == 0:
            return {"decisions": 0.0}
        if not all(np.isfinite(batch[name][index]).all() for name in ("logp", "target")):
            raise LearnError(self._blame(batch, index))  # the clip would hide it from the gradient
        sums: dict[str, float] = {}
        steps, stop = 0, False
        for epoch in range(c.epochs):
            order = rng.generator(self.seed, rng.SHUFFLE, epoch, iteration).permutation(index)
            for at in range(0, len(order), c.minibatch):
                rows = order[at : at + c.minibatch]
                grad, means = self.gradient(batch, rows, entropy_weight)
                if self.guard is not None:  # before the clip: it bounds the whole step
                    means[f"{self.guard.name}_penalty"], slope = self.guard.penalty(self.policy)
                    grad = grad + slope
                norms = self.step(grad, lr)
                if not norms:
                    raise LearnError(self._blame(batch, index))
                means |= norms
                steps += 1
                for name, value in means.items():
                    sums[name] = sums.get(name, 0.0) + value
                stop = c.target_kl > 0 and means["kl"] > 1.5 * c.target_kl
                if stop:
                    break
            if stop:
                break
        if not np.isfinite(self.policy.weights).all():
            raise LearnError(self._blame(batch, index))
        if c.magnet > 0:
            self.magnet += np.float32(1 - c.magnet_decay) * (self.policy.weights - self.magnet)
        if c.average > 0:
            self.averaged = self.averaged + 1 if progress > 1 - c.average - 1e-9 else 0
            self.mean += (self.policy.weights - self.mean) / np.float32(max(1, self.averaged))
        out = {name: value / steps for name, value in sums.items()}
        target = batch["target"][index]
        residual = float(np.var(target - batch["value"][index]))
        out["explained_variance"] = 1.0 - residual / max(float(np.var(target)), 1e-12)
        out |= {"lr": lr, "entropy_weight": entropy_weight, "temperature": self.temperature}
        if c.average > 0:
            out["averaged"] = float(self.averaged)
        return out | {"updates": float(steps), "decisions": float(len(index))}

    def finish(self) -> str:
        """Training is over. Policies that circle an equilibrium lie around it: their mean is nearer to it."""
        if not self.averaged:
            return f"as it was left: no iteration lay in its training's last {self.config.average:.3%}"
        self.policy.set(self.mean)
        return f"the mean of its last {self.averaged} iterations"

    def step(self, grad: Floats, lr: float) -> dict[str, float]:
        """Adam along a gradient that is shortened where it is too long; its length before and after.

        Nothing where it is not finite. What does not learn is taken out of it.
        """
        self.policy.hold(grad)
        before, after = self.adam.descend(self.policy, grad, lr, self.config.max_grad_norm)
        if not np.isfinite(before):
            return {}
        return {"grad_norm_pre_clip": before, "grad_norm_post_clip": after}

    def acting(self, progress: float) -> Floats:
        """The weights to act with while training."""
        c = self.config
        temperature = anneal(c.anneal, c.temperature, c.temperature_final, progress)
        return self.policy.weights if temperature == 1.0 else self.policy.tempered(temperature)

    def batch(self, tape: Tape) -> tuple[Batch, NDArray[np.int64]]:
        """The role's track as flat rows [M, ...], and which of them are the learner's own decisions."""
        c, track = self.config, tape[self.policy.role.name]
        advantage, target, counts = tape.advantages(self.policy.role.name, c.gamma, c.lam)
        index = np.flatnonzero(counts)
        flat = advantage.reshape(-1)
        if len(index):
            mine = flat[index].astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is named by `_blame`
                flat = ((flat - mine.mean()) / (mine.std() + 1e-8)).astype(np.float32)
        size = flat.size
        batch: Batch = {
            "sight": track.sight.reshape(size, -1), "logp": track.logp.reshape(size),
            "value": track.value.reshape(size), "advantage": flat, "target": target.reshape(size),
            "action": track.action.reshape((size,) if track.action.ndim == 3 else (size, -1)),
        }
        if track.mask is not None:
            batch["mask"] = track.mask.reshape(size, -1)
        if track.aside is not None:
            batch["aside"] = track.aside.reshape(size, -1)
        if c.magnet > 0:
            centre = Policy(self.policy.role, self.policy.config, "magnet", self.magnet)
            batch["magnet"] = centre.forward(batch["sight"])[0]
            if self.temperature != 1.0:
                batch["magnet"] /= np.float32(self.temperature)
            if "policy.log_std" in (views := named(centre.weights, centre.layout)):
                batch["magnet_log_std"] = views["policy.log_std"]
        return batch, index

    def gradient(
        self, batch: Batch, rows: NDArray[np.int64], entropy_weight: float
    ) -> tuple[Floats, dict[str, float]]:
        """The gradient [P] of the mean loss over `rows`, and the means that are logged."""
        c = self.config
        net = self.policy.network
        if self.native and isinstance(net, fused.Network):
            grad = self.grad
            weights = (c.clip, c.value_clip, c.value, entropy_weight, c.magnet)
            if self.temperature == 1.0:
                return grad, net.gradient(self.policy.packed[0], rows, batch, weights, self.threads, grad)
            packed = np.empty_like(self.policy.packed)  # the head divided: so is the slope of what it was
            net.pack(self.policy.tempered(self.temperature)[None], packed)
            means = net.gradient(packed[0], rows, batch, weights, self.threads, grad)
            for name in HEAD:
                named(grad, self.policy.layout)[name] /= np.float32(self.temperature)
            return grad, means
        return self._autograd(batch, rows, entropy_weight)

    def _autograd(
        self, batch: Batch, rows: NDArray[np.int64], entropy_weight: float
    ) -> tuple[Floats, dict[str, float]]:
        """`gradient` by torch: chunks of rows, each on one thread, added in order, as in
        agents/networks/fused.h."""
        import torch

        device = self.policy.config.device

        def slope(chunk: NDArray[np.int64]) -> tuple[Floats, dict[str, float]]:
            torch.set_num_threads(1)  # of the calling thread
            flat = torch.from_numpy(self.policy.weights.copy()).to(device).requires_grad_()
            part = {name: a if name == "magnet_log_std" else a[chunk] for name, a in batch.items()}
            if self.policy.config.kind == "transformer":
                key = rng.key(self.seed, rng.DROPOUT, int(chunk[0]), self.adam.updates)
                part["dropout"] = np.array(key >> 1, np.int64)
            total, tensors = loss(
                self.policy, self.config, flat, part, entropy_weight, self.temperature
            )
            share = len(chunk) / len(rows)  # every term of the loss is a mean over rows
            (out,) = torch.autograd.grad(total * share, flat)
            return out.cpu().numpy(), {name: float(value.detach()) * share for name, value in tensors.items()}

        size = CHUNK if device == "cpu" else len(rows)
        chunks = [rows[at : at + size] for at in range(0, len(rows), size)]
        if len(chunks) == 1:
            return slope(rows)
        with ThreadPoolExecutor(min(self.threads, len(chunks))) as pool:
            found = list(pool.map(slope, chunks))
        grad: Floats = np.sum([part for part, _ in found], axis=0)
        return grad, {name: sum(means[name] for _, means in found) for name in found[0][1]}

    def _blame(self, batch: Batch, index: NDArray[np.int64]) -> str:
        """What was not a number, named from the first cause to the last."""
        role = self.policy.role.name
        if not np.isfinite(self.policy.weights).all():
            return f"{role}: weights are not finite after update {self.adam.updates}"
        for name, meaning in (
            ("sight", "an observation"), ("aside", "a field aside"), ("action", "an action"),
            ("target", "a reward or value"), ("logp", "a log-probability"), ("advantage", "an advantage"),
        ):  # fmt: skip
            if name not in batch:
                continue
            bad = ~np.isfinite(batch[name][index].astype(np.float64))
            if bad.any():
                row, *column = np.argwhere(bad)[0].tolist()
                where = f", column {self.policy.role.columns[column[0]]}" if name == "sight" else ""
                return f"{role}: {meaning} is not finite (decision {row} of {len(index)}{where})"
        return f"{role}: the gradient is not finite at update {self.adam.updates}, though all inputs are"
