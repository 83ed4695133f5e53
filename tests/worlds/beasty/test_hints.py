"""Hints and reviews: exact where the game is solved, in the order of the search elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from support.beasty_positions import DOCUMENT, PLAIN

from rematch.core.arrays import Bytes
from rematch.worlds.beasty import hints, native
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.hints import Slip, Worth, review, weigh
from rematch.worlds.beasty.reference import search
from rematch.worlds.beasty.reference.compare import playouts, positions
from rematch.worlds.beasty.reference.rules import is_over, legal, play
from rematch.worlds.beasty.reference.search import difference, minimax
from rematch.worlds.beasty.state import unpack

COUNT = Config(scoring="count")


def endings(config: Config, count: int, cards: int) -> list[Bytes]:
    """[1, S] each: positions with empty decks and so many cards in hand."""
    for before, *_ in playouts(config, count, seed=8):
        if before.view(native.GAME_TYPE)[0, 0]["step"] == 24 - cards:
            return [before[row : row + 1].copy() for row in range(len(before))]
    raise AssertionError


@pytest.mark.parametrize("config", [PLAIN, DOCUMENT, COUNT], ids=["points", "document", "count"])
def test_solved_moves_are_worth_what_minimax_says(config: Config) -> None:
    ended = 0
    for saved in [*endings(config, 25, 4), *endings(config, 12, 2)]:
        (state,) = unpack(saved, config)
        worths = weigh(saved, config, 1)
        assert list(worths) == legal(state, config)
        for action, worth in worths.items():
            then = play(state, action, config)
            ended += is_over(then)
            wanted = difference(then, state.turn, config) if is_over(then) else -minimax(then, config)
            assert worth.difference == wanted and worth.score == 0.5 + 0.5 * np.sign(wanted)
    assert ended > 5


@pytest.mark.parametrize("config", [PLAIN, Config(players=3), COUNT], ids=["two", "three", "count"])
def test_elsewhere_moves_stand_in_the_order_of_the_search(config: Config) -> None:
    for row in positions(config, 12, seed=4)[:, None]:
        saved = np.ascontiguousarray(row)
        if not saved.view(native.GAME_TYPE)[0, 0]["deck"].any() or len(weigh(saved, config, 4)) < 2:
            continue
        worths, rules = weigh(saved, config, 4), native.Core(config.values())
        step = int(saved.view(native.GAME_TYPE)[0, 0]["step"])
        rng_key = (hints.STREAM_KEY, 2, step)
        best = rules.search(saved, np.zeros(1, np.int32), (8, 0, 4, 8), rng_key)[1]
        top = max(worth.score for worth in worths.values())
        assert worths[int(best[0])].score == top
        if config.scoring == "points":
            assert all(0 <= worth.score <= 1 for worth in worths.values())
    assert search.reward  # what the scale of `weigh` is taken from


def test_a_review_names_what_was_lost_and_only_that() -> None:
    perfect, spoilt, costs = [], [], []
    for saved in endings(PLAIN, 30, 5):
        worths = weigh(saved, PLAIN, 1)
        order = sorted(worths, key=lambda a: (worths[a].score, worths[a].difference or 0))
        perfect.append((saved, order[-1]))
        if worths[order[0]].difference != worths[order[-1]].difference:
            spoilt.append((saved, order[0]))
            costs.append(worths[order[-1]].score - worths[order[0]].score)
    assert review(perfect, PLAIN, 1) == []
    slips = review(spoilt, PLAIN, 1)
    assert len(slips) == len(spoilt) > 5
    assert [slip.cost for slip in slips] == sorted((slip.cost for slip in slips), reverse=True)
    assert sorted(slip.cost[0] for slip in slips) == sorted(costs)
    assert review([], PLAIN, 1) == []


def test_in_words() -> None:
    slip = Slip(16, 0, 1, Worth(0.0, -4), Worth(0.5, 0))
    assert str(slip) == "turn 17: skunk (loses by 4); best was monkey (draws)"
    assert str(Slip(3, 0, 1, Worth(0.444), Worth(0.61))) == "turn 4: skunk (44 %); best was monkey (61 %)"
    assert (str(Worth(1.0, 67, False)), str(Worth(-0.25, points=False))) == ("wins", "worth -0.25")
