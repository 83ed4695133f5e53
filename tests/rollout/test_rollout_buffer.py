"""Advantages along each seat's own decisions: worked by hand, by a slow reference, and by the textbook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support import toys

from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.rollout.rollout_buffer import Credit, RewardTerm, RolloutBuffer

SPEC = toys.sticks.make(toys.sticks.Config(), 1).spec  # three seats of one role


def three_seats() -> RolloutBuffer:
    """Six steps of one table, gamma = lambda = 1/2 in what follows.

    step   moves   value   reward to seats 0, 1, 2
      0    seat 0     2      0  0  0
      1    seat 1     4      1  0  0     seat 0 is paid while seat 1 moves
      2    seat 2    -2      0  2 -4     the game ends here, in the middle of the tape
      3    seat 1     1      8  0  0     a new game; seat 0 has not decided anything in it yet
      4    seat 0     3      0  1  0
      5    seat 1     5      0  0  0     seat 2 is to move next
    """
    buffer = RolloutBuffer(SPEC, 6, 1)
    track = buffer["player"]
    for step, (seat, value) in enumerate([(0, 2), (1, 4), (2, -2), (1, 1), (0, 3), (1, 5)]):
        track.acted[step, 0, seat] = 1
        track.value[step, 0, seat] = value
    track.reward[:, 0] = [(0, 0, 0), (1, 0, 0), (0, 2, -4), (8, 0, 0), (0, 1, 0), (0, 0, 0)]
    buffer.ended[2] = DECIDED
    track.last_acting[0] = (0, 0, 1)
    track.last_value[0] = (100, 100, 100)  # only that of the seat that is to move may matter
    return buffer


def learnt(buffer: RolloutBuffer) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """(step, seat) -> advantage and -> target of the decisions that count."""
    advantage, target, counts = buffer.advantages("player", 0.5, 0.5)
    where = [(int(t), int(s)) for t, _, s in np.argwhere(counts)]
    return {w: float(advantage[w[0], 0, w[1]]) for w in where}, {
        w: float(target[w[0], 0, w[1]]) for w in where
    }


def test_a_three_seat_game_by_hand() -> None:
    advantage, target = learnt(three_seats())
    # Seat 0, step 0: rewards 0 + 1 + 0 until the end, which is worth nothing more: 1 - 2 = -1.
    # Seat 1, step 1: 0 + 2 - 4 = -2.    Seat 2, step 2: -4 - (-2) = -2.
    # Seat 1, step 3: rewards 0 + 1 until its next decision, valued 5: 1 + 5/2 - 1 = 2.5; the rest is unknown.
    # The 8 of step 3 belongs to nobody. Steps 4 and 5 have no successor yet: not learnt from.
    assert advantage == {(0, 0): -1, (1, 1): -2, (2, 2): -2, (3, 1): 2.5}
    assert target == {(0, 0): 1, (1, 1): 2, (2, 2): -4, (3, 1): 3.5}


def test_cut_off_game_bootstraps_from_its_last_observation() -> None:
    buffer = three_seats()
    buffer.ended[2] = CUT_OFF
    buffer["player"].cut_value[2, 0] = (10, 20, 30)
    advantage, _ = learnt(buffer)
    # Seat 0: 1 + 10/2 - 2 = 4.    Seat 1: 2 + 20/2 - 4 = 8.    Seat 2: -4 + 30/2 + 2 = 13.
    assert advantage == {(0, 0): 4, (1, 1): 8, (2, 2): 13, (3, 1): 2.5}


def test_rollout_ends_before_the_next_decision_of_a_seat() -> None:
    buffer = three_seats()
    buffer["player"].last_acting[0] = (1, 1, 1)
    buffer["player"].last_value[0] = (6, 4, 100)
    advantage, _ = learnt(buffer)
    # Seat 0, step 4: 0 + 6/2 - 3 = 0.  Seat 1, step 5: 0 + 4/2 - 5 = -3; step 3: 2.5 + (1/2)(1/2)(-3) = 1.75.
    assert advantage == {(0, 0): -1, (1, 1): -2, (2, 2): -2, (4, 0): 0, (5, 1): -3, (3, 1): 1.75}


def test_decisions_of_opponents_are_not_learned_from() -> None:
    buffer = three_seats()
    buffer["player"].slot[:3, 0, 1:] = (2, 7)
    advantage, _ = learnt(buffer)
    assert advantage == {(0, 0): -1, (3, 1): 2.5}


# --- against a slow reference ----------------------------------------------------------------------


def slow(buffer: RolloutBuffer, gamma: float, lam: float) -> dict[tuple[int, int, int], float]:
    """(step, game, seat) -> advantage of every decision that counts, one seat of one game at a time."""
    track = buffer["player"]
    out: dict[tuple[int, int, int], float] = {}
    for n in range(buffer.games):
        for k in range(track.value.shape[2]):
            chains: list[list[tuple[int, float, list[float]]]] = [[]]  # games, of (step, value, rewards)
            ends: list[float | None] = []  # what the end of each game is worth; None: the tape ends first
            for t in range(buffer.steps):
                if track.acted[t, n, k]:
                    chains[-1].append((t, float(track.value[t, n, k]), []))
                if chains[-1]:
                    chains[-1][-1][2].append(float(track.reward[t, n, k]))
                if buffer.ended[t, n] != RUNNING:
                    ends.append(float(track.cut_value[t, n, k]) if buffer.ended[t, n] == CUT_OFF else 0.0)
                    chains.append([])
            ends.append(float(track.last_value[n, k]) if track.last_acting[n, k] else None)
            for chain, end in zip(chains, ends, strict=True):
                after, following = end, 0.0
                for t, value, rewards in reversed(chain):
                    if after is not None:
                        following = sum(rewards) + gamma * after - value + gamma * lam * following
                        if track.slot[t, n, k] == 0:
                            out[t, n, k] = following
                    after = value
    return out


@st.composite
def tapes(draw: Any) -> RolloutBuffer:
    steps, games = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    buffer = RolloutBuffer(SPEC, steps, games)
    track = buffer["player"]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = track.value.shape
    buffer.ended[:] = draw(arrays.arrays(np.uint8, (steps, games), elements=st.sampled_from((0, 0, 0, 1, 2))))
    turns = draw(st.sampled_from(("any", "one", "all")))
    if turns == "any":
        track.acted[:] = draw(arrays.arrays(np.uint8, shape, elements=st.integers(0, 1)))
        track.last_acting[:] = rng.integers(0, 2, shape[1:])
    elif turns == "one":
        track.acted[:] = rng.integers(0, 3, (steps, games, 1)) == np.arange(3)
        track.last_acting[:] = rng.integers(0, 3, (games, 1)) == np.arange(3)
    else:
        track.acted[:], track.last_acting[:] = 1, 1
    track.slot[:] = rng.integers(0, 2, (1, games, 3)) if draw(st.booleans()) else 0
    for name in ("value", "reward", "cut_value"):
        getattr(track, name)[:] = rng.standard_normal(shape)
    track.last_value[:] = rng.standard_normal(shape[1:])
    return buffer


@given(tapes(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_advantages_equal_the_slow_reference(buffer: RolloutBuffer, gamma: float, lam: float) -> None:
    advantage, target, counts = buffer.advantages("player", gamma, lam)
    wanted = slow(buffer, gamma, lam)
    assert {(int(t), int(n), int(k)) for t, n, k in np.argwhere(counts)} == set(wanted)
    for where, value in wanted.items():
        assert advantage[where] == pytest.approx(value, rel=1e-4, abs=1e-4)
        expected = value + float(buffer["player"].value[where])
        assert target[where] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert advantage.dtype == target.dtype == np.float32
    assert (advantage[buffer["player"].acted == 0] == 0).all()


@given(st.integers(0, 2**32), st.floats(0.5, 1), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_everybody_acting_is_the_textbook(seed: int, gamma: float, lam: float) -> None:
    """Schulman et al. 2016, eq. 11 and 16, where every seat moves every step and no game is cut off."""
    rng = np.random.default_rng(seed)
    spec = toys.matching.make(toys.matching.Config(), 1).spec
    steps, games = 15, 4
    buffer = RolloutBuffer(spec, steps, games)
    buffer.ended[:] = (rng.random((steps, games)) < 0.2) * DECIDED
    for role in spec.roles:
        track = buffer[role]
        track.acted[:], track.last_acting[:] = 1, 1
        track.value[:], track.reward[:] = rng.standard_normal((2, steps, games, 1))
        track.last_value[:] = rng.standard_normal((games, 1))
        wanted = np.zeros((steps, games))
        values = np.concatenate([track.value[:, :, 0], track.last_value.T]).astype(np.float64)
        running = np.zeros(games)
        for t in reversed(range(steps)):
            on = buffer.ended[t] == RUNNING
            delta = track.reward[t, :, 0] + gamma * values[t + 1] * on - values[t]
            running = delta + gamma * lam * on * running
            wanted[t] = running
        advantage, target, counts = buffer.advantages(role, gamma, lam)
        assert counts.all() and np.allclose(advantage[:, :, 0], wanted, atol=1e-4)
        assert np.allclose(target, advantage + track.value)


@given(tapes(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_games_where_all_seats_move_have_the_same_advantages_beside_others(
    whole: RolloutBuffer, gamma: float, lam: float
) -> None:
    """A game in which a seat waits changes how the others are computed, but none of their bits."""
    track, alone = whole["player"], RolloutBuffer(SPEC, whole.steps, whole.games - 1 or 1)
    track.acted[:], track.last_acting[:] = 1, 1
    for name in ("acted", "last_acting", "slot", "value", "reward", "cut_value", "last_value"):
        rows = getattr(track, name)
        part = rows[: alone.games] if name.startswith("last") else rows[:, : alone.games]
        getattr(alone["player"], name)[:] = part
    alone.ended[:] = whole.ended[:, : alone.games]
    if whole.games > 1:
        track.acted[0, -1, 0] = 0
    for one, other in zip(alone.advantages("player", gamma, lam), whole.advantages("player", gamma, lam)):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other[:, : alone.games])


def test_results_are_those_of_the_games_that_ended() -> None:
    buffer = three_seats()
    track = buffer["player"]
    track.slot[2, 0], track.outcome[2, 0] = (0, 3, 1), (1, 0.5, 0)
    track.outcome[3:] = 9  # rubbish where nothing ended
    slot, outcome = buffer.results("player")
    assert slot.tolist() == [0, 3, 1] and outcome.tolist() == [1, 0.5, 0]


# --- reward terms -----------------------------------------------------------------------------------


def slow_total(rollout: RolloutBuffer, step: int, game: int, seat: int) -> float:
    """What one step is paid in all: the world's reward, then every term by the words of its credit."""
    track = rollout["player"]
    total = float(track.reward[step, game, seat])
    for term in track.reward_terms.values():
        worth = [term.weight * float(value) for value in term.values[:, game, seat]]
        if term.credit == "decision":
            total += worth[step]
            continue
        if step + 1 < rollout.steps and rollout.ended[step, game] == RUNNING:
            total += worth[step + 1]  # this step led to the next observation
        if step == 0 and not rollout.started[game]:
            total += worth[0]  # the step that led here lies in the rollout before
    return total


@st.composite
def terms(draw: Any, shape: tuple[int, ...]) -> dict[str, RewardTerm]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    credits: list[Credit] = draw(st.lists(st.sampled_from(("decision", "arrival")), max_size=3))
    kinds = [draw(st.sampled_from((np.float32, np.float64))) for _ in credits]
    return {
        f"term {i}": RewardTerm(rng.standard_normal(shape).astype(kind), float(rng.uniform(0, 2)), credit)
        for i, (credit, kind) in enumerate(zip(credits, kinds))
    }


@given(tapes(), st.data())
@settings(max_examples=150, deadline=None)
def test_total_reward_agrees_with_the_slow_reference(rollout: RolloutBuffer, data: st.DataObject) -> None:
    track = rollout["player"]
    track.reward_terms |= data.draw(terms(track.value.shape))
    rollout.started[:] = data.draw(arrays.arrays(bool, rollout.games))
    before = track.reward.copy()
    total = rollout.total_reward("player")
    assert total.dtype == np.float32 and total.shape == track.reward.shape
    for where in np.ndindex(*total.shape):
        assert total[where] == pytest.approx(slow_total(rollout, *where), abs=1e-4)
    assert np.array_equal(track.reward, before), "the world's reward stays what it was"


@given(tapes(), st.data())
@settings(max_examples=50, deadline=None)
def test_advantages_are_those_of_the_total_reward(rollout: RolloutBuffer, data: st.DataObject) -> None:
    track = rollout["player"]
    track.reward_terms |= data.draw(terms(track.value.shape))
    rollout.started[:] = data.draw(arrays.arrays(bool, rollout.games))
    result = rollout.advantages("player", 0.9, 0.8)
    track.reward = rollout.total_reward("player")
    track.reward_terms.clear()
    for got, wanted in zip(result, rollout.advantages("player", 0.9, 0.8)):
        assert np.array_equal(got, wanted)


@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0, 0.6))
@settings(max_examples=100, deadline=None)
def test_arrival_is_paid_once_wherever_rollouts_are_cut(seed: int, steps: int, ending: float) -> None:
    """Over a run of 12 steps every observation is paid for once, but for those that start an episode."""
    rng = np.random.default_rng(seed)
    ended = (rng.random((12, 5)) < ending) * rng.integers(1, 3, (12, 5))
    values = rng.standard_normal((12, 5, 3)).astype(np.float32)
    started, paid = np.ones(5, bool), np.zeros((5, 3))
    for low in range(0, 12, steps):
        rows = slice(low, min(low + steps, 12))
        rollout = RolloutBuffer(SPEC, len(values[rows]), 5)
        rollout.ended[:], rollout.started[:] = ended[rows], started
        rollout["player"].reward_terms["some"] = RewardTerm(values[rows], 1.0, "arrival")
        paid += rollout.total_reward("player").sum(0)
        started = rollout.ended[-1] != RUNNING
    first = np.concatenate([np.ones((1, 5), bool), ended[:-1] != RUNNING])
    assert np.allclose(paid, (values * ~first[:, :, None]).sum(0), atol=1e-4)


def test_clear_forgets_the_terms_of_the_rollout_before() -> None:
    rollout = three_seats()
    rollout["player"].reward_terms["some"] = RewardTerm(np.ones((6, 1, 3), np.float32), 1.0, "decision")
    assert (rollout.total_reward("player") == rollout["player"].reward + 1).all()
    rollout.clear()
    assert rollout.total_reward("player") is rollout["player"].reward


def test_host_records_the_component_that_reads_a_column() -> None:
    rollout = RolloutBuffer(SPEC, 2, 1)
    role = next(iter(SPEC.roles))
    assert rollout.host("ended") is rollout.ended and rollout.reads.columns == {}, "no hook runs"
    rollout.reads.reader = "league"
    assert rollout[role].host("slot") is rollout[role].slot
    rollout.results(role)
    rollout.reads.reader = ""
    rollout.host("length")
    assert rollout.reads.columns == {"league": {"ended", "length", "outcome", "slot"}}
