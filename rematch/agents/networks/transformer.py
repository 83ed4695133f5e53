"""A pre-norm transformer (Vaswani et al. 2017; Xiong et al. 2020) over observation columns, in torch.

Every categorical column is a token: its embedding, projected to the token width. The numeric columns of a
field are one token together. One more token, without input, is the readout. No game is special: hands and
piles become tokens because a world declares categorical columns (`Field.categories`). Weights are a policy's
flat vector; agents/networks/torch_network.py acts with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout, numeric_fields
from rematch.agents.networks.mlp import Distribution, NetworkOutput, masked
from rematch.core.spec import Role

if TYPE_CHECKING:
    from collections.abc import Mapping


class Dropout:
    """Zeroes a fraction `rate` of the numbers with its own generator; without a key it changes nothing."""

    def __init__(self, rate: float, key: int | None, device: torch.device) -> None:
        self.rate = 0.0 if key is None else rate
        self.generator = torch.Generator(device)
        self.generator.manual_seed(0 if key is None else key & (2**63 - 1))

    def __call__(self, x: Tensor) -> Tensor:
        if not self.rate:
            return x
        keep = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.rate
        return x * keep / (1 - self.rate)


def tokens(w: Mapping[str, Tensor], role: Role, obs: Tensor) -> Tensor:
    """[n, tokens, width] of observations [n, F]: categorical columns, numeric fields, the readout token."""
    categorical = [i for i, n in enumerate(role.categories) if n]
    out = []
    if categorical:
        first_row = torch.tensor([0, *(role.categories[i] for i in categorical)]).cumsum(0)[:-1]
        rows = w["embed.table"][obs[:, categorical].long() + first_row.to(obs.device)]
        out.append(linear(rows, w["embed.weight"], w["embed.bias"]))
    for name, columns in numeric_fields(role):
        out.append(linear(obs[:, columns], w[f"field.{name}.weight"], w[f"field.{name}.bias"])[:, None])
    readout = torch.zeros_like(w["position.table"][-1:]).expand(obs.shape[0], 1, -1)
    return torch.cat([*out, readout], 1) + w["position.table"]


def block(w: Mapping[str, Tensor], prefix: str, heads: int, x: Tensor, dropout: Dropout) -> Tensor:
    """One layer: self-attention, then a two-layer MLP per token, each with a residual connection."""
    # Sizes come from weights, not from x: they are constants in an ONNX file.
    count, width = len(w["position.table"]), len(w["final_norm.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        return layer_norm(x, (width,), 1 + w[f"{prefix}.{name}.scale"], w[f"{prefix}.{name}.bias"])

    qkv = linear(norm("norm1", x), w[f"{prefix}.attn.qkv.weight"], w[f"{prefix}.attn.qkv.bias"])
    query, key, value = qkv.view(-1, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    attended = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(-1, count, width)
    x = x + dropout(linear(attended, w[f"{prefix}.attn.out.weight"], w[f"{prefix}.attn.out.bias"]))
    hidden = dropout(gelu(linear(norm("norm2", x), w[f"{prefix}.up.weight"], w[f"{prefix}.up.bias"])))
    return x + dropout(linear(hidden, w[f"{prefix}.down.weight"], w[f"{prefix}.down.bias"]))


def forward(
    flat: Tensor, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None,
    dropout_key: int | None = None,
) -> NetworkOutput:  # fmt: skip
    """The output of the network with weights `flat` [P] for observations [n, F]."""
    entries = layout(role, config)
    w = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in entries}
    dropout = Dropout(config.dropout, dropout_key, obs.device)
    x = tokens(w, role, obs)
    for layer in range(config.layers):
        x = block(w, f"layer.{layer}", config.heads, x, dropout)
    x = layer_norm(x[:, -1], (config.width,), 1 + w["final_norm.scale"], w["final_norm.bias"])
    heads = linear(x, w["policy.head.weight"], w["policy.head.bias"])
    value = linear(x, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    distribution = Distribution(masked(heads, mask) if log_std is None else heads, log_std)
    return NetworkOutput(distribution, value, None)
