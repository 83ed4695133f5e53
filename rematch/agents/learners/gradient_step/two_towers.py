"""Forward and backward of a policy and a value with separate hidden layers of equal widths, both at once.

torch.autograd computes the same from agents/networks/mlp.py, layer by layer and tower by tower. Here one
batched product serves both towers, which halves the number of launches: with small minibatches that number
decides the time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout
from rematch.core.spec import Role

TOWERS = ("policy", "value")


def has_two_towers(role: Role, config: NetworkConfig) -> bool:
    """Whether this network is two equal towers over numbers."""
    plain = config.kind == "mlp" and not config.module and config.encoder == "mlp" and not config.table
    numbers = not any(role.categories) and config.fourier == 0
    return plain and numbers and config.critic == "own" and not config.shared


class TwoTowers:
    """Reads flat weights [P] in their place, and writes the gradient [P]."""

    def __init__(self, role: Role, config: NetworkConfig, weights: Tensor) -> None:
        self.is_tanh, self.layers = config.activation == "tanh", len(config.hidden)
        self.gradient = torch.zeros_like(weights)
        self.entries = {name: (shape, at) for name, shape, at in layout(role, config)}
        self.weights, self.slopes = (self._views(flat) for flat in (weights, self.gradient))
        self.outputs: list[Tensor] = []  # what each layer read, then the output of the last one

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        """Layers of both towers as [2, ...], heads as they are."""
        out = {}
        for number in range(self.layers):
            for part in ("weight", "bias"):
                (shape, first), (_, second) = (self.entries[f"{tower}.{number}.{part}"] for tower in TOWERS)
                strides = (second - first, shape[1], 1) if len(shape) > 1 else (second - first, 1)
                out[f"{number}.{part}"] = flat.as_strided((2, *shape), strides, first)
        for name in (f"{tower}.head.{part}" for tower in TOWERS for part in ("weight", "bias")):
            shape, at = self.entries[name]
            out[name] = flat[at : at + torch.Size(shape).numel()].view(shape)
        return out

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Means or logits [n, A] and values [n] of observations [n, F]."""
        w, self.outputs = self.weights, [obs.expand(2, -1, -1)]
        activation: Callable[[Tensor], Tensor] = torch.tanh if self.is_tanh else torch.relu
        for number in range(self.layers):
            bias, transposed = w[f"{number}.bias"][:, None], w[f"{number}.weight"].transpose(1, 2)
            self.outputs.append(activation(torch.baddbmm(bias, self.outputs[-1], transposed)))
        heads, values = (
            torch.addmm(w[f"{tower}.head.bias"], self.outputs[-1][place], w[f"{tower}.head.weight"].T)
            for place, tower in enumerate(TOWERS)
        )
        return heads, values[:, 0]

    def backward(self, of_heads: Tensor, of_values: Tensor) -> None:
        """Write the gradient of all weights but log_std, for those of heads [n, A] and values [n]."""
        last = torch.empty_like(self.outputs[-1])
        for place, (tower, slope) in enumerate(zip(TOWERS, (of_heads, of_values[:, None]))):
            torch.mm(slope.T, self.outputs[-1][place], out=self.slopes[f"{tower}.head.weight"])
            torch.sum(slope, 0, out=self.slopes[f"{tower}.head.bias"])
            torch.mm(slope, self.weights[f"{tower}.head.weight"], out=last[place])
        for number in range(self.layers - 1, -1, -1):
            output = self.outputs[number + 1]
            inner = torch.ops.aten.tanh_backward(last, output) if self.is_tanh else last * (output > 0)
            self.slopes[f"{number}.weight"].copy_(torch.bmm(inner.transpose(1, 2), self.outputs[number]))
            torch.sum(inner, 1, out=self.slopes[f"{number}.bias"])
            if number:
                last = torch.bmm(inner, self.weights[f"{number}.weight"])
