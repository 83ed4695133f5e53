"""The network of agents/networks/fused.h in torch: the readable reference, for autograd and for tests.

Both use the same flat weight vector. The output of an encoder (agents/networks/history_encoders.py) is an
input of the towers beside the other numbers; networks with an encoder exist in torch only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from rematch.agents.networks import history_encoders
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.history_encoders import HALF_LOG_2PI
from rematch.agents.networks.layout import critic_categories, history_columns, layout, tower_columns
from rematch.core.spec import Role


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
    if config.kind == "transformer":
        from rematch.agents.networks import transformer

        return transformer.forward(flat, role, config, obs, mask, dropout_key)
    entries = layout(role, config)
    if config.module:
        from rematch.agents.networks import user_network

        views = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in entries}
        return user_network.forward(views, role, config, obs, mask)
    w = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in entries}
    activation = torch.tanh if config.activation == "tanh" else torch.relu
    code, belief = obs[:, :0], None
    if config.encoder != "mlp":
        columns, steps, numbers = history_columns(role, config)
        code, belief = history_encoders.encode(
            w, config.encoder, obs[:, columns].reshape(-1, steps, numbers)
        )
    direct = torch.tensor(tower_columns(role, config))
    categories = tuple(n for n, is_direct in zip(role.categories, direct.tolist()) if is_direct)

    def tower(name: str, columns: Tensor, categories: tuple[int, ...]) -> Tensor:
        numeric = torch.tensor([n == 0 for n in categories], dtype=torch.bool)
        numbers, category = columns[:, numeric], columns[:, ~numeric].long()
        octaves = [
            f(torch.pi * 2**k * numbers) for k in range(config.fourier) for f in (torch.sin, torch.cos)
        ]
        x = linear(torch.cat([numbers, *octaves, code], -1), w[f"{name}.0.weight"], w[f"{name}.0.bias"])
        if category.shape[1]:  # the table row of each categorical column
            first_row = torch.tensor([0, *(n for n in categories if n)]).cumsum(0)[:-1]
            x = x + w[f"{name}.0.table"][category + first_row].sum(1)
        for i in range(1, len(config.hidden)):
            x = linear(activation(x), w[f"{name}.{i}.weight"], w[f"{name}.{i}.bias"])
        return activation(x)

    critic: Tensor | None
    actor = critic = tower("trunk" if config.one_tower else "policy", obs[:, direct], categories)
    if config.critic == "centralized":
        critic = None
        if privileged is not None:
            inputs = torch.cat([obs[:, direct], privileged], -1)
            critic = tower("value", inputs, categories + critic_categories(role, config))
    elif not config.shared:
        critic = tower("value", obs[:, direct], categories)
    heads = linear(actor, w["policy.head.weight"], w["policy.head.bias"])
    value = None if critic is None else linear(critic, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    distribution = Distribution(masked(heads, mask) if log_std is None else heads, log_std)
    return NetworkOutput(distribution, value, belief)


def policy_and_value(
    flat: Tensor, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None
) -> tuple[Distribution, Tensor]:
    """The distribution and value [n] of a network whose critic reads the observation alone."""
    output = forward(flat, role, config, obs, mask)
    assert output.value is not None, "a centralized critic: call `forward`"
    return output.distribution, output.value
