"""Hints and reviews: exact values where the game is solved, values of the search elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from support.beasty_positions import DOCUMENT, PLAIN

from rematch.core.arrays import Bytes
from rematch.worlds.beasty import hints, native
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.hints import Mistake, MoveValue, evaluate_moves, review
from rematch.worlds.beasty.reference import search
from rematch.worlds.beasty.reference.compare import playouts, positions
from rematch.worlds.beasty.reference.rules import is_over, legal, play
from rematch.worlds.beasty.reference.search import difference, minimax
from rematch.worlds.beasty.state import unpack

COUNT = Config(scoring="count")


def endings(config: Config, count: int, cards: int) -> list[Bytes]:
    """[1, S] each: positions with empty decks and `cards` cards in hand."""
    for before, *_ in playouts(config, count, seed=8):
        if before.view(native.GAME_TYPE)[0, 0]["step"] == 24 - cards:
            return [before[row : row + 1].copy() for row in range(len(before))]
    raise AssertionError


@pytest.mark.parametrize("config", [PLAIN, DOCUMENT, COUNT], ids=["points", "document", "count"])
def test_exact_values_equal_minimax(config: Config) -> None:
    ended = 0
    for saved in [*endings(config, 25, 4), *endings(config, 12, 2)]:
        (state,) = unpack(saved, config)
        values = evaluate_moves(saved, config, 1)
        assert list(values) == legal(state, config)
        for action, value in values.items():
            after = play(state, action, config)
            ended += is_over(after)
            expected = difference(after, state.turn, config) if is_over(after) else -minimax(after, config)
            assert value.difference == expected and value.score == 0.5 + 0.5 * np.sign(expected)
    assert ended > 5


@pytest.mark.parametrize("config", [PLAIN, Config(players=3), COUNT], ids=["two", "three", "count"])
def test_values_have_the_order_of_the_search(config: Config) -> None:
    for row in positions(config, 12, seed=4)[:, None]:
        saved = np.ascontiguousarray(row)
        if not saved.view(native.GAME_TYPE)[0, 0]["deck"].any() or len(evaluate_moves(saved, config, 4)) < 2:
            continue
        values, rules = evaluate_moves(saved, config, 4), native.Core(config.values())
        step = int(saved.view(native.GAME_TYPE)[0, 0]["step"])
        rng_key = (hints.STREAM_KEY, 2, step)
        best = rules.search(saved, np.zeros(1, np.int32), (8, 0, 4, 8), rng_key)[1]
        top = max(value.score for value in values.values())
        assert values[int(best[0])].score == top
        if config.scoring == "points":
            assert all(0 <= value.score <= 1 for value in values.values())
    assert search.reward  # the scale of `evaluate_moves`


def test_review_lists_mistakes_only() -> None:
    perfect, wrong, costs = [], [], []
    for saved in endings(PLAIN, 30, 5):
        values = evaluate_moves(saved, PLAIN, 1)
        order = sorted(values, key=lambda a: (values[a].score, values[a].difference or 0))
        perfect.append((saved, order[-1]))
        if values[order[0]].difference != values[order[-1]].difference:
            wrong.append((saved, order[0]))
            costs.append(values[order[-1]].score - values[order[0]].score)
    assert review(perfect, PLAIN, 1) == []
    mistakes = review(wrong, PLAIN, 1)
    assert len(mistakes) == len(wrong) > 5
    losses = [mistake.cost for mistake in mistakes]
    assert losses == sorted(losses, reverse=True)
    assert sorted(cost[0] for cost in losses) == sorted(costs)
    assert review([], PLAIN, 1) == []


def test_values_and_mistakes_as_text() -> None:
    mistake = Mistake(16, 0, 1, MoveValue(0.0, -4), MoveValue(0.5, 0))
    assert str(mistake) == "turn 17: skunk (loses by 4); best was monkey (draws)"
    mistake = Mistake(3, 0, 1, MoveValue(0.444), MoveValue(0.61))
    assert str(mistake) == "turn 4: skunk (44 %); best was monkey (61 %)"
    assert (str(MoveValue(1.0, 67, False)), str(MoveValue(-0.25, points=False))) == ("wins", "value -0.25")
