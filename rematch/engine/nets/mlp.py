"""The network of nets/fused.h in torch: the readable twin, for autograd and for checking.

Weights are the same flat vector, so either side can take over from the other at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from rematch.engine.policy import NetworkConfig, layout
from rematch.spec import Role

HALF_LOG_2PI = 0.9189385332046727


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


def forward(
    flat: Tensor, role: Role, config: NetworkConfig, sight: Tensor, mask: Tensor | None = None
) -> tuple[Distribution, Tensor]:
    """The distribution and value [n] for sight [n, F] under weights `flat` [P]."""
    where = layout(role, config)
    w = {name: flat[at : at + torch.Size(shape).numel()].view(shape) for name, shape, at in where}
    quantity = torch.tensor([n == 0 for n in role.choices])
    numbers, names = sight[:, quantity], sight[:, ~quantity].long()
    octaves = [f(torch.pi * 2**k * numbers) for k in range(config.fourier) for f in (torch.sin, torch.cos)]
    seen = torch.cat([numbers, *octaves], dim=-1)
    first_row = torch.tensor([0, *(n for n in role.choices if n)]).cumsum(0)[:-1]
    squash = torch.tanh if config.activation == "tanh" else torch.relu

    def tower(name: str) -> Tensor:
        x = linear(seen, w[f"{name}.0.weight"], w[f"{name}.0.bias"])
        if names.shape[1]:  # the row of everything that is named
            x = x + w[f"{name}.0.table"][names + first_row].sum(1)
        for i in range(1, len(config.hidden)):
            x = linear(squash(x), w[f"{name}.{i}.weight"], w[f"{name}.{i}.bias"])
        return squash(x)

    if config.shared:
        actor = critic = tower("trunk")
    else:
        actor, critic = tower("policy"), tower("value")
    heads = linear(actor, w["policy.head.weight"], w["policy.head.bias"])
    value = linear(critic, w["value.head.weight"], w["value.head.bias"])[:, 0]
    log_std = w.get("policy.log_std")
    return Distribution(masked(heads, mask) if log_std is None else heads, log_std), value
