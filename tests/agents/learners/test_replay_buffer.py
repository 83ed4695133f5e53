"""Replay: sequences come back as they were met, whatever was written over; it stays within its memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import single_seat_worlds

from rematch import api
from rematch.agents.learner import TermInfo
from rematch.agents.learners.dqn import MOST_TERMS, Dqn, plan
from rematch.agents.learners.replay_buffer import Plan, Replay, reward_column
from rematch.agents.networks.observation_codec import Senses
from rematch.core import config as settings
from rematch.core.spec import Actions, Field, Role, Spec

WORLD = single_seat_worlds.stroll.make(single_seat_worlds.StrollConfig(height=12, width=16, side=4), 1)
ROLE = WORLD.spec.roles["joypad"]
SENSES = Senses(ROLE)
N = 3
TERMS = ("rnd_images", "count_bonus")
PLAN = Plan(
    steps=N * 33, games=N, sequence=7, stride=4, history=2, chunk=5, memory=6, actions=5, terms=TERMS
)


def steps(first: int, count: int) -> dict[str, NDArray[Any]]:
    """Steps whose every number follows from when and where they happened."""
    when, who = np.mgrid[first : first + count, 0:N]
    obs = np.zeros((count, N, ROLE.size), np.float32)
    obs[..., : 12 * 16] = ((when * 5 + who) % 4 / 3)[..., None]
    obs[..., 192] = when % 50 / 25
    rewards = {reward_column(name): (10 * when + i + 0.1 * who).astype("f4")
               for i, name in enumerate(("env", *TERMS))}
    return SENSES.pack(obs) | rewards | {
        "action": (when + who) % 5, "ended": (when % 6 == who) * 1,
        "legal": np.full((count, N, 1), 0b11011000, np.uint8),
    }  # fmt: skip


def memories(first: int, count: int) -> Any:
    """Of the sequences that begin in these steps."""
    begins = [s for s in range(first, first + count) if s % PLAN.stride == 0]
    return np.array([[[1000 * s + 10 * game + i for i in range(6)] for game in range(N)] for s in begins],
                    np.float32).reshape(-1, N, 6)


def filled(until: int, each: int = 3) -> Replay:
    replay = Replay(PLAN, SENSES)
    for first in range(0, until, each):
        replay.add(steps(first, each), memories(first, each))
    return replay


@pytest.mark.parametrize("until", [6, 9, 30, 33, 36, 72, 99])
def test_sequences_come_back_as_they_were_met(until: int) -> None:
    replay = filled(until)
    starts = replay.beginnings()
    oldest = max(0, until - PLAN.rows)
    expected = [s for s in range(0, until, 4) if s + 7 <= until and (s - 2 >= oldest or oldest == 0)]
    assert starts.tolist() == expected and replay.size == min(until, 32) * N
    for start in expected:
        batch = replay.take(np.array([start] * N), np.arange(N))
        truth = steps(start, 7)
        assert np.array_equal(batch.action, truth["action"].T)
        assert np.array_equal(batch.ended, truth["ended"].T)
        assert list(batch.reward) == ["env", *TERMS]
        for name, column in batch.reward.items():
            assert np.array_equal(column, truth[reward_column(name)].T)
        frames = SENSES.unpack({name: truth[name] for name in SENSES.packed}).frames
        assert frames is not None and batch.seen.frames is not None and batch.past is not None
        assert np.array_equal(batch.seen.frames, np.swapaxes(frames, 0, 1))
        assert batch.legal[0, 0].tolist() == [True, True, False, True, True]
        assert np.array_equal(batch.memory, memories(start, 1)[0])
        for game in range(N):
            for back in (1, 2):  # the pictures before, of the same episode only
                ends = any((start - k) % 6 == game for k in range(1, back + 1))
                level = 0 if start < back or ends else ((start - back) * 5 + game) % 4
                assert (batch.past[game, 2 - back] == level).all(), (start, game, back)


@pytest.mark.parametrize("until", [3, 15, 33, 72])
def test_a_restored_replay_is_the_same_and_writes_only_what_is_new(until: int) -> None:
    first, second = filled(until), Replay(PLAN, SENSES)
    tree = first.state()
    second.restore(tree)
    assert second.beginnings().tolist() == first.beginnings().tolist()
    for start in first.beginnings():
        one, two = (replay.take(np.array([start]), np.array([1])) for replay in (first, second))
        assert np.array_equal(one.memory, two.memory)
        assert all(np.array_equal(one.reward[name], two.reward[name]) for name in ("env", *TERMS))
    before = [chunk.name for chunk in tree["chunks"]]
    for replay in (first, second):
        replay.add(steps(until, 3), memories(until, 3))
        after = replay.state()
        new = [chunk for chunk in after["chunks"] if chunk.name not in before]
        assert len(new) == (until + 3) // 5 - until // 5
        assert len(after["rest"]["action"]) == (until + 3) % 5
    assert [c.name for c in first.state()["chunks"]] == [c.name for c in second.state()["chunks"]]


@pytest.mark.parametrize("size", ["slim", "large"])
def test_half_a_million_steps_take_less_than_a_gigabyte(size: str) -> None:
    """With sixty numbers beside picture and map; pages that nobody wrote to cost nothing here."""
    config = settings.replace(api.default("gymnasium"), {
        "learner": "dqn", "games": 32, "steps": 32, "dqn.replay_size": 500_000, "dqn.size": size,
    })  # fmt: skip
    grid = [Field(name=name, columns=tuple(map(str, range(a * b))), low=0.0, shape=(a, b))
            for name, a, b in (("screen", 72, 80), ("visited", 48, 48))]
    numbers = Field(name="structured", columns=tuple(map(str, range(60))))
    buttons = Actions(kind="discrete", names=tuple("abcdefg"))
    role = Role(name="joypad", fields=(*grid, numbers), actions=buttons, seats=(0,))
    replay = Replay(plan(config, role, [TermInfo(f"term {i}", 1.0) for i in range(MOST_TERMS)]), Senses(role))
    assert replay.plan.rows * 32 > 499_000
    assert replay.nbytes <= 2**30 and (size == "large" or replay.nbytes <= 10**9)
    setup: Any = SimpleNamespace(config=config, spec=Spec(world="toy", roles={"joypad": role}))
    assert 0 <= Dqn.memory_bytes(config.dqn, setup) - replay.nbytes < 0.01 * replay.nbytes
