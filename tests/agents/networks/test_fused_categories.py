"""The fused network with categorical columns, and with a value that is a probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.networks import minibatch, policy, role

from rematch.agents.networks import mlp

CLOSE = 2e-6  # relative, float32 against float64


@pytest.mark.parametrize("shared", [False, True])
def test_cross_entropy_of_the_value(shared: bool) -> None:
    """With `cross` the value is a logit: loss and gradient are those of binary_cross_entropy_with_logits."""
    made = policy(role(names=(4, 9)), hidden=(20, 11), shared=shared)
    batch = minibatch(made, 150)
    batch["target"] = np.random.default_rng(0).random(150).astype(np.float32)
    batch["advantage"] = np.zeros(150, np.float32)
    native, rows = np.empty_like(made.weights), np.arange(150)
    means = made.network.gradient(made.packed[0], rows, batch, (0.2, 0, 1.0, 0, 0), 1, native, cross=True)
    flat = torch.from_numpy(made.weights.astype(np.float64)).requires_grad_()
    obs = torch.from_numpy(batch["obs"].astype(np.float64))
    value = mlp.policy_and_value(flat, made.role, made.config, obs)[1]
    target = torch.from_numpy(batch["target"].astype(np.float64))
    total = torch.nn.functional.binary_cross_entropy_with_logits(value, target)
    (slope,) = torch.autograd.grad(total, flat)
    assert means["value_loss"] == pytest.approx(float(total.detach()), rel=1e-6)
    assert np.linalg.norm(native - slope.numpy()) < CLOSE * np.linalg.norm(slope.numpy())


@pytest.mark.parametrize("bad", [-1.0, 4.0, 1e30, float("nan"), float("inf")])
def test_unknown_category_gives_nan(bad: float) -> None:
    made = policy(role(names=(4,)), hidden=(16,))
    batch = minibatch(made, 70)
    batch["obs"][3, list(made.role.categories).index(4)] = bad
    heads, value = made.forward(batch["obs"])
    assert np.isnan(heads[3]).all() and np.isnan(value[3])
    assert np.isfinite(np.delete(heads, 3, 0)).all()
    out = np.empty_like(made.weights)
    made.network.gradient(made.packed[0], np.arange(70), batch, (0.2, 0, 0.5, 0, 0), 2, out)
    assert np.isnan(out).any()
