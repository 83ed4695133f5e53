"""Episodic novelty: counts by words, begun anew with each episode; they survive a restore."""

from __future__ import annotations

import alone
import numpy as np
import pytest

from rematch.config import ConfigError
from rematch.engine.bonuses.novelty import Novelty, NoveltyConfig
from rematch.engine.tape import Tape

SPEC = alone.stroll.make(alone.StrollConfig(height=12, width=16, side=4), 1).spec
ROLE = SPEC.roles["joypad"]


def tape(places: list[list[int]], ended: list[list[int]]) -> Tape:
    """places [T][N]: what x is; everything else is 0."""
    made = Tape(SPEC, len(places), len(places[0]))
    made["joypad"].sight[:, :, 0, ROLE.columns.index("structured.x")] = places
    made.ended[:] = ended
    return made


def test_a_place_is_worth_less_each_time_until_the_episode_ends() -> None:
    bonus = Novelty(NoveltyConfig(weight=1.0), ROLE, 2)
    found = bonus.score(tape([[1, 1], [1, 2], [1, 1], [1, 1]], [[0, 0], [0, 0], [1, 0], [0, 0]]), 0)
    assert np.allclose(found[:, 0] ** -2, [1, 2, 3, 1]) and np.allclose(found[:, 1] ** -2, [1, 1, 2, 3])


def test_counts_go_on_over_tapes_and_over_a_restore() -> None:
    first, second = (Novelty(NoveltyConfig(weight=1.0), ROLE, 2) for _ in range(2))
    first.score(tape([[1, 5], [2, 5]], [[0, 0], [0, 1]]), 0)
    second.restore(first.state())
    for bonus in (first, second):
        assert np.allclose(bonus.score(tape([[1, 5]], [[0, 0]]), 1) ** -2, [[2, 1]])
    assert all(np.array_equal(a, b) for a, b in zip(first.state().values(), second.state().values()))


def test_columns_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"novelty.columns = 'mop'.*sees no columns.*nearest: where.map"):
        Novelty(NoveltyConfig(weight=1.0, columns=("mop",)), ROLE, 1)
