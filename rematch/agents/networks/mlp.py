"""The network of agents/networks/fused.h in torch: the readable twin, for autograd and for checking.

Weights are the same flat vector, so either side can take over from the other at any time. What an encoder
(agents/networks/history_encoders.py) makes of a history stands beside the other numbers; that network is
this file alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from rematch.agents.networks import history_encoders
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.history_encoders import HALF_LOG_2PI
from rematch.agents.networks.layout import history, layout, plain, privileged
from rematch.core.spec import Role


@dataclass
class Distribution:
    """What a policy plays: independent Gaussians (log_std given) or one categorical choice."""

    heads: Tensor  # [n, A] means or masked logits
    log_std: Tensor | None  # [A]

    def log_prob(self, action: Tensor) -> Tensor:
        """[n] from actions [n, A] or choices [n]."""
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
        far = (self.heads - other.heads) ** 2 * torch.exp(-2 * other.log_std)
        return (other.log_std - self.log_std + 0.5 * (ratio + far) - 0.5).sum(-1)


def masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else logits.masked_fill(mask == 0, -torch.inf)


@dataclass
class Answer:
    """All that a network says of n rows."""

    play: Distribution
    value: Tensor | None  # [n]; none from a critic of what is aside that is not told it
    belief: history_encoders.Belief | None  # of bimdn


def answer(
    flat: Tensor,
    role: Role,
    config: NetworkConfig,
    obs: Tensor,
    mask: Tensor | None = None,
    told: Tensor | None = None,
) -> Answer:
    """What weights `flat` [P] say to a sight [n, F], the critic perhaps told what is aside [n, aside].

    Of a transformer `told` is the key of its dropout, one whole number, where it learns.
    """
    if config.kind == "transformer":
        from rematch.agents.networks import transformer

        return transformer.answer(flat, role, config, obs, mask, None if told is None else int(told))
    where = layout(role, config)
    if config.module:
        from rematch.agents.networks import user_network

        views = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in where}
        return user_network.answer(views, role, config, obs, mask)
    w = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in where}
    squash = torch.tanh if config.activation == "tanh" else torch.relu
    code, belief = obs[:, :0], None
    if config.encoder != "mlp":
        columns, steps, numbers = history(role, config)
        code, belief = history_encoders.encode(
            w, config.encoder, obs[:, columns].reshape(-1, steps, numbers)
        )
    own = torch.tensor(plain(role, config))
    categories = tuple(n for n, here in zip(role.categories, own.tolist()) if here)

    def tower(name: str, seen: Tensor, categories: tuple[int, ...]) -> Tensor:
        quantity = torch.tensor([n == 0 for n in categories], dtype=torch.bool)
        numbers, names = seen[:, quantity], seen[:, ~quantity].long()
        octaves = [
            f(torch.pi * 2**k * numbers) for k in range(config.fourier) for f in (torch.sin, torch.cos)
        ]
        x = linear(torch.cat([numbers, *octaves, code], -1), w[f"{name}.0.weight"], w[f"{name}.0.bias"])
        if names.shape[1]:  # the row of everything that is named
            first_row = torch.tensor([0, *(n for n in categories if n)]).cumsum(0)[:-1]
            x = x + w[f"{name}.0.table"][names + first_row].sum(1)
        for i in range(1, len(config.hidden)):
            x = linear(squash(x), w[f"{name}.{i}.weight"], w[f"{name}.{i}.bias"])
        return squash(x)

    critic: Tensor | None
    actor = critic = tower("trunk" if config.one_tower else "policy", obs[:, own], categories)
    if config.critic == "centralized":
        critic = None
        if told is not None:
            critic = tower("value", torch.cat([obs[:, own], told], -1), categories + privileged(role, config))
    elif not config.shared:
        critic = tower("value", obs[:, own], categories)
    heads = linear(actor, w["policy.head.weight"], w["policy.head.bias"])
    value = None if critic is None else linear(critic, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    play = Distribution(masked(heads, mask) if log_std is None else heads, log_std)
    return Answer(play, value, belief)


def forward(
    flat: Tensor, role: Role, config: NetworkConfig, obs: Tensor, mask: Tensor | None = None
) -> tuple[Distribution, Tensor]:
    """The distribution and value [n] of a network whose critic looks at the sight alone."""
    said = answer(flat, role, config, obs, mask)
    assert said.value is not None, "a critic of what is aside: see `answer`"
    return said.play, said.value
