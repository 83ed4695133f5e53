"""Policies: flat weights with names, near-uniform initial play, samples by key, errors for wrong sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import toys
from support.networks import minibatch, policy, role

from rematch import api
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout, weight_views
from rematch.agents.policy import Policy, build_network, digest
from rematch.core.config import replace, validate
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey, Seat
from rematch.core.spec import Actions, Field, Role
from rematch.core.stepping import seat_at

NETS = st.builds(
    NetworkConfig,
    hidden=st.lists(st.integers(1, 20), min_size=1, max_size=8).map(tuple),
    shared=st.booleans(),
    activation=st.sampled_from(("tanh", "relu")),
    fourier=st.integers(0, 3),
)


@given(NETS, st.integers(1, 9), st.integers(1, 9), st.booleans(), st.lists(st.integers(1, 9), max_size=3))
@settings(max_examples=60, deadline=None)
def test_layout_covers_the_vector_once_and_fused_agrees(
    net: NetworkConfig, obs: int, acts: int, discrete: bool, names: list[int]
) -> None:
    role_spec = role(obs, acts, discrete, tuple(names))
    size = build_network(role_spec, net).size
    marks = np.zeros(size, np.float32)
    for view in weight_views(marks, layout(role_spec, net)).values():
        view += 1  # views, not copies
    assert (marks == 1).all()
    assert layout(role_spec, net)[-1][0] == ("value.head.bias" if discrete else "policy.log_std")


@pytest.mark.parametrize("net", [{}, {"shared": False, "hidden": (3, 100)}])
def test_initial_weights_are_orthogonal_and_play_starts_near_uniform(net: dict[str, Any]) -> None:
    made = Policy(role(obs=12, actions=4), NetworkConfig(**net), "new")
    made.initialise(3)
    for name, view in weight_views(made.weights, made.layout).items():
        if name.endswith("bias"):
            assert (view == 0).all()
            continue
        gain = {"policy.head.weight": 0.01, "value.head.weight": 1.0}.get(name, 2**0.5)
        rows, columns = view.shape
        gram = view @ view.T if rows <= columns else view.T @ view
        assert np.allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5), name
    heads, _ = made.forward(np.random.default_rng(0).uniform(-1, 1, (50, 12)).astype(np.float32))
    assert np.abs(heads).max() < 0.05
    again, other = (Policy(made.role, made.config, "new") for _ in range(2))
    again.initialise(3)
    other.initialise(4)
    assert digest(again.weights) == digest(made.weights) != digest(other.weights)


def test_continuous_policies_start_at_their_log_std() -> None:
    made = Policy(role(discrete=False), NetworkConfig(log_std=-0.7), "new")
    made.initialise(0)
    assert (weight_views(made.weights, made.layout)["policy.log_std"] == np.float32(-0.7)).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden": ()},
        {"hidden": (4,) * 9},
        {"hidden": (0,)},
        {"log_std": -3.0},
        {"log_std_low": 0.0},
        {"activation": "gelu"},
        {"fourier": 9},
        {"table": True, "hidden": (4,)},
        {"table": True, "shared": False, "hidden": (4, 4)},
        {"table": True, "critic": "centralized", "hidden": (4,), "encoder": "lstm"},
    ],
)
def test_impossible_networks_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        validate(NetworkConfig(**bad))


def test_rows_of_a_tabular_policy_share_no_weights() -> None:
    """Updates with one category do not change the play at other categories, to the bit."""
    role_spec = role(obs=4, names=(6,))
    made = Policy(role_spec, NetworkConfig(table=True, shared=False, hidden=(16,)), "table")
    made.initialise(3)
    batch = minibatch(made, 64)
    every = np.zeros((6, role_spec.size), np.float32)
    column = role_spec.categories.index(6)
    every[:, column] = np.arange(6)
    before = made.forward(every)[0]
    action_probs = np.exp(before) / np.exp(before).sum(1, keepdims=True)
    assert abs(action_probs - 1 / 3).max() < 0.2, "play starts near uniform"
    batch["obs"][:, column] = 2
    learner = Ppo(made, PpoConfig(entropy_weight=0.1, magnet_weight=0.1), 0, 1)
    for _ in range(5):
        grad, _ = learner.gradient(batch, np.arange(64), 0.1)
        assert learner.step(grad, 0.01)
    after = made.forward(every)[0]
    assert [(a != b).any() for a, b in zip(before, after)] == [i == 2 for i in range(6)]
    apart = every + np.where(np.arange(role_spec.size) == column, 0, 1).astype(np.float32)
    assert made.forward(apart)[0].tobytes() == after.tobytes(), "numbers beside a name are not looked at"


def test_tabular_policy_needs_categories_and_no_lookahead() -> None:
    asked = {"network.table": True, "network.shared": False, "network.hidden": (8,)}
    with pytest.raises(ConfigError, match=r"network.table = true: pursuer observes no categorical column"):
        replace(api.default("pursuit"), asked)
    with pytest.raises(ConfigError, match=r"network.table = True: not with learner lookahead; expected F"):
        replace(api.default("lattice"), asked | {"learner": "lookahead"})


def test_arrays_round_trip_and_wrong_ones_are_refused() -> None:
    made, other = policy(role()), Policy(role(), NetworkConfig(), "reader")
    other.load_arrays(made.arrays())
    assert (other.weights == made.weights).all() and (other.packed == made.packed).all()
    arrays = made.arrays()
    before = other.weights.copy()
    bad: list[dict[str, Any]] = [
        {k: v for k, v in arrays.items() if k != "value.head.bias"},
        arrays | {"trunk.0.bias": arrays["trunk.0.bias"][:-1]},
        arrays | {"trunk.0.bias": arrays["trunk.0.bias"].astype(np.float64)},
        arrays | {"trunk.0.bias": arrays["trunk.0.bias"] * np.nan},
    ]
    for wrong in bad:
        with pytest.raises(ConfigError) as caught:
            other.load_arrays(wrong)
        assert len(str(caught.value).splitlines()) == 1
        assert (other.weights == before).all()  # nothing was loaded in part
    with pytest.raises(ConfigError, match="weights, expected"):
        made.set(np.zeros(3, np.float32))


def test_set_copies() -> None:
    made, given = policy(role()), policy(role(), seed=2).weights.copy()
    made.set(given)
    before = made.forward(np.ones((1, 5), np.float32))[0]
    given[:] = 0
    assert (made.forward(np.ones((1, 5), np.float32))[0] == before).all()
    assert digest(made.weights) != digest(given)


def seat_of(world: Any, seat: int, rows: Any) -> Seat:
    return seat_at(world, seat, np.asarray(rows, np.int32))


def test_actions_depend_on_game_number_seat_and_step() -> None:
    whole = toys.matching.make(toys.matching.Config(), 40, 0, 1)
    late = toys.matching.make(toys.matching.Config(), 10, 30, 1)
    role_spec = whole.spec.roles["matcher"]
    made = Policy(role_spec, NetworkConfig(), "p")
    made.initialise(0)
    rng_key = RngKey(5, 3, 2)
    all_rows = made.act(seat_of(whole, 0, range(40)), rng_key)
    assert (made.act(seat_of(late, 0, range(10)), rng_key).action == all_rows.action[30:]).all()
    assert (made.act(seat_of(whole, 0, [7, 3]), rng_key).action == all_rows.action[[7, 3]]).all()
    for other in (RngKey(6, 3, 2), RngKey(5, 4, 2), RngKey(5, 3, 3), RngKey(5, 3, 2 + 2**32)):
        assert (made.act(seat_of(whole, 0, range(40)), other).action != all_rows.action).any()
    elsewhere = dataclasses.replace(seat_of(whole, 0, range(40)), seat=1)
    assert (made.act(elsewhere, rng_key).action != all_rows.action).any()


def test_a_value_that_is_not_wanted_changes_no_action() -> None:
    whole = toys.matching.make(toys.matching.Config(), 40, 0, 1)
    for shared in (False, True):
        made = Policy(whole.spec.roles["matcher"], NetworkConfig(shared=shared), "p")
        made.initialise(0)
        with_value = made.act(seat_of(whole, 0, range(40)), RngKey(5, 3, 2))
        without = made.act(
            dataclasses.replace(seat_of(whole, 0, range(40)), value_wanted=False), RngKey(5, 3, 2)
        )
        assert with_value.value is not None and without.value is None
        assert with_value.logp is not None and without.logp is not None
        assert with_value.action.tobytes() == without.action.tobytes()
        assert with_value.logp.tobytes() == without.logp.tobytes()


@pytest.mark.parametrize("discrete", [False, True])
def test_heads_are_those_of_forward_in_the_wanted_rows_and_0_elsewhere(discrete: bool) -> None:
    for shared in (False, True):
        made = policy(role(discrete=discrete), hidden=(33, 20), shared=shared)
        obs = np.random.default_rng(0).standard_normal((150, made.role.size)).astype(np.float32)
        wanted = (np.arange(150) % 3 > 0).astype(np.uint8)
        heads, whole = made.heads(obs, wanted), made.forward(obs)[0]
        assert heads[wanted > 0].tobytes() == whole[wanted > 0].tobytes()
        assert not heads[wanted == 0].any() and whole.any()


def test_mask_and_greedy_reach_the_network() -> None:
    world = toys.sticks.make(toys.sticks.Config(), 200, 0, 1)
    states = world.save(np.arange(200, dtype=np.int32)).view(world.state.dtype)[:, 0]
    states["pile"] = 1 + np.arange(200) % 4
    world.load(np.arange(200, dtype=np.int32), states.view(np.uint8).reshape(200, -1))
    made = policy(world.spec.roles["player"])
    for made.greedy in (False, True):
        move = made.act(seat_of(world, 0, range(200)), RngKey(1, 3, 0))
        assert (move.action < states["pile"]).all() and (move.action >= 0).all()
    heads, _ = made.forward(seat_of(world, 0, range(200)).obs)
    legal = np.where(world.view.mask["player"][:, 0] == 1, heads, -np.inf)
    assert (move.action == legal.argmax(1)).all()
    assert move.logp is not None and move.value is not None and len(move.logp) == len(move.value) == 200


def test_too_large_network_is_refused() -> None:
    large = Role(
        name="r",
        fields=(Field(name="f", columns=tuple(map(str, range(5000)))),),
        actions=Actions(kind="discrete", names=("a", "b")),
        seats=(0,),
    )
    with pytest.raises(ConfigError, match=r"network.hidden = 4096,4096: .* weights; expected at most"):
        Policy(large, NetworkConfig(hidden=(4096, 4096), fourier=8), "large")


def test_action_probs_are_those_of_act() -> None:
    made = policy(role(names=(3,)), hidden=(16,))
    batch = minibatch(made, 64, masked=True)
    world = toys.matching.make(toys.MatchingConfig(), 1)
    seat = Seat(made.role, 0, world, np.arange(64, dtype=np.int32), batch["obs"], batch["mask"])
    action_probs = made.action_probs(seat)
    assert np.allclose(action_probs.sum(1), 1, atol=1e-6) and (action_probs[batch["mask"] == 0] == 0).all()
    drawn = np.zeros_like(action_probs)
    for step in range(2000):
        drawn[np.arange(64), made.act(seat, RngKey(1, 3, step)).action] += 1
    spread = np.sqrt(action_probs * (1 - action_probs) / 2000)
    assert (np.abs(drawn / 2000 - action_probs) <= 5 * spread + 1e-9).all()
    made.greedy = True
    assert (made.action_probs(seat).argmax(1) == made.act(seat, RngKey(1, 3, 0)).action).all()
    assert (made.action_probs(seat).max(1) == 1).all()
