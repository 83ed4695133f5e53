"""Matches on demand: pairings, mirrored deals, forfeits, other rules; as a command and from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rematch
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.evaluation.match import Scoreboard
from rematch.verbs.evaluate import SEED_OFFSET
from rematch.verbs.tournament import Match, MatchOptions, play_match, tournament
from rematch.worlds.beasty.bots import bot
from rematch.worlds.beasty.config import POINTS, Config
from rematch.worlds.beasty.reference import rules
from rematch.worlds.beasty.reference.compare import match as plain_match
from rematch.worlds.beasty.state import unpack
from rematch.worlds.beasty.world import make


def table(
    *players: str, against: tuple[str, ...] = (), games: int = 12, seats: int = 2
) -> list[dict[str, Any]]:
    flags = ("--world.players", str(seats))
    match = Match(players=players, against=against, games=games, flags=flags, threads=1)
    rows: list[dict[str, Any]] = play_match("beasty", match)["table"]
    return rows


def meetings(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["player"], row["rival"]) for row in rows]


def test_tournament_pairs() -> None:
    assert meetings(table("random", "queue")) == [("random", "queue"), ("queue", "random")]
    assert meetings(table("random", "queue", "skunk")) == [
        ("random", "queue"), ("queue", "random"), ("random", "skunk"), ("skunk", "random"),
        ("queue", "skunk"), ("skunk", "queue")]  # fmt: skip
    assert meetings(table("random", "queue", against=("skunk", "noisy"))) == [
        ("random", "skunk"),
        ("random", "noisy"),
        ("queue", "skunk"),
        ("queue", "noisy"),
    ]
    assert meetings(table("random", "queue", "skunk", seats=3)) == [
        ("random", "queue+skunk"),
        ("queue", "random+skunk"),
        ("skunk", "random+queue"),
    ]
    assert meetings(table("random", "queue", seats=4, games=8)) == [
        ("random", "3 x queue"),
        ("queue", "3 x random"),
    ]


def test_tournament_of_one_player_meets_every_scripted_player() -> None:
    rows = table("random", games=2)
    assert [row["rival"] for row in rows] == [
        "heuristic",
        "aggressive",
        "defensive",
        "queue",
        "skunk",
        "noisy",
        "online",
        "outcome_heuristic",
        "distilled_outcome",
        "search",
    ]


def test_tournament_deals_are_mirrored() -> None:
    """Each deal comes once from every seat with the same cards, and the row is what these games add up to."""
    board = Scoreboard(lambda n, first, key: make(Config(), n, first, key), 5, 1)
    dealt: list[Any] = []

    class Watch:
        name = "watch"

        def act(self, seat: Any, rng_key: Any, recurrent_state: Any = None) -> Any:
            if rng_key.step < 2:
                dealt.append((seat.seat, rng_key.step, unpack(seat.world.save(seat.rows), Config())))
            return bot("queue", "player").act(seat, rng_key)

    row = board.results([Watch(), bot("queue", "player")], 20, 3)[0]
    (_, _, first), (_, _, second) = dealt
    assert [seat for seat, *_ in dealt] == [0, 1]
    cards = [
        [rules.unseen(state, p) | {name for owner, name in state.line if owner == p} for p in (0, 1)]
        for state in second
    ]
    assert len(cards) == 10 and row.deals == 10 and row.games == 20
    for before, after in zip(
        first, second, strict=True
    ):  # one turn later, but the second player's cards lie still
        assert before.hands[1] == after.hands[1] and before.decks == [
            [*_drawn(before, after), *after.decks[0]],
            after.decks[1],
        ]


def _drawn(before: Any, after: Any) -> list[str]:
    return before.decks[0][: len(before.decks[0]) - len(after.decks[0])]


def test_tournament_agrees_with_a_plain_loop() -> None:
    """Win, draw and loss of a long match agree with a plain loop over other deals, within their intervals."""
    row = table("random", "heuristic", games=1500)[0]
    won, draw_rate, _ = plain_match(Config(), ("random", "heuristic"), 750, 9)
    assert row["win_low"] - 0.02 < won < row["win_high"] + 0.02
    assert abs(row["draws"] / 1500 - draw_rate) < 0.03
    assert row["margin"]["high"] < 0 < table("heuristic", "random", games=200)[0]["margin"]["low"]


def test_match_margins_are_points_at_the_end() -> None:
    from rematch.evaluation.match import play

    world = make(Config(players=3), 40, seed=7)
    played = play(world, [bot("queue", "player")] * 3, 1)
    assert played.points.shape == (40, 3) and not np.isnan(played.points).any()
    best = played.points.max(1)
    for points, outcome, top in zip(played.points, played.outcome, best, strict=True):
        sharing = (points == top).sum()
        assert outcome.tolist() == [(1.0 if sharing == 1 else 0.5) if p == top else 0.0 for p in points]
    assert played.points.max() <= sum(POINTS.values()) and played.points.min() >= 0


def test_bot_that_fails_loses_that_game_and_the_tournament_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "class Moody:\n    def act(self, state, legal, key):\n        if state.step > 12 and key % 3 == 0:\n"
        "            raise RuntimeError('bad mood')\n        return legal[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["eval", "beasty", "--players", "mine:Moody,random,queue", "--games", "20"]
    assert main.main([*words, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    (forfeit,) = row["forfeits"]
    assert forfeit["player"] == "mine:Moody" and forfeit["first"] == "RuntimeError: bad mood"
    assert 10 < forfeit["games"] <= 40 and len(row["table"]) == 6
    own_rows = [entry for entry in row["table"] if entry["player"] == "mine:Moody"]
    others = sum(entry["margin"]["games"] if "margin" in entry else 0 for entry in own_rows)
    assert others == 40 - forfeit["games"]  # a game that was forfeited has no margin
    assert sum(entry["wins"] + entry["draws"] for entry in own_rows) <= others
    assert main.main([*words, "--move-seconds", "5"]) == 0
    output = capsys.readouterr().out
    assert "FORFEIT: mine:Moody lost" in output and "because it failed: RuntimeError: bad mood" in output


def test_resignation_at_a_larger_table_leaves_the_others_half_a_point() -> None:
    class Quits:
        name, errors = "quits", {(0, 0, 0): "gave up"}

        def act(self, seat: Any, rng_key: Any, recurrent_state: Any = None) -> Any:
            move = bot("random", "player").act(seat, rng_key)
            move.resigned = np.ones(len(seat.rows), bool)
            return move

    for players, share in ((2, 1.0), (3, 0.5), (4, 0.5)):
        config = Config(players=players)
        board = Scoreboard(lambda n, first, key, c=config: make(c, n, first, key), 1, 2)  # type: ignore[misc]
        rows = board.results([Quits(), *[bot("queue", "player")] * (players - 1)], 3 * players, 0)
        assert [row.score for row in rows] == [0.0, *[share] * (players - 1)]
        assert all(row.margin is None for row in rows)


def test_tournament_depends_on_seeds_and_not_on_threads() -> None:
    def run(threads: int, seed: int) -> Any:
        match = Match(players=("noisy", "search:3"), games=10, seed=seed, threads=threads)
        return play_match("beasty", match)["table"]

    assert run(1, 0) == run(3, 0) != run(1, 1)
    assert SEED_OFFSET > 2**32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--players random,queue --world.players 5", "players = '5': expected a whole number from 2 to 4"),
        ("--players random,queue --scorin count", "unknown setting --scorin"),
        ("--players random,queu", "no player called 'queu': .*nearest: queue"),
        ("--players random,queue --greedy", "--greedy has no effect: no player of --players is learned"),
        ("--players random,queue --move-seconds 0", "--move-seconds = '0': expected a number above 0"),
        ("--players random,queue --picture x.png", "--picture has no effect with --players"),
        ("--players random,queue --against ,", "--against = ',': expected names"),
        ("--players random,,queue", "--players = 'random,,queue': expected names"),
    ],
)
def test_tournament_wrong_word_is_one_line(
        words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    import re

    assert main.main(["eval", "beasty", *words.split()]) == 2
    output = capsys.readouterr().err
    assert re.search(message, output) and output.count("\n") == 1


def test_tournament_with_roles_needs_one_name_per_seat() -> None:
    with pytest.raises(ConfigError, match="--players = random: expected 2 names, for pursuer, evader"):
        play_match("lattice", Match(players=("random",)))
    with pytest.raises(ConfigError, match="--against has no effect with --players: seats of lattice"):
        play_match("lattice", Match(players=("random", "random"), against=("random",)))
    row = play_match("lattice", Match(players=("random", "random"), games=6, flags=("--n", "5")))
    assert row["settings"]["n"] == 5 and [r["role"] for r in row["table"]] == ["pursuer", "evader"]


AGENT = str(Path(rematch.__file__).parent / "worlds" / "beasty" / "agent.safetensors")


def test_tournament_names_the_rules_that_a_policy_was_not_trained_with() -> None:
    """The agent of the repository in the earlier project's rules: the result says so, in JSON and in text."""
    rules = {"earlier_rules": True}
    result = tournament("beasty", [AGENT], against=["random"], games=400, greedy=True,
                        options=MatchOptions(changes=rules, other_rules=True))
    (sentence,) = result["other_rules"]
    assert sentence == f"{AGENT} was trained with other rules: earlier_rules = False, the match has True"
    assert result["settings"]["earlier_rules"] is True and f"Note: {sentence}." in result.lines()
    (row,) = result["table"]
    assert row["games"] == 400 and row["win"] > 0.9
    with pytest.raises(ConfigError, match="--other-rules has no effect: every policy was trained with"):
        tournament("beasty", [AGENT], against=["random"], games=2, options=MatchOptions(other_rules=True))


def test_tournament_text_has_a_ranking_and_fits_80_columns() -> None:
    names = ["random", "outcome_heuristic", "distilled_outcome", "heuristic"]
    result = tournament("beasty", names, games=100)
    text = result.lines()
    assert text[0] == "Tournament in beasty: 4 players, 100 games of each pair"
    assert max(map(len, text)) <= 80
    means = {name: np.mean([row["score"] for row in result["table"] if row["player"] == name])
             for name in names}
    ranked = [line.split() for line in text[3:7]]
    order = sorted(names, key=lambda name: -means[name])
    assert [cells[1] for cells in ranked] == order
    assert f"{means['random']:.3f}" in ranked[-1] and ranked[-1][2].startswith("-")
    cross = [line.split() for line in text[10:14]]
    scores = {(row["player"], row["rival"]): f"{100 * row['score']:.0f}" for row in result["table"]}
    assert text[9].split() == ["1", "2", "3", "4"]
    for place, player in enumerate(order):
        expected = [scores.get((player, rival), ".") for rival in order]
        assert cross[place] == [str(place + 1), player, *expected]
    assert result.lines() == text and len(result["table"]) == 12  # the data has both sides of each pair
    match = tournament("beasty", names[:2], games=4)
    assert match.lines()[0] == "Match in beasty"
