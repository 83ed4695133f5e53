"""Elo ratings: fitted as Bradley and Terry's model says, with intervals that cover; tournaments that stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rematch.core.errors import ConfigError
from rematch.evaluation.round_robin import (
    fit_ratings,
    fit_roles,
    is_round_robin,
    role_standings,
    standings,
)
from rematch.verbs.evaluate import stop_rule
from rematch.verbs.tournament import MatchOptions, tournament

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
    result = tournament("beasty", names, seed=3, options=MatchOptions(until=40.0))
    halves = [(entry["elo_high"] - entry["elo_low"]) / 2 for entry in result["ranking"]]
    assert max(halves) <= 40 and result["table"][0]["games"] < 5000
    assert max(map(len, result.lines())) <= 100 and any("always valid" in line for line in result.lines())
    limited = tournament("beasty", names, games=200, options=MatchOptions(until=1.0))
    assert {row["games"] for row in limited["table"]} == {200}
    again = tournament("beasty", names, seed=3, options=MatchOptions(until=40.0))
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
    for players, changes in ((["queue", "random"], {}), (["queue", "random", "heuristic"], {"players": 3})):
        with pytest.raises(ConfigError, match="--until needs"):
            tournament("beasty", players, options=MatchOptions(until=20.0, changes=changes))


# --- two roles --------------------------------------------------------------------------------------------

FIRST, SECOND, ADVANTAGE = np.array([120.0, -20.0, -100.0]), np.array([90.0, 10.0, -30.0, -70.0]), 60.0
ROLES = ("pursuer", "evader")


def role_scores() -> Any:
    return 1 / (1 + 10 ** (-(ADVANTAGE + FIRST[:, None] - SECOND[None, :]) / 400))


def role_table(scores: Any, games: int) -> list[dict[str, Any]]:
    rows = []
    for i, j in np.ndindex(*scores.shape):
        for role, player, rival, score in (("pursuer", f"p{i}", f"e{j}", scores[i, j]),
                                           ("evader", f"e{j}", f"p{i}", 1 - scores[i, j])):
            rows.append({"player": player, "role": role, "rival": rival, "score": score, "games": games,
                         "low": score - 0.03, "high": score + 0.03})
    return rows


def test_exact_scores_of_two_roles_give_ratings_and_advantage() -> None:
    ratings, errors = fit_roles(role_scores(), np.full((3, 4), 1e-4))
    assert np.allclose(ratings, [ADVANTAGE, *FIRST, *SECOND], atol=1e-6) and (errors > 0).all()


def test_intervals_of_two_roles_cover_the_truth() -> None:
    random, truth = np.random.default_rng(1), role_scores()
    covered = []
    for _ in range(200):
        ranked = role_standings(role_table(random.binomial(300, truth) / 300, 300), ROLES)
        covered.append(ranked.advantage_low <= ADVANTAGE <= ranked.advantage_high)
        for letter, ratings, ranking in zip("pe", (FIRST, SECOND), ranked.rankings):
            by_name = {entry.player: entry for entry in ranking}
            for i, elo in enumerate(ratings):
                entry = by_name[f"{letter}{i}"]
                assert entry.elo_low is not None and entry.elo_high is not None
                covered.append(entry.elo_low <= elo <= entry.elo_high)
    assert 0.92 < np.mean(covered) < 0.98


def test_one_player_of_a_role_is_ranked() -> None:
    ranked = role_standings(role_table(np.array([[0.2], [1.0]]), 50), ROLES)
    pursuers, evaders = ranked.rankings
    assert [entry.player for entry in pursuers] == ["p1", "p0"]
    assert evaders[0].elo == pytest.approx(0, abs=1e-6)


def test_tournament_of_two_roles() -> None:
    names = ["straight", "random", "chase", "flee"]
    result = tournament("lattice", names, games=40, seed=2)
    assert len(result["table"]) == 2 * 3 * 3 and list(result["role_ranking"]) == list(ROLES)
    for row in result["table"]:
        other = next(each for each in result["table"] if each["role"] != row["role"]
                     and (each["player"], each["rival"]) == (row["rival"], row["player"]))
        assert row["score"] + other["score"] == pytest.approx(1.0) and row["games"] == 40
    direct = tournament("lattice", ["straight", "straight"], games=40, seed=2)["table"][0]["score"]
    assert result["table"][0]["score"] == pytest.approx(direct)  # the same games as the first pair
    text = result.lines()
    assert text[0] == "Tournament in lattice: 3 players as pursuer, 3 as evader, 40 games of each pair"
    assert "Ranking of evader" in text and max(map(len, text)) <= 100
    html = result._repr_html_()
    assert html.count("<table>") == 3 and "Ranking of pursuer" in html
    assert tournament("lattice", names, games=40, seed=2).to_dict() == result.to_dict()


def test_wide_tournament_of_two_roles_fits_100_columns() -> None:
    from rematch.reporting.tournament_text import role_tournament_lines

    rows = role_table(np.full((30, 40), 0.5), 10)
    for row in rows:
        for key in ("player", "rival"):
            row[key] = f"runs/some_long_folder_name/{row[key]}/policies/agent.safetensors"
    rankings = role_standings(rows, ROLES).to_dict()
    lines = role_tournament_lines({"world": "pursuit", "table": rows, **rankings})
    assert max(map(len, lines)) <= 100 and sum(line.rstrip().endswith(" 40") for line in lines) == 1


@pytest.mark.parametrize(("names", "line"), [
    (["lion", "pure_pursuit", "lead_pursuit"], "no player of lion, pure_pursuit, lead_pursuit plays evader"),
    (["lion", "flee_straight", "nobody"], "no pursuer called 'nobody'"),
])  # fmt: skip
def test_refused_tournaments_of_two_roles(names: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        tournament("pursuit", names, games=2)
    with pytest.raises(ConfigError, match="have different roles; expected --games"):
        tournament("pursuit", ["lion", "flee_straight", "random"], options=MatchOptions(until=20.0))
