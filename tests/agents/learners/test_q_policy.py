"""Q policies: rows do not mind their neighbours, memory is carried, exploring follows its ladder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import single_seat_worlds
from support.single_seat_worlds import little

from rematch.agents.learners.q_policy import BLOCK, Explorer, QPlayer, QPolicy, choose
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
    draw = np.random.default_rng(n)
    obs = draw.random((n, policy.role.size), np.float32)
    obs[:, list(policy.role.columns).index("where.map")] = draw.integers(0, 3, n)
    return obs, draw.random((n, policy.carried), np.float32)


def test_an_answer_depends_on_its_own_row_alone(policy: QPolicy) -> None:
    obs, recurrent_state = observations(policy, 3 * BLOCK + 5)
    whole = policy.look(obs, recurrent_state)
    some = np.random.default_rng(0).permutation(len(obs))[:21]
    for part, all_of_them in zip(policy.look(obs[some], recurrent_state[some]), whole):
        assert np.array_equal(part, all_of_them[some])


def test_weights_are_the_networks_own(policy: QPolicy) -> None:
    obs, recurrent_state = observations(policy, 4)
    before = policy.look(obs, recurrent_state)[0]
    other = QPolicy(policy.role, policy.config, "other")
    other.load_arrays(policy.arrays())
    assert np.array_equal(other.look(obs, recurrent_state)[0], before)
    other.set(other.weights * 2)
    assert not np.array_equal(other.look(obs, recurrent_state)[0], before)
    assert other.weights.size == sum(p.numel() for p in other.net.parameters())
    assert policy.hidden == policy.config.memory and policy.carried == policy.hidden + 2 * 12 * 16


def test_decays_begin_spread_from_fast_to_slow(policy: QPolicy) -> None:
    decay = policy.net.layers["ssm"].decays()[0].detach().numpy()
    assert decay.min() == pytest.approx(0.9, abs=1e-5) and decay.max() == pytest.approx(0.9999, abs=1e-6)
    assert np.all(np.diff(decay) > 0)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_choices_are_the_best_or_any_legal_one(seed: int, epsilon: float) -> None:
    draw = np.random.default_rng(seed)
    q = draw.standard_normal((50, 4)).astype(np.float32)
    mask = (draw.random((50, 4)) < 0.6).astype(np.uint8)
    mask[np.arange(50), draw.integers(0, 4, 50)] = 1
    luck = draw.random(50)
    chosen = choose(q, mask, epsilon, luck)
    assert mask[np.arange(50), chosen].all()
    best = np.where(mask != 0, q, -np.inf).argmax(1)
    assert np.array_equal(chosen[luck >= epsilon], best[luck >= epsilon])


def test_random_moves_are_evenly_spread_over_what_is_legal() -> None:
    n = 30_000
    mask = np.tile(np.array([1, 0, 1, 1], np.uint8), (n, 1))
    luck = (np.arange(n) + 0.5) / n
    chosen = choose(np.zeros((n, 4), np.float32), mask, 0.6, luck)
    explored = np.bincount(chosen[luck < 0.6], minlength=4)
    assert explored.tolist() == [6000, 0, 6000, 6000]


def test_the_ladder_goes_from_epsilon_to_its_eighth_power(little: None) -> None:
    explorer = Trainer(single_seat_worlds.small()).agents.behaviour["joypad"]
    assert isinstance(explorer, Explorer)
    explorer.epsilon = 0.4
    assert np.allclose(explorer.explore_rates, 0.4 ** (1 + 7 * np.arange(4) / 3))


def test_evaluations_carry_the_memory_of_each_game(policy: QPolicy) -> None:
    """A whole match equals its games played one by one, each with its own memory by hand."""
    config, moves = single_seat_worlds.small().world, []

    class Watched(QPlayer):
        def act(self, seat: Seat, rng_key: RngKey, recurrent_state: np.ndarray | None = None) -> object:  # type: ignore[override]
            move = super().act(seat, rng_key, recurrent_state)
            moves.append((seat.rows.copy(), seat.obs.copy(), move.action, move.recurrent_state))
            return move

    play(single_seat_worlds.stroll.make(config, 3, 0, 7), [Watched(policy, 0.0)], 7)
    for game in range(3):
        recurrent_state = np.zeros((1, policy.carried), np.float32)
        mine = [(obs[rows == game], action[rows == game], after[rows == game])
                for rows, obs, action, after in moves if game in rows]
        assert len(mine) >= 2
        for obs, action, after in mine:
            q, recurrent_state = policy.look(obs, recurrent_state)
            assert np.array_equal(recurrent_state, after) and action.shape == (1,) and q.shape == (1, 5)
