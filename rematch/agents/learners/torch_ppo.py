"""Proximal policy optimization on the GPU for every network that torch computes: the loss of ppo_loss.py.

Two CUDA graphs make an iteration: one computes advantages and the order of all minibatches; the other one is
a minibatch, from the choice of its rows to the step of Adam, and is replayed for each. The host waits for the
number of decisions and for the results. Minibatches after the target KL was reached change nothing. All sums
have a fixed order: a resumed run has the same bits on the same card.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rematch.agents.learners.gpu_ppo import GpuPpo
from rematch.agents.learners.gradient_step.minibatch_kernels import MinibatchKernels, RowKernels, columns
from rematch.agents.learners.gradient_step.two_towers import TwoTowers, has_two_towers
from rematch.agents.learners.ppo import PpoConfig
from rematch.agents.learners.ppo_loss import objective
from rematch.agents.networks import mlp
from rematch.agents.networks.layout import TABLE_FROZEN, layout
from rematch.agents.networks.torch_acting import arithmetic
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError, LearnError
from rematch.core.system import cuda, tensor_philox
from rematch.rollout import cuda_rollout
from rematch.rollout.cuda_rollout import CudaRoleRollout, CudaRolloutBuffer
from rematch.rollout.rollout_buffer import RolloutBuffer

MEANS = ("policy_loss", "value_loss", "entropy", "magnet_kl", "kl", "clip_fraction")
NORMS = ("grad_norm_pre_clip", "grad_norm_post_clip")
UNCHECKED = 16  # minibatches between two looks at the target KL


class TorchPpo(GpuPpo):
    """The learner of one role on the GPU."""

    rollout: CudaRolloutBuffer | None = None  # whose tensors the graphs read, see _allocate
    track: CudaRoleRollout
    reward: Tensor
    towers: TwoTowers | None

    def __init__(self, policy: Policy, config: PpoConfig, seed: int, threads: int) -> None:
        super().__init__(policy, config, seed, threads)
        self.native = False  # roles learn one after the other
        self.shuffle_key = rng.key(seed, rng.SHUFFLE)
        self.device = device = cuda_rollout.DEVICE
        size = policy.weights.size
        self.weights, self.first, self.second, self.magnet_tensor, self.learning = (
            torch.zeros(size, device=device) for _ in range(5)
        )
        self.updates = torch.zeros((), dtype=torch.float64, device=device)  # of Adam
        # learning rate, entropy weight, temperature, iteration
        self.settings = torch.zeros(4, dtype=torch.float64, device=device)
        self.names: tuple[str, ...] = ()  # of the metrics that are means over the minibatches
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)  # of these metrics, and steps
        self.parabolas: list[tuple[Tensor, Tensor]] = []  # of the regularizers: Regularizer.parabola
        self.stopped, self.failed = (torch.zeros((), dtype=torch.bool, device=device) for _ in range(2))
        self.position, self.count = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        self.send()

    # --- state ---

    def send(self) -> None:
        for tensor, array in self.pairs():
            tensor.copy_(torch.from_numpy(array))
        self.updates.fill_(self.adam.updates)

    def fetch(self) -> None:
        for tensor, array in self.pairs():
            array[:] = tensor.cpu().numpy()
        self.adam.updates = int(self.updates)

    # --- learning ---

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        assert isinstance(rollout, CudaRolloutBuffer)
        c = self.config
        lr = anneal(c.anneal, c.lr, c.lr_final, progress) * self.rate
        entropy_weight = anneal(c.anneal, c.entropy_weight, c.entropy_weight_final, progress)
        self.temperature = anneal(c.anneal, c.temperature, c.temperature_final, progress)
        if rollout is not self.rollout:
            self._allocate(rollout)
        numbers = [lr, entropy_weight, self.temperature, float(iteration)]
        self.settings.copy_(torch.tensor(numbers, dtype=torch.float64))
        self.learning.copy_(torch.from_numpy(self._learning_weights()))
        for tensors, regularizer in zip(self.parabolas, self.regularizers):
            for tensor, array in zip(tensors, regularizer.parabola()):
                tensor.copy_(torch.from_numpy(array))
        if self.track.reward_terms:  # terms are computed on the host
            self.reward.copy_(torch.from_numpy(rollout.total_reward(self.policy.role.name)))
        self.prepare_graph.replay()
        decisions = int(self.count)
        if decisions == 0:
            return {"decisions": 0.0}
        self._seed_dropout(rng.key(self.seed, rng.DROPOUT, 0, iteration))
        for number in range(c.epochs * -(-decisions // self.minibatch)):
            self.minibatch_graph.replay()
            if c.target_kl > 0 and number % UNCHECKED == UNCHECKED - 1 and self.stopped:
                break
        return self._finish(decisions, progress) | {"lr": lr, "entropy_weight": entropy_weight}

    def _learning_weights(self) -> Floats:
        """[P] 1 where a weight learns, 0 where it is constant."""
        parts = []
        for name, shape, _ in layout(self.policy.role, self.policy.config):
            constant = self.policy.config.table and name in TABLE_FROZEN
            constant = constant or (self.value_only and not name.startswith("value."))
            parts.append(np.full(int(np.prod(shape)), float(not constant), np.float32))
        return np.concatenate(parts)

    def _seed_dropout(self, key: int) -> None:
        seed = torch.cuda.manual_seed if self.device.type == "cuda" else torch.manual_seed
        seed(key >> 1)

    def _allocate(self, rollout: CudaRolloutBuffer) -> None:
        """The buffers of an update for this rollout buffer, and the graphs that read it."""
        c, role = self.config, self.policy.role
        self.rollout, self.track = rollout, rollout.role_tracks[role.name]
        shape = (rollout.steps, rollout.games, len(role.seats))
        self.reward = rollout.reward_tensor[:, :, self.track.seats]
        if self.track.reward_terms:
            self.reward = torch.zeros(shape, device=self.device)
        size = rollout.steps * rollout.games * len(role.seats)
        self.minibatch = min(c.minibatch_size, size)
        self.raw_advantage, self.advantage, self.target = (
            torch.zeros(size, device=self.device) for _ in range(3)
        )
        self.counts = torch.zeros(size, dtype=torch.int32, device=self.device)
        self.order = torch.zeros((c.epochs, size), dtype=torch.int64, device=self.device)
        self.variances = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.allocate_step({
            name: torch.zeros((self.minibatch, *column.shape[1:]), dtype=column.dtype, device=self.device)
            for name, column in columns(self).items()
        })  # fmt: skip
        self.rows = RowKernels(self, rollout, self.kernels)
        try:
            self._prepare()
            self.count.zero_()  # a minibatch without rows changes nothing
            self._minibatch()
            self.prepare_graph = cuda.record_graph(self._prepare)
            self.minibatch_graph = cuda.record_graph(self._minibatch)
        except torch.OutOfMemoryError:
            raise ConfigError(
                f"device = cuda: the GPU has too little memory for minibatches of {self.minibatch}; "
                "expected a smaller ppo.minibatch_size, or cpu"
            ) from None

    def allocate_step(self, batch: dict[str, Tensor]) -> None:
        """The buffers of a gradient step from these columns; batch: see MinibatchKernels."""
        role = self.policy.role
        belief = ["belief_nll"] if self.policy.config.encoder == "bimdn" else []
        self.names = (*MEANS, *belief, *(f"{each.name}_penalty" for each in self.regularizers), *NORMS)
        self.sums = torch.zeros(len(self.names) + 1, dtype=torch.float64, device=self.device)
        self.parabolas = [(torch.zeros_like(self.weights), torch.zeros_like(self.weights))
                          for _ in self.regularizers]
        self.kernels, self.towers = MinibatchKernels(self, batch), None
        if has_two_towers(role, self.policy.config):
            self.towers = TwoTowers(role, self.policy.config, self.weights)

    def _prepare(self) -> None:
        """Advantages, the scale of them, and the order of the rows in every epoch."""
        self.rows.advantages()
        target, counts, value = self.target, self.counts != 0, self.track.value_tensor[:-1].reshape(-1)
        self.count.copy_(counts.sum())

        def moments(numbers: Tensor) -> tuple[Tensor, Tensor]:
            counted, total = counts.double(), self.count.clamp(min=1)
            mean = (numbers.double() * counted).sum() / total
            return mean, ((numbers.double() - mean) ** 2 * counted).sum() / total

        mean, variance = moments(self.raw_advantage)
        self.advantage.copy_((self.raw_advantage - mean) / (variance.sqrt() + 1e-8))
        self.variances.copy_(torch.stack([moments(target - value)[1], moments(target)[1]]))
        self.order.copy_(self._shuffled(counts))
        finite = target.isfinite() & self.track.logp_tensor[:-1].reshape(-1).isfinite()
        self.failed.copy_((counts & ~finite).any())  # the clip would hide it
        for tensor in (self.position, self.sums, self.stopped):
            tensor.zero_()

    def _shuffled(self, counts: Tensor) -> Tensor:
        """[epochs, M] rows in random orders, those to learn from before the others."""
        low, high = tensor_philox.step_words(self.settings[3].long())
        number = torch.arange(len(counts), device=self.device)
        keys: list[Tensor] = []
        for fourth in range(-(-self.config.epochs // 4)):
            keys += tensor_philox.words(self.shuffle_key, (number, low, rng.SHUFFLE | fourth << 8, high))
        unique = torch.stack(keys[: self.config.epochs]) << 30 | number
        return torch.where(counts, unique, torch.iinfo(torch.int64).max).argsort(-1)

    def _minibatch(self) -> None:
        """One step of Adam; no change after the target KL, or behind the last row."""
        self.fill_batch()
        if self.config.magnet_weight > 0:
            self.fill_magnet()
        if self.towers is not None:
            gradient, means = self._gradient_of_towers(self.towers)
            self._step(gradient, means)
            return
        batch = self.kernels.batch
        views = mlp.views(self.weights, self.policy.role, self.policy.config)
        leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
        with arithmetic(self.policy.config, self.device):
            output = mlp.apply(leaves, self.policy.role, self.policy.config, batch["obs"], batch.get("mask"),
                               privileged=batch.get("privileged"), dropout=self._dropout)
        compute = self._gradient if output.belief is None else self._gradient_with_belief
        self._step(*compute(output, leaves))

    def _step(self, gradient: Tensor, means: Tensor) -> None:
        """Add the penalties; a step of Adam."""
        for place, curvature in self.parabolas:
            difference = self.weights - place
            penalty = 0.5 * (curvature * difference**2).sum(dtype=torch.float64)
            means, gradient = torch.cat([means, penalty[None]]), gradient + curvature * difference
        self.kernels.step(gradient * self.learning, means)

    def fill_batch(self) -> None:
        """Write the columns of the next minibatch."""
        self.rows.gather()

    def _gradient_of_towers(self, towers: TwoTowers) -> tuple[Tensor, Tensor]:
        """As `_gradient`, of two equal towers."""
        heads, values = towers.forward(self.kernels.batch["obs"])
        if "mask" in self.kernels.batch:
            heads = mlp.masked(heads, self.kernels.batch["mask"])
        means, of_log_std = self.kernels.loss(heads, values)
        towers.backward(self.kernels.heads_gradient, self.kernels.value_gradient)
        if self.policy.role.actions.kind == "continuous":
            towers.gradient[self.kernels.log_std] = of_log_std.float()
        return towers.gradient, means

    def _gradient(self, output: mlp.NetworkOutput, leaves: mlp.Weights) -> tuple[Tensor, Tensor]:
        """The gradient [P] of the loss, and the means."""
        heads, value = output.distribution.heads, output.value
        assert value is not None
        means, of_log_std = self.kernels.loss(heads.detach(), value.detach())
        slopes = (self.kernels.heads_gradient, self.kernels.value_gradient)
        parts = torch.autograd.grad((heads, value), list(leaves.values()), slopes, materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in parts])
        if self.policy.role.actions.kind == "continuous":
            gradient[self.kernels.log_std] += of_log_std
        return gradient, means

    def _gradient_with_belief(
        self, output: mlp.NetworkOutput, leaves: mlp.Weights
    ) -> tuple[Tensor, Tensor]:
        """As `_gradient`, of a network that learns where the opponent is: by the loss of ppo_loss.py."""
        _, entropy_weight, temperature, _ = self.settings.float().unbind()
        batch = self.kernels.batch | {"share": self.kernels.share}
        if self.config.magnet_weight > 0:
            batch["magnet"] = self.kernels.magnet
            if self.policy.role.actions.kind == "continuous":
                batch["magnet_log_std"] = self.magnet_tensor[self.kernels.log_std]
        loss, means = objective(self.policy, self.config, output, batch, entropy_weight, temperature)
        parts = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        numbers = [means[name].detach().double() for name in (*MEANS, "belief_nll")]
        return torch.cat([part.reshape(-1) for part in parts]), torch.stack(numbers)

    def _dropout(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, self.policy.config.dropout)

    def fill_magnet(self) -> None:
        """Write the logits or means of the magnet for this minibatch."""
        role, config, out = self.policy.role, self.policy.config, self.kernels.magnet
        with torch.no_grad(), arithmetic(config, self.device):
            views = mlp.views(self.magnet_tensor, role, config)
            out.copy_(mlp.apply(views, role, config, self.kernels.batch["obs"]).distribution.heads)
        if role.actions.kind == "discrete":
            out /= self.settings[2].float()

    def _finish(self, decisions: int, progress: float) -> dict[str, float]:
        """The policy of the host gets the new weights; the metrics."""
        c = self.config
        if c.magnet_weight > 0:
            self.magnet_tensor += (1 - c.magnet_decay) * (self.weights - self.magnet_tensor)
        self.policy.set(self.weights.cpu().numpy())
        self.adam.updates = int(self.updates)
        if self.failed or not np.isfinite(self.policy.weights).all():
            assert self.rollout is not None
            raise LearnError(self._non_finite_message(*self.batch(self.rollout)))
        *sums, steps = self.sums.tolist()
        residual, variance = self.variances.tolist()
        out = {name: number / steps for name, number in zip(self.names, sums)}
        out["explained_variance"] = 1.0 - residual / max(variance, 1e-12)
        if c.average_fraction > 0:
            self.averaged = self.averaged + 1 if progress > 1 - c.average_fraction - 1e-9 else 0
            self.mean += (self.policy.weights - self.mean) / np.float32(max(1, self.averaged))
            out["averaged"] = float(self.averaged)
        out |= {"temperature": self.temperature, "updates": steps, "decisions": float(decisions)}
        return out
