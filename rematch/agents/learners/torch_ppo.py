"""Proximal policy optimization on the GPU for every network that torch computes: the loss of ppo_loss.py.

Two CUDA graphs make an iteration: one computes advantages and the order of all minibatches; the other one is
a minibatch, from the choice of its rows to the step of Adam, and is replayed for each. The host waits for the
number of decisions and for the results. Minibatches after the target KL was reached change nothing. All sums
have a fixed order: a resumed run has the same bits on the same card.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.agents.learners.adam import BETA_1, BETA_2, EPSILON
from rematch.agents.learners.gpu_ppo import GpuPpo
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
        self.names = (*MEANS, *(["belief_nll"] if policy.config.encoder == "bimdn" else []), *NORMS)
        self.sums = torch.zeros(len(self.names) + 1, dtype=torch.float64, device=device)  # and steps
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
        self.advantage, self.target = (torch.zeros(size, device=self.device) for _ in range(2))
        self.order = torch.zeros((c.epochs, size), dtype=torch.int64, device=self.device)
        self.variances = torch.zeros(2, dtype=torch.float64, device=self.device)
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

    def _prepare(self) -> None:
        """Advantages, the scale of them, and the order of the rows in every epoch."""
        assert self.rollout is not None
        advantage, target, counts = advantages(self.rollout, self.track, self.reward, self.config)
        value = self.track.value_tensor[:-1].reshape(-1)
        self.count.copy_(counts.sum())

        def moments(numbers: Tensor) -> tuple[Tensor, Tensor]:
            counted, total = counts.double(), self.count.clamp(min=1)
            mean = (numbers.double() * counted).sum() / total
            return mean, ((numbers.double() - mean) ** 2 * counted).sum() / total

        mean, variance = moments(advantage)
        self.advantage.copy_((advantage - mean) / (variance.sqrt() + 1e-8))
        self.target.copy_(target)
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
        views = mlp.views(self.weights, self.policy.role, self.policy.config)
        leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
        batch = self._rows()
        with arithmetic(self.policy.config, self.device):
            output = mlp.apply(leaves, self.policy.role, self.policy.config, batch["obs"], batch.get("mask"),
                               privileged=batch.get("privileged"), dropout=self._dropout)
            _, entropy_weight, temperature, _ = self.settings.float().unbind()
            if self.config.magnet_weight > 0:
                batch |= self._magnet(batch, temperature)
        loss, means = objective(self.policy, self.config, output, batch, entropy_weight, temperature)
        parts = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in parts]) * self.learning
        self._step(gradient, means, (batch["share"] > 0).any())
        self.position += 1

    def _dropout(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, self.policy.config.dropout)

    def _rows(self) -> dict[str, Tensor]:
        """The columns of this minibatch; rows behind the last one repeat the first with share 0."""
        epochs, size = self.order.shape
        per_epoch = ((self.count + self.minibatch - 1) // self.minibatch).clamp(min=1)
        epoch, place = self.position // per_epoch, self.position % per_epoch * self.minibatch
        places = place + torch.arange(self.minibatch, device=self.device)
        used = (places < self.count) & (epoch < epochs)
        rows = self.order.view(-1)[(epoch.clamp(max=epochs - 1) * size + places.clamp(max=size - 1))]
        rows = torch.where(used, rows, rows[:1])
        track = self.track
        columns = {"obs": track.obs_tensor, "mask": track.mask_tensor, "privileged": track.privileged_tensor,
                   "action": track.action_tensor, "logp": track.logp_tensor, "value": track.value_tensor}
        batch = {name: column.flatten(0, 2)[rows] for name, column in columns.items() if column is not None}
        batch["advantage"], batch["target"] = self.advantage[rows], self.target[rows]
        batch["share"] = used / used.sum().clamp(min=1)
        return batch

    def _magnet(self, batch: dict[str, Tensor], temperature: Tensor) -> dict[str, Tensor]:
        """The columns of the magnet: its logits or means, and its log_std."""
        role, config = self.policy.role, self.policy.config
        with torch.no_grad():
            views = mlp.views(self.magnet_tensor, role, config)
            heads = mlp.apply(views, role, config, batch["obs"]).distribution.heads
        log_std = {"magnet_log_std": views["policy.log_std"]} if "policy.log_std" in views else {}
        return {"magnet": heads if log_std else heads / temperature} | log_std

    def _step(self, gradient: Tensor, means: dict[str, Tensor], has_rows: Tensor) -> None:
        """Clip the gradient, take a step of Adam (adam.py), add to the sums."""
        limit = self.config.max_grad_norm
        norm = torch.linalg.vector_norm(gradient)
        scale = torch.where(norm > limit, limit / norm, 1.0) if limit > 0 else torch.ones_like(norm)
        wanted = has_rows & ~self.stopped & ~self.failed
        active = wanted & norm.isfinite()
        self.failed |= wanted & ~active
        self.updates += active
        gradient = torch.where(active, gradient * scale, 0.0)
        factor = active.float()
        self.first.lerp_(gradient, (1 - BETA_1) * factor)
        self.second.lerp_(gradient * gradient, (1 - BETA_2) * factor)
        updates = self.updates.clamp(min=1)
        rate = (self.settings[0] / (1 - BETA_1**updates) * active).float()
        unbias = (1 / (1 - BETA_2**updates)).float()
        self.weights -= rate * self.first / ((self.second * unbias).sqrt() + EPSILON)
        network = self.policy.config
        if self.policy.role.actions.kind == "continuous":
            views = mlp.views(self.weights, self.policy.role, network)
            views["policy.log_std"].clamp_(network.log_std_low, network.log_std_high)
        every = means | dict(zip(NORMS, (norm, norm * scale)))
        numbers = torch.stack([*(every[name].detach().double() for name in self.names), active.double()])
        self.sums += torch.where(active, numbers, 0.0)
        if self.config.target_kl > 0:
            self.stopped |= active & (means["kl"] > 1.5 * self.config.target_kl)

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


def advantages(
    rollout: CudaRolloutBuffer, track: CudaRoleRollout, reward: Tensor, config: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """RolloutBuffer.advantages on tensors, [T * N * k] each; no game of a CUDA world is cut off."""
    seats = track.seats
    acted = rollout.acting_tensor[:, :, seats] != 0
    value, ended = track.value_tensor, (rollout.ended_tensor != 0)[:, :, None]
    ahead, has_next = value[-1], acted[-1]
    due = next_advantage = zero = torch.zeros_like(ahead)
    every, counts = [], []
    for t in range(rollout.steps - 1, -1, -1):
        due = torch.where(ended[t], reward[t], due + reward[t])
        ahead = torch.where(ended[t], zero, ahead)
        next_advantage = torch.where(ended[t], zero, next_advantage)
        has_next = has_next | ended[t]
        delta = due + config.gamma * ahead - value[t]
        estimate = torch.where(has_next, delta + config.gamma * config.gae_lambda * next_advantage, zero)
        every.append(torch.where(acted[t], estimate, zero))
        counts.append(acted[t] & has_next)
        next_advantage = torch.where(acted[t], estimate, next_advantage)
        ahead = torch.where(acted[t], value[t], ahead)
        due = torch.where(acted[t], zero, due)
        has_next = has_next | acted[t]
    advantage = torch.stack(every[::-1])
    learned = torch.stack(counts[::-1]) & (rollout.slot_tensor[:-1, :, seats] == 0)
    return advantage.flatten(), (advantage + value[:-1]).flatten(), learned.flatten()
