"""The readable network and its distributions, against numpy in float64 and torch.distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.networks import minibatch, policy, role
from torch import distributions

from rematch.agents.networks import mlp
from rematch.agents.networks.layout import weight_views


def reference(made: Any, obs: Any) -> tuple[Any, Any]:
    """Heads [n, A] and values [n] by matrix products in numpy."""
    config = made.config
    w = {name: view.astype(np.float64) for name, view in weight_views(made.weights, made.layout).items()}
    categories = made.role.categories
    numbers = obs[:, [i for i, n in enumerate(categories) if not n]]
    seen = [numbers]
    for octave in range(config.fourier):
        seen += [np.sin(np.pi * 2**octave * numbers), np.cos(np.pi * 2**octave * numbers)]
    ones = [np.arange(n) == obs[:, i : i + 1] for i, n in enumerate(categories) if n]  # one-hot vectors

    def tower(name: str) -> Any:
        x = np.concatenate(seen, 1)
        for i in range(len(config.hidden)):
            x = x @ w[f"{name}.{i}.weight"].T + w[f"{name}.{i}.bias"]
            if i == 0 and ones:
                x = x + np.concatenate(ones, 1) @ w[f"{name}.0.table"]
            x = np.tanh(x) if config.activation == "tanh" else np.maximum(x, 0)
        return x

    actor, critic = ("trunk", "trunk") if config.shared else ("policy", "value")
    heads = tower(actor) @ w["policy.head.weight"].T + w["policy.head.bias"]
    return heads, (tower(critic) @ w["value.head.weight"].T + w["value.head.bias"])[:, 0]


@pytest.mark.parametrize(
    "net",
    [
        {},
        {"shared": False},
        {"activation": "relu"},
        {"fourier": 2, "shared": False},
        {"fourier": 8, "hidden": (5,)},
    ],
)
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("names", [(), (3, 8)])
def test_forward_is_matrix_products(net: dict[str, Any], discrete: bool, names: tuple[int, ...]) -> None:
    made = policy(role(discrete=discrete, names=names), **net)
    obs = minibatch(made, 9)["obs"].astype(np.float64)
    flat = torch.from_numpy(made.weights.astype(np.float64))
    play, value = mlp.policy_and_value(flat, made.role, made.config, torch.from_numpy(obs))
    heads, expected = reference(made, obs)
    assert np.allclose(play.heads.numpy(), heads, atol=1e-12) and np.allclose(
        value.numpy(), expected, atol=1e-12
    )
    assert (play.log_std is None) == discrete


def test_categorical_equals_torch() -> None:
    torch.manual_seed(0)
    logits, other = torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    action = torch.tensor([0, 1, 2, 3, 4, 0])
    ours, torch_distribution = mlp.Distribution(logits, None), distributions.Categorical(logits=logits)
    assert torch.allclose(ours.log_prob(action), torch_distribution.log_prob(action))
    assert torch.allclose(ours.entropy(), torch_distribution.entropy())
    expected = distributions.kl_divergence(torch_distribution, distributions.Categorical(logits=other))
    assert torch.allclose(ours.kl(mlp.Distribution(other, None)), expected)


def test_mask_removes_actions() -> None:
    """Masked logits behave as if illegal actions did not exist: values, and gradients without NaN."""
    torch.manual_seed(0)
    logits, other = (
        torch.randn(4, 5, dtype=torch.float64, requires_grad=True),
        torch.randn(4, 5, dtype=torch.float64),
    )
    mask = torch.tensor([1, 0, 1, 1, 0])
    full = mlp.Distribution(mlp.masked(logits, mask), None)
    few = mlp.Distribution(logits[:, mask == 1], None)
    centre = mlp.Distribution(mlp.masked(other, mask), None), mlp.Distribution(other[:, mask == 1], None)
    pairs = [
        (full.log_prob(torch.tensor([0, 2, 3, 3])), few.log_prob(torch.tensor([0, 1, 2, 2]))),
        (full.entropy(), few.entropy()),
        (full.kl(centre[0]), few.kl(centre[1])),
    ]
    for ours, expected in pairs:
        assert torch.allclose(ours, expected)
        (a,) = torch.autograd.grad(ours.sum(), logits, retain_graph=True)
        (b,) = torch.autograd.grad(expected.sum(), logits, retain_graph=True)
        assert torch.isfinite(a).all() and torch.allclose(a, b) and (a[:, mask == 0] == 0).all()


def test_gaussian_equals_torch() -> None:
    torch.manual_seed(0)
    mean, other = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    log_std, log_other = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    action = torch.randn(6, 3, dtype=torch.float64)
    ours = mlp.Distribution(mean, log_std)
    torch_distribution = distributions.Independent(distributions.Normal(mean, log_std.exp().expand(6, 3)), 1)
    expected = distributions.Independent(distributions.Normal(other, log_other.exp().expand(6, 3)), 1)
    assert torch.allclose(ours.log_prob(action), torch_distribution.log_prob(action))
    assert torch.allclose(ours.entropy(), torch_distribution.entropy())
    assert torch.allclose(
        ours.kl(mlp.Distribution(other, log_other)), distributions.kl_divergence(torch_distribution, expected)
    )


def test_small_table_has_the_gradient_of_indexing() -> None:
    torch.manual_seed(0)
    table, index = torch.randn(9, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 9, (30, 3))
    rows = mlp.SmallTable.apply(table, index)  # type: ignore[no-untyped-call]
    assert torch.equal(rows, table[index])
    gradients = [torch.autograd.grad((out**3).sum(), table)[0] for out in (rows, table[index])]
    assert torch.allclose(*gradients, atol=1e-12)


def test_constants_of_another_device_are_made_once() -> None:
    meta = torch.device("meta")
    assert mlp.constant([3, 1], meta) is mlp.constant((3, 1), meta)
    assert mlp.constant([3, 1], torch.device("cpu")).tolist() == [3, 1]
    assert mlp.constant([], meta).dtype == torch.int64
