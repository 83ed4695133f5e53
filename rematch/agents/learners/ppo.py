"""Proximal policy optimization (Schulman et al. 2017).

`learn` is the algorithm. ppo_loss.py is its objective in torch, one line per term. The default gradient comes
from agents/networks/fused.h, which computes the same in one pass over memory; tests compare it with the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learner import AgentSet, Learner, MakeWorld, Regularizer, TermInfo
from rematch.agents.learners.adam import Adam
from rematch.agents.networks import fused
from rematch.agents.networks.layout import HEAD, weight_views
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import ANNEALING_SHAPES, anneal
from rematch.core.arrays import Floats, Tree, aligned_zeros
from rematch.core.component import Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.spec import Spec
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

Batch = dict[str, NDArray[Any]]
CHUNK = 1024  # rows per call of torch.autograd


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """Proximal policy optimization: hyperparameters of each role's updates."""

    lr: float = knob(1e-3, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end", low=0, high=10, needs="anneal=linear|cosine")
    entropy_weight: float = knob(0.01, "weight of the entropy bonus at the start", low=0, high=1000)
    entropy_weight_final: float = knob(
        0.001, "weight of the entropy bonus at the end", low=0, high=1000, needs="anneal=linear|cosine"
    )
    temperature: float = knob(
        1.0, "softmax temperature at the start: logits are divided by it in training games and in the loss",
        low=0.01, high=100,
    )  # fmt: skip
    temperature_final: float = knob(
        1.0, "softmax temperature at the end", low=0.01, high=100, needs="anneal=linear|cosine"
    )
    anneal: str = knob(
        "linear", "schedule of learning rate, entropy weight and temperature from start to end; linear: "
        "straight line; cosine: half a cosine wave; none: the values of the start stay",
        choices=ANNEALING_SHAPES,
    )  # fmt: skip
    magnet_weight: float = knob(
        0.0, "weight of the penalty KL(policy || magnet), where the magnet is a slow average of the policy "
        "(Sokota et al. 2023); 0: off", low=0, high=1000,
    )  # fmt: skip
    magnet_decay: float = knob(
        0.99, "decay of the magnet's moving average, per iteration", low=0, high=1, needs="magnet_weight"
    )
    average_fraction: float = knob(
        0.0, "last fraction of the run whose mean weights become the final policy; 0: the newest weights "
        "are final", unit="fraction", low=0, high=1,
    )  # fmt: skip
    gamma: float = knob(0.995, "discount factor per decision", low=0, high=1)
    gae_lambda: float = knob(0.95, "lambda of generalized advantage estimation", low=0, high=1)
    epochs: int = knob(4, "passes over each rollout", unit="epochs", low=1)
    minibatch_size: int = knob(8192, "decisions per gradient step", unit="decisions", low=1)
    clip: float = knob(
        0.2, "clip range of the probability ratio: its gradient is 0 outside 1 +- this value", low=0
    )
    value_weight: float = knob(0.5, "weight of the value loss (squared error)", low=0, high=1000)
    value_clip: float = knob(0.0, "clip range of the value's change per iteration; 0: no clipping", low=0)
    max_grad_norm: float = knob(
        0.5, "largest norm of a gradient; longer gradients are scaled to it; 0: no limit", low=0
    )
    target_kl: float = knob(
        0.0, "target KL divergence: the epochs of an iteration end early above 1.5 times this value; 0: no "
        "limit", low=0,
    )  # fmt: skip
    gradient: str = knob(
        "native", "implementation of the gradient; native: compiled C; torch: PyTorch autograd, always used "
        "for a network with an encoder", choices=("native", "torch"),
    )  # fmt: skip


class Ppo(Learner):
    """The learner of one role. Its state: weights, Adam's two moments, the magnet, optionally a mean."""

    name = "ppo"
    Config = PpoConfig
    trains_policy = True
    evaluation_every = 2

    def __init__(self, policy: Policy, config: PpoConfig, seed: int, threads: int) -> None:
        self.policy, self.config, self.seed, self.threads = policy, config, seed, threads
        self.native = config.gradient == "native" and isinstance(policy.network, fused.Network)
        self.rate = self.temperature = 1.0
        self.adam = Adam(policy.weights.size)
        self.grad: Floats = np.empty_like(policy.weights)
        self.magnet: Floats = policy.weights.copy()
        self.mean: Floats = policy.weights.copy()  # of the last `averaged` iterations
        self.averaged = 0
        self.regularizers: list[Regularizer] = []
        self.value_only = False  # only the weights named value.* learn

    @classmethod
    def check(cls, config: PpoConfig, setup: Setup) -> None:
        network = setup.config.network
        if (config.temperature, config.temperature_final) != (1.0, 1.0):
            for role in setup.spec.roles.values():
                if role.actions.kind != "discrete":
                    raise ConfigError(f"ppo.temperature = {config.temperature:g}: the actions of "
                                      f"{role.name} are continuous; expected 1")
        if config.average_fraction and setup.config.schedule.convergence_consecutive:
            raise ConfigError(f"ppo.average_fraction = {config.average_fraction:g}: convergence is judged on "
                              "the current weights, not on their average; expected 0, or "
                              "schedule.convergence_consecutive 0")
        if network.module and {config.temperature, config.temperature_final} != {1.0}:
            raise ConfigError(
                f"ppo.temperature = {config.temperature:g}: not with network.module, whose last "
                "layer is unknown; expected 1"
            )
        if network.in_torch and config.gradient != "native":
            raise ConfigError(f"ppo.gradient = {config.gradient}: no effect with this network, whose "
                              "gradient is always computed by torch; expected native")

    @classmethod
    def shrink(cls, config: PpoConfig, small: SmallRun) -> Mapping[str, Any]:
        minibatch = max(1, min(config.minibatch_size, small.steps_per_iteration // 4))
        # Phases may end a short trial early: average all of its iterations.
        average = 1.0 if config.average_fraction else 0.0
        return {"epochs": min(config.epochs, 2), "minibatch_size": minibatch, "average_fraction": average,
                "value_clip": min(config.value_clip, 1e-3), "target_kl": min(config.target_kl, 1e-7)}

    @classmethod
    def uses_torch(cls, config: RunConfig) -> bool:
        return bool(config.network.in_torch or config.ppo.gradient == "torch")

    @classmethod
    def build(
        cls, config: RunConfig, spec: Spec, make: MakeWorld, terms: Sequence[TermInfo] = ()
    ) -> AgentSet:
        kind, learners = cls.on_device(config, spec), dict[str, Learner]()
        for r, (name, role) in enumerate(spec.roles.items()):
            policy = kind.policy_class(role, config.network, f"{name} (learnt)")
            policy.initialise(config.seed << 8 | r)
            learners[name] = kind(policy, config.ppo, config.seed << 8 | r, config.threads)
        policies = {role: learner.policy for role, learner in learners.items()}
        return AgentSet(learners=learners, players=dict(policies), networks=policies)

    @classmethod
    def needs_cpu(cls, config: RunConfig, spec: Spec) -> str:
        return ""

    @classmethod
    def in_kernels(cls, config: RunConfig, spec: Spec) -> bool:
        from rematch.agents.networks.cuda_network import cannot_compute

        c = config.ppo
        plain = c.gradient == "native" and {c.temperature, c.temperature_final} == {1.0}
        plain = plain and not config.ewc.weight
        return plain and not any(cannot_compute(role, config.network) for role in spec.roles.values())

    @classmethod
    def on_device(cls, config: RunConfig, spec: Spec) -> type[Ppo]:
        """The class of the learners: of the CPU, or of the GPU."""
        if config.device == "cpu":
            return cls
        if cls.in_kernels(config, spec):
            from rematch.agents.learners.cuda_ppo import CudaPpo

            return CudaPpo
        from rematch.agents.learners.torch_ppo import TorchPpo

        return TorchPpo

    @classmethod
    def gpu_acting(cls, config: RunConfig, spec: Spec) -> Any:
        if cls.in_kernels(config, spec):
            from rematch.agents.networks.cuda_acting import CudaRoleActing

            return CudaRoleActing
        from rematch.agents.networks.torch_acting import TorchRoleActing

        return TorchRoleActing

    def load_weights(self, policy: Policy) -> None:
        self.policy.set(policy.weights)
        self.magnet[:] = policy.weights

    def evidence(self, record: Record) -> Iterable[Evidence]:
        c, role = self.config, self.policy.role.name
        rows = [row for row in record.metrics if row.get(f"{role}/decisions")]
        planned = [c.epochs * math.ceil(row[f"{role}/decisions"] / c.minibatch_size) for row in rows]
        early = sum(row[f"{role}/updates"] < n for row, n in zip(rows, planned))
        temperatures = [row[f"{role}/temperature"] for row in rows]
        nll = [row[f"{role}/belief_nll"] for row in rows if f"{role}/belief_nll" in row]
        kl = max((row.get(f"{role}/magnet_kl", 0.0) for row in rows), default=0.0)
        averaged = bool(self.averaged) and np.array_equal(self.policy.weights, self.mean)
        not_learning = "ppo.lr is 0" if c.lr == 0 and (c.lr_final == 0 or c.anneal == "none") else ""
        network = self.policy.config
        changed = f"from {temperatures[0]:.2f} to {temperatures[-1]:.2f}" if set(temperatures) - {1.0} else ""
        yield Evidence(f"temperature of {role}", changed,
                       "" if {c.temperature, c.temperature_final} != {1.0} else "ppo.temperature is 1")
        belief = f"negative log-likelihood {nll[0]:.2f}, then {nll[-1]:.2f}" if nll else ""
        yield Evidence(f"belief of {role}", belief,
                       "" if network.encoder == "bimdn" else f"network.encoder is {network.encoder}")
        yield Evidence(f"magnet of {role}", f"KL to the slow average up to {kl:.2g}" if kl > 0 else "",
                       not_learning if c.magnet_weight else "ppo.magnet_weight is 0")
        average = f"the player is the mean of the last {self.averaged} iterations" if averaged else ""
        yield Evidence(f"average of {role}", average,
                       not_learning if c.average_fraction else "ppo.average_fraction is 0")
        yield Evidence("value clipping", off=not_learning if c.value_clip else "ppo.value_clip is 0",
                       without={"ppo.value_clip": 0.0})
        yield Evidence(f"target KL of {role}", f"{early} iterations ended early" if early else "",
                       not_learning if c.target_kl else "ppo.target_kl is 0")

    def state_dict(self) -> Tree:
        mean = {"mean": self.mean, "averaged": self.averaged} if self.config.average_fraction else {}
        return {"weights": self.policy.weights, "magnet": self.magnet} | mean | self.adam.state()

    def load_state_dict(self, tree: Tree) -> None:
        self.policy.set(tree["weights"])
        self.magnet[:] = tree["magnet"]
        if self.config.average_fraction:
            self.mean[:], self.averaged = tree["mean"], int(tree["averaged"])
        self.adam.restore(tree)

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """One iteration: advantages once, then `epochs` shuffled passes of minibatches."""
        c = self.config
        lr = anneal(c.anneal, c.lr, c.lr_final, progress) * self.rate
        entropy_weight = anneal(c.anneal, c.entropy_weight, c.entropy_weight_final, progress)
        self.temperature = anneal(c.anneal, c.temperature, c.temperature_final, progress)
        batch, index = self.batch(rollout)
        if len(index) == 0:
            return {"decisions": 0.0}
        if not all(np.isfinite(batch[name][index]).all() for name in ("logp", "target")):
            raise LearnError(self._non_finite_message(batch, index))  # the clip would hide it
        sums: dict[str, float] = {}
        steps, stop = 0, False
        for epoch in range(c.epochs):
            order = rng.permutation(index, self.seed, rng.SHUFFLE, epoch, iteration)
            for at in range(0, len(order), c.minibatch_size):
                rows = order[at : at + c.minibatch_size]
                grad, means = self.gradient(batch, rows, entropy_weight)
                for regularizer in self.regularizers:  # before clipping, which bounds the whole step
                    means[f"{regularizer.name}_penalty"], chunk_gradient = regularizer.penalty(self.policy)
                    grad = grad + chunk_gradient
                norms = self.step(grad, lr)
                if not norms:
                    raise LearnError(self._non_finite_message(batch, index))
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
            raise LearnError(self._non_finite_message(batch, index))
        if c.magnet_weight > 0:
            self.magnet += np.float32(1 - c.magnet_decay) * (self.policy.weights - self.magnet)
        if c.average_fraction > 0:
            self.averaged = self.averaged + 1 if progress > 1 - c.average_fraction - 1e-9 else 0
            self.mean += (self.policy.weights - self.mean) / np.float32(max(1, self.averaged))
        out = {name: value / steps for name, value in sums.items()}
        target = batch["target"][index]
        residual = float(np.var(target - batch["value"][index]))
        out["explained_variance"] = 1.0 - residual / max(float(np.var(target)), 1e-12)
        out |= {"lr": lr, "entropy_weight": entropy_weight, "temperature": self.temperature}
        if c.average_fraction > 0:
            out["averaged"] = float(self.averaged)
        return out | {"updates": float(steps), "decisions": float(len(index))}

    def finish(self) -> str:
        """Set the policy to the mean of the last iterations: it is nearer to an equilibrium than they are."""
        if not self.config.average_fraction:
            return ""
        role = self.policy.role.name
        if not self.averaged:
            share = f"{self.config.average_fraction:.3%}"
            return f"Average: {role} keeps its newest weights: no iteration in the last {share} of the run"
        self.policy.set(self.mean)
        return f"Average: {role} is the mean of its last {self.averaged} iterations"

    def step(self, grad: Floats, lr: float) -> dict[str, float]:
        """One step of Adam with a clipped gradient; its norms before and after clipping.

        {} and no step where the gradient is not finite. Frozen weights do not change.
        """
        self.policy.zero_frozen_gradients(grad)
        if self.value_only:
            for name, view in weight_views(grad, self.policy.layout).items():
                if not name.startswith("value."):
                    view[:] = 0.0
        before, after = self.adam.clipped_step(self.policy, grad, lr, self.config.max_grad_norm)
        if not np.isfinite(before):
            return {}
        return {"grad_norm_pre_clip": before, "grad_norm_post_clip": after}

    def acting(self, progress: float) -> Floats:
        """The weights to act with while training."""
        c = self.config
        temperature = anneal(c.anneal, c.temperature, c.temperature_final, progress)
        return self.policy.weights if temperature == 1.0 else self.policy.with_temperature(temperature)

    def batch(self, rollout: RolloutBuffer) -> tuple[Batch, NDArray[np.int64]]:
        """The role's rollout as flat rows [M, ...], and the rows that are decisions of the learner."""
        c, role_rollout = self.config, rollout[self.policy.role.name]
        advantage, target, counts = rollout.advantages(self.policy.role.name, c.gamma, c.gae_lambda)
        index = np.flatnonzero(counts)
        flat = advantage.reshape(-1)
        if len(index):
            learner = flat[index].astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):  # `_non_finite_message` reports it
                flat = ((flat - learner.mean()) / (learner.std() + 1e-8)).astype(np.float32)
        size, host = flat.size, role_rollout.host
        action = host("action")
        batch: Batch = {
            "obs": host("obs").reshape(size, -1), "logp": host("logp").reshape(size),
            "value": host("value").reshape(size), "advantage": flat, "target": target.reshape(size),
            "action": action.reshape((size,) if action.ndim == 3 else (size, -1)),
        }
        if role_rollout.mask is not None:
            batch["mask"] = host("mask").reshape(size, -1)
        if role_rollout.privileged is not None:
            batch["privileged"] = host("privileged").reshape(size, -1)
        if c.magnet_weight > 0:
            magnet = Policy(self.policy.role, self.policy.config, "magnet", self.magnet)
            batch["magnet"] = magnet.heads(batch["obs"], counts.reshape(size).view(np.uint8))
            if self.temperature != 1.0:
                batch["magnet"] /= np.float32(self.temperature)
            if "policy.log_std" in (views := weight_views(magnet.weights, magnet.layout)):
                batch["magnet_log_std"] = views["policy.log_std"]
        return batch, index

    def gradient(
        self, batch: Batch, rows: NDArray[np.int64], entropy_weight: float
    ) -> tuple[Floats, dict[str, float]]:
        """The gradient [P] of the mean loss over `rows`, and the logged means."""
        c = self.config
        net = self.policy.network
        if self.native and isinstance(net, fused.Network):
            grad = self.grad
            weights = (c.clip, c.value_clip, c.value_weight, entropy_weight, c.magnet_weight)
            if self.temperature == 1.0:
                return grad, net.gradient(self.policy.packed[0], rows, batch, weights, self.threads, grad)
            # The head is divided by the temperature, and so is its gradient.
            packed = aligned_zeros(self.policy.packed.shape)
            net.pack(self.policy.with_temperature(self.temperature)[None], packed)
            means = net.gradient(packed[0], rows, batch, weights, self.threads, grad)
            for name in HEAD:
                weight_views(grad, self.policy.layout)[name] /= np.float32(self.temperature)
            return grad, means
        return self._autograd(batch, rows, entropy_weight)

    def _autograd(
        self, batch: Batch, rows: NDArray[np.int64], entropy_weight: float
    ) -> tuple[Floats, dict[str, float]]:
        """`gradient` by torch: chunks of rows, one thread each, added in order, as in fused.h."""
        import torch

        from rematch.agents.learners.ppo_loss import loss

        device = self.policy.config.device

        def chunk_gradient(chunk: NDArray[np.int64]) -> tuple[Floats, dict[str, float]]:
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
            return chunk_gradient(rows)
        with ThreadPoolExecutor(min(self.threads, len(chunks))) as pool:
            results = list(pool.map(chunk_gradient, chunks))
        grad: Floats = np.sum([part for part, _ in results], axis=0)
        return grad, {name: sum(means[name] for _, means in results) for name in results[0][1]}

    def _non_finite_message(self, batch: Batch, index: NDArray[np.int64]) -> str:
        """An error message with the first array that is not finite, causes before consequences."""
        role = self.policy.role.name
        if not np.isfinite(self.policy.weights).all():
            return f"{role}: weights are not finite after update {self.adam.updates}"
        for name, meaning in (
            ("obs", "an observation"), ("privileged", "a privileged field"), ("action", "an action"),
            ("target", "a reward or value"), ("logp", "a log-probability"), ("advantage", "an advantage"),
        ):  # fmt: skip
            if name not in batch:
                continue
            bad = ~np.isfinite(batch[name][index].astype(np.float64))
            if bad.any():
                row, *column = np.argwhere(bad)[0].tolist()
                where = f", column {self.policy.role.columns[column[0]]}" if name == "obs" else ""
                return f"{role}: {meaning} is not finite (decision {row} of {len(index)}{where})"
        return f"{role}: the gradient is not finite at update {self.adam.updates}, though all inputs are"
