"""The scoreboard: intervals as published, every copy once, every seat in turn, games never trained on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import toys
from support.networks import policy

from rematch.core import rng
from rematch.core.player import Move, Noise, Player, Seat
from rematch.evaluation.match import Result, Scoreboard, play, wilson
from rematch.rollout.collector import Rollout, Table

# --- intervals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"),
    [
        # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0000),
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilson_as_published(wins: int, games: int, low: float, high: float) -> None:
    assert wilson(wins, games) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_wilson_holds_the_rate_and_is_fair(games: int, share: float) -> None:
    score = round(share * games * 2) / 2  # draws count half
    low, high = wilson(score, games)
    assert 0 <= low <= score / games + 1e-12 and score / games - 1e-12 <= high <= 1
    assert wilson(games - score, games) == pytest.approx((1 - high, 1 - low), abs=1e-9)
    wider = wilson(score, games, 2.6)
    assert wider[0] <= low + 1e-12 and high <= wider[1] + 1e-12


def test_nothing_played_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 100)[0] == 0.0 and wilson(100, 100)[1] == 1.0  # exactly, not up to rounding
    assert 0.061 < wilson(500, 1000)[1] - wilson(500, 1000)[0] < 0.062  # a thousand games: plus or minus 0.03


def test_draws_count_half() -> None:
    result = Result("a", "matcher", "b", 10, 4, 2, 5.0)
    assert result.score == 0.5 and result.interval == wilson(5, 10)
    row = result.row()
    assert row["low"] == result.interval[0] and row["wins"] == 4 and row["games"] == 10
    assert Result("a", "matcher", "b", 0, 0, 0, 0.0).score == 0.0


# --- matches -----------------------------------------------------------------------------------------------


def board(name: str, threads: int = 1, seed: int = 3, **settings: Any) -> Scoreboard:
    module = toys.TOYS[name]
    return Scoreboard(
        lambda games, first, key: module.make(module.Config(**settings), games, first, key), seed, threads
    )


def bots(name: str, *names: str) -> list[Player]:
    module = toys.TOYS[name]
    spec = module.make(module.Config(), 1).spec
    return [module.bot(bot, spec.role_of(seat).name) for seat, bot in enumerate(names)]


def test_every_copy_counts_once_however_long_its_game() -> None:
    """The first game of every copy, and only that: replayed one copy at a time."""
    module, players = toys.sticks, bots("sticks", "careful", "random", "random")
    whole = module.make(module.Config(most=100), 60, 0, 8)
    outcome, length, *_ = play(whole, players, 77)
    assert len(set(length.tolist())) > 10
    for game in range(60):
        alone, steps, *_ = play(module.make(module.Config(most=100), 1, game, 8), players, 77)
        assert (alone[0] == outcome[game]).all() and steps[0] == length[game]
    assert (outcome.sum(1) == 2).all()  # two of three win, in every one


def test_two_players_that_toss_coins_toss_them_apart() -> None:
    """Matching pennies between fair coins is fair: the two seats must not share their luck."""
    for policies in (False, True):
        players = bots("matching", "random", "random")
        if policies:
            spec = toys.matching.make(toys.matching.Config(), 1).spec
            players = [policy(spec.roles[role]) for role in spec.roles]
            for player in players:
                player.set(np.zeros_like(player.weights))  # type: ignore[attr-defined]
        rows = board("matching", rounds=1, heads=1.0).results(players, 4000, 0)
        assert rows[0].interval[0] < 0.5 < rows[0].interval[1], rows[0]


def test_pursuits_random_players_do_not_mirror_each_other() -> None:
    from rematch.worlds.conformance.playback import seat_at
    from rematch.worlds.pursuit import world as pursuit

    world, rows = pursuit.make(pursuit.Config(), 50, 0, 1), np.arange(50, dtype=np.int32)
    moves = [
        pursuit.bot("random", role).act(seat_at(world, seat, rows), Noise(5, rng.ACT, 2)).action
        for seat, role in enumerate(world.spec.roles)
    ]
    assert abs(np.corrcoef(moves[0].ravel(), moves[1].ravel())[0, 1]) < 0.4


def test_known_odds() -> None:
    """Heads against a fair coin over one round wins half; against heads it always wins, as the matcher."""
    rows = board("matching", rounds=1).results(bots("matching", "heads", "random"), 4000, 1)
    assert rows[0].interval[0] < 0.5 < rows[0].interval[1] and rows[0].length == 1.0
    rows = board("matching").results(bots("matching", "heads", "heads"), 50, 2)
    assert (rows[0].wins, rows[1].wins, rows[0].games) == (50, 0, 50)
    assert (rows[0].player, rows[0].role, rows[0].rival) == ("heads", "matcher", "heads")
    # two rounds of heads against tails and back: one each is a draw
    drawn = board("matching", rounds=2, heads=1.0).results(bots("matching", "heads", "random"), 4000, 3)[0]
    assert abs(drawn.draws / 4000 - 0.5) < 0.04


class Chair:
    """Notes where it sits; loses on purpose in seat 0 and nowhere else."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sat: Counter[int] = Counter()

    def act(self, seat: Seat, noise: Noise, memory: Any = None) -> Move:
        self.sat.update({seat.seat: len(seat.rows)})
        assert seat.mask is not None
        return Move(np.where(seat.mask[:, 1] > 0, 1, 0))


@pytest.mark.parametrize("games", [1, 2, 3, 10, 300])
def test_one_role_sits_everywhere_equally_often(games: int) -> None:
    chairs = [Chair(name) for name in "abc"]
    seats: list[tuple[tuple[str, ...], int]] = []
    scores = board("sticks")
    match = scores.match

    def spy(players: Any, games: int, index: int, turn: int) -> Any:
        seats.append((tuple(p.name for p in players), games))
        return match(players, games, index, turn)

    scores.match = spy  # type: ignore[method-assign]
    rows = scores.results(chairs, games, 0)
    assert sum(n for _, n in seats) == games and [row.games for row in rows] == [games] * 3
    for name in "abc":
        share = [sum(n for order, n in seats if order[seat] == name) for seat in range(3)]
        assert max(share) - min(share) <= 1
    assert sum(row.wins for row in rows) == 2 * games  # each game has two winners: nothing counted twice
    assert [(row.player, row.rival) for row in rows] == [("a", "b+c"), ("b", "a+c"), ("c", "a+b")]


def test_outcomes_go_to_the_player_not_to_the_chair() -> None:
    """The careful one does better than a third of the losses, from whichever place in the list."""
    for place in range(3):
        names = ["random"] * 3
        names[place] = "careful"
        rows = board("sticks").results(bots("sticks", *names), 600, place)
        assert rows[place].player == "careful" and rows[place].interval[0] > 2 / 3
        # the one after it is left the last stick: third from its place, whoever sits first
        assert rows[(place + 1) % 3].interval[1] < 2 / 3


@pytest.mark.parametrize("name", toys.TOYS)
def test_results_are_fixed_by_seed_and_index_and_not_by_threads(name: str) -> None:
    module = toys.TOYS[name]
    spec = module.make(module.Config(), 1).spec

    def results(threads: int = 1, seed: int = 3, index: int = 5) -> Any:
        players = [policy(spec.role_of(seat), seed=seat, hidden=(7,)) for seat in range(spec.seats)]
        outcome, length, *_ = board(name, threads, seed).match(players, 37, index)
        return outcome.tobytes(), length.tobytes()

    assert results() == results() == results(threads=3) == results(threads=64)
    if name != "matching" or len({results(), results(index=6)}) == 2:
        assert len({results(), results(seed=4), results(index=6), results(index=5 + 2**32)}) == 4


def test_no_two_matches_share_their_games_and_none_is_training() -> None:
    made: list[Any] = []
    lucks: set[int] = set()

    class Listener(Chair):
        def act(self, seat: Seat, noise: Noise, memory: Any = None) -> Move:
            lucks.add(noise.seed)
            return super().act(seat, noise, memory)

    def make(games: int, first: int, key: int) -> Any:
        world = toys.sticks.make(toys.sticks.Config(), games, first, key)
        made.append((key, games, world))
        return world

    seed = 3
    scores = Scoreboard(make, seed, 1)
    for index in (
        0,
        1,
        2,
        1 << 12,
        2 << 12,
        1 << 60,
    ):  # iterations are 4096 apart, the last evaluation far away
        scores.results([Listener(name) for name in "abc"], 6, index)
    worlds = [(key, world) for key, games, world in made if games > 1]
    assert len(worlds) == 18 and len({key for key, _ in worlds}) == 6  # each deal once from every seat
    drawn = [seed for _, world in worlds[::3] for seed in world.next.seed.tolist()]
    assert len(set(drawn)) == len(drawn) == 12
    for _, world in worlds:
        assert world.next.seed.tolist() in [other.next.seed.tolist() for _, other in worlds[::3]]
    training = toys.sticks.make(toys.sticks.Config(), 500, 0, seed)
    assert not set(training.next.seed.tolist()) & set(drawn)
    # nor are the players' draws those of a rollout
    learner = policy(training.spec.roles["player"])
    rollout = Rollout(training, {"player": Table(learner, 1)}, 2, 1, seed)
    used = {rng.key(key, rng.ACT, seat) for key in lucks for seat in range(3)}
    assert not used & set(rollout.keys.values()) and len(used) == 54
