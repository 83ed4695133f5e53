"""Q policies: rows are independent, recurrent states are carried on, each game has its epsilon."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import single_seat_worlds
from support.single_seat_worlds import little

from rematch.agents.learners.q_policy import BLOCK, EpsilonGreedyPlayer, QPlayer, QPolicy, epsilon_greedy
from rematch.core.player import RngKey, Seat
from rematch.evaluation.match import play
from rematch.training.trainer import Trainer

__all__ = ["little"]


@pytest.fixture
def policy(little: None) -> QPolicy:
    role = single_seat_worlds.stroll.make(single_seat_worlds.small().world, 1).spec.roles["joypad"]
    made = QPolicy(role, single_seat_worlds.small().dqn, "it")
    made.initialise(5)
    return made


def observations(policy: QPolicy, n: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(n)
    obs = generator.random((n, policy.role.size), np.float32)
    obs[:, list(policy.role.columns).index("where.map")] = generator.integers(0, 3, n)
    return obs, generator.random((n, policy.state_size), np.float32)


def test_q_values_depend_on_their_own_row_alone(policy: QPolicy) -> None:
    obs, recurrent_state = observations(policy, 3 * BLOCK + 5)
    whole = policy.q_values(obs, recurrent_state)
    rows = np.random.default_rng(0).permutation(len(obs))[:21]
    for part, whole_part in zip(policy.q_values(obs[rows], recurrent_state[rows]), whole):
        assert np.array_equal(part, whole_part[rows])


def test_weights_are_parameters_of_the_network(policy: QPolicy) -> None:
    obs, recurrent_state = observations(policy, 4)
    before = policy.q_values(obs, recurrent_state)[0]
    other = QPolicy(policy.role, policy.config, "other")
    other.load_arrays(policy.arrays())
    assert np.array_equal(other.q_values(obs, recurrent_state)[0], before)
    other.set(other.weights * 2)
    assert not np.array_equal(other.q_values(obs, recurrent_state)[0], before)
    assert other.weights.size == sum(p.numel() for p in other.net.parameters())
    assert policy.recurrent_size == policy.config.recurrent_size
    assert policy.state_size == policy.recurrent_size + 2 * 12 * 16


def test_initial_decays_are_spread_from_fast_to_slow(policy: QPolicy) -> None:
    decay = policy.net.layers["ssm"].decays()[0].detach().numpy()
    assert decay.min() == pytest.approx(0.9, abs=1e-5) and decay.max() == pytest.approx(0.9999, abs=1e-6)
    assert np.all(np.diff(decay) > 0)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_epsilon_greedy_takes_the_best_or_any_legal_action(seed: int, epsilon: float) -> None:
    generator = np.random.default_rng(seed)
    q = generator.standard_normal((50, 4)).astype(np.float32)
    mask = (generator.random((50, 4)) < 0.6).astype(np.uint8)
    mask[np.arange(50), generator.integers(0, 4, 50)] = 1
    uniform = generator.random(50)
    chosen = epsilon_greedy(q, mask, epsilon, uniform)
    assert mask[np.arange(50), chosen].all()
    best = np.where(mask != 0, q, -np.inf).argmax(1)
    assert np.array_equal(chosen[uniform >= epsilon], best[uniform >= epsilon])


def test_random_actions_are_uniform_over_legal_ones() -> None:
    n = 30_000
    mask = np.tile(np.array([1, 0, 1, 1], np.uint8), (n, 1))
    uniform = (np.arange(n) + 0.5) / n
    chosen = epsilon_greedy(np.zeros((n, 4), np.float32), mask, 0.6, uniform)
    explored = np.bincount(chosen[uniform < 0.6], minlength=4)
    assert explored.tolist() == [6000, 0, 6000, 6000]


def test_epsilons_go_from_epsilon_to_its_eighth_power(little: None) -> None:
    player = Trainer(single_seat_worlds.small()).agents.behaviour["joypad"]
    assert isinstance(player, EpsilonGreedyPlayer)
    player.epsilon = 0.4
    assert np.allclose(player.epsilons, 0.4 ** (1 + 7 * np.arange(4) / 3))


def test_evaluations_carry_the_recurrent_state_of_each_game(policy: QPolicy) -> None:
    """A match equals its games played one by one, each with its own recurrent state."""
    config, decisions = single_seat_worlds.small().world, []

    class RecordedPlayer(QPlayer):
        def act(self, seat: Seat, rng_key: RngKey, recurrent_state: np.ndarray | None = None) -> object:  # type: ignore[override]
            decision = super().act(seat, rng_key, recurrent_state)
            decisions.append((seat.rows.copy(), seat.obs.copy(), decision.action, decision.recurrent_state))
            return decision

    play(single_seat_worlds.stroll.make(config, 3, 0, 7), [RecordedPlayer(policy, 0.0)], 7)
    for game in range(3):
        recurrent_state = np.zeros((1, policy.state_size), np.float32)
        own_decisions = [(obs[rows == game], action[rows == game], after[rows == game])
                for rows, obs, action, after in decisions if game in rows]
        assert len(own_decisions) >= 2
        for obs, action, after in own_decisions:
            q, recurrent_state = policy.q_values(obs, recurrent_state)
            assert np.array_equal(recurrent_state, after) and action.shape == (1,) and q.shape == (1, 5)
