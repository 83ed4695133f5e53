"""Matches: every copy counts once, players take every seat in turn, games are never those of training."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from support import toys
from support.networks import policy

from rematch.core import rng
from rematch.core.player import Decision, Player, RngKey, Seat
from rematch.evaluation.match import Result, Scoreboard, play
from rematch.evaluation.statistics import wilson
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import RoleSeating


def test_result_counts_a_draw_half() -> None:
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


def test_network_on_the_gpu_plays_all_games_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    scoreboard = board("matching", threads=3)
    players = [policy(role) for role in scoreboard.spec.roles.values()]
    seen: list[int] = []
    monkeypatch.setattr("rematch.evaluation.match.play", lambda world, **rest: seen.append(world.games))
    monkeypatch.setattr("rematch.evaluation.match.joined", lambda played: played)
    for on_gpu in (False, True):
        monkeypatch.setattr(type(players[0]), "on_gpu", on_gpu)
        scoreboard.match(players, 30, 5)
    assert seen == [10, 10, 10, 30]


def test_play_counts_every_copy_once() -> None:
    """The first game of every copy, and only that: replayed one copy at a time."""
    module, players = toys.sticks, bots("sticks", "careful", "random", "random")
    whole = module.make(module.Config(most=100), 60, 0, 8)
    outcome, length, *_ = play(whole, players, 77)
    assert len(set(length.tolist())) > 10
    for game in range(60):
        alone, steps, *_ = play(module.make(module.Config(most=100), 1, game, 8), players, 77)
        assert (alone[0] == outcome[game]).all() and steps[0] == length[game]
    assert (outcome.sum(1) == 2).all()  # two of three win, in every one


def test_players_draw_independent_random_numbers() -> None:
    """Matching pennies between fair coins is fair: the two seats must not share random numbers."""
    for policies in (False, True):
        players = bots("matching", "random", "random")
        if policies:
            spec = toys.matching.make(toys.matching.Config(), 1).spec
            players = [policy(spec.roles[role]) for role in spec.roles]
            for player in players:
                player.set(np.zeros_like(player.weights))  # type: ignore[attr-defined]
        rows = board("matching", rounds=1, heads=1.0).results(players, 4000, 0)
        assert rows[0].interval[0] < 0.5 < rows[0].interval[1], rows[0]


def test_random_players_of_pursuit_are_independent() -> None:
    from rematch.core.stepping import seat_at
    from rematch.worlds.pursuit.game import GAME as pursuit

    world, rows = pursuit.make(pursuit.Config(), 50, 0, 1), np.arange(50, dtype=np.int32)
    moves = [
        pursuit.bot("random", role).act(seat_at(world, seat, rows), RngKey(5, rng.ACT, 2)).action
        for seat, role in enumerate(world.spec.roles)
    ]
    assert abs(np.corrcoef(moves[0].ravel(), moves[1].ravel())[0, 1]) < 0.4


def test_results_of_known_odds() -> None:
    """Heads against a fair coin over one round wins half; against heads it always wins, as the matcher."""
    rows = board("matching", rounds=1).results(bots("matching", "heads", "random"), 4000, 1)
    assert rows[0].interval[0] < 0.5 < rows[0].interval[1] and rows[0].length == 1.0
    rows = board("matching").results(bots("matching", "heads", "heads"), 50, 2)
    assert (rows[0].wins, rows[1].wins, rows[0].games) == (50, 0, 50)
    assert (rows[0].player, rows[0].role, rows[0].opponent) == ("heads", "matcher", "heads")
    # two rounds of heads against tails and back: one each is a draw
    drawn = board("matching", rounds=2, heads=1.0).results(bots("matching", "heads", "random"), 4000, 3)[0]
    assert abs(drawn.draws / 4000 - 0.5) < 0.04


class SeatCounter:
    """Counts the seats it takes; takes the larger legal move."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seats: Counter[int] = Counter()

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
        self.seats.update({seat.seat: len(seat.rows)})
        assert seat.mask is not None
        return Decision(np.where(seat.mask[:, 1] > 0, 1, 0))


@pytest.mark.parametrize("games", [1, 2, 3, 10, 300])
def test_players_of_one_role_sit_everywhere_equally_often(games: int) -> None:
    players = [SeatCounter(name) for name in "abc"]
    seats: list[tuple[tuple[str, ...], int]] = []
    scores = board("sticks")
    match = scores.match

    def spy(players: Any, games: int, index: int, turn: int) -> Any:
        seats.append((tuple(p.name for p in players), games))
        return match(players, games, index, turn)

    scores.match = spy  # type: ignore[method-assign]
    rows = scores.results(players, games, 0)
    assert sum(n for _, n in seats) == games and [row.games for row in rows] == [games] * 3
    for name in "abc":
        share = [sum(n for order, n in seats if order[seat] == name) for seat in range(3)]
        assert max(share) - min(share) <= 1
    assert sum(row.wins for row in rows) == 2 * games  # each game has two winners: nothing counted twice
    assert [(row.player, row.opponent) for row in rows] == [("a", "b+c"), ("b", "a+c"), ("c", "a+b")]


def test_outcomes_belong_to_the_player_and_not_to_the_seat() -> None:
    """The careful player loses less than a third of the games, at any place in the list."""
    for place in range(3):
        names = ["random"] * 3
        names[place] = "careful"
        rows = board("sticks").results(bots("sticks", *names), 600, place)
        assert rows[place].player == "careful" and rows[place].interval[0] > 2 / 3
        # the next player is left with the last stick, whichever seat begins
        assert rows[(place + 1) % 3].interval[1] < 2 / 3


@pytest.mark.parametrize("name", toys.TOYS)
def test_results_depend_on_seed_and_index_and_not_on_threads(name: str) -> None:
    module = toys.TOYS[name]
    spec = module.make(module.Config(), 1).spec

    def results(threads: int = 1, seed: int = 3, index: int = 5) -> Any:
        players = [policy(spec.role_of(seat), seed=seat, hidden=(7,)) for seat in range(spec.seats)]
        outcome, length, *_ = board(name, threads, seed).match(players, 37, index)
        return outcome.tobytes(), length.tobytes()

    assert results() == results() == results(threads=3) == results(threads=64)
    if name != "matching" or len({results(), results(index=6)}) == 2:
        assert len({results(), results(seed=4), results(index=6), results(index=5 + 2**32)}) == 4


def test_matches_share_no_games_with_each_other_or_with_training() -> None:
    made: list[Any] = []
    seeds: set[int] = set()

    class Listener(SeatCounter):
        def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
            seeds.add(rng_key.seed)
            return super().act(seat, rng_key, recurrent_state)

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
    # and the players' random numbers are not those of a rollout
    learner = policy(training.spec.roles["player"])
    rollout = ThreadCollector(training, {"player": RoleSeating(learner, 1)}, 2, 1, seed)
    used = {rng.key(key, rng.ACT, seat) for key in seeds for seat in range(3)}
    assert not used & set(rollout.keys.values()) and len(used) == 54


def test_greedy_players_of_a_world_without_randomness_play_one_game_per_seating() -> None:
    module = toys.matching
    spec = module.spec(module.Config())
    greedy = [policy(role) for role in spec.roles.values()]
    for player in greedy:
        player.greedy = True
    certain = board("matching")
    certain.random = False
    assert [result.games for result in certain.results(greedy, 40, 0)] == [1, 1]
    assert board("matching").results(greedy, 40, 0)[0].games == 40  # by default a world has randomness
    mixed: list[Player] = [greedy[0], module.bot("random", "hider")]
    results = certain.results(mixed, 40, 0)
    assert results[0].games == 40 and 0 < results[0].wins < 40  # a random opponent makes games differ
    greedy[1].greedy = False
    assert certain.results(greedy, 40, 0)[0].games == 40  # and so does a policy that samples


def test_greedy_players_of_one_role_play_every_seat_once() -> None:
    module = toys.sticks
    role = module.spec(module.Config()).roles["player"]
    players = [policy(role) for _ in range(3)]
    for player in players:
        player.greedy = True
    certain = board("sticks")
    certain.random = False
    assert [result.games for result in certain.results(players, 60, 0)] == [3, 3, 3]
    assert [result.games for result in certain.results(players, 2, 0)] == [2, 2, 2]


def test_bots_without_randomness_repeat_one_game_per_seating() -> None:
    module = toys.matching
    learned = policy(module.spec(module.Config()).roles["matcher"])
    certain = board("matching")
    certain.random = False
    for other, games in (("heads", 1), ("random", 40)):
        learned.greedy = True
        players: list[Player] = [learned, module.bot(other, "hider")]
        result = certain.results(players, 40, 0)[0]
        assert result.games == games and result.row().get("repeats", False) is (games == 1)
        assert board("matching").results(players, 40, 0)[0].games == 40  # in a random world all games count
        learned.greedy = False
        assert certain.results(players, 40, 0)[0].games == 40
    few = certain.results([module.bot("random", "matcher"), module.bot("heads", "hider")], 1, 0)[0]
    assert few.games == 1 and few.repeats is None, "one game does not show that nothing is random"


def test_hash_of_actions_tells_games_apart() -> None:
    world = toys.sticks.make(toys.sticks.Config(), 200)
    played = play(world, bots("sticks", "random", "random", "random"), 3)
    again = play(toys.sticks.make(toys.sticks.Config(), 200), bots("sticks", "random", "random", "random"), 3)
    assert np.array_equal(played.actions, again.actions) and len(np.unique(played.actions)) > 100
