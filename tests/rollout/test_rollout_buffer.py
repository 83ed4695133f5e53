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
from rematch.rollout.rollout_buffer import Tape

SPEC = toys.sticks.make(toys.sticks.Config(), 1).spec  # three seats of one role


def three_seats() -> Tape:
    """Six steps of one table, gamma = lambda = 1/2 in what follows.

    step   moves   value   reward to seats 0, 1, 2
      0    seat 0     2      0  0  0
      1    seat 1     4      1  0  0     seat 0 is paid while seat 1 moves
      2    seat 2    -2      0  2 -4     the game ends here, in the middle of the tape
      3    seat 1     1      8  0  0     a new game; seat 0 has not decided anything in it yet
      4    seat 0     3      0  1  0
      5    seat 1     5      0  0  0     seat 2 is to move next
    """
    tape = Tape(SPEC, 6, 1)
    track = tape["player"]
    for step, (seat, value) in enumerate([(0, 2), (1, 4), (2, -2), (1, 1), (0, 3), (1, 5)]):
        track.acted[step, 0, seat] = 1
        track.value[step, 0, seat] = value
    track.reward[:, 0] = [(0, 0, 0), (1, 0, 0), (0, 2, -4), (8, 0, 0), (0, 1, 0), (0, 0, 0)]
    tape.ended[2] = DECIDED
    track.last_acting[0] = (0, 0, 1)
    track.last_value[0] = (100, 100, 100)  # only that of the seat that is to move may matter
    return tape


def learnt(tape: Tape) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """(step, seat) -> advantage and -> target of the decisions that count."""
    advantage, target, counts = tape.advantages("player", 0.5, 0.5)
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


def test_a_cut_off_game_is_worth_its_last_sight() -> None:
    tape = three_seats()
    tape.ended[2] = CUT_OFF
    tape["player"].cut_value[2, 0] = (10, 20, 30)
    advantage, _ = learnt(tape)
    # Seat 0: 1 + 10/2 - 2 = 4.    Seat 1: 2 + 20/2 - 4 = 8.    Seat 2: -4 + 30/2 + 2 = 13.
    assert advantage == {(0, 0): 4, (1, 1): 8, (2, 2): 13, (3, 1): 2.5}


def test_the_tape_ends_before_a_seats_next_decision() -> None:
    tape = three_seats()
    tape["player"].last_acting[0] = (1, 1, 1)
    tape["player"].last_value[0] = (6, 4, 100)
    advantage, _ = learnt(tape)
    # Seat 0, step 4: 0 + 6/2 - 3 = 0.  Seat 1, step 5: 0 + 4/2 - 5 = -3; step 3: 2.5 + (1/2)(1/2)(-3) = 1.75.
    assert advantage == {(0, 0): -1, (1, 1): -2, (2, 2): -2, (4, 0): 0, (5, 1): -3, (3, 1): 1.75}


def test_rivals_decisions_are_not_learnt_from() -> None:
    tape = three_seats()
    tape["player"].slot[:3, 0, 1:] = (2, 7)
    advantage, _ = learnt(tape)
    assert advantage == {(0, 0): -1, (3, 1): 2.5}


# --- against a slow reference ----------------------------------------------------------------------


def slow(tape: Tape, gamma: float, lam: float) -> dict[tuple[int, int, int], float]:
    """(step, game, seat) -> advantage of every decision that counts, one seat of one game at a time."""
    track = tape["player"]
    out: dict[tuple[int, int, int], float] = {}
    for n in range(tape.games):
        for k in range(track.value.shape[2]):
            chains: list[list[tuple[int, float, list[float]]]] = [[]]  # games, of (step, value, rewards)
            ends: list[float | None] = []  # what the end of each game is worth; None: the tape ends first
            for t in range(tape.steps):
                if track.acted[t, n, k]:
                    chains[-1].append((t, float(track.value[t, n, k]), []))
                if chains[-1]:
                    chains[-1][-1][2].append(float(track.reward[t, n, k]))
                if tape.ended[t, n] != RUNNING:
                    ends.append(float(track.cut_value[t, n, k]) if tape.ended[t, n] == CUT_OFF else 0.0)
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
def tapes(draw: Any) -> Tape:
    steps, games = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    tape = Tape(SPEC, steps, games)
    track = tape["player"]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = track.value.shape
    tape.ended[:] = draw(arrays.arrays(np.uint8, (steps, games), elements=st.sampled_from((0, 0, 0, 1, 2))))
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
    return tape


@given(tapes(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_any_tape_agrees_with_the_slow_reference(tape: Tape, gamma: float, lam: float) -> None:
    advantage, target, counts = tape.advantages("player", gamma, lam)
    wanted = slow(tape, gamma, lam)
    assert {(int(t), int(n), int(k)) for t, n, k in np.argwhere(counts)} == set(wanted)
    for where, value in wanted.items():
        assert advantage[where] == pytest.approx(value, rel=1e-4, abs=1e-4)
        assert target[where] == pytest.approx(value + float(tape["player"].value[where]), rel=1e-4, abs=1e-4)
    assert advantage.dtype == target.dtype == np.float32
    assert (advantage[tape["player"].acted == 0] == 0).all()


@given(st.integers(0, 2**32), st.floats(0.5, 1), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_everybody_acting_is_the_textbook(seed: int, gamma: float, lam: float) -> None:
    """Schulman et al. 2016, eq. 11 and 16, where every seat moves every step and no game is cut off."""
    rng = np.random.default_rng(seed)
    spec = toys.matching.make(toys.matching.Config(), 1).spec
    steps, games = 15, 4
    tape = Tape(spec, steps, games)
    tape.ended[:] = (rng.random((steps, games)) < 0.2) * DECIDED
    for role in spec.roles:
        track = tape[role]
        track.acted[:], track.last_acting[:] = 1, 1
        track.value[:], track.reward[:] = rng.standard_normal((2, steps, games, 1))
        track.last_value[:] = rng.standard_normal((games, 1))
        wanted = np.zeros((steps, games))
        values = np.concatenate([track.value[:, :, 0], track.last_value.T]).astype(np.float64)
        running = np.zeros(games)
        for t in reversed(range(steps)):
            on = tape.ended[t] == RUNNING
            delta = track.reward[t, :, 0] + gamma * values[t + 1] * on - values[t]
            running = delta + gamma * lam * on * running
            wanted[t] = running
        advantage, target, counts = tape.advantages(role, gamma, lam)
        assert counts.all() and np.allclose(advantage[:, :, 0], wanted, atol=1e-4)
        assert np.allclose(target, advantage + track.value)


def test_results_are_those_of_the_games_that_ended() -> None:
    tape = three_seats()
    track = tape["player"]
    track.slot[2, 0], track.outcome[2, 0] = (0, 3, 1), (1, 0.5, 0)
    track.outcome[3:] = 9  # rubbish where nothing ended
    slot, outcome = tape.results("player")
    assert slot.tolist() == [0, 3, 1] and outcome.tolist() == [1, 0.5, 0]
