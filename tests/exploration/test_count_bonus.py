"""Count bonus: visit counts per episode or lifelong, by definition; they survive a restore."""

from __future__ import annotations

import numpy as np
import pytest
from support import single_seat_worlds
from support.trainers import first_difference

from rematch.core.errors import ConfigError
from rematch.exploration.count_bonus import CountBonusConfig, VisitCounts
from rematch.rollout.rollout_buffer import RolloutBuffer

SPEC = single_seat_worlds.stroll.make(single_seat_worlds.StrollConfig(height=12, width=16, side=4), 1).spec
ROLE = SPEC.roles["joypad"]


def rollout_of(places: list[list[int]], ended: list[list[int]]) -> RolloutBuffer:
    """places [T][N]: the value of x; all other columns are 0."""
    made = RolloutBuffer(SPEC, len(places), len(places[0]))
    made["joypad"].obs[:, :, 0, ROLE.columns.index("structured.x")] = places
    made.ended[:] = ended
    return made


def test_reward_falls_with_visits_until_the_episode_ends() -> None:
    bonus = VisitCounts(CountBonusConfig(weight=1.0), ROLE, 2)
    rollout = rollout_of([[1, 1], [1, 2], [1, 1], [1, 1]], [[0, 0], [0, 0], [1, 0], [0, 0]])
    rewards = bonus.score(rollout, 0)[:, :, 0]
    assert np.allclose(rewards[:, 0] ** -2, [1, 2, 3, 1]) and np.allclose(rewards[:, 1] ** -2, [1, 1, 2, 3])


def test_counts_continue_over_rollouts_and_a_restore() -> None:
    first, second = (VisitCounts(CountBonusConfig(weight=1.0), ROLE, 2) for _ in range(2))
    first.score(rollout_of([[1, 5], [2, 5]], [[0, 0], [0, 1]]), 0)
    second.load_state_dict(first.state_dict())
    for bonus in (first, second):
        assert np.allclose(bonus.score(rollout_of([[1, 5]], [[0, 0]]), 1)[:, :, 0] ** -2, [[2, 1]])
    assert first_difference(first.state_dict(), second.state_dict()) == ""


def reference_lifelong(places: list[list[int]], ended: list[list[int]]) -> np.ndarray:
    """By definition: 1 / sqrt(number of episodes that visited the place so far, this one included)."""
    out, episode = np.zeros((len(places), len(places[0]))), [0] * len(places[0])
    met: list[tuple[int, int, int, int, int]] = []  # game, step, place, episode, order
    for game in range(len(places[0])):
        for t in range(len(places)):
            place, which = places[t][game], episode[game]
            if not any(m[0] == game and m[2] == place and m[3] == which for m in met):
                met.append((game, t, place, which, len(met)))
                out[t, game] = sum(m[2] == place for m in met) ** -0.5
            episode[game] += ended[t][game] != 0
    return out


def test_lifelong_reward_is_given_once_per_episode_and_falls() -> None:
    draw = np.random.default_rng(1)
    places, ended = draw.integers(1, 6, (60, 3)), draw.random((60, 3)) < 0.15
    bonus = VisitCounts(CountBonusConfig(weight=1.0, lifelong=True), ROLE, 3)
    rewards = bonus.score(rollout_of(places.tolist(), ended.astype(int).tolist()), 0)[:, :, 0]
    assert np.allclose(rewards, reference_lifelong(places.tolist(), ended.astype(int).tolist()))
    again = VisitCounts(CountBonusConfig(weight=1.0, lifelong=True), ROLE, 3)
    again.load_state_dict(bonus.state_dict())
    more = rollout_of([[1, 7, 2], [7, 7, 1]], [[1, 0, 1], [0, 0, 0]])
    assert np.array_equal(bonus.score(more, 1), again.score(more, 1))


def test_star_selects_all_columns_with_a_prefix() -> None:
    bonus = VisitCounts(CountBonusConfig(weight=1.0, columns=("structured.*", "map")), ROLE, 1)
    expected = [i for i, name in enumerate(ROLE.columns) if name.startswith("structured.")]
    assert bonus.columns[:-1] == expected and len(expected) > 1
    with pytest.raises(ConfigError, match=r"'milestone_\*': joypad observes no columns"):
        VisitCounts(CountBonusConfig(weight=1.0, columns=("milestone_*",)), ROLE, 1)


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"count_bonus.columns = 'mop'.*no columns.*nearest: where.map"):
        VisitCounts(CountBonusConfig(weight=1.0, columns=("mop",)), ROLE, 1)
