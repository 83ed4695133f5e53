"""Payoff matrices: known circles and known ladders, noise that is called neither, skills that were lost."""

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
from rematch.evaluation.past_policies import Self
from rematch.evaluation.payoff_matrix import (
    Array,
    Payoff,
    circle,
    cyclic,
    drop,
    forgetting,
    from_tree,
    play,
    split,
    surely,
)
from rematch.worlds import registry


def sampled(chances: Array, games: int, seed: int = 0, roles: tuple[str, ...] = ("a", "b")) -> Payoff:
    """What `games` games a cell would show where these are the chances [k, k]."""
    k = len(chances)
    wins = np.random.default_rng(seed).binomial(games, chances).astype(np.int64)
    steps = tuple(1000 * (i + 1) for i in range(k))
    return Payoff(roles=roles, iterations=tuple(range(1, k + 1)), steps=steps, games=games, wins=wins,
                  draws=np.zeros((k, k), np.int64))


def ladder(k: int, apart: float) -> Array:
    ratings = apart * np.arange(k)
    return np.asarray(1 / (1 + np.exp(ratings[None, :] - ratings[:, None])))


def rock_paper_scissors(k: int, edge: float = 0.4) -> Array:
    return np.array([[0.5 + edge * (0, 1, -1)[(i - j) % 3] for j in range(k)] for i in range(k)])


# --- circles --------------------------------------------------------------------------------------------


@given(arrays(np.float64, (5, 5), elements=st.floats(-1, 1)))
def test_the_split_is_the_least_squares_of_ratings(square: Array) -> None:
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


def test_known_shares() -> None:
    assert cyclic(sampled(rock_paper_scissors(9), 200))["share"] > 0.99
    climbed = cyclic(sampled(ladder(12, 0.1), 200))
    assert climbed["high"] < 0.1 and climbed["low"] < 0.02 and climbed["circle"] is None
    always = sampled(np.tri(20, k=-1) + 0.5 * np.eye(20), 100)  # docs/strength.md: 1 - 2/3 (k + 1) / k
    assert cyclic(always)["share"] == pytest.approx(1 - 2 / 3 * 21 / 20, abs=0.01)
    assert cyclic(sampled(ladder(2, 1.0), 100))["share"] is None  # two cannot go in circles


def test_noise_is_called_neither() -> None:
    """Twenty equal selves: raw, nine tenths look cyclic; the interval says that nothing is known."""
    for seed in range(10):
        found = cyclic(sampled(np.full((20, 20), 0.5), 50, seed))
        assert found["raw"] > 0.8 and found["circle"] is None
        assert found["share"] is None or found["low"] < 0.5 or found["cyclic"] < 0.05


@pytest.mark.parametrize(
    "chances", [ladder(12, 0.05), 0.5 * ladder(12, 0.1) + 0.5 * rock_paper_scissors(12, 0.2)],
    ids=["ladder", "both"])
def test_the_interval_holds_the_truth(chances: Array) -> None:
    straight, circular = split((chances - chances.T) / 2)
    truth = circular / (straight + circular)
    told = [cyclic(sampled(chances, 60, seed)) for seed in range(40)]
    assert sum(found["low"] <= truth <= found["high"] for found in told) >= 34
    assert abs(np.mean([found["share"] for found in told]) - truth) < 0.05
    assert np.mean([found["raw"] for found in told]) > truth + 0.02  # what the noise would add


def test_a_circle_is_named_by_its_steps() -> None:
    chances = ladder(6, 0.2)
    for i, j in ((1, 4), (4, 5), (5, 1)):
        chances[i, j], chances[j, i] = 0.9, 0.1
    payoff = sampled(chances, 400)
    found = cyclic(payoff)["circle"]
    a, b, c = (payoff.steps.index(step) for step in found["steps"])
    assert (a, b, c) in ((1, 4, 5), (4, 5, 1), (5, 1, 4)) and min(found["scores"]) > 0.8
    flat = np.zeros((3, 3))
    assert circle(payoff, flat, flat) is None


# --- forgetting -----------------------------------------------------------------------------------------


def test_a_lost_skill_is_found_with_its_opponent() -> None:
    chances = ladder(8, 0.3)
    chances[:4, 2] = 0.95  # early selves had an answer to opponent 2
    chances[-1, 2] = 0.3  # and the newest has none
    found = forgetting(sampled(chances, 200))
    assert found["lost"] and {skill["rival_step"] for skill in found["lost"]} == {3000}
    assert found["lost"][0]["role"] == "a" and found["lost"][0]["was"] > 0.9
    assert 0.1 < found["lost"][0]["at_least"] < found["lost"][0]["drop"]
    assert not forgetting(sampled(ladder(8, 0.3), 200))["lost"]


def test_a_skill_lost_everywhere_is_told_as_one() -> None:
    chances = np.full((10, 10), 0.65)
    chances[-1] = 0.35  # a little less against everybody: no single opponent would show it
    found = forgetting(sampled(chances, 60))
    assert found["lost"][0]["rival_step"] is None and found["lost"][0]["role"] == "a"
    second = forgetting(sampled(1 - chances.T, 60))  # the same of the other role
    assert second["lost"][0]["role"] == "b"


def test_the_curve_tells_now_then_and_best() -> None:
    payoff = sampled(ladder(4, 0.5), 100, roles=("only",))
    (rows,) = forgetting(payoff)["curves"].values()
    score = payoff.score
    assert [row["score"] for row in rows] == list(score[-1, :-1])
    assert [row["then"] for row in rows] == [score[j, j] for j in range(3)]
    assert [row["best"] for row in rows] == [score[:3, j].max() for j in range(3)]
    assert all(row["low"] < row["score"] < row["high"] and row["games"] == 100 for row in rows)


def test_many_comparisons_need_more() -> None:
    assert surely(1) == pytest.approx(1.959964, abs=1e-5) and surely(100) > 3.4
    assert drop((0.8, 100), (0.6, 100), surely(1))[1] > 0 > drop((0.8, 100), (0.6, 100), surely(1000))[1]


# --- playing and keeping --------------------------------------------------------------------------------


def test_every_self_meets_every_self() -> None:
    config = replace(api.default("lattice"), {"world.n": 5, "world.horizon": 4})
    make = api.builder(config)
    module = registry.find("lattice")
    past = []
    for i in range(3):
        players = {role: module.bot(names[i % len(names)], role) for role, names in module.BOTS.items()}
        past.append(Self(iteration=i + 1, step=10 * (i + 1), players=players))
    board = Scoreboard(make, 5, 1)
    found = play(board, past, 20, lambda line: None)
    assert found.roles == ("pursuer", "evader") and found.steps == (10, 20, 30) and found.games == 20
    seats = [past[2].players["pursuer"], past[1].players["evader"]]
    again = board.results(seats, 20, 2 * 3 + 1)[0]
    assert (found.wins[2, 1], found.draws[2, 1]) == (again.wins, again.draws)
    with pytest.raises(ConfigError, match="payoff matrix: 1 past selves"):
        play(board, past[:1], 20, lambda line: None)


@pytest.mark.parametrize(("fixed", "each", "selves", "games"), [
    (0.0, 0.001, 9, 100),  # fast
    (0.0, 0.02, 9, 30),  # games are dear: fewer of them
    (4.0, 0.0, 6, 16),  # a match is dear however few its games, as with recurrent networks: fewer selves
])
def test_a_slow_matrix_takes_fewer_games_and_then_fewer_selves(
        monkeypatch: pytest.MonkeyPatch, fixed: float, each: float, selves: int, games: int) -> None:
    """By a pretended clock: a match takes so long, and so long for each of its games."""
    board = Scoreboard(api.builder(replace(api.default("lattice"), {"world.n": 5, "world.horizon": 4})), 5, 1)
    module, now = registry.find("lattice"), [0.0]
    players = {role: module.bot(names[0], role) for role, names in module.BOTS.items()}
    past = [Self(iteration=i, step=i, players=players) for i in range(1, 10)]
    results = board.results

    def slowly(seats: Any, count: int, number: int) -> Any:
        now[0] += fixed + each * count
        return results(seats, count, number)

    monkeypatch.setattr(board, "results", slowly)
    monkeypatch.setattr(payoff_module.time, "monotonic", lambda: now[0])
    said: list[str] = []
    found = play(board, past, None, said.append)
    assert (len(found.iterations), found.games) == (selves, games), said
    assert found.iterations[-1] == 9 and found.wins.shape == (selves, selves)
    assert bool(said) == ((selves, games) != (9, 100))


def test_a_matrix_comes_back_from_its_json_and_rubbish_does_not() -> None:
    payoff = sampled(ladder(3, 0.5), 10)
    tree: Any = json.loads(json.dumps(payoff.tree()))
    back = from_tree(tree)
    assert np.array_equal(back.wins, payoff.wins) and back.steps == payoff.steps
    for key, value in (
        ("games", 0), ("games", 1), ("games", "x"), ("wins", [[1]]), ("wins", None), ("steps", [1]),
        ("roles", [1]), ("roles", []), ("draws", [[0.5] * 3] * 3), ("wins", [[-1] * 3] * 3),
        ("iterations", [1, 2, None]), ("wins", [[10**30] * 3] * 3),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="not a payoff matrix"):
            from_tree(tree | {key: value})
    with pytest.raises(ConfigError):
        from_tree({})
