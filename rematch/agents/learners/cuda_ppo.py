"""Proximal policy optimization on the GPU: the mathematics of ppo.py, in the kernels of agents/networks/cuda.

Weights, moments and magnet stay on the GPU; after each iteration the weights are copied to the policy on the
host, which the league, evaluations and checkpoints read. All sums have a fixed order: a resumed run has the
same bits on the same card. The first update of a process is launched kernel by kernel; the second is recorded
as a CUDA graph, and from then on an update is one launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.cuda_acting import ACT_THREADS, LEARNER_RANGE, Packing, network_kernel
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats, Tree
from rematch.core.errors import LearnError
from rematch.core.system.cuda import record_graph
from rematch.rollout.cuda_collector import on_device
from rematch.rollout.cuda_rollout import DEVICE, CudaRoleRollout, CudaRolloutBuffer
from rematch.rollout.rollout_buffer import RolloutBuffer

STEP_NAMES = networks.STATS[:-1]
THREADS = 512  # of a block of the update kernel, see ppo_gradient.h


def blocks_per_learner(learners: int) -> int:
    """Blocks of the update kernel: all learners together fill the GPU, one block per multiprocessor."""
    return int(torch.cuda.get_device_properties(0).multi_processor_count) // learners // 2 * 2


class CudaPpo(Ppo):
    """The learner of one role on the GPU."""

    name = "ppo"
    native = True
    # Of the rollout buffer that `rollout` names, see _allocate:
    reward: Tensor
    value: Tensor
    count: Tensor
    numbers: Tensor
    new_weights: Tensor
    pinned_arguments: Tensor
    updated = False

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
        self.graph: Any = None  # torch.cuda.CUDAGraph of one update
        self.rollout: CudaRolloutBuffer | None = None  # that the graph reads
        self.kernels = {
            name: network_kernel(name, policy.role, policy.config, name == "update")
            for name in ("act", "advantages", "shuffle", "update")
        }
        self.pack = Packing(self.weights, policy.role, policy.config)
        self.pack_magnet = Packing(self.magnet_tensor, policy.role, policy.config)
        self.send()

    # --- state ---

    def send(self) -> None:
        """Copy weights, moments and magnet from the host to the GPU."""
        for tensor, array in self._pairs():
            tensor.copy_(torch.from_numpy(self.order.to_device(array)))
        self.counters[1] = self.adam.updates
        self.pack()

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

    def finish(self) -> str:
        self.fetch()  # the mean becomes the policy of the GPU too, or the next `fetch` would undo it
        line = super().finish()
        self.send()
        return line

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
        if rollout is not self.rollout:
            self._allocate(rollout, track)
        for name, number in {"iteration": iteration, "lr": lr, "entropy_weight": entropy_weight}.items():
            self.host_arguments[name] = number
        self.arguments.copy_(self.pinned_arguments, non_blocking=True)
        if track.reward_terms:  # terms are computed on the host
            self.reward.copy_(torch.from_numpy(rollout.total_reward(self.policy.role.name)))
        if self.updated and self.graph is None:
            self.graph = record_graph(partial(self._update, track), self.stream)
        if self.graph is None:
            self._update(track)
        else:
            self.graph.replay()
        self.updated = True
        self.stream.synchronize()
        return self._finish(self.numbers.numpy(), lr, entropy_weight, progress)

    def _allocate(self, rollout: CudaRolloutBuffer, track: CudaRoleRollout) -> None:
        """The buffers of an update and the arguments of its kernels, for this rollout buffer."""
        self.rollout, self.graph, self.updated = rollout, None, False
        self.buffers.clear()
        rows = rollout.games * len(self.policy.role.seats)
        if track.reward_terms:
            self.reward = torch.zeros((rollout.steps, rows), device=DEVICE)
        else:
            self.reward = rollout.reward_tensor
        self.value = track.value_tensor
        self.count = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        self.numbers = torch.zeros(len(networks.STATS) + 6, dtype=torch.float64).pin_memory()
        self.new_weights = torch.zeros(self.order.size).pin_memory()
        self.advantage_arguments = self._advantage_arguments(rollout, track)
        if self.config.magnet_weight > 0:
            self.magnet_arguments = self._magnet_arguments(track)
        struct = self._update_arguments(track)
        self.pinned_arguments = torch.from_numpy(struct.view(np.uint8).reshape(-1)).pin_memory()
        self.host_arguments = self.pinned_arguments.numpy().view(networks.UPDATE)
        self.arguments = self.pinned_arguments.to(DEVICE)

    def _update(self, track: CudaRoleRollout) -> None:
        """Everything that an update computes on the GPU; its results go to the host."""
        rows = self.buffers["counts"].numel() // track.action_tensor.shape[0]
        self.kernels["advantages"]((-(-rows // 64), 1), 64, self.advantage_arguments)
        variance = self._select_rows()
        if self.config.magnet_weight > 0:
            self._magnet_heads()
        self.counters[0:1].zero_()
        self.counters[2:3].zero_()
        self.stats.zero_()
        self.kernels["shuffle"]((4 * self.blocks, 1), 256, self.arguments)
        self.kernels["update"]((self.blocks, 1), THREADS, self.arguments)
        if self.config.magnet_weight > 0:
            self.magnet_tensor += (1 - self.config.magnet_decay) * (self.weights - self.magnet_tensor)
        numbers = torch.cat([self.stats.sum(0), variance, self.counters.double()])
        self.numbers.copy_(numbers, non_blocking=True)
        self.new_weights.copy_(self.weights, non_blocking=True)

    def _finish(self, numbers: Floats, lr: float, entropy_weight: float, progress: float) -> dict[str, float]:
        """The policy of the host gets the new weights; the metrics."""
        c, stats = self.config, dict(zip(networks.STATS, numbers.tolist()))
        decisions, residual, total, _, updates, failed = numbers[len(networks.STATS) :].tolist()
        if decisions == 0:
            return {"decisions": 0.0}
        weights = self.policy.weights.copy()
        self.order.to_flat(self.new_weights.numpy(), weights)
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

    def _advantage_arguments(self, rollout: CudaRolloutBuffer, track: CudaRoleRollout) -> Tensor:
        role, seats = self.policy.role, rollout.slot_tensor.shape[2]
        rows, shape = rollout.games * len(role.seats), (rollout.steps * rollout.games * len(role.seats),)
        tensors = {"reward": self.reward, "ended": rollout.ended_tensor, "acting": rollout.acting_tensor,
                   "slot": rollout.slot_tensor, "value": track.value_tensor,
                   "advantage": self._buffer("advantage", shape), "target": self._buffer("target", shape),
                   "counts": self._buffer("counts", shape, torch.int32)}  # fmt: skip
        numbers = {
            "rows": rows,
            "seats": len(role.seats),
            "all_seats": seats,
            "first_seat": role.seats[0],
            "reward_seats": len(role.seats) if track.reward_terms else seats,
            "reward_first": 0 if track.reward_terms else role.seats[0],
            "steps": rollout.steps,
            "gamma": self.config.gamma,
            "gamma_lambda": self.config.gamma * self.config.gae_lambda,
        }
        return on_device(_filled(np.zeros(1, networks.ADVANTAGES), tensors, numbers))

    def _index(self) -> Tensor:
        """Rows to learn from, first; one place more for the others."""
        return self._buffer("index", (self.buffers["counts"].numel() + 1,), torch.int32)

    def _select_rows(self) -> Tensor:
        """The rows to learn from and the scaling of their advantages; count, residual and total variance."""
        counts, advantage, target = (self.buffers[name] for name in ("counts", "advantage", "target"))
        places = torch.cumsum(counts, 0, dtype=torch.int32)
        rows = torch.arange(len(counts), dtype=torch.int32, device=DEVICE)
        index = self._index()
        index.scatter_(0, torch.where(counts != 0, places - 1, len(counts)).long(), rows)
        self.count.copy_(places[-1:])
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

    def _magnet_arguments(self, track: CudaRoleRollout) -> Tensor:
        rows = self.buffers["counts"].numel()
        tensors = {
            "weights": self.pack_magnet.packed,
            "obs": track.obs_tensor,
            "value": self._buffer("magnet_value", (rows,)),
            "heads": self._buffer("magnet", (rows, self.policy.role.actions.size)),
        }
        numbers = {"rows": rows, "seats": 1, "all_seats": 1, "slots": 1}
        return on_device(_filled(np.zeros(1, networks.ACT), tensors, numbers))

    def _magnet_heads(self) -> None:
        """The means or logits of the magnet for all rows of the rollout, as one step of so many rows."""
        rows, zero = self.buffers["counts"].numel(), self._buffer("zero", (1,), torch.int64)
        self.pack_magnet()
        self.kernels["act"]((-(-rows // LEARNER_RANGE), 1), ACT_THREADS, self.magnet_arguments, 0, zero, 1)

    def _update_arguments(self, track: CudaRoleRollout) -> NDArray[Any]:
        """The struct of the update kernel; iteration, lr and entropy_weight change with every update."""
        c, network = self.config, self.policy.config
        inputs = track.input_tensor
        assert inputs is not None  # the policy of this role has acted
        discrete, capacity = self.policy.role.actions.kind == "discrete", self.buffers["counts"].numel()
        tensors = {"weights": self.weights, "first": self.first, "second": self.second,
                   "packed": self.pack.packed, "partial": self.partial,
                   "block_sums": self.block_sums, "stats": self.stats, "inputs": inputs,
                   "choice" if discrete else "action": track.action_tensor, "logp": track.logp_tensor,
                   "advantage": self.buffers["advantage"], "target": self.buffers["target"],
                   "value": track.value_tensor, "index": self._index(), "count": self.count,
                   "order": self._buffer("order", (c.epochs, capacity), torch.int32),
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
            "epochs": c.epochs,
            "minibatch": c.minibatch_size,
            "capacity": capacity,
            "clip": c.clip,
            "value_clip": c.value_clip,
            "value_weight": c.value_weight,
            "magnet_weight": c.magnet_weight,
            "max_norm": c.max_grad_norm,
            "target_kl": c.target_kl,
            "log_std_low": network.log_std_low,
            "log_std_high": network.log_std_high,
        }
        return _filled(np.zeros(1, networks.UPDATE), tensors, numbers)


def _filled(
    arguments: NDArray[Any], tensors: Mapping[str, Tensor], numbers: Mapping[str, float]
) -> NDArray[Any]:
    """The struct of a kernel's arguments."""
    for name, tensor in tensors.items():
        arguments[name] = tensor.data_ptr()
    for name, number in numbers.items():
        arguments[name] = number
    return arguments
