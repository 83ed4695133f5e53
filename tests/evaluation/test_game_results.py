"""Results game by game: common random numbers, single games played again, paired differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.core.world import World
from rematch.evaluation.evaluator import versus
from rematch.evaluation.game_results import (
    GameResults,
    compare,
    games_per_seating,
    play_games,
    play_one,
    seatings,
)
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.statistics import mean_interval
from rematch.worlds import registry


def board(name: str, **changes: Any) -> Scoreboard:
    game = registry.find(name)
    rules = game.Config(**changes)

    def make(games: int, first: int, seed: int) -> World:
        return game.make(rules, games, first, seed)

    return Scoreboard(make, 5, 2)


@pytest.mark.parametrize(("world", "changes", "players"), [
    ("pursuit", {"max_steps": 30, "prep_steps": 0}, ("random", "flee_straight")),
    ("beasty", {}, ("random", "queue")),
    ("beasty", {"players": 3}, ("random", "queue")),
])
def test_every_game_can_be_played_again_alone(
        world: str, changes: dict[str, Any], players: tuple[str, str]) -> None:
    game, table = registry.find(world), board(world, **changes)
    roles = list(table.spec.roles)
    own, other = game.bot(players[0], roles[0]), game.bot(players[1], roles[-1])
    seats = versus(table.spec, own, roles[0], other)
    together = play_games(table, seats, 0, 14, index=3)
    alone = [play_one(table, seats, 0, (turn, number), 3)
             for turn, share in enumerate(games_per_seating(table.spec, 14)) for number in range(share)]
    assert [(float(a), float(b)) for a, b in zip(together.outcome, together.returns)] == alone
    assert 0 < together.outcome.mean() < 1 or together.outcome.std() == 0


def test_seatings_give_every_player_every_seat() -> None:
    spec = board("beasty", players=4).spec
    assert sorted(map(tuple, np.array(seatings(spec)).T.tolist())) == sorted(
        tuple((seat + turn) % 4 for turn in range(4)) for seat in range(4))
    assert games_per_seating(spec, 10) == [3, 3, 2, 2]
    assert games_per_seating(board("lattice").spec, 10) == [10]


def results(values: Any, deal: Any = None) -> GameResults:
    array = np.asarray(values, np.float64)
    return GameResults(array, 10 * array, np.arange(len(array)) if deal is None else np.asarray(deal))


def test_equal_players_differ_by_nothing_and_the_interval_has_a_width() -> None:
    same = compare(results([1, 0, 1, 1]), results([1, 0, 1, 1]), by_return=False)
    assert same.difference.mean == 0 and same.better == "level" and same.correlation == pytest.approx(1)
    assert same.difference.high == pytest.approx(1 - 0.05 ** (1 / 4)) == -(same.difference.low or 0)


def test_same_games_need_fewer_of_them() -> None:
    """Where most games have the same result, the paired interval is narrower than that of two matches."""
    luck = np.random.default_rng(0).random(400) < 0.5
    better = luck | (np.arange(400) % 20 == 0)
    paired = compare(results(better), results(luck), by_return=False)
    assert paired.better == "first" and (paired.difference.low or 0) > 0
    separate = [mean_interval(array.astype(float)) for array in (better, luck)]
    widths = [(mean.high or 0) - (mean.low or 0) for mean in separate]
    assert (paired.difference.high or 0) - (paired.difference.low or 0) < 0.5 * float(np.hypot(*widths))


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), min_size=2))
def test_difference_is_antisymmetric(pairs: list[tuple[float, float]]) -> None:
    one, two = results([a for a, _ in pairs]), results([b for _, b in pairs])
    there, back = compare(one, two, False), compare(two, one, False)
    assert there.difference.mean == pytest.approx(-back.difference.mean)
    assert there.difference.low == pytest.approx(-(back.difference.high or 0))
    assert {there.better, back.better} in ({"level"}, {"first", "second"})
    assert compare(one, two, True).difference.mean == pytest.approx(10 * there.difference.mean)
