"""The objective of proximal policy optimization in torch, one line per term: the reference of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.networks import mlp
from rematch.agents.networks.layout import opponent_columns
from rematch.agents.policy import Policy

if TYPE_CHECKING:
    from rematch.agents.learners.ppo import PpoConfig


def loss(
    policy: Policy, config: PpoConfig, flat: Tensor, rows: Mapping[str, NDArray[Any]], entropy_weight: float,
    temperature: float = 1.0,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """The objective of one minibatch for weights `flat` [P], and the logged means."""
    b = {name: torch.from_numpy(array).to(flat.device) for name, array in rows.items()}
    dropout_key = int(b["dropout"]) if "dropout" in b else None
    output = mlp.forward(flat, policy.role, policy.config, b["obs"], b.get("mask"),
                         privileged=b.get("privileged"), dropout_key=dropout_key)
    return objective(policy, config, output, b, entropy_weight, temperature)


def objective(
    policy: Policy, config: PpoConfig, output: mlp.NetworkOutput, b: Mapping[str, Tensor],
    entropy_weight: float | Tensor, temperature: float | Tensor = 1.0,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """The objective of one minibatch `b` for what the network computed, and the logged means.

    b["share"] [n], where given, is the share of each row in the means: 0 for padding.
    """

    def mean(numbers: Tensor) -> Tensor:
        return (numbers * b["share"]).sum() if "share" in b else numbers.mean()

    distribution, value = output.distribution, output.value
    assert value is not None
    if isinstance(temperature, Tensor) or temperature != 1.0:
        # training games are played at this temperature: the ratio must be as well
        distribution = mlp.Distribution(distribution.heads / temperature, distribution.log_std)
    log_ratio = distribution.log_prob(b["action"]) - b["logp"]
    ratio = log_ratio.exp()
    # eq. 7: the smaller of the plain and the clipped surrogate
    plain = ratio * b["advantage"]
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip) * b["advantage"]
    policy_loss = -mean(torch.minimum(plain, clipped))
    error = (value - b["target"]) ** 2
    if config.value_clip > 0:
        clipped_value = b["value"] + (value - b["value"]).clamp(-config.value_clip, config.value_clip)
        error = torch.maximum(error, (clipped_value - b["target"]) ** 2)
    value_loss = mean(error)
    entropy = mean(distribution.entropy())
    total = policy_loss + config.value_weight * value_loss - entropy_weight * entropy
    magnet_kl = torch.zeros((), device=value.device)
    if "magnet" in b:
        magnet = mlp.Distribution(mlp.masked(b["magnet"], b.get("mask")), b.get("magnet_log_std"))
        magnet_kl = mean(distribution.kl(magnet))
        total = total + config.magnet_weight * magnet_kl
    means = {
        "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "magnet_kl": magnet_kl,
        "kl": mean(ratio - 1 - log_ratio),
        "clip_fraction": mean(((ratio - 1).abs() > config.clip).float()),
    }  # fmt: skip
    if output.belief is not None:  # bimdn learns the opponent's position
        means["belief_nll"] = mean(output.belief.nll(b["privileged"][:, opponent_columns(policy.role)]))
        total = total + policy.config.belief_weight * means["belief_nll"]
    return total, means
