"""Proximal policy optimization on the GPU: the mathematics of ppo.py, in the kernels of agents/networks/cuda.

Weights, moments and magnet stay on the GPU; after each iteration the weights are copied to the policy on the
host, which the league, evaluations and checkpoints read. All sums have a fixed order: a resumed run has the
same bits on the same card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.cuda_acting import LEARNER_RANGE, THREADS, network_kernel
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats, Tree
from rematch.core.errors import LearnError
from rematch.rollout.cuda_collector import on_device
from rematch.rollout.cuda_rollout import DEVICE, CudaRoleRollout, CudaRolloutBuffer
from rematch.rollout.rollout_buffer import RolloutBuffer

STEP_NAMES = networks.STATS[:-1]


def blocks_per_learner(learners: int) -> int:
    """Blocks of the update kernel: all learners together fill the GPU, one block per multiprocessor."""
    return int(torch.cuda.get_device_properties(0).multi_processor_count) // learners // 2 * 2


class CudaPpo(Ppo):
    """The learner of one role on the GPU."""

    name = "ppo"
    native = True

    def __init__(self, policy: Policy, config: PpoConfig, seed: int, threads: int, learners: int = 2) -> None:
        super().__init__(policy, config, seed, threads)
        self.native = True
        self.order = networks.WeightOrder(policy.role, policy.config)
        self.blocks = blocks_per_learner(learners)
        self.stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        size, self.buffers = self.order.size, dict[str, Tensor]()
        self.weights = torch.zeros(size, device=DEVICE)
        self.first, self.second, self.magnet_tensor = (torch.zeros(size, device=DEVICE) for _ in range(3))
        self.partial = torch.zeros((self.blocks, size), device=DEVICE)
        self.block_sums = torch.zeros((self.blocks, 2), dtype=torch.float64, device=DEVICE)
        self.stats = torch.zeros((self.blocks, len(networks.STATS)), dtype=torch.float64, device=DEVICE)
        self.counters = torch.zeros(3, dtype=torch.int32, device=DEVICE)  # barrier, updates, failure
        self.scaling = torch.zeros(2, dtype=torch.float64, device=DEVICE)
        self.kernels = {
            name: network_kernel(name, policy.role, policy.config, name == "update")
            for name in ("act", "advantages", "update")
        }
        self.send()

    # --- state ---

    def send(self) -> None:
        """Copy weights, moments and magnet from the host to the GPU."""
        for tensor, array in self._pairs():
            tensor.copy_(torch.from_numpy(self.order.to_device(array)))
        self.counters[1] = self.adam.updates

    def fetch(self) -> None:
        """The inverse of `send`."""
        torch.cuda.synchronize()
        for tensor, array in self._pairs():
            self.order.to_flat(tensor.cpu().numpy(), array)
        self.adam.updates = int(self.counters[1])

    def _pairs(self) -> list[tuple[Tensor, Floats]]:
        return [
            (self.weights, self.policy.weights),
            (self.first, self.adam.first),
            (self.second, self.adam.second),
            (self.magnet_tensor, self.magnet),
        ]

    def load_weights(self, policy: Policy) -> None:
        super().load_weights(policy)
        self.send()

    def state_dict(self) -> Tree:
        self.fetch()
        return super().state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        super().load_state_dict(tree)
        self.send()

    # --- learning ---

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        assert isinstance(rollout, CudaRolloutBuffer)
        self.stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(self.stream):
            return self._learn(rollout, progress, iteration)

    def _learn(self, rollout: CudaRolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        c = self.config
        lr = anneal(c.anneal, c.lr, c.lr_final, progress) * self.rate
        entropy_weight = anneal(c.anneal, c.entropy_weight, c.entropy_weight_final, progress)
        track = rollout.role_tracks[self.policy.role.name]
        self._advantages(rollout, track)
        variance = self._select_rows()
        if c.magnet_weight > 0:
            self._magnet_heads(track)
        self.counters[0] = 0
        self.counters[2] = 0
        self.stats.zero_()
        arguments = self._update_arguments(track, iteration, lr, entropy_weight)
        self.kernels["update"]((self.blocks, 1), THREADS, arguments)
        if c.magnet_weight > 0:
            self.magnet_tensor += (1 - c.magnet_decay) * (self.weights - self.magnet_tensor)
        numbers = torch.cat([self.stats.sum(0), variance, self.counters.double()]).cpu().numpy()
        return self._finish(numbers, lr, entropy_weight, progress)

    def _finish(self, numbers: Floats, lr: float, entropy_weight: float, progress: float) -> dict[str, float]:
        """The policy of the host gets the new weights; the metrics."""
        c, stats = self.config, dict(zip(networks.STATS, numbers.tolist()))
        decisions, residual, total, _, updates, failed = numbers[len(networks.STATS) :].tolist()
        if decisions == 0:
            return {"decisions": 0.0}
        weights = self.policy.weights.copy()
        self.order.to_flat(self.weights.cpu().numpy(), weights)
        if failed or not np.isfinite(weights).all():
            raise LearnError(
                f"{self.policy.role.name}: the gradient is not finite at update {int(updates) + 1}"
            )
        self.policy.set(weights)
        self.adam.updates = int(updates)
        steps = stats.pop("updates")
        out = {name: stats[name] / steps for name in STEP_NAMES}
        out["explained_variance"] = 1.0 - residual / max(total, 1e-12)
        out |= {"lr": lr, "entropy_weight": entropy_weight, "temperature": 1.0}
        if c.average_fraction > 0:
            self.averaged = self.averaged + 1 if progress > 1 - c.average_fraction - 1e-9 else 0
            self.mean += (self.policy.weights - self.mean) / np.float32(max(1, self.averaged))
            out["averaged"] = float(self.averaged)
        return out | {"updates": steps, "decisions": decisions}

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer that is allocated once."""
        if name not in self.buffers:
            self.buffers[name] = torch.zeros(shape, dtype=dtype, device=DEVICE)
        return self.buffers[name]

    def _advantages(self, rollout: CudaRolloutBuffer, track: CudaRoleRollout) -> None:
        role, seats = self.policy.role, rollout.slot_tensor.shape[2]
        rows = rollout.games * len(role.seats)
        reward, reward_seats, reward_first = rollout.reward_tensor, seats, role.seats[0]
        if track.reward_terms:  # terms are computed on the host
            reward = torch.from_numpy(rollout.total_reward(role.name)).to(DEVICE)
            reward_seats, reward_first = len(role.seats), 0
        shape = (rollout.steps * rows,)
        arguments = np.zeros(1, networks.ADVANTAGES)
        tensors = {"reward": reward, "ended": rollout.ended_tensor, "acting": rollout.acting_tensor,
                   "slot": rollout.slot_tensor, "value": track.value_tensor,
                   "advantage": self._buffer("advantage", shape), "target": self._buffer("target", shape),
                   "counts": self._buffer("counts", shape, torch.int32)}  # fmt: skip
        numbers = {
            "rows": rows,
            "seats": len(role.seats),
            "all_seats": seats,
            "first_seat": role.seats[0],
            "reward_seats": reward_seats,
            "reward_first": reward_first,
            "steps": rollout.steps,
            "gamma": self.config.gamma,
            "gamma_lambda": self.config.gamma * self.config.gae_lambda,
        }
        self.kernels["advantages"]((-(-rows // 64), 1), 64, _filled(arguments, tensors, numbers))
        self.value = track.value_tensor

    def _select_rows(self) -> Tensor:
        """The rows to learn from and the scaling of their advantages; count, residual and total variance."""
        counts, advantage, target = (self.buffers[name] for name in ("counts", "advantage", "target"))
        places = torch.cumsum(counts, 0, dtype=torch.int32)
        rows = torch.arange(len(counts), dtype=torch.int32, device=DEVICE)
        index = self._buffer("index", (len(counts) + 1,), torch.int32)
        index.scatter_(0, torch.where(counts != 0, places - 1, len(counts)).long(), rows)
        self.count = places[-1:]
        n, chosen = self.count.double().clamp(min=1), counts.double()

        def moments(numbers: Tensor) -> tuple[Tensor, Tensor]:
            mean = (numbers * chosen).sum() / n
            return mean, ((numbers - mean) ** 2 * chosen).sum() / n

        mean, variance = moments(advantage.double())
        self.scaling.copy_(torch.cat([mean, 1 / (variance.sqrt() + 1e-8)]))
        values = self.value.reshape(-1)[: len(counts)].double()
        return torch.cat(
            [self.count.double(), moments(target.double() - values)[1], moments(target.double())[1]]
        )

    def _magnet_heads(self, track: CudaRoleRollout) -> None:
        """The means or logits of the magnet for all rows of the rollout, as one step of so many rows."""
        rows = self.buffers["counts"].numel()
        arguments = np.zeros(1, networks.ACT)
        tensors = {
            "weights": self.magnet_tensor,
            "obs": track.obs_tensor,
            "value": self._buffer("magnet_value", (rows,)),
            "heads": self._buffer("magnet", (rows, self.policy.role.actions.size)),
        }
        numbers = {"rows": rows, "seats": 1, "all_seats": 1, "slots": 1}
        zero = self._buffer("zero", (1,), torch.int64)
        self.kernels["act"](
            (-(-rows // LEARNER_RANGE), 1), THREADS, _filled(arguments, tensors, numbers), 0, zero, 1
        )

    def _update_arguments(
        self, track: CudaRoleRollout, iteration: int, lr: float, entropy_weight: float
    ) -> Tensor:
        c, network = self.config, self.policy.config
        discrete = self.policy.role.actions.kind == "discrete"
        tensors = {"weights": self.weights, "first": self.first, "second": self.second,
                   "partial": self.partial,
                   "block_sums": self.block_sums, "stats": self.stats, "obs": track.obs_tensor,
                   "choice" if discrete else "action": track.action_tensor, "logp": track.logp_tensor,
                   "advantage": self.buffers["advantage"], "target": self.buffers["target"],
                   "value": track.value_tensor, "index": self.buffers["index"], "count": self.count,
                   "scaling": self.scaling, "barrier": self.counters[0:1], "updates": self.counters[1:2],
                   "failed": self.counters[2:3]}  # fmt: skip
        if track.mask_tensor is not None:
            tensors["mask"] = track.mask_tensor
        if c.magnet_weight > 0:
            tensors["magnet"] = self.buffers["magnet"]
            if not discrete:
                tensors["magnet_log_std"] = self.magnet_tensor[self.order.log_std :]
        numbers = {
            "key": rng.key(self.seed, rng.SHUFFLE),
            "iteration": iteration,
            "epochs": c.epochs,
            "minibatch": c.minibatch_size,
            "lr": lr,
            "clip": c.clip,
            "value_clip": c.value_clip,
            "value_weight": c.value_weight,
            "entropy_weight": entropy_weight,
            "magnet_weight": c.magnet_weight,
            "max_norm": c.max_grad_norm,
            "target_kl": c.target_kl,
            "log_std_low": network.log_std_low,
            "log_std_high": network.log_std_high,
        }
        return _filled(np.zeros(1, networks.UPDATE), tensors, numbers)


def _filled(arguments: NDArray[Any], tensors: Mapping[str, Tensor], numbers: Mapping[str, float]) -> Tensor:
    """The struct of a kernel's arguments, on the GPU."""
    for name, tensor in tensors.items():
        arguments[name] = tensor.data_ptr()
    for name, number in numbers.items():
        arguments[name] = number
    return on_device(arguments)
