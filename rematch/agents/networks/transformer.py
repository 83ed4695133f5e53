"""A transformer (Vaswani et al. 2017; norms first, as Xiong et al. 2020) over what a seat sees, in torch.

Every column that names something is a token, the row of its own table widened to the tokens' width; the
quantities of a field are one token together; one more token reads out. Nothing here knows a game: places in a
line, hands and piles become tokens because a world declares them so (`Field.choices`). Weights are a policy's
flat vector, and agents/networks/torch_network.py acts with them as with an encoder's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout, quantities
from rematch.agents.networks.mlp import Answer, Distribution, masked
from rematch.core.spec import Role

if TYPE_CHECKING:
    from collections.abc import Mapping


class Dropout:
    """Zeroes a share of numbers by a generator of its own; nothing while acting."""

    def __init__(self, share: float, key: int | None, device: torch.device) -> None:
        self.share = 0.0 if key is None else share
        self.luck = torch.Generator(device)
        self.luck.manual_seed(0 if key is None else key & (2**63 - 1))

    def __call__(self, x: Tensor) -> Tensor:
        if not self.share:
            return x
        keep = torch.rand(x.shape, generator=self.luck, device=x.device) >= self.share
        return x * keep / (1 - self.share)


def tokens(w: Mapping[str, Tensor], role: Role, obs: Tensor) -> Tensor:
    """[n, tokens, width] of a sight [n, F]: what is named, fields of quantities, the one that reads out."""
    named, out = [i for i, n in enumerate(role.categories) if n], []
    if named:
        first = torch.tensor([0, *(role.categories[i] for i in named)]).cumsum(0)[:-1].to(obs.device)
        rows = w["embed.table"][obs[:, named].long() + first]
        out.append(linear(rows, w["embed.weight"], w["embed.bias"]))
    for name, columns in quantities(role):
        out.append(linear(obs[:, columns], w[f"field.{name}.weight"], w[f"field.{name}.bias"])[:, None])
    blank = torch.zeros_like(w["place.table"][-1:]).expand(obs.shape[0], 1, -1)
    return torch.cat([*out, blank], 1) + w["place.table"]


def block(w: Mapping[str, Tensor], at: str, heads: int, x: Tensor, dropout: Dropout) -> Tensor:
    """One layer: attention of all tokens to all, then each by itself; both added to what came in."""
    count, width = len(w["place.table"]), len(w["last.bias"])  # of weights: an ONNX file then knows them

    def norm(which: str, x: Tensor) -> Tensor:
        return layer_norm(x, (width,), 1 + w[f"{at}.{which}.scale"], w[f"{at}.{which}.bias"])

    parts = linear(norm("first", x), w[f"{at}.ask.weight"], w[f"{at}.ask.bias"])
    query, key, value = parts.view(-1, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    seen = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(-1, count, width)
    x = x + dropout(linear(seen, w[f"{at}.told.weight"], w[f"{at}.told.bias"]))
    inner = dropout(gelu(linear(norm("second", x), w[f"{at}.up.weight"], w[f"{at}.up.bias"])))
    return x + dropout(linear(inner, w[f"{at}.down.weight"], w[f"{at}.down.bias"]))


def answer(
    flat: Tensor, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None,
    key: int | None = None,
) -> Answer:  # fmt: skip
    """What weights `flat` [P] say to a sight [n, F]; `key`: of dropout, while learning."""
    where = layout(role, config)
    w = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in where}
    dropout = Dropout(config.dropout, key, obs.device)
    x = tokens(w, role, obs)
    for layer in range(config.layers):
        x = block(w, f"layer.{layer}", config.heads, x, dropout)
    x = layer_norm(x[:, -1], (config.width,), 1 + w["last.scale"], w["last.bias"])
    heads = linear(x, w["policy.head.weight"], w["policy.head.bias"])
    value = linear(x, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    return Answer(Distribution(masked(heads, mask) if log_std is None else heads, log_std), value, None)
