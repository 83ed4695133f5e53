"""Forced actions: episodes follow the bytes that were pushed before they started, by a slow reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.single_seat_worlds import StrollConfig, stroll

from rematch.core.world import CUT_OFF, RUNNING
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.forced_actions import OFF, ForcedActions
from rematch.rollout.rollout_buffer import FORCED, HELPED, POLICY, RolloutBuffer
from rematch.rollout.seating import BotsOnly, RoleSeating

GAMES = 6
OWN = 99  # what the policy plays


@dataclass
class Slow:
    """One game: its plan for the next episode, and what is left of the running one's."""

    plan: bytes = b""
    plan_index: int = OFF
    left: bytes = b""
    helped: bool = False
    index: int = OFF

    def restart(self) -> None:
        self.left, self.helped, self.index = self.plan, bool(self.plan), self.plan_index

    def step(self) -> tuple[int, int, int]:
        """(action, forced, index) of one step."""
        index = self.index
        if not self.left:
            self.index = OFF
            return OWN, HELPED if self.helped else POLICY, index
        action, self.left = self.left[0], self.left[1:]
        self.index = OFF if index == OFF else index + 1
        return action, FORCED, index


def draw_plans(draw: np.random.Generator, made: ForcedActions, slow: list[Slow]) -> None:
    """New bytes, and for each game a part of them (or none) from an index (or OFF)."""
    actions = bytes(draw.integers(0, 7, int(draw.integers(0, 30))).tolist())
    bounds = np.sort(draw.integers(0, len(actions) + 1, (2, GAMES)), axis=0).astype(np.int64)
    index = np.where(draw.random(GAMES) < 0.3, OFF, bounds[0]).astype(np.int64)
    made.push(actions, (bounds[0], bounds[1]), index)
    for game, one in enumerate(slow):
        one.plan, one.plan_index = actions[bounds[0, game] : bounds[1, game]], int(index[game])
    index[:] = -7  # the caller's arrays stay its own
    bounds[:] = -7


def restored(made: ForcedActions, steps: int) -> ForcedActions:
    """The same after a kill and a resume: the next episodes are planned anew."""
    again = ForcedActions(GAMES, steps)
    again.load_state_dict({name: np.array(value) for name, value in made.state_dict().items()})
    return again


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.floats(0.02, 0.9))
def test_an_episode_follows_what_was_pushed_when_it_started(seed: int, steps: int, ending: float) -> None:
    """Whenever episodes end, twice in a rollout or with it; with a kill and a resume between rollouts."""
    draw = np.random.default_rng(seed)
    made, slow = ForcedActions(GAMES, steps), [Slow() for _ in range(GAMES)]
    ended: NDArray[np.bool_] = np.zeros(GAMES, bool)
    for _ in range(12):
        if draw.random() < 0.4:
            made, ended = restored(made, steps), np.zeros(GAMES, bool)  # a restored world tells of no end
        draw_plans(draw, made, slow)
        for t in range(steps):
            wanted = [one.step() for one in slow]
            action = np.full(GAMES, OWN, np.int32)
            for part in (slice(0, 2), slice(2, GAMES)):  # the parts of two threads
                made.apply(np.arange(GAMES, dtype=np.int32)[part], ended[part], t, action[part])
            assert [*zip(action.tolist(), made.forced[t].tolist(), made.demo_index[t].tolist())] == wanted
            ended = draw.random(GAMES) < ending
            for game in np.flatnonzero(ended).tolist():
                slow[game].restart()
        made.end_rollout(np.where(ended, CUT_OFF, RUNNING).astype(np.uint8))


def test_pushed_bytes_do_not_pile_up() -> None:
    """Only what running episodes still follow stays."""
    made = ForcedActions(2, 4)
    for _ in range(50):
        made.push(bytes(range(5)), (np.array([0, 2]), np.array([5, 2])), np.array([0, OFF]))
        made.end_rollout(np.full(2, CUT_OFF, np.uint8))
    assert len(made.actions) <= 10 and len(made.state_dict()["actions"]) == 5


def test_events_of_forced_steps_are_set_apart() -> None:
    rollout = RolloutBuffer(stroll.make(StrollConfig(height=12, width=16, side=4), 1).spec, 3, 2)
    rollout.events[:] = [(0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (2, 1, "d")]
    forced = np.array([[FORCED, POLICY], [HELPED, POLICY], [POLICY, FORCED]], np.uint8)
    rollout.split_events(forced)
    assert rollout.events == [(0, 1, "b"), (1, 0, "c")]
    assert rollout.forced_events == [(0, 0, "a"), (2, 1, "d")]


@pytest.mark.parametrize("threads", [1, 3])
def test_collector_plays_and_records_what_is_forced(threads: int) -> None:
    """Walks of up to five steps to the left, the bot's actions everywhere else."""
    steps, left = 8, 1
    config = StrollConfig(height=12, width=16, side=4, limit=5)
    world = stroll.make(config, GAMES, 0, 3)
    role = world.spec.roles["joypad"]
    seating = RoleSeating(BotsOnly(role), 0)
    seating.seat_player(stroll.bot("random", "joypad"))
    collector = ThreadCollector(world, {"joypad": seating}, steps, threads, 3)
    forced = ForcedActions(GAMES, steps)
    collector.force(forced)
    rollout = collector.collect(0)
    assert rollout.forced is forced.forced and not rollout.forced.any(), "nothing was pushed"
    until = np.array([5, 5, 3, 0, 1, 0])
    forced.push(bytes([left] * 5), (np.zeros(GAMES, np.int64), until), np.zeros(GAMES, np.int64))
    rollout = collector.collect(1)
    assert rollout.demo_index is not None and rollout.forced is not None
    column, action = rollout.forced, rollout["joypad"].action[:, :, 0]
    for game in range(GAMES):
        planned, walked = False, 0  # the running episode started before the push
        for t in range(steps):
            on = planned and walked < until[game]
            assert (column[t, game] == FORCED) == on
            assert not on or (action[t, game] == left and rollout.demo_index[t, game] == walked)
            walked += 1
            if rollout.ended[t, game] != RUNNING:
                planned, walked = True, 0
    assert (column == FORCED).any() and (column == HELPED).any() and (column == POLICY).any()
