"""A user-defined network: any torch module that returns logits (or means) and values.

    rematch train quick --network examples/wide_network.py:Net --total_steps 200000
"""

from __future__ import annotations

import torch


class Net(torch.nn.Module):
    """Two layers of 128 with layer normalisation; policy and value have a head each."""

    def __init__(self, observation_size: int, action_size: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(observation_size, 128), torch.nn.LayerNorm(128), torch.nn.Tanh(),
            torch.nn.Linear(128, 128), torch.nn.Tanh(),
        )
        self.policy = torch.nn.Linear(128, action_size)
        self.value = torch.nn.Linear(128, 1)

    def forward(self, observation):
        features = self.body(observation)
        return 0.01 * self.policy(features), self.value(features)[:, 0]
