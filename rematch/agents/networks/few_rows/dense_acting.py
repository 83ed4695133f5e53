"""Acting of a few games on the GPU: the kernels of dense.cu, one launch per layer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.networks.config import NetworkConfig
from rematch.core.spec import Role
from rematch.core.system.cuda import Program
from rematch.rollout.cuda_rollout import CudaRolloutBuffer, on_device

FILE = Path(__file__).parent / "dense.cu"
MOST_ROWS, THREADS, LANES = 64, 128, 32
ROWS = np.dtype([("slot", "u8"), ("rows", "i4"), ("seats", "i4"), ("all_seats", "i4"), ("slots", "i4")],
                align=True)  # fmt: skip
PAIR = [("in", "u8", 2), ("weight", "u8", 2), ("bias", "u8", 2)]
LAYER = np.dtype([("rows", ROWS), *PAIR, ("out", "u8", 2), ("in_step", "i8"), ("inputs", "i4"),
                  ("units", "i4"), ("relu", "i4")], align=True)  # fmt: skip
HEADS = np.dtype([("rows", ROWS), *PAIR, ("log_std", "u8"), ("noise", "u8"), ("action", "u8"), ("logp", "u8"),
                  ("value", "u8"), ("units", "i4"), ("actions", "i4")], align=True)  # fmt: skip


def can_act(role: Role, config: NetworkConfig, rows: int) -> bool:
    """Whether the kernels compute this network for so few rows."""
    plain = config.kind == "mlp" and not config.module and config.encoder == "mlp" and not config.table
    numbers = not any(role.categories) and config.fourier == 0 and config.critic == "own"
    return plain and numbers and role.actions.kind == "continuous" and rows <= MOST_ROWS


@cache
def program() -> Any:
    return Program(FILE, {"LANES": LANES})


class DenseActing:
    """The layers of one role, with the weights of all slots."""

    def __init__(
        self, role: Role, config: NetworkConfig, rollout: CudaRolloutBuffer, weights: Mapping[str, Tensor],
        noise: Tensor,
    ) -> None:  # fmt: skip
        """weights: name -> [slots, ...]; noise: [steps, rows, actions], drawn before each rollout."""
        self.role, self.config, self.weights, self.rollout = role, config, weights, rollout
        self.track = rollout.role_tracks[role.name]
        self.rows = rollout.games * len(role.seats)
        self.towers = ["trunk"] if config.one_tower else ["policy", "value"]
        self.outputs = [
            [torch.zeros((self.rows, width), device=noise.device) for _ in self.towers]
            for width in config.hidden
        ]
        self.layers = [on_device(self._layer(number)) for number in range(len(config.hidden))]
        self.heads = on_device(self._heads(noise))
        self.layer_kernel, self.head_kernel = map(program().kernel, ("dense_layer", "gaussian_heads"))

    def _rows(self) -> NDArray[Any]:
        struct, slot = np.zeros(1, ROWS), self.rollout.slot_tensor[:, :, self.track.seats]
        struct["slot"], struct["rows"] = slot.data_ptr(), self.rows
        struct["seats"], struct["all_seats"] = len(self.role.seats), self.rollout.slot_tensor.shape[2]
        struct["slots"] = len(self.weights["policy.head.weight"])
        return struct

    def _layer(self, number: int) -> NDArray[Any]:
        struct, config = np.zeros(1, LAYER), self.config
        struct["rows"] = self._rows()
        for place, tower in enumerate(self.towers):
            source = self.outputs[number - 1][place] if number else self.track.obs_tensor
            struct["in"][0, place] = source.data_ptr()
            struct["out"][0, place] = self.outputs[number][place].data_ptr()
            for part in ("weight", "bias"):
                struct[part][0, place] = self.weights[f"{tower}.{number}.{part}"].data_ptr()
        struct["in_step"] = 0 if number else self.rows * self.role.size
        struct["inputs"] = config.hidden[number - 1] if number else self.role.size
        struct["units"], struct["relu"] = config.hidden[number], config.activation == "relu"
        return struct

    def _heads(self, noise: Tensor) -> NDArray[Any]:
        struct, track = np.zeros(1, HEADS), self.track
        struct["rows"] = self._rows()
        for place, head in enumerate(("policy.head", "value.head")):
            struct["in"][0, place] = self.outputs[-1][place if len(self.towers) > 1 else 0].data_ptr()
            for part in ("weight", "bias"):
                struct[part][0, place] = self.weights[f"{head}.{part}"].data_ptr()
        tensors = {"log_std": self.weights["policy.log_std"], "noise": noise, "action": track.action_tensor,
                   "logp": track.logp_tensor, "value": track.value_tensor}  # fmt: skip
        for name, tensor in tensors.items():
            struct[name] = tensor.data_ptr()
        struct["units"], struct["actions"] = self.config.hidden[-1], self.role.actions.size
        return struct

    def act(self, t: int, only_values: bool) -> None:
        """Launch the layers of step t; see RoleActing."""
        for struct, width in zip(self.layers, self.config.hidden):
            blocks = -(-self.rows * width * LANES // THREADS)
            self.layer_kernel((blocks, len(self.towers)), THREADS, struct, t, int(only_values))
        self.head_kernel((self.rows, 1), LANES, self.heads, t, int(only_values))
