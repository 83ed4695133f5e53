"""PPO's gradient from the papers, sharing nothing with the engine: Gymnasium, torch's autograd, float64.

Schulman et al. 2016 (advantages, eq. 16) and 2017 (clipped surrogate, eq. 7 and 9). `episodes` plays given
actions in an environment of its own; `gradient` works out everything else by the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

Weights = dict[str, Tensor]


@dataclass
class Settings:
    gamma: float
    lam: float
    clip: float
    value: float
    entropy: float


def net(w: Weights, seen: Any) -> tuple[Any, Tensor]:
    """The distribution and the value of observations [n, F]: tanh layers, heads on top."""
    seen = torch.as_tensor(np.asarray(seen), dtype=torch.float64)

    def tower(name: str) -> Tensor:
        x, i = seen, 0
        while f"{name}.{i}.weight" in w:
            x, i = torch.tanh(x @ w[f"{name}.{i}.weight"].T + w[f"{name}.{i}.bias"]), i + 1
        return x

    actor, critic = (tower("trunk"),) * 2 if "trunk.0.weight" in w else (tower("policy"), tower("value"))
    out = actor @ w["policy.head.weight"].T + w["policy.head.bias"]
    value = (critic @ w["value.head.weight"].T + w["value.head.bias"])[:, 0]
    return Normal(out, w["policy.log_std"].exp()) if "policy.log_std" in w else Categorical(logits=out), value


def episodes(env: Any, seeds: Any, actions: Any, given: Any) -> list[dict[str, Any]]:
    """Play the actions [T]; `given` makes one what the environment takes; a dict per episode."""
    pieces: list[dict[str, Any]] = []
    seen = None
    for action in actions:
        if seen is None:
            seen = env.reset(seed=next(seeds))[0]
            pieces.append({"seen": [], "action": [], "reward": [], "decided": False})
        piece = pieces[-1]
        piece["seen"].append(seen)
        piece["action"].append(action)
        seen, reward, terminated, truncated, _ = env.step(given(action))
        piece["reward"].append(float(reward))
        piece["after"], piece["decided"] = seen, terminated
        seen = None if terminated or truncated else seen
    return pieces


def gradient(old: Weights, new: Weights, pieces: list[dict[str, Any]], s: Settings) -> dict[str, Tensor]:
    """Of the loss over all decisions, at the weights `new`, after a rollout by `old`."""
    advantages, targets = [], []
    for piece in pieces:
        with torch.no_grad():
            value = net(old, piece["seen"])[1]
            after = torch.zeros(1) if piece["decided"] else net(old, [piece["after"]])[1]
        delta = torch.tensor(piece["reward"]) + s.gamma * torch.cat([value[1:], after]) - value
        for t in range(len(delta)):  # eq. 16: a sum of discounted errors up to the piece's end
            weight = (s.gamma * s.lam) ** torch.arange(len(delta) - t, dtype=torch.float64)
            advantages.append((weight * delta[t:]).sum())
            targets.append(advantages[-1] + value[t])
    advantage, target = torch.stack(advantages), torch.stack(targets)
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    seen = [x for piece in pieces for x in piece["seen"]]
    action = torch.as_tensor(np.asarray([a for piece in pieces for a in piece["action"]]))
    leaves = {name: w.clone().requires_grad_() for name, w in new.items()}

    def log_prob(play: Any) -> Tensor:
        logp: Tensor = play.log_prob(action.double() if isinstance(play, Normal) else action)
        return logp.sum(-1) if isinstance(play, Normal) else logp

    play, value = net(leaves, seen)
    ratio = (log_prob(play) - log_prob(net(old, seen)[0])).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - s.clip, 1 + s.clip) * advantage)
    entropy = play.entropy().sum(-1) if isinstance(play, Normal) else play.entropy()
    loss = -surrogate.mean() + s.value * ((value - target) ** 2).mean() - s.entropy * entropy.mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: w.grad for name, w in leaves.items() if w.grad is not None}
