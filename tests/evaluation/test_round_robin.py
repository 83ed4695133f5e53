"""Elo ratings: fitted as Bradley and Terry's model says, with intervals that cover; tournaments that stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rematch.core.errors import ConfigError
from rematch.evaluation.round_robin import fit_ratings, is_round_robin, standings
from rematch.verbs.evaluate import stop_rule
from rematch.verbs.tournament import tournament

TRUE = np.array([150.0, 50.0, -20.0, -180.0])
NAMES = ("a", "b", "c", "d")


def expected(ratings: Any) -> Any:
    return 1 / (1 + 10 ** ((ratings[None, :] - ratings[:, None]) / 400))


def table(scores: Any, games: int) -> list[dict[str, Any]]:
    return [{"player": NAMES[i], "rival": NAMES[j], "score": scores[i, j], "games": games,
             "low": scores[i, j] - 0.03, "high": scores[i, j] + 0.03}
            for i in range(4) for j in range(4) if i != j]


def played(random: np.random.Generator, games: int) -> Any:
    wins = random.binomial(games, expected(TRUE)) / games
    upper = np.triu(wins, 1)
    return upper + np.tril(1 - upper.T, -1)


def test_exact_scores_give_the_true_ratings() -> None:
    ratings, errors = fit_ratings(expected(TRUE), np.full((4, 4), 1e-4))
    assert np.allclose(ratings, TRUE - TRUE.mean(), atol=1e-6) and (errors > 0).all()


def test_intervals_of_ratings_cover_the_truth() -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        ranked = {entry.player: entry for entry in standings(table(played(random, 300), 300))}
        for name, elo in zip(NAMES, TRUE - TRUE.mean()):
            entry = ranked[name]
            assert entry.elo is not None and entry.elo_low is not None and entry.elo_high is not None
            covered.append(entry.elo_low <= elo <= entry.elo_high)
    assert 0.92 < np.mean(covered) < 0.98


def test_player_without_a_loss_has_a_finite_rating() -> None:
    scores = np.array([[0.5, 1, 1, 1], [0, 0.5, 1, 1], [0, 0, 0.5, 1], [0, 0, 0, 0.5]], float)
    ranked = standings(table(scores, 50))
    assert [entry.player for entry in ranked] == list(NAMES)
    assert all(entry.elo is not None and abs(entry.elo) < 3000 for entry in ranked)
    assert ranked[0].elo_high is not None and ranked[0].elo_low is not None
    assert ranked[0].elo_high - ranked[0].elo_low > 100


def test_games_of_more_than_two_seats_have_no_rating() -> None:
    scores = np.full((4, 4), 0.25)
    assert all(entry.elo is None for entry in standings(table(scores, 50)))
    assert is_round_robin(table(scores, 50)) and not is_round_robin(table(scores, 50)[:-1])


def test_tournament_stops_at_the_wanted_precision() -> None:
    names = ["queue", "random", "heuristic"]
    result = tournament("beasty", names, until=40.0, seed=3)
    halves = [(entry["elo_high"] - entry["elo_low"]) / 2 for entry in result["ranking"]]
    assert max(halves) <= 40 and result["table"][0]["games"] < 5000
    assert max(map(len, result.lines())) <= 100 and any("always valid" in line for line in result.lines())
    limited = tournament("beasty", names, until=1.0, games=200)
    assert {row["games"] for row in limited["table"]} == {200}
    again = tournament("beasty", names, until=40.0, seed=3)
    assert again.to_dict() == result.to_dict()


def test_wide_tournament_is_split_into_blocks_of_100_columns() -> None:
    from rematch.reporting.tournament_text import tournament_lines

    names = [f"runs/some_long_folder_name/player_{i}" for i in range(30)]
    rows = [{"player": a, "rival": b, "score": 0.5, "games": 10, "low": 0.2, "high": 0.8}
            for a in names for b in names if a != b]
    lines = tournament_lines({"world": "beasty", "table": rows})
    assert max(map(len, lines)) <= 100 and sum(line.rstrip().endswith(" 30") for line in lines) == 1


def test_stop_rules_are_checked() -> None:
    assert stop_rule(None, None, None) is None
    for until, better in ((0.01, 0.5), (0.0, None), (0.7, None), (None, 0.0), (None, 1.0)):
        with pytest.raises(ConfigError):
            stop_rule(None, until, better)
    for arguments in ({"players": ["queue", "random"]}, {"players": ["queue", "random", "heuristic"],
                                                         "changes": {"players": 3}}):
        with pytest.raises(ConfigError, match="--until needs"):
            tournament("beasty", until=20.0, **arguments)  # type: ignore[arg-type]
