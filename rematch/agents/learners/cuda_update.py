"""Updates on the GPU: the learners of all roles, and of all runs that train together, in one launch.

Learners whose networks one program computes lie side by side in memory: `SameNetworks`. No result depends on
how many there are: a run has the same bits alone and beside others. The first update of a process is launched
kernel by kernel; the second is recorded as a CUDA graph, and from then on an update is one launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.cuda_acting import ACT_THREADS, Packing, learner_range, network_kernel
from rematch.core.arrays import Floats
from rematch.core.system import cuda
from rematch.rollout.cuda_rollout import DEVICE, CudaRoleRollout, CudaRolloutBuffer, on_device

if TYPE_CHECKING:
    from rematch.agents.learners.cuda_ppo import CudaPpo

SELECT_THREADS, FINISH_THREADS, ADVANTAGE_THREADS = 256, 256, 64
MOVED = ("weights", "first", "second", "magnet_tensor")  # tensors of a learner that lie side by side


def fill(
    struct: NDArray[Any], tensors: Mapping[str, Tensor | None], numbers: Mapping[str, float]
) -> None:
    """Set members of a C struct: addresses and numbers."""
    for name, tensor in tensors.items():
        struct[name] = 0 if tensor is None else tensor.data_ptr()
    for name, number in numbers.items():
        struct[name] = number


class CudaUpdate:
    """The learners that learn at the same time."""

    def __init__(self, learners: Sequence[CudaPpo]) -> None:
        self.learners = list(learners)
        for learner in self.learners:
            learner.group = self
        self.stream = cuda.new_stream()
        self.started: list[CudaPpo] = []
        self.parts: list[SameNetworks] = []
        self.graph: Any = None  # torch.cuda.CUDAGraph of one update
        self.updated = False

    def start(self, learner: CudaPpo, rollout: CudaRolloutBuffer) -> None:
        """Let this learner learn in the next launch."""
        if rollout is not learner.rollout:
            learner.rollout = rollout
            self.parts.clear()
        self.started.append(learner)

    def launch(self) -> None:
        """Launch the update of all learners that were started since the last launch."""
        if not self.started:
            return
        if not self.parts:
            self._allocate()
        with cuda.on_stream(self.stream):
            for part in self.parts:
                part.send(self.started)
            if self.updated and self.graph is None:
                self.graph = cuda.record_graph(self._update, self.stream)
            if self.graph is None:
                self._update()
            else:
                self.graph.replay()
        self.updated = True
        self.started = []

    def wait(self) -> None:
        """Launch what was started, and wait for its results."""
        self.launch()
        self.stream.synchronize()

    def _allocate(self) -> None:
        """Arrange the learners by their programs; those that have never learned stay outside."""
        self.graph, self.updated = None, False
        by_program: dict[Any, list[CudaPpo]] = {}
        for learner in self.learners:
            if learner.rollout is not None:
                by_program.setdefault(learner.program(learner.rollout), []).append(learner)
        self.parts = [SameNetworks(members) for members in by_program.values()]

    def _update(self) -> None:
        for part in self.parts:
            part.update()


class SameNetworks:
    """Learners whose networks, rollouts and minibatches have the same shape: arrays [learners, ...]."""

    def __init__(self, learners: Sequence[CudaPpo]) -> None:
        self.learners = list(learners)
        first = self.learners[0]
        rollout, role, config = first.rollout, first.policy.role, first.config
        assert rollout is not None
        self.rows = rollout.games * len(role.seats)
        self.capacity, size, count = rollout.steps * self.rows, first.order.size, len(self.learners)
        network = first.policy.config
        groups = networks.groups(role, network)
        grouped = networks.in_warpgroups(role, network)
        self.threads = 256 if grouped else 512  # of ppo_groups.h, ppo_gradient.h
        self.blocks = min(networks.MOST_BLOCKS, cuda.multiprocessors() // count)
        tile = networks.tile_rows(role, first.policy.config)
        tiles = config.epochs * -(-self.capacity // config.minibatch_size) * -(-config.minibatch_size // tile)
        self.select_blocks = -(-self.capacity // networks.SELECT_ROWS)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((count, *shape), dtype=dtype, device=DEVICE)

        double, int32 = torch.float64, torch.int32
        self.buffers = {
            "partial": zeros(groups, size), "chunk_sums": zeros(size // 4, dtype=double),
            "tile_stats": zeros(tiles, networks.ROW_STATS),
            "block_moments": zeros(self.select_blocks, networks.MOMENTS, dtype=double),
            "block_counts": zeros(self.select_blocks, dtype=int32),
            "numbers": zeros(len(networks.NUMBERS), dtype=double), "new_weights": zeros(size),
            "advantage": zeros(self.capacity), "target": zeros(self.capacity),
            "counts": zeros(self.capacity, dtype=int32), "index": zeros(self.capacity, dtype=int32),
            "count": zeros(1, dtype=int32), "order": zeros(config.epochs, self.capacity, dtype=int32),
            "scaling": zeros(2, dtype=double), "records": zeros(self.capacity, networks.record_size(role)),
        }  # fmt: skip
        self.magnets = config.magnet_weight > 0
        self.magnet_range = learner_range(self.capacity * count)
        if self.magnets:
            self.buffers["magnet"] = zeros(self.capacity, role.actions.size)
            self.buffers["magnet_value"] = zeros(self.capacity)
        for name in MOVED:
            together = torch.stack([getattr(learner, name) for learner in self.learners])
            for learner, tensor in zip(self.learners, together):
                setattr(learner, name, tensor)
            self.buffers[name] = together
        self.counters = torch.stack([learner.counters for learner in self.learners])
        self.pack_magnet = Packing(self.buffers["magnet_tensor"], role, first.policy.config)
        self.host_numbers = cuda.pinned(torch.zeros((count, len(networks.NUMBERS)), dtype=double))
        self.host_weights = cuda.pinned(torch.zeros((count, size)))
        self.kernels = {
            name: network_kernel(name, role, first.policy.config, name == "update")
            for name in ("act", "advantages", "count_rows", "scan_rows", "list_rows_to_learn", "scale_rows",
                         "shuffle", "update", "finish")
        }  # fmt: skip
        for number, learner in enumerate(self.learners):
            learner.part, learner.place, learner.counters = self, number, self.counters[number]
            learner.pack.weights = learner.weights
            learner.pack()
        self._arguments()

    def results(self, place: int) -> tuple[dict[str, float], Floats]:
        """The numbers of a learner's newest update, and its weights in the order of the GPU."""
        numbers = dict(zip(networks.NUMBERS, self.host_numbers[place].tolist()))
        weights: Floats = self.host_weights[place].numpy()
        return numbers, weights

    # --- arguments of the kernels ---

    def _arguments(self) -> None:
        count = len(self.learners)
        updates, advantages = np.zeros(count, networks.UPDATE), np.zeros(count, networks.ADVANTAGES)
        magnets = np.zeros(count, networks.ACT)
        for number, learner in enumerate(self.learners):
            rollout = learner.rollout
            assert rollout is not None
            track = rollout.role_tracks[learner.policy.role.name]
            own = {name: tensor[number] for name, tensor in self.buffers.items()}
            self._fill_update(updates[number : number + 1], learner, track, own)
            self._fill_advantages(advantages[number : number + 1], learner, track, own)
            if self.magnets:
                fill(magnets[number : number + 1],
                     {"learner": self.pack_magnet.packed[number], "obs": track.obs_tensor,
                      "inputs": track.input_tensor,
                      "value": own["magnet_value"], "heads": own["magnet"]},
                     {"rows": self.capacity, "seats": 1, "all_seats": 1, "slots": 1,
                      "learner_range": self.magnet_range})  # fmt: skip
        self.pinned_arguments = cuda.pinned(torch.from_numpy(updates.view(np.uint8).reshape(-1)))
        self.host_arguments = self.pinned_arguments.numpy().view(networks.UPDATE)
        self.arguments = self.pinned_arguments.to(DEVICE, copy=True)
        self.advantage_arguments, self.magnet_arguments = on_device(advantages), on_device(magnets)

    def _fill_update(
        self, struct: NDArray[Any], learner: CudaPpo, track: CudaRoleRollout, own: Mapping[str, Tensor]
    ) -> None:
        """iteration, lr, entropy_weight and active change with every update."""
        c, network = learner.config, learner.policy.config
        discrete = learner.policy.role.actions.kind == "discrete"
        names = networks.UPDATE.names or ()
        tensors: dict[str, Tensor | None] = {name: own[name] for name in names if name in own}
        tensors |= {
            "packed": learner.pack.packed,
            "inputs": track.input_tensor,
            "choice" if discrete else "action": track.action_tensor,
            "mask": track.mask_tensor,
            "logp": track.logp_tensor,
            "value": track.value_tensor,
            "barrier": learner.counters[0:1],
            "updates": learner.counters[1:2],
            "failed": learner.counters[2:3],
        }
        if self.magnets:
            tensors["magnet_weights"] = own["magnet_tensor"]
            if not discrete:
                tensors["magnet_log_std"] = own["magnet_tensor"][learner.order.log_std :]
        fill(struct, tensors, {
            "key": learner.shuffle_key, "epochs": c.epochs, "minibatch": c.minibatch_size,
            "capacity": self.capacity, "clip": c.clip, "value_clip": c.value_clip,
            "value_weight": c.value_weight, "magnet_weight": c.magnet_weight,
            "magnet_rate": 1 - c.magnet_decay, "max_norm": c.max_grad_norm, "target_kl": c.target_kl,
            "log_std_low": network.log_std_low, "log_std_high": network.log_std_high,
        })  # fmt: skip

    def _fill_advantages(
        self, struct: NDArray[Any], learner: CudaPpo, track: CudaRoleRollout, own: Mapping[str, Tensor]
    ) -> None:
        rollout, role = learner.rollout, learner.policy.role
        assert rollout is not None
        seats, terms = rollout.slot_tensor.shape[2], bool(track.reward_terms)
        if terms:  # they are computed on the host
            learner.reward = torch.zeros((rollout.steps, self.rows), device=DEVICE)
        fill(struct,
             {"reward": learner.reward if terms else rollout.reward_tensor, "ended": rollout.ended_tensor,
              "acting": rollout.acting_tensor, "slot": rollout.slot_tensor, "value": track.value_tensor,
              "advantage": own["advantage"], "target": own["target"], "counts": own["counts"]},
             {"rows": self.rows, "seats": len(role.seats), "all_seats": seats, "first_seat": role.seats[0],
              "reward_seats": len(role.seats) if terms else seats,
              "reward_first": 0 if terms else role.seats[0], "steps": rollout.steps,
              "gamma": learner.config.gamma,
              "gamma_lambda": learner.config.gamma * learner.config.gae_lambda})  # fmt: skip

    # --- an update ---

    def send(self, started: Sequence[CudaPpo]) -> None:
        """The arguments of this update; learners that were not started learn nothing."""
        self.host_arguments["active"] = 0
        for learner in started:
            if learner.part is not self:
                continue
            struct = self.host_arguments[learner.place : learner.place + 1]
            fill(struct, {}, learner.schedule | {"active": 1})
            assert learner.rollout is not None
            if learner.rollout.role_tracks[learner.policy.role.name].reward_terms:
                total = learner.rollout.total_reward(learner.policy.role.name)
                learner.reward.copy_(torch.from_numpy(total).reshape(learner.reward.shape))
        self.arguments.copy_(self.pinned_arguments, non_blocking=True)

    def update(self) -> None:
        """Everything that an update computes on the GPU; its results go to the host."""
        count, kernels, learners = len(self.learners), self.kernels, self.arguments
        advantage_blocks = -(-self.rows // ADVANTAGE_THREADS)
        kernels["advantages"]((advantage_blocks, count), ADVANTAGE_THREADS, self.advantage_arguments)
        for name, blocks in (("count_rows", self.select_blocks), ("scan_rows", 1),
                             ("list_rows_to_learn", self.select_blocks), ("scale_rows", 1)):  # fmt: skip
            kernels[name]((blocks, count), SELECT_THREADS, learners)
        if self.magnets:
            self.pack_magnet()
            blocks = -(-self.capacity // self.magnet_range)
            kernels["act"]((blocks, count), ACT_THREADS, self.magnet_arguments, 0, 1)
        kernels["shuffle"]((4 * self.blocks, count), 256, learners)
        kernels["update"]((self.blocks, count), self.threads, learners)
        kernels["finish"]((8, count), FINISH_THREADS, learners)
        self.host_numbers.copy_(self.buffers["numbers"], non_blocking=True)
        self.host_weights.copy_(self.buffers["new_weights"], non_blocking=True)
