"""The search on the GPU beside that of the CPU, in an emulation that needs no GPU."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from support.emulated_worlds import emulated_gpu

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.torch_network import HalfNetwork
from rematch.agents.policy import Policy
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at
from rematch.core.system import cuda
from rematch.worlds.beasty.bots import guided_search
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.cuda_search import CudaSearch, Positions
from rematch.worlds.beasty.world import BeastyWorld, make

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
__all__ = ["emulated_gpu"]
KEY = RngKey(12345678901234567890, 2, 2**32 + 7)
GAMES = 48
RULES: dict[str, dict[str, Any]] = {
    "two players": {}, "variant": {"earlier_rules": True},
    "three players": {"players": 3, "scoring": "count", "first": -1},
}  # fmt: skip


def positions(settings: dict[str, Any]) -> BeastyWorld:
    """Games after different numbers of random turns: openings, and positions with empty decks."""
    world = make(Config(**settings), GAMES, first=900, seed=3)
    states = []
    for turns in range(GAMES):
        row = np.array([turns], np.int32)
        states.append(world.save(row))
        world.random_steps(1, 11 + turns)
    world.load(np.arange(GAMES, dtype=np.int32), np.concatenate(states))
    return world


def on_gpu(world: BeastyWorld, candidates: torch.Tensor | None = None) -> Positions:
    """The games as `CudaSearch` takes them."""
    rows = np.arange(GAMES, dtype=np.int32)
    return torch.from_numpy(world.save(rows)), torch.arange(world.first, world.first + GAMES), candidates


@pytest.mark.parametrize("rules", RULES)
def test_values_have_the_bits_of_the_cpu(rules: str, emulated_gpu: None) -> None:
    world, rows = positions(RULES[rules]), np.arange(GAMES, dtype=np.int32)
    search = CudaSearch(world.config)
    expected = world.action_values(rows, 5, KEY)
    found = search.action_values(on_gpu(world), 5, KEY).numpy()
    assert np.array_equal(expected, found, equal_nan=True)
    if world.config.players == 2:
        solved = (world.save(rows).view(world.game_type)[:, 0]["deck"] == 0).all(1)
        assert 4 < solved.sum() < GAMES - 4
    legal = world.shared.rules.legal(world.save(rows))
    first = np.array([int(bits) & -int(bits) for bits in legal], np.uint64)
    expected = world.action_values(rows, 3, KEY, candidates=first)
    found = search.action_values(on_gpu(world, torch.from_numpy(first.view(np.int64))), 3, KEY).numpy()
    assert np.array_equal(expected, found, equal_nan=True)
    assert (np.isfinite(found).sum(1) == 1).all()


def test_observations_have_the_bits_of_the_cpu(emulated_gpu: None) -> None:
    world = positions({})
    obs, mask = CudaSearch(world.config).observe(on_gpu(world)[0])
    view, rows = world.view, np.arange(GAMES)
    seat = view.acting.argmax(1)
    fields = [view.fields["player"][name][rows, seat] for name in ("line", "cards", "counts")]
    assert np.array_equal(np.concatenate(fields, -1), obs.numpy())
    assert np.array_equal(view.mask["player"][rows, seat], mask.numpy())


@pytest.mark.parametrize(("rules", "turns"), [("two players", -1), ("two players", 3), ("three players", -1)])
def test_playouts_of_a_policy_are_those_of_the_cpu(rules: str, turns: int, emulated_gpu: None) -> None:
    """With one float32 network on both sides; seats have the policy or a bot."""
    world, rows = positions(RULES[rules]), np.arange(GAMES, dtype=np.int32)
    policy = random_policy(world)
    players = np.random.default_rng(0).integers(-1, 10, (GAMES, world.spec.seats)).astype(np.int32)
    expected = world.policy_values(rows, (3, turns), KEY, players, lambda obs: policy.forward(obs)[:2])

    def play(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, values = policy.forward(obs.numpy())[:2]
        return torch.from_numpy(logits), torch.from_numpy(values)

    search = CudaSearch(world.config)
    found = search.policy_values(on_gpu(world), (3, turns), KEY, torch.from_numpy(players), play).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6, equal_nan=True)
    other = world.policy_values(rows, (3, turns), KEY, players * 0 - 1, lambda obs: policy.forward(obs)[:2])
    assert not np.allclose(other, expected, equal_nan=True)


def test_bots_that_play_leaves_have_the_values_of_the_search(emulated_gpu: None) -> None:
    """A policy that is never asked: the same playouts by another way."""
    world, rows = positions({}), np.arange(GAMES, dtype=np.int32)
    search = CudaSearch(world.config)
    players = np.full((GAMES, 2), search.playout_bot, np.int32)
    expected = world.action_values(rows, 4, KEY)

    def never(obs: np.ndarray[Any, Any]) -> Any:
        return np.full((len(obs), 33), np.nan, np.float32), np.full(len(obs), np.nan, np.float32)

    found = world.policy_values(rows, (4, -1), KEY, players, never)
    np.testing.assert_allclose(found, expected, atol=1e-6, equal_nan=True)

    def nothing(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((len(obs), 33), torch.nan), torch.full((len(obs),), torch.nan)

    tensor = search.policy_values(on_gpu(world), (4, -1), KEY, torch.from_numpy(players), nothing)
    np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6, equal_nan=True)


def random_policy(world: BeastyWorld, **settings: Any) -> Policy:
    config = NetworkConfig(hidden=(32, 16), **settings)
    policy = Policy(world.spec.roles["player"], config, "policy")
    policy.initialise(5)
    noise = np.random.default_rng(1).normal(0, 0.1, policy.weights.size)
    policy.set(policy.weights + noise.astype(np.float32))
    return policy


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_network_in_bfloat16_is_near_that_in_float32(activation: str, emulated_gpu: None) -> None:
    world = positions({})
    policy = random_policy(world, activation=activation)
    obs = CudaSearch(world.config).observe(on_gpu(world)[0])[0]
    network = HalfNetwork(policy.role, policy.config, torch.device("cpu"))
    network.set(torch.from_numpy(policy.weights))
    logits, values = network(obs)
    expected, expected_values = policy.forward(obs.numpy())[:2]
    scale = np.abs(expected).max()
    assert scale > 0.5 and np.abs(logits.numpy() - expected).max() < 0.02 * scale
    assert np.abs(values.numpy() - expected_values).max() < 0.02 * max(1.0, np.abs(expected_values).max())


def test_guided_search_with_playouts_of_its_policy(emulated_gpu: None) -> None:
    """On the GPU the network is rounded: most decisions are the same."""
    world, rows = positions({}), np.arange(GAMES, dtype=np.int32)
    policy = random_policy(world)
    moves = world.view.acting[:, 0] != 0
    chosen = {}
    for budget in ("6:policy", "6:cuda", "6"):
        player = guided_search(policy, budget)
        assert player.name == f"policy+search:{budget}"
        some = seat_at(world, 0, rows[moves])
        chosen[budget] = player.act(some, KEY).action
        assert some.mask is not None and some.mask[np.arange(moves.sum()), chosen[budget]].all()
    assert (chosen["6:policy"] == chosen["6:cuda"]).mean() > 0.9
    assert (chosen["6:policy"] != chosen["6"]).any()


def test_search_on_a_gpu_that_is_missing_is_one_line() -> None:
    world = positions({})
    if not cuda.no_gpu():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match=r"policy\+search:6:cuda: .*; expected policy in place of cuda"):
        guided_search(random_policy(world), "6:cuda")
    with pytest.raises(ConfigError, match="expected a network of kind mlp with shared layers"):
        random_policy(world, shared=False).on_tensors(torch.device("cpu"))
