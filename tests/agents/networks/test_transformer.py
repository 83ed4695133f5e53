"""The transformer: every token matters, dropout has a key, it learns, and autograd gives its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.networks import minibatch, policy, role

from rematch import api
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks import mlp, transformer
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.rehearsal.trial import play
from rematch.selfplay.league import League

SMALL: dict[str, Any] = {"kind": "transformer", "width": 16, "heads": 2, "layers": 2, "embedding": 6}


def test_output_depends_on_every_column() -> None:
    role_spec = role(obs=5, actions=4, names=(3, 7))
    made = policy(role_spec, **SMALL)
    obs = np.zeros((1, role_spec.size), np.float32)
    before = made.forward(obs)
    for column, categories in enumerate(role_spec.categories):
        other = obs.copy()
        other[0, column] = categories - 1 if categories else 0.5
        assert all(np.abs(new - old).max() > 1e-6 for new, old in zip(made.forward(other), before)), column


def test_equal_categories_of_two_columns_differ() -> None:
    """Tables and positions separate columns: categories 1, 2 are not categories 2, 1."""
    made = policy(role(obs=2, actions=4, names=(5, 5)), **SMALL)
    one, two = (np.array([[0, *names, 0]], np.float32) for names in ((1, 2), (2, 1)))
    assert np.abs(made.forward(one)[0] - made.forward(two)[0]).max() > 1e-4


def test_row_depends_on_itself_alone() -> None:
    made = policy(role(obs=5, actions=4, names=(3,)), **SMALL)
    obs = np.abs(minibatch(made, 150)["obs"]).astype(np.float32)
    obs[:, 2] = 1
    whole = made.forward(obs)[0]
    assert np.array_equal(np.concatenate([made.forward(obs[i : i + 1])[0] for i in range(0, 150, 30)]),
                          whole[::30])


def test_default_number_of_weights() -> None:
    """Width 256, 8 heads, 4 layers, embeddings of 64: about 3.2 million weights, all of them used."""
    default = NetworkConfig(kind="transformer")
    assert (default.width, default.heads, default.layers) == (256, 8, 4)
    assert (default.dropout, default.embedding) == (0.1, 64)
    made = Policy(api.world_builder(api.default("beasty"))(1, 0, 0).spec.roles["player"], default, "document")
    assert 3_000_000 < made.weights.size < 3_500_000
    small = policy(role(obs=5, actions=4, names=(3,)), **SMALL)
    flat = torch.from_numpy(small.weights.copy()).requires_grad_()
    obs = torch.rand(50, small.role.size)
    obs[:, 2] = torch.arange(50) % 3
    output = mlp.forward(flat, small.role, small.config, obs)
    assert output.value is not None
    logp = output.distribution.log_prob(torch.arange(50) % 4)
    (grad,) = torch.autograd.grad((logp + output.value).sum(), flat)
    for name, shape, at in layout(small.role, small.config):
        part = grad[at : at + torch.Size(shape).numel()]
        assert part.abs().max() > 0, name


def test_dropout_is_in_the_update_alone_and_repeats() -> None:
    role_spec = role(obs=5, actions=4, names=(3,))
    gradients = []
    for dropout, threads in ((0.5, 1), (0.5, 2), (0.0, 1)):
        made = policy(role_spec, **SMALL, dropout=dropout)
        batch = minibatch(made, 1500)
        batch["obs"][:, 2] = 1
        learner = Ppo(made, PpoConfig(), 3, threads)
        gradients.append(learner.gradient(batch, np.arange(1500), 0.01)[0])
        learner.adam.updates += 1
        again = learner.gradient(batch, np.arange(1500), 0.01)[0]
        assert np.array_equal(gradients[-1], again) == (dropout == 0.0)  # other random numbers
        assert made.forward(batch["obs"])[0].tobytes() == made.forward(batch["obs"])[0].tobytes()
    assert np.array_equal(gradients[0], gradients[1]) and not np.array_equal(gradients[0], gradients[2])


def test_two_short_iterations(tmp_path: Path) -> None:
    config = settings.replace(api.default("beasty"), {
        "threads": 1, "games": 16, "steps": 24, "total_steps": 16 * 24 * 2, "network.kind": "transformer",
        "network.width": 32, "network.heads": 4, "network.layers": 2, "ppo.minibatch_size": 128,
        "ppo.epochs": 1,
        "league.snapshot_every": 1, "evaluation.games": 2, "evaluation.opponents": ("random",),
    })
    seen = play(config, tmp_path / "run")
    assert len(seen.rows) == 2 and seen.rows[-1]["player/updates"] > 0
    league = seen.trainer.setup.get(League)
    assert league is not None and league.matchmaker.pools["player"].seen > 0


@pytest.mark.parametrize("changes", [
    {"width": 17}, {"layers": 1}, {"heads": 4}, {"embedding": 7}, {"dropout": 0.3},
])
def test_every_setting_changes_the_gradient(changes: dict[str, Any]) -> None:
    gradients = []
    for settings_ in (SMALL | {"heads": 1}, SMALL | {"heads": 1} | changes):
        made = policy(role(obs=5, actions=4, names=(3,)), **settings_)
        batch = minibatch(made, 20)
        batch["obs"][:, 2] = 1
        gradients.append(Ppo(made, PpoConfig(), 0, 1).gradient(batch, np.arange(20), 0.01)[0])
    assert gradients[0].shape != gradients[1].shape or not np.array_equal(*gradients)


@pytest.mark.parametrize(("flags", "line"), [
    (["--network.heads", "3"], "heads = 3: expected a divisor of width = 256"),
    (["--network.critic", "centralized"], "critic = centralized: not with kind transformer"),
    (["--network.hidden", "8"], "network.hidden = .* has no effect: network.kind is 'transformer'"),
    (["--ppo.gradient", "torch"], "ppo.gradient = torch: no effect with this network"),
])
def test_unsupported_settings_are_refused(flags: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        api.configure("iter600_to_1000", flags=flags)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"cuda: torch finds no CUDA device; expected --network.device cpu"):
        policy(role(), **SMALL, device="cuda")


@pytest.mark.parametrize("n", [1, 5, 12, 16])
@pytest.mark.parametrize("tokens", [1, 3, 7, 40])
def test_attention_of_groups_is_that_of_rows(n: int, tokens: int) -> None:
    torch.manual_seed(n)
    qkv = torch.randn(n, tokens, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    query, key, value = qkv.permute(2, 0, 3, 1, 4)
    rows = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    groups = transformer.grouped_attention(qkv)
    assert torch.allclose(groups, rows, atol=1e-12)
    gradients = [torch.autograd.grad((out**2).sum(), qkv, retain_graph=True)[0] for out in (groups, rows)]
    assert torch.allclose(*gradients, atol=1e-12)


def test_attention_in_tiles_is_that_of_each_tile() -> None:
    torch.manual_seed(0)
    qkv = torch.randn(8, 3, 7, 3, 2, 4)  # the second dimension counts the tiles
    tiles = torch.vmap(transformer.tiled_attention, 1)(qkv)
    for tile, attended in enumerate(tiles):
        assert torch.allclose(attended, transformer.grouped_attention(qkv[:, tile]), atol=1e-6)
