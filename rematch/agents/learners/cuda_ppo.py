"""Proximal policy optimization on the GPU: the mathematics of ppo.py, in the kernels of agents/networks/cuda.

Weights, moments and magnet stay on the GPU; after each iteration the weights are copied to the policy on the
host, which the league, evaluations and checkpoints read. All sums have a fixed order: a resumed run has the
same bits on the same card. agents/learners/cuda_update.py launches the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.agents.learners.cuda_update import CudaUpdate, SameNetworks
from rematch.agents.learners.gpu_ppo import GpuPpo
from rematch.agents.learners.ppo import PpoConfig
from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.cuda_acting import Packing
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats
from rematch.core.errors import LearnError
from rematch.core.system import cuda
from rematch.rollout.cuda_rollout import DEVICE, CudaRolloutBuffer
from rematch.rollout.rollout_buffer import RolloutBuffer

STEP_NAMES = networks.NUMBERS[:8]  # means over the minibatches of an update


class CudaPolicy(Policy):
    """A policy that a GPU trains: its newest weights are copied from there when they are read."""

    newest: Callable[[Floats], None] | None = None  # writes them

    def _refresh(self) -> None:
        newest, self.newest = self.newest, None
        if newest is not None:
            newest(self.own_weights)
            self.network.pack(self.own_weights[None], self.own_packed)

    @property
    def weights(self) -> Floats:
        self._refresh()
        return self.own_weights

    @weights.setter
    def weights(self, weights: Floats) -> None:
        self.own_weights = weights

    @property
    def packed(self) -> Floats:
        self._refresh()
        return self.own_packed

    @packed.setter
    def packed(self, packed: Floats) -> None:
        self.own_packed = packed

    def set(self, weights: Floats) -> None:
        self._refresh()  # `weights` may be these
        super().set(weights)


class CudaPpo(GpuPpo):
    """The learner of one role on the GPU."""

    policy_class = CudaPolicy
    native = True
    reward: Tensor  # [T, rows] of a run with reward terms
    part: SameNetworks  # its memory; from the first update on
    place = 0  # in `part`

    def __init__(self, policy: Policy, config: PpoConfig, seed: int, threads: int) -> None:
        super().__init__(policy, config, seed, threads)
        self.native = True
        self.order = networks.WeightOrder(policy.role, policy.config)
        self.shuffle_key = rng.key(seed, rng.SHUFFLE)
        self.weights, self.first, self.second, self.magnet_tensor = (
            torch.zeros(self.order.size, device=DEVICE) for _ in range(4)
        )
        self.counters = torch.zeros(3, dtype=torch.int32, device=DEVICE)  # barrier, updates, failure
        self.pack = Packing(self.weights, policy.role, policy.config)
        self.device_weights = self.pack.packed
        self.rollout: CudaRolloutBuffer | None = None  # from which it learned last
        self.schedule: dict[str, float] = {}  # numbers of the newest update: iteration, lr, entropy_weight
        self.progress = 0.0
        self.group = CudaUpdate([self])
        self.send()

    @classmethod
    def join(cls, learners: Iterable[Any]) -> None:
        """These learners learn in one launch from now on."""
        CudaUpdate(list(learners))

    def program(self, rollout: CudaRolloutBuffer) -> Any:
        """Equal for learners whose updates one launch can compute."""
        c, role = self.config, self.policy.role
        macros = tuple(networks.macros(role, self.policy.config).items())
        shape = (rollout.games, rollout.steps, len(role.seats))
        return macros, shape, c.epochs, c.minibatch_size, c.magnet_weight > 0

    # --- state ---

    def send(self) -> None:
        for tensor, array in self.pairs():
            tensor.copy_(torch.from_numpy(self.order.to_device(array)))
        self.counters[1] = self.adam.updates
        self.pack()

    def fetch(self) -> None:
        cuda.synchronize()
        for tensor, array in self.pairs():
            self.order.to_flat(tensor.cpu().numpy(), array)
        self.adam.updates = int(self.counters[1])

    # --- learning ---

    def start(self, rollout: RolloutBuffer, progress: float, iteration: int) -> bool:
        """Learn in the next launch of the group."""
        assert isinstance(rollout, CudaRolloutBuffer)
        c = self.config
        self.progress = progress
        self.schedule = {
            "iteration": iteration,
            "lr": anneal(c.anneal, c.lr, c.lr_final, progress) * self.rate,
            "entropy_weight": anneal(c.anneal, c.entropy_weight, c.entropy_weight_final, progress),
        }
        self.group.start(self, rollout)
        return True

    def result(self) -> dict[str, float]:
        """Wait for the update; the policy of the host gets the new weights. The metrics."""
        self.group.wait()
        c, (numbers, ordered) = self.config, self.part.results(self.place)
        decisions, steps = numbers["decisions"], numbers["updates"]
        if decisions == 0:
            return {"decisions": 0.0}
        if numbers["failed"]:  # no other step makes weights that are not finite
            failed = int(numbers["adam_steps"]) + 1
            raise LearnError(f"{self.policy.role.name}: the gradient is not finite at update {failed}")
        assert isinstance(self.policy, CudaPolicy)
        self.policy.newest = partial(self.order.to_flat, ordered)
        self.adam.updates = int(numbers["adam_steps"])
        out = {name: numbers[name] / steps for name in STEP_NAMES}
        unexplained = numbers["residual_variance"] / max(numbers["target_variance"], 1e-12)
        out["explained_variance"] = 1.0 - unexplained
        out |= {"lr": self.schedule["lr"], "entropy_weight": self.schedule["entropy_weight"],
                "temperature": 1.0}  # fmt: skip
        if c.average_fraction > 0:
            self.averaged = self.averaged + 1 if self.progress > 1 - c.average_fraction - 1e-9 else 0
            self.mean += (self.policy.weights - self.mean) / np.float32(max(1, self.averaged))
            out["averaged"] = float(self.averaged)
        return out | {"updates": steps, "decisions": decisions}

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        if self.value_only:
            return self._learn_on_cpu(rollout, progress, iteration)
        self.start(rollout, progress, iteration)
        return self.result()

    def _learn_on_cpu(
        self, rollout: RolloutBuffer, progress: float, iteration: int
    ) -> dict[str, float]:
        """The kernels know no constant weights; a best response needs them in a few iterations only."""
        self.fetch()
        metrics = super().learn(rollout, progress, iteration)
        self.send()
        return metrics
