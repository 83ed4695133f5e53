"""The JSON of a game: it holds what its seat knows, and nothing else."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from support.beasty_sessions import play_randomly, table

from rematch.worlds.beasty import reference
from rematch.worlds.beasty.config import POINTS, SPECIES
from rematch.worlds.beasty.play import seat_view
from rematch.worlds.beasty.play.session import ROW, YOU, PlaySession
from rematch.worlds.beasty.state import unpack

SEATS = ((YOU, "random"), ("heuristic", YOU), ("random", YOU, "queue"), (YOU, "random", "random", "skunk"))


def all_json(session: PlaySession) -> str:
    """Everything that the page can ask for."""
    parts: list[Any] = [seat_view.game_json(session, session.turns), seat_view.history_json(session)]
    parts += [seat_view.review_json(session)]
    if session.is_persons_turn:
        parts += [seat_view.hint_json(session)]
    return json.dumps(parts, allow_nan=False)


def resampled(session: PlaySession, key: int) -> PlaySession:
    """The same game as far as its person knows, with other hidden cards: the past is played again backwards.

    Hidden cards are resampled in the present position; the turns keep their public part.
    """
    twin = PlaySession(session.table)
    twin.replay([turn.action for turn in session.turns])
    saved = twin.world.resample(ROW, session.table.person, key)
    twin.world.load(ROW, saved)
    (twin.state,) = unpack(saved, session.table.rules)
    return twin


@pytest.mark.parametrize("seats", SEATS, ids=len)
def test_other_hidden_cards_change_no_byte(seats: tuple[str, ...]) -> None:
    changed = 0
    for seed in range(6):
        for steps in (1, 4, 9, 14):
            session = PlaySession(table(seats, seed))
            play_randomly(session, seed, steps)
            twin = resampled(session, seed)
            changed += twin.state != session.state
            assert all_json(twin) == all_json(session)
    assert changed >= 12, "the hidden cards were really others"


def hidden_words(tree: Any, path: str = "") -> set[str]:
    """Where a tree of JSON has a key that could hold hidden cards."""
    out = set()
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in ("hands", "decks", "seed", "saved") or (key == "deck" and not isinstance(value, int)):
                out.add(f"{path}/{key}")
            out |= hidden_words(value, f"{path}/{key}")
    elif isinstance(tree, list):
        for value in tree:
            out |= hidden_words(value, path)
    return out


@pytest.mark.parametrize("seats", SEATS, ids=len)
def test_past_positions_hide_the_hands_of_others_too(seats: tuple[str, ...]) -> None:
    session = PlaySession(table(seats, 8))
    play_randomly(session, 8)
    trees = json.loads(all_json(session))
    assert hidden_words(trees) == set()
    person = session.table.person
    positions = [*trees[1]["positions"], *(mistake["position"] for mistake in trees[2]["mistakes"])]
    for position in positions:
        for seat, player in enumerate(position["players"]):
            assert (player["hand"] is None) == (seat != person)
    for before, position in zip((turn.before for turn in session.turns), trees[1]["positions"]):
        assert set(position["players"][person]["hand"]) == before.hands[person]


def test_number_of_the_deal_is_told_after_the_game_only() -> None:
    session = PlaySession(table(seed=123456))
    session.play_opponents()
    assert seat_view.game_json(session)["deal"] is None and "123456" not in all_json(session)
    play_randomly(session, 0)
    assert seat_view.game_json(session)["deal"] == 123456


def test_moves_show_the_line_that_they_lead_to() -> None:
    session = PlaySession(table(seed=5))
    play_randomly(session, 5, steps=10)
    moves = seat_view.game_json(session)["moves"]
    assert [move["action"] for move in moves] == session.legal()
    for move in moves:
        after = reference.play(session.state, move["action"], session.table.rules)
        assert move["line"] == seat_view.cards(after.line)
        assert {"line", "in", "out", "text", "card", "action"} == move.keys()


def test_stages_of_a_turn_end_with_its_line() -> None:
    for seed in range(8):
        session = PlaySession(table((YOU, "random", "random"), seed))
        play_randomly(session, seed)
        for turn in session.turns:
            stages = seat_view.frames(turn, session.table.rules)
            assert stages[0]["stage"] == "joins the line"
            assert stages[-1]["line"] == seat_view.cards(turn.after.line)
            for first, second in itertools.pairwise(stages):
                assert first["line"] != second["line"]


def test_game_without_a_person_is_open_and_decks_stay_closed() -> None:
    session = PlaySession(table(("random", "heuristic")))
    session.play_opponents()
    history = seat_view.history_json(session)
    assert all(player["hand"] is not None for player in history["positions"][0]["players"])
    assert hidden_words(history) == set()
    end = seat_view.end_text(session)
    assert end.endswith("wins.") or end.startswith("A draw between")


def test_end_is_one_sentence() -> None:
    outcomes = set()
    for seed in range(40):
        session = PlaySession(table(seed=seed))
        assert seat_view.end_text(session) == ""
        play_randomly(session, seed)
        outcomes.add((session.outcomes()[0], seat_view.end_text(session)))  # type: ignore[index]
    assert outcomes == {(1.0, "You win."), (0.5, "A draw."), (0.0, "You lose.")}


def test_every_animal_is_explained_in_one_or_two_sentences() -> None:
    animals = seat_view.animals()
    assert [animal["name"] for animal in animals] == list(reversed(SPECIES))
    for animal in animals:
        assert 1 <= animal["text"].count(". ") + 1 <= 2 and animal["text"].endswith(".")
        assert animal["name"] in animal["text"].lower() and animal["points"] == POINTS[animal["name"]]
