"""Replay buffer: sequences come back as they were added, also after overwriting; its size is bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import single_seat_worlds

from rematch import api
from rematch.agents.learner import TermInfo
from rematch.agents.learners.dqn import MAX_TERMS, Dqn, replay_shape
from rematch.agents.learners.replay_buffer import Replay, ReplayShape, reward_column
from rematch.agents.networks.observation_codec import ObservationCodec
from rematch.core import config as settings
from rematch.core.spec import Actions, Field, Role, Spec

WORLD = single_seat_worlds.stroll.make(single_seat_worlds.StrollConfig(height=12, width=16, side=4), 1)
ROLE = WORLD.spec.roles["joypad"]
CODEC = ObservationCodec(ROLE)
N = 3
TERMS = ("rnd_images", "count_bonus")
SHAPE = ReplayShape(
    steps=N * 33, games=N, sequence=7, stride=4, history=2, chunk=5, recurrent_size=6, actions=5, terms=TERMS
)


def steps(first: int, count: int) -> dict[str, NDArray[Any]]:
    """Steps whose numbers follow from step and game."""
    step, game = np.mgrid[first : first + count, 0:N]
    obs = np.zeros((count, N, ROLE.size), np.float32)
    obs[..., : 12 * 16] = ((step * 5 + game) % 4 / 3)[..., None]
    obs[..., 192] = step % 50 / 25
    rewards = {reward_column(name): (10 * step + i + 0.1 * game).astype("f4")
               for i, name in enumerate(("env", *TERMS))}
    return CODEC.pack(obs) | rewards | {
        "action": (step + game) % 5, "ended": (step % 6 == game) * 1,
        "legal": np.full((count, N, 1), 0b11011000, np.uint8),
    }  # fmt: skip


def states(first: int, count: int) -> Any:
    """The recurrent states before the sequences that start in these steps."""
    starts = [s for s in range(first, first + count) if s % SHAPE.stride == 0]
    return np.array([[[1000 * s + 10 * game + i for i in range(6)] for game in range(N)] for s in starts],
                    np.float32).reshape(-1, N, 6)


def filled(until: int, each: int = 3) -> Replay:
    replay = Replay(SHAPE, CODEC)
    for first in range(0, until, each):
        replay.add(steps(first, each), states(first, each))
    return replay


@pytest.mark.parametrize("until", [6, 9, 30, 33, 36, 72, 99])
def test_sequences_come_back_as_they_were_added(until: int) -> None:
    replay = filled(until)
    starts = replay.sequence_starts()
    oldest = max(0, until - SHAPE.rows)
    expected = [s for s in range(0, until, 4) if s + 7 <= until and (s - 2 >= oldest or oldest == 0)]
    assert starts.tolist() == expected and replay.size == min(until, 32) * N
    for start in expected:
        batch = replay.sequences(np.array([start] * N), np.arange(N))
        truth = steps(start, 7)
        assert np.array_equal(batch.action, truth["action"].T)
        assert np.array_equal(batch.ended, truth["ended"].T)
        assert list(batch.reward) == ["env", *TERMS]
        for name, column in batch.reward.items():
            assert np.array_equal(column, truth[reward_column(name)].T)
        frames = CODEC.unpack({name: truth[name] for name in CODEC.packed}).frames
        assert frames is not None and batch.obs.frames is not None and batch.previous_frames is not None
        assert np.array_equal(batch.obs.frames, np.swapaxes(frames, 0, 1))
        assert batch.legal[0, 0].tolist() == [True, True, False, True, True]
        assert np.array_equal(batch.recurrent_state, states(start, 1)[0])
        for game in range(N):
            for age in (1, 2):  # the frames before, of the same episode only
                ends = any((start - k) % 6 == game for k in range(1, age + 1))
                level = 0 if start < age or ends else ((start - age) * 5 + game) % 4
                assert (batch.previous_frames[game, 2 - age] == level).all(), (start, game, age)


@pytest.mark.parametrize("until", [3, 15, 33, 72])
def test_restored_replay_is_equal_and_writes_only_new_steps(until: int) -> None:
    first, second = filled(until), Replay(SHAPE, CODEC)
    tree = first.state()
    second.restore(tree)
    assert second.sequence_starts().tolist() == first.sequence_starts().tolist()
    for start in first.sequence_starts():
        one, two = (replay.sequences(np.array([start]), np.array([1])) for replay in (first, second))
        assert np.array_equal(one.recurrent_state, two.recurrent_state)
        assert all(np.array_equal(one.reward[name], two.reward[name]) for name in ("env", *TERMS))
    before = [chunk.name for chunk in tree["chunks"]]
    for replay in (first, second):
        replay.add(steps(until, 3), states(until, 3))
        after = replay.state()
        new = [chunk for chunk in after["chunks"] if chunk.name not in before]
        assert len(new) == (until + 3) // 5 - until // 5
        assert len(after["rest"]["action"]) == (until + 3) % 5
    assert [c.name for c in first.state()["chunks"]] == [c.name for c in second.state()["chunks"]]


@pytest.mark.parametrize("size", ["slim", "large"])
def test_half_a_million_steps_take_less_than_a_gigabyte(size: str) -> None:
    """With sixty numbers beside frame and mask; memory pages without writes cost nothing."""
    config = settings.replace(api.default("gymnasium"), {
        "learner": "dqn", "games": 32, "steps": 32, "dqn.replay_size": 500_000, "dqn.size": size,
    })  # fmt: skip
    grid = [Field(name=name, columns=tuple(map(str, range(a * b))), low=0.0, shape=(a, b))
            for name, a, b in (("screen", 72, 80), ("visited", 48, 48))]
    numbers = Field(name="structured", columns=tuple(map(str, range(60))))
    buttons = Actions(kind="discrete", names=tuple("abcdefg"))
    role = Role(name="joypad", fields=(*grid, numbers), actions=buttons, seats=(0,))
    terms = [TermInfo(f"term {i}", 1.0) for i in range(MAX_TERMS)]
    replay = Replay(replay_shape(config, role, terms), ObservationCodec(role))
    assert replay.shape.rows * 32 > 499_000
    assert replay.nbytes <= 2**30 and (size == "large" or replay.nbytes <= 10**9)
    setup: Any = SimpleNamespace(config=config, spec=Spec(world="toy", roles={"joypad": role}))
    assert 0 <= Dqn.memory_bytes(config.dqn, setup) - replay.nbytes < 0.01 * replay.nbytes
