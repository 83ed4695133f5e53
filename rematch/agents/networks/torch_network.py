"""Networks in torch (with an encoder, transformers, user modules), with the interface of fused.Network.

Rows are computed in blocks of one size, on one thread, so that the output of a row depends on that row alone,
not on the other rows or on the number of threads. Actions are sampled by agents/networks/fused_act.h with the
same random keys. The gradient is that of `learners.ppo_loss` by autograd.

`HalfNetwork` computes a plain network in bfloat16 on tensors, for many rows: playouts of a search on the GPU.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.networks import fused, mlp
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout, weight_views
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Role

BLOCK, GPU_BLOCK = 64, 1024  # rows
ALIGNED = 16  # columns of a matrix of HalfNetwork: a multiple, for tensor cores


class TorchNetwork:
    """The shape of one network, without weights. Packed weights are the flat ones."""

    def __init__(self, role: Role, config: NetworkConfig) -> None:
        self.role, self.config, self.layout = role, config, layout(role, config)
        self.inputs, self.actions = role.size, role.actions.size
        self.discrete = role.actions.kind == "discrete"
        self.device = torch.device(config.device)
        if config.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError(
                "network.device = cuda: torch finds no CUDA device; expected --network.device cpu"
            )
        self.size = self.packed_size = sum(int(np.prod(shape)) for _, shape, _ in self.layout)

    def pack(self, flat: Floats, out: Floats) -> None:
        if flat.shape[1] != self.size or out.shape[1] != self.size or len(out) < len(flat):
            raise ValueError("weights do not have this network's size")
        out[: len(flat)] = flat

    def act(
        self, packed: Floats, slot: NDArray[Any], obs: Floats, number: NDArray[Any], draw: tuple[int, int],
        *out: Any, acting: NDArray[Any] | None = None, mask: NDArray[Any] | None = None,
        heads: Floats | None = None, greedy: bool = False, privileged: Floats | None = None,
    ) -> None:  # fmt: skip
        """As fused.Network.act; out: action, logp, value or None."""
        action, logp, value = out
        if packed.shape[1] != self.size or obs.shape[1] != self.inputs:
            raise ValueError("network and arrays do not fit")
        if len({len(array) for array in (slot, obs, number, *out) if array is not None}) > 1:
            raise ValueError("arrays of different length")
        acting_rows = np.ones(len(slot), bool) if acting is None else acting != 0
        for s, weights in enumerate(packed):
            rows = np.flatnonzero((slot == s) & acting_rows)
            if not len(rows):
                continue
            row_privileged = None if privileged is None else privileged[rows]
            row_heads, row_values = self._heads_and_values(weights, obs[rows], row_privileged)
            sampled, sampled_logp = np.empty_like(action[rows]), np.empty(len(rows), np.float32)
            log_std = weight_views(weights, self.layout).get("policy.log_std")
            row_mask = None if mask is None else np.ascontiguousarray(mask[rows])
            fused.sample(row_heads, log_std, number[rows], draw, sampled, sampled_logp, row_mask, greedy)
            action[rows], logp[rows] = sampled, sampled_logp
            if row_values is not None and value is not None:
                value[rows] = row_values
            if heads is not None:
                heads[rows] = row_heads

    def belief(self, weights: Floats, obs: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights [n, K], means [n, K, 2] and standard deviations [n, K, 2] of the belief of bimdn."""
        outputs = self._blocks(weights, obs, None)
        beliefs = [output.belief for output in outputs if output.belief is not None]
        parts = [(b.log_weight.exp(), b.mean, b.log_sd.exp()) for b in beliefs]
        weight, mean, sd = (torch.cat(arrays)[: len(obs)].numpy() for arrays in zip(*parts))
        return weight, mean, sd

    def _heads_and_values(
        self, weights: Floats, obs: Floats, privileged: Floats | None
    ) -> tuple[Floats, Floats | None]:
        """Means or logits [n, A], and values [n] where the critic has its inputs."""
        outputs = self._blocks(weights, obs, privileged)
        heads = torch.cat([output.distribution.heads for output in outputs])[: len(obs)].cpu().numpy()
        values = [output.value for output in outputs if output.value is not None]
        return heads, torch.cat(values)[: len(obs)].cpu().numpy() if values else None

    def _blocks(self, weights: Floats, obs: Floats, privileged: Floats | None) -> list[mlp.NetworkOutput]:
        """The outputs of the network, BLOCK rows at a time; the last block is padded with zeros."""
        torch.set_num_threads(1)  # of the calling thread: rollouts use several threads
        rows_at_once = BLOCK if self.config.device == "cpu" else GPU_BLOCK
        full = -(-len(obs) // rows_at_once) * rows_at_once

        def blocks(rows: Floats) -> list[torch.Tensor]:
            padded = np.zeros((full, rows.shape[1]), np.float32)
            padded[: len(rows)] = rows
            return list(torch.from_numpy(padded).to(self.device).chunk(full // rows_at_once))

        privileged_blocks: list[Any] = [None] * (full // rows_at_once)
        if privileged is not None:
            privileged_blocks = blocks(privileged)
        with torch.no_grad():
            flat = torch.from_numpy(weights).to(self.device)
            return [mlp.forward(flat, self.role, self.config, obs_block, privileged=privileged_block)
                    for obs_block, privileged_block in zip(blocks(obs), privileged_blocks)]


def half_can_compute(config: NetworkConfig) -> bool:
    """Whether HalfNetwork computes networks with these settings."""
    return config.one_tower and not (config.in_torch or config.table or config.fourier)


class HalfNetwork:
    """Logits and values of one set of weights, for observations in tensors.

    The first layer is one product: numbers, and one-hot vectors in place of the rows of the category table.
    """

    def __init__(self, role: Role, config: NetworkConfig, device: torch.device) -> None:
        self.role, self.config, self.actions = role, config, role.actions.size
        numeric = [column for column, n in enumerate(role.categories) if n == 0]
        categorical = [column for column, n in enumerate(role.categories) if n]
        self.numeric, self.categorical = (
            torch.tensor(columns, dtype=torch.int64, device=device) for columns in (numeric, categorical)
        )
        first = [len(numeric) + row for row in mlp.first_rows(role.categories)]
        self.first = torch.tensor(first, dtype=torch.int64, device=device)
        inputs = len(numeric) + sum(role.categories)
        self.inputs = -(-inputs // ALIGNED) * ALIGNED
        sizes = [self.inputs, *config.hidden, -(-(self.actions + 1) // ALIGNED) * ALIGNED]
        half = torch.bfloat16
        self.weights = [torch.zeros((n, m), dtype=half, device=device) for m, n in pairwise(sizes)]
        self.biases = [torch.zeros(n, dtype=half, device=device) for n in sizes[1:]]

    def set(self, flat: Tensor) -> None:
        """Round the weights [P] of the network."""
        named = mlp.views(flat, self.role, self.config)
        first = named["trunk.0.weight"]
        self.weights[0][:, : first.shape[1]] = first
        if "trunk.0.table" in named:
            table = named["trunk.0.table"]
            self.weights[0][:, first.shape[1] : first.shape[1] + len(table)] = table.T
        self.biases[0].copy_(named["trunk.0.bias"])
        for layer in range(1, len(self.config.hidden)):
            self.weights[layer].copy_(named[f"trunk.{layer}.weight"])
            self.biases[layer].copy_(named[f"trunk.{layer}.bias"])
        for name, at, size in (("policy", 0, self.actions), ("value", self.actions, 1)):
            self.weights[-1][at : at + size] = named[f"{name}.head.weight"]
            self.biases[-1][at : at + size] = named[f"{name}.head.bias"]

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [n, A] and values [n] of observations [n, F]."""
        x = torch.zeros((len(obs), self.inputs), dtype=torch.bfloat16, device=obs.device)
        x[:, : len(self.numeric)] = obs[:, self.numeric]
        if len(self.categorical):
            x.scatter_(1, obs[:, self.categorical].long() + self.first, 1.0)
        for weight, bias in zip(self.weights[:-1], self.biases):
            x = torch.addmm(bias, x, weight.T)
            x = x.relu_() if self.config.activation == "relu" else x.tanh_()
        out = torch.addmm(self.biases[-1], x, self.weights[-1].T).float()
        return out[:, : self.actions], out[:, self.actions]
