"""The network of agents/networks/fused.h in torch: the readable reference, for autograd and for tests.

Both use the same flat weight vector. The output of an encoder (agents/networks/history_encoders.py) is an
input of the towers beside the other numbers; networks with an encoder exist in torch only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from rematch.agents.networks import history_encoders
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.history_encoders import HALF_LOG_2PI
from rematch.agents.networks.layout import critic_categories, history_columns, layout, tower_columns
from rematch.core.spec import Role

Weights = Mapping[str, Tensor]  # by the names of agents/networks/layout.py
SMALL_TABLE = 1024  # rows
Dropout = Callable[[Tensor], Tensor]


@dataclass
class Distribution:
    """A distribution over actions: independent Gaussians, or categorical where log_std is None."""

    heads: Tensor  # [n, A] means or masked logits
    log_std: Tensor | None  # [A]

    def log_prob(self, action: Tensor) -> Tensor:
        """[n] of continuous actions [n, A] or discrete ones [n]."""
        if self.log_std is None:
            return self.heads.log_softmax(-1).gather(-1, action.long()[:, None])[:, 0]
        z = (action - self.heads) * torch.exp(-self.log_std)
        return (-0.5 * z * z - self.log_std - HALF_LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """[n]"""
        if self.log_std is None:
            logp = self.heads.log_softmax(-1)
            return -(logp.exp() * logp.masked_fill(logp == -torch.inf, 0.0)).sum(-1)
        return (self.log_std + 0.5 + HALF_LOG_2PI).sum().expand(len(self.heads))

    def kl(self, other: Distribution) -> Tensor:
        """KL(self || other), [n]"""
        if self.log_std is None or other.log_std is None:
            logp, logq = self.heads.log_softmax(-1), other.heads.log_softmax(-1)
            return (logp.exp() * (logp - logq).masked_fill(logp == -torch.inf, 0.0)).sum(-1)
        ratio = torch.exp(2 * (self.log_std - other.log_std))
        distance = (self.heads - other.heads) ** 2 * torch.exp(-2 * other.log_std)
        return (other.log_std - self.log_std + 0.5 * (ratio + distance) - 0.5).sum(-1)


def masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else logits.masked_fill(mask == 0, -torch.inf)


@dataclass
class NetworkOutput:
    """The output of a network for n rows."""

    distribution: Distribution
    value: Tensor | None  # [n]; None from a centralized critic without a privileged observation
    belief: history_encoders.Belief | None  # of the encoder bimdn


def forward(
    flat: Tensor, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None, *,
    privileged: Tensor | None = None, dropout_key: int | None = None,
) -> NetworkOutput:  # fmt: skip
    """The output of the network with weights `flat` [P] for observations [n, F].

    privileged: [n, privileged columns], for a centralized critic. dropout_key: seed of a transformer's
    dropout; None: no dropout.
    """
    dropout: Dropout | None = None
    if config.kind == "transformer" and dropout_key is not None:
        from rematch.agents.networks.transformer import KeyedDropout

        dropout = KeyedDropout(config.dropout, dropout_key, obs.device)
    return apply(views(flat, role, config), role, config, obs, mask, privileged=privileged, dropout=dropout)


def views(flat: Tensor, role: Role, config: NetworkConfig) -> dict[str, Tensor]:
    """name -> view of the flat weights [P]."""
    entries = layout(role, config)
    return {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in entries}


def constant(numbers: Sequence[int], device: torch.device) -> Tensor:
    """A tensor of constants; on the GPU it is made once: a CUDA graph cannot copy from the host."""
    make = _constant if device.type == "cpu" else cached_constant
    return make(tuple(numbers), device)


def _constant(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=device)


cached_constant = cache(_constant)


def apply(
    w: Weights, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None, *,
    privileged: Tensor | None = None, dropout: Dropout | None = None,
) -> NetworkOutput:  # fmt: skip
    """As `forward`, with named weights; dropout: of a transformer."""
    if config.kind == "transformer":
        from rematch.agents.networks import transformer

        return transformer.apply(w, role, config, obs, mask, dropout)
    if config.module:
        from rematch.agents.networks import user_network

        return user_network.forward(w, role, config, obs, mask)
    activation = torch.tanh if config.activation == "tanh" else torch.relu
    code, belief = obs[:, :0], None
    if config.encoder != "mlp":
        columns, steps, numbers = history_columns(role, config)
        code, belief = history_encoders.encode(
            w, config.encoder, obs[:, columns].reshape(-1, steps, numbers)
        )
    direct = [column for column, is_direct in enumerate(tower_columns(role, config)) if is_direct]
    categories = tuple(role.categories[column] for column in direct)
    direct_obs = obs if len(direct) == role.size else obs[:, constant(direct, obs.device)]

    def tower(name: str, columns: Tensor, categories: tuple[int, ...]) -> Tensor:
        numeric = [column for column, n in enumerate(categories) if n == 0]
        categorical = [column for column, n in enumerate(categories) if n]
        numbers = columns[:, constant(numeric, obs.device)] if categorical else columns
        octaves = [
            f(torch.pi * 2**k * numbers) for k in range(config.fourier) for f in (torch.sin, torch.cos)
        ]
        x = linear(torch.cat([numbers, *octaves, code], -1), w[f"{name}.0.weight"], w[f"{name}.0.bias"])
        if categorical:  # the table row of each categorical column
            category = columns[:, constant(categorical, obs.device)].long()
            rows = category + constant(first_rows(categories), obs.device)
            x = x + table_rows(w[f"{name}.0.table"], rows).sum(1)
        for i in range(1, len(config.hidden)):
            x = linear(activation(x), w[f"{name}.{i}.weight"], w[f"{name}.{i}.bias"])
        return activation(x)

    critic: Tensor | None
    actor = critic = tower("trunk" if config.one_tower else "policy", direct_obs, categories)
    if config.critic == "centralized":
        critic = None
        if privileged is not None:
            inputs = torch.cat([direct_obs, privileged], -1)
            critic = tower("value", inputs, categories + critic_categories(role, config))
    elif not config.shared:
        critic = tower("value", direct_obs, categories)
    heads = linear(actor, w["policy.head.weight"], w["policy.head.bias"])
    value = None if critic is None else linear(critic, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    distribution = Distribution(masked(heads, mask) if log_std is None else heads, log_std)
    return NetworkOutput(distribution, value, belief)


def table_rows(table: Tensor, index: Tensor) -> Tensor:
    """table[index]; on the GPU with a fast gradient for small tables, whose rows occur many times."""
    if table.device.type == "cpu" or not table.requires_grad or len(table) > SMALL_TABLE:
        return table[index]
    rows: Tensor = SmallTable.apply(table, index)  # type: ignore[no-untyped-call]
    return rows


class SmallTable(torch.autograd.Function):
    """Rows of a table [R, width]; the gradient is a product with one-hot vectors."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), (index,) = gradients, ctx.saved_tensors
        one_hot = index.reshape(-1, 1) == torch.arange(ctx.rows, device=index.device)
        return one_hot.to(gradient.dtype).T @ gradient.flatten(0, -2), None


def first_rows(categories: Sequence[int]) -> list[int]:
    """The first table row of each categorical column."""
    counts = [n for n in categories if n]
    return [sum(counts[:i]) for i in range(len(counts))]


def policy_and_value(
    flat: Tensor, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None
) -> tuple[Distribution, Tensor]:
    """The distribution and value [n] of a network whose critic reads the observation alone."""
    output = forward(flat, role, config, obs, mask)
    assert output.value is not None, "a centralized critic: call `forward`"
    return output.distribution, output.value
