"""Acting on the GPU: the policies of all slots of one role, in one kernel per step (cuda/act.h)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.agents.networks import cuda_network as networks
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.core.system import cuda
from rematch.core.system.cuda import Kernel, Program
from rematch.rollout.cuda_rollout import DEVICE, CudaRolloutBuffer, on_device
from rematch.rollout.seating import RoleSeating

ACT_THREADS, OPPONENT_RANGE = 256, 2048  # of act.h
FEWEST, MOST = 128, 1024  # rows of a block that serves slot 0


def learner_range(rows: int) -> int:
    """Rows of a block of `act` that serves slot 0, where all roles together have `rows`: three blocks for
    each multiprocessor, which load the weights once."""
    wanted = -(-rows // (3 * cuda.multiprocessors()))
    return min(MOST, max(FEWEST, -(-wanted // FEWEST) * FEWEST))


class Packing:
    """The weights [networks, size] of the GPU in the form that the layers read: `Weights` of network.h."""

    def __init__(self, weights: Tensor, role: Role, config: Any) -> None:
        self.weights, self.networks = weights, weights.numel() // weights.shape[-1]
        size = networks.weight_bytes(role, config)
        self.packed = torch.zeros((self.networks, size), dtype=torch.uint8, device=DEVICE)
        self.kernel = network_kernel("pack", role, config)

    def __call__(self) -> None:
        """Pack the present weights."""
        self.kernel((4, self.networks), 256, self.weights, self.packed)


class CudaRoleActing:
    """The kernel, the weights of all slots and the arguments with which one role acts."""

    def __init__(
        self, role: Role, seating: RoleSeating, rollout: CudaRolloutBuffer, key: int, first: int
    ) -> None:
        self.seating = seating
        self.slots, self.rows = len(seating.packed), rollout.games * len(role.seats)
        config = seating.policy.config
        if reason := networks.cannot_compute(role, config):
            raise ConfigError(f"device = cuda: {reason}; expected cpu")
        self.order = networks.WeightOrder(role, config)
        self.weights = torch.zeros((self.slots, self.order.size), device=DEVICE)
        self.pack = Packing(self.weights, role, config)
        self.kernel = network_kernel("act", role, config)
        track = rollout.role_tracks[role.name]
        arguments = np.zeros(1, networks.ACT)
        tensors = {
            "weights": self.pack.packed,
            "learner": self.pack.packed if seating.learner_weights is None else seating.learner_weights,
            "obs": track.obs_tensor,
            "slot": rollout.slot_tensor,
            "acting": rollout.acting_tensor,
            "logp": track.logp_tensor,
            "value": track.value_tensor,
            "first_step": rollout.first_step_tensor,
            "choice" if role.actions.kind == "discrete" else "action": track.action_tensor,
        }
        if track.mask_tensor is not None:
            tensors["mask"] = track.mask_tensor
        tensors["inputs"] = track.store_inputs(networks.inputs(role, config))
        for name, tensor in tensors.items():
            arguments[name] = tensor.data_ptr()
        numbers = {
            "key": key,
            "rows": self.rows,
            "seats": len(role.seats),
            "all_seats": rollout.slot_tensor.shape[2],
            "first_seat": role.seats[0],
            "slots": self.slots,
            "first_row": first * len(role.seats),
        }
        for name, number in numbers.items():
            arguments[name] = number
        self._arrange(arguments)
        self.program = tuple(networks.macros(role, config).values())

    def _arrange(self, struct: np.ndarray[Any, Any]) -> None:
        """Blocks for these roles."""
        self.struct, rows = struct, int(struct["rows"].max())
        struct["learner_range"] = learner_range(rows * len(struct))
        self.value_blocks = -(-rows // int(struct["learner_range"][0]))
        self.blocks = self.value_blocks + (self.slots - 1) * -(-rows // OPPONENT_RANGE)
        self.arguments = on_device(struct)

    def send_weights(self) -> None:
        """Send the slots that were filled since the last rollout."""
        for slot in sorted(self.seating.changed):
            ordered = self.order.to_device(self.seating.placed[slot])
            self.weights[slot].copy_(torch.from_numpy(ordered))
        if self.seating.changed:
            self.pack()
        self.seating.changed.clear()

    def act(self, t: int, first_step: Tensor, only_values: bool = False) -> None:
        blocks = self.value_blocks if only_values else self.blocks
        self.kernel((blocks, len(self.struct)), ACT_THREADS, self.arguments, t, int(only_values))

    def join(self, other: CudaRoleActing) -> bool:
        """Whether one launch serves both roles from now on, because the same program computes them."""
        if self.program != other.program:
            return False
        self.slots = max(self.slots, other.slots)
        self._arrange(np.concatenate([self.struct, other.struct]))
        return True


def network_kernel(name: str, role: Role, config: Any, cooperative: bool = False) -> Kernel:
    """A kernel of agents/networks/cuda for this role's network."""
    shared = {
        "act": networks.act_bytes(role, config),
        "act_float": networks.float_bytes(role, config),
        "advantages": 0,
        "pack": 0,
        "shuffle": 0,
        "finish": networks.SELECT_BYTES,
        "count_rows": networks.SELECT_BYTES,
        "scan_rows": networks.SELECT_BYTES,
        "list_rows_to_learn": networks.SELECT_BYTES,
        "scale_rows": networks.SELECT_BYTES,
        "update": networks.update_bytes(role, config, networks.tile_rows(role, config)),
    }
    program = _program(tuple(sorted(networks.macros(role, config).items())))
    return program.kernel(name, shared[name], cooperative)


@cache
def _program(macros: tuple[tuple[str, int], ...]) -> Program:
    return Program(networks.FOLDER / "program.cu", dict(macros))
