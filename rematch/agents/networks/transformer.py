"""A pre-norm transformer (Vaswani et al. 2017; Xiong et al. 2020) over observation columns, in torch.

Every categorical column is a token: its embedding, projected to the token width. The numeric columns of a
field are one token together. One more token, without input, is the readout. No game is special: hands and
piles become tokens because a world declares categorical columns (`Field.categories`). Weights are a policy's
flat vector; agents/networks/torch_network.py acts with them.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import numeric_fields
from rematch.agents.networks.mlp import (
    Distribution,
    Dropout,
    NetworkOutput,
    Weights,
    constant,
    first_rows,
    masked,
    table_rows,
)
from rematch.core.spec import Role

GROUP = 64  # tokens


def _identity(x: Tensor) -> Tensor:
    return x


class KeyedDropout:
    """Zeroes a fraction `rate` of the numbers with its own generator."""

    def __init__(self, rate: float, key: int, device: torch.device) -> None:
        self.rate = rate
        self.generator = torch.Generator(device)
        self.generator.manual_seed(key & (2**63 - 1))

    def __call__(self, x: Tensor) -> Tensor:
        if not self.rate:
            return x
        keep = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.rate
        return x * keep / (1 - self.rate)


def tokens(w: Weights, role: Role, obs: Tensor) -> Tensor:
    """[n, tokens, width] of observations [n, F]: categorical columns, numeric fields, the readout token."""
    categorical = [i for i, n in enumerate(role.categories) if n]
    out = []
    if categorical:
        first_row = constant(first_rows(role.categories), obs.device)
        rows = table_rows(w["embed.table"], obs[:, constant(categorical, obs.device)].long() + first_row)
        out.append(linear(rows, w["embed.weight"], w["embed.bias"]))
    for name, columns in numeric_fields(role):
        numbers = obs[:, constant(columns, obs.device)]
        out.append(linear(numbers, w[f"field.{name}.weight"], w[f"field.{name}.bias"])[:, None])
    readout = torch.zeros_like(w["position.table"][-1:]).expand(obs.shape[0], 1, -1)
    return torch.cat([*out, readout], 1) + w["position.table"]


def grouped_attention(qkv: Tensor) -> Tensor:
    """Self-attention [n, tokens, heads, size] of queries, keys, values [n, tokens, 3, heads, size], on a GPU.

    Its kernels compute 64 x 64 scores at a time. So a group of rows is one sequence, in which the tokens of
    each row attend to each other only: all other scores are masked.
    """
    n, count, _, heads, size = qkv.shape
    rows = math.gcd(n, 1 << max(0, (GROUP // count).bit_length() - 1))
    query, key, value = qkv.reshape(n // rows, rows * count, 3, heads, size).permute(2, 0, 3, 1, 4)
    mask = group_mask(rows, count, qkv.device) if rows > 1 else None
    attended = scaled_dot_product_attention(query, key, value, mask)
    return attended.transpose(1, 2).reshape(n, count, heads, size)


@cache
def group_mask(rows: int, count: int, device: torch.device) -> Tensor:
    """[rows * count, rows * count] whether two tokens belong to the same row."""
    row = torch.arange(rows * count, device=device) // count
    return row[:, None] == row


@torch.library.custom_op("rematch::attention", mutates_args=())
def tiled_attention(qkv: Tensor) -> Tensor:
    """`grouped_attention` without a gradient, also in tiles (torch.vmap)."""
    return grouped_attention(qkv)


@tiled_attention.register_vmap
def _in_tiles(info: object, in_dims: tuple[int | None, ...], qkv: Tensor) -> tuple[Tensor, int]:
    (dim,) = in_dims
    assert dim is not None
    tiles = qkv.movedim(dim, 0)
    return tiled_attention(tiles.flatten(0, 1)).unflatten(0, tiles.shape[:2]), 0


def block(w: Weights, prefix: str, heads: int, x: Tensor, dropout: Dropout) -> Tensor:
    """One layer: self-attention, then a two-layer MLP per token, each with a residual connection."""
    # Sizes come from weights, not from x: they are constants in an ONNX file.
    count, width = len(w["position.table"]), len(w["final_norm.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        return layer_norm(x, (width,), 1 + w[f"{prefix}.{name}.scale"], w[f"{prefix}.{name}.bias"])

    qkv = linear(norm("norm1", x), w[f"{prefix}.attn.qkv.weight"], w[f"{prefix}.attn.qkv.bias"])
    qkv = qkv.view(-1, count, 3, heads, width // heads)
    if qkv.device.type == "cpu":
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(-1, count, width)
    else:
        attended = (grouped_attention if qkv.requires_grad else tiled_attention)(qkv).flatten(2)
    x = x + dropout(linear(attended, w[f"{prefix}.attn.out.weight"], w[f"{prefix}.attn.out.bias"]))
    hidden = dropout(gelu(linear(norm("norm2", x), w[f"{prefix}.up.weight"], w[f"{prefix}.up.bias"])))
    return x + dropout(linear(hidden, w[f"{prefix}.down.weight"], w[f"{prefix}.down.bias"]))


def apply(
    w: Weights, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None,
    dropout: Dropout | None = None,
) -> NetworkOutput:  # fmt: skip
    """The output of the network with named weights for observations [n, F]."""
    drop = dropout or _identity
    x = tokens(w, role, obs)
    for layer in range(config.layers):
        x = block(w, f"layer.{layer}", config.heads, x, drop)
    x = layer_norm(x[:, -1], (config.width,), 1 + w["final_norm.scale"], w["final_norm.bias"])
    with nullcontext() if x.device.type == "cpu" else torch.autocast(x.device.type, enabled=False):
        heads = linear(x, w["policy.head.weight"], w["policy.head.bias"])  # float32: they enter exp()
        value = linear(x, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    distribution = Distribution(masked(heads, mask) if log_std is None else heads, log_std)
    return NetworkOutput(distribution, value, None)
