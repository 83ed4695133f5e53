"""Threads that play: few games of a compiled world stay on one, other worlds are divided as asked."""

from __future__ import annotations

import pytest
from support import toys

from rematch.training.setup import LEAST_GAMES, playing_threads
from rematch.worlds import registry


@pytest.mark.parametrize(("games", "threads", "wanted"), [
    (1, 1, 1), (4, 2, 1), (LEAST_GAMES, 2, 1), (2 * LEAST_GAMES, 2, 2), (2 * LEAST_GAMES, 8, 2),
    (2048, 1, 1), (2048, 64, 64),
])  # fmt: skip
def test_a_thread_of_a_compiled_world_has_at_least_some_games(games: int, threads: int, wanted: int) -> None:
    game = registry.find("lattice")
    assert playing_threads(game.make(game.Config(), games, 0, 0), threads) == wanted


def test_other_worlds_are_divided_as_asked() -> None:
    assert playing_threads(toys.matching.make(toys.matching.Config(), 4, 0, 1), 3) == 3
