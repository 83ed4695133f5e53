"""Payoff matrices: known cycles, known progress, noise that is neither, lost skills."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rematch import api
from rematch.core.config import replace
from rematch.core.errors import ConfigError
from rematch.evaluation import payoff_matrix as payoff_module
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.past_policies import PastPolicies
from rematch.evaluation.payoff_matrix import (
    Array,
    Payoff,
    clearest_cycle,
    cycle_share,
    find_forgetting,
    play,
    split,
)
from rematch.worlds import registry


def sampled(chances: Array, games: int, seed: int = 0, roles: tuple[str, ...] = ("a", "b")) -> Payoff:
    """A sampled matrix with these chances [k, k] and `games` games per match."""
    k = len(chances)
    wins = np.random.default_rng(seed).binomial(games, chances).astype(np.int64)
    steps = tuple(1000 * (i + 1) for i in range(k))
    return Payoff(roles=roles, iterations=tuple(range(1, k + 1)), steps=steps, games=games, wins=wins,
                  draws=np.zeros((k, k), np.int64))


def progress(k: int, apart: float) -> Array:
    ratings = apart * np.arange(k)
    return np.asarray(1 / (1 + np.exp(ratings[None, :] - ratings[:, None])))


def rock_paper_scissors(k: int, edge: float = 0.4) -> Array:
    return np.array([[0.5 + edge * (0, 1, -1)[(i - j) % 3] for j in range(k)] for i in range(k)])


# --- cycles ---------------------------------------------------------------------------------------------


@given(arrays(np.float64, (5, 5), elements=st.floats(-1, 1)))
def test_split_equals_least_squares_of_ratings(square: Array) -> None:
    """The slow twin: ratings by a general solver over all pairs."""
    advantage = (square - square.T) / 2
    pairs = list(combinations(range(5), 2))
    design = np.zeros((len(pairs), 5))
    for row, (i, j) in enumerate(pairs):
        design[row, i], design[row, j] = 1, -1
    seen = np.array([advantage[i, j] for i, j in pairs])
    ratings = np.linalg.lstsq(design, seen, rcond=None)[0]
    straight, circular = split(advantage)
    assert np.isclose(np.square(design @ ratings).sum(), straight)
    assert np.isclose(np.square(seen - design @ ratings).sum(), circular)
    assert np.isclose(straight + circular, np.square(seen).sum())


def test_cycle_share_of_known_matrices() -> None:
    assert cycle_share(sampled(rock_paper_scissors(9), 200)).share > 0.99
    climbed = cycle_share(sampled(progress(12, 0.1), 200))
    assert climbed.high < 0.1 and climbed.low < 0.02 and climbed.cycle is None
    # docs/explanation/strength.md: 1 - 2/3 (k + 1) / k
    always = sampled(np.tri(20, k=-1) + 0.5 * np.eye(20), 100)
    assert cycle_share(always).share == pytest.approx(1 - 2 / 3 * 21 / 20, abs=0.01)
    assert cycle_share(sampled(progress(2, 1.0), 100)).share is None  # two policies have no cycle


def test_cycle_share_of_noise_is_unknown() -> None:
    """Twenty equal policies: the raw share is nine tenths; the interval shows that nothing is known."""
    for seed in range(10):
        result = cycle_share(sampled(np.full((20, 20), 0.5), 50, seed))
        assert result.raw > 0.8 and result.cycle is None
        assert result.share is None or result.low < 0.5 or result.cyclic < 0.05


@pytest.mark.parametrize(
    "chances", [progress(12, 0.05), 0.5 * progress(12, 0.1) + 0.5 * rock_paper_scissors(12, 0.2)],
    ids=["progress", "both"])
def test_cycle_share_interval_covers_the_true_share(chances: Array) -> None:
    straight, circular = split((chances - chances.T) / 2)
    truth = circular / (straight + circular)
    results = [cycle_share(sampled(chances, 60, seed)) for seed in range(40)]
    assert sum(result.low <= truth <= result.high for result in results) >= 34
    assert abs(np.mean([result.share for result in results]) - truth) < 0.05
    assert np.mean([result.raw for result in results]) > truth + 0.02  # what the noise would add


def test_clearest_cycle_has_its_steps() -> None:
    chances = progress(6, 0.2)
    for i, j in ((1, 4), (4, 5), (5, 1)):
        chances[i, j], chances[j, i] = 0.9, 0.1
    payoff = sampled(chances, 400)
    result = cycle_share(payoff).cycle
    a, b, c = (payoff.steps.index(step) for step in result.steps)
    assert (a, b, c) in ((1, 4, 5), (4, 5, 1), (5, 1, 4)) and min(result.scores) > 0.8
    flat = np.zeros((3, 3))
    assert clearest_cycle(payoff, flat, flat) is None


# --- forgetting -----------------------------------------------------------------------------------------


def test_forgetting_finds_a_lost_skill_and_its_opponent() -> None:
    chances = progress(8, 0.3)
    chances[:4, 2] = 0.95  # early selves had an answer to opponent 2
    chances[-1, 2] = 0.3  # and the newest has none
    result = find_forgetting(sampled(chances, 200))
    assert result.lost and {skill.opponent_step for skill in result.lost} == {3000}
    assert result.lost[0].role == "a" and result.lost[0].old_score > 0.9
    assert 0.1 < result.lost[0].at_least < result.lost[0].drop
    assert not find_forgetting(sampled(progress(8, 0.3), 200)).lost


def test_forgetting_finds_a_skill_lost_against_all_opponents() -> None:
    chances = np.full((10, 10), 0.65)
    chances[-1] = 0.35  # a little less against everybody: no single opponent would show it
    result = find_forgetting(sampled(chances, 60))
    assert result.lost[0].opponent_step is None and result.lost[0].role == "a"
    second = find_forgetting(sampled(1 - chances.T, 60))  # the same of the other role
    assert second.lost[0].role == "b"


def test_forgetting_curve_has_newest_then_and_best() -> None:
    payoff = sampled(progress(4, 0.5), 100, roles=("only",))
    (rows,) = find_forgetting(payoff).curves.values()
    score = payoff.score
    assert [row.score for row in rows] == list(score[-1, :-1])
    assert [row.then for row in rows] == [score[j, j] for j in range(3)]
    assert [row.best for row in rows] == [score[:3, j].max() for j in range(3)]
    assert all(row.low < row.score < row.high and row.games == 100 for row in rows)


# --- playing and storing -------------------------------------------------------------------------------


def test_play_matches_all_past_policies() -> None:
    config = replace(api.default("lattice"), {"world.n": 5, "world.horizon": 4})
    make = api.world_builder(config)
    module = registry.find("lattice")
    past = []
    for i in range(3):
        players = {role: module.bot(names[i % len(names)], role) for role, names in module.bots.items()}
        past.append(PastPolicies(iteration=i + 1, step=10 * (i + 1), players=players))
    board = Scoreboard(make, 5, 1)
    result = play(board, past, 20, lambda line: None)
    assert result.roles == ("pursuer", "evader") and result.steps == (10, 20, 30) and result.games == 20
    seats = [past[2].players["pursuer"], past[1].players["evader"]]
    again = board.results(seats, 20, 2 * 3 + 1)[0]
    assert (result.wins[2, 1], result.draws[2, 1]) == (again.wins, again.draws)
    with pytest.raises(ConfigError, match="payoff matrix: 1 past policies"):
        play(board, past[:1], 20, lambda line: None)


@pytest.mark.parametrize(("fixed", "each", "policies", "games"), [
    (0.0, 0.001, 9, 100),  # fast
    (0.0, 0.02, 9, 30),  # games are slow: fewer of them
    (4.0, 0.0, 6, 16),  # a match is slow with any number of games, as with recurrent networks: fewer policies
])
def test_play_reduces_games_and_then_policies_if_slow(
        monkeypatch: pytest.MonkeyPatch, fixed: float, each: float, policies: int, games: int) -> None:
    """By a fake clock: a match takes `fixed` seconds, and `each` seconds for every game."""
    config = replace(api.default("lattice"), {"world.n": 5, "world.horizon": 4})
    board = Scoreboard(api.world_builder(config), 5, 1)
    module, now = registry.find("lattice"), [0.0]
    players = {role: module.bot(names[0], role) for role, names in module.bots.items()}
    past = [PastPolicies(iteration=i, step=i, players=players) for i in range(1, 10)]
    results = board.results

    def slowly(seats: Any, count: int, number: int) -> Any:
        now[0] += fixed + each * count
        return results(seats, count, number)

    monkeypatch.setattr(board, "results", slowly)
    monkeypatch.setattr(payoff_module.time, "monotonic", lambda: now[0])
    lines: list[str] = []
    result = play(board, past, None, lines.append)
    assert (len(result.iterations), result.games) == (policies, games), lines
    assert result.iterations[-1] == 9 and result.wins.shape == (policies, policies)
    assert bool(lines) == ((policies, games) != (9, 100))


def test_payoff_from_json_reads_what_was_written_and_refuses_others() -> None:
    payoff = sampled(progress(3, 0.5), 10)
    tree: Any = json.loads(json.dumps(payoff.to_json()))
    back = Payoff.from_json(tree)
    assert np.array_equal(back.wins, payoff.wins) and back.steps == payoff.steps
    for key, value in (
        ("games", 0), ("games", 1), ("games", "x"), ("wins", [[1]]), ("wins", None), ("steps", [1]),
        ("roles", [1]), ("roles", []), ("draws", [[0.5] * 3] * 3), ("wins", [[-1] * 3] * 3),
        ("iterations", [1, 2, None]), ("wins", [[10**30] * 3] * 3),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="not a payoff matrix"):
            Payoff.from_json(tree | {key: value})
    with pytest.raises(ConfigError):
        Payoff.from_json({})
