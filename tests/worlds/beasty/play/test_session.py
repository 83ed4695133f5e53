"""PlaySession: turns, undo, replays, values and results of a game with a person."""

from __future__ import annotations

import numpy as np
import pytest
from support.beasty_sessions import play_randomly, table

from rematch.core.player import Decision
from rematch.worlds.beasty import reference
from rematch.worlds.beasty.hints import review
from rematch.worlds.beasty.play.session import YOU, IllegalMove, PlaySession, seat_names
from rematch.worlds.beasty.state import unpack

SEATS = ((YOU, "random"), ("heuristic", YOU), ("random", YOU, "queue"), (YOU, "random", "random", "skunk"))


@pytest.mark.parametrize("seats", SEATS, ids=len)
@pytest.mark.parametrize("seed", range(3))
def test_session_follows_the_world_and_can_be_replayed(seats: tuple[str, ...], seed: int) -> None:
    session = PlaySession(table(seats, seed))
    play_randomly(session, seed)
    assert session.is_over and session.step == sum(1 for _ in session.turns) > 20
    for turn in session.turns:
        (state,) = unpack(turn.saved, session.table.rules)
        assert state == turn.before and turn.action in reference.legal(state, session.table.rules)
    again = PlaySession(table(seats, seed))
    again.replay([turn.action for turn in session.turns])
    assert again.state == session.state and again.outcomes() == session.outcomes()
    assert session.outcomes() == reference.outcomes(session.state, session.table.rules)


@pytest.mark.parametrize("seats", SEATS, ids=len)
def test_undo_returns_to_every_decision_and_the_opponents_answer_alike(seats: tuple[str, ...]) -> None:
    session = PlaySession(table(seats))
    play_randomly(session, 5)
    actions, final = [turn.action for turn in session.turns], session.state
    decisions = session.decisions()
    for step in reversed(decisions):
        assert session.undo() == actions[step] and session.step == step and session.is_persons_turn
    assert session.undo() is None
    for step in decisions:
        session.play(actions[step])
        session.play_opponents()
    assert session.state == final


def test_moves_that_are_not_legal_change_nothing() -> None:
    session = PlaySession(table())
    session.play_opponents()
    before, illegal = session.state.copy(), set(range(-2, 40)) - set(session.legal())
    for action in illegal:
        with pytest.raises(IllegalMove, match="not a legal move"):
            session.play(action)
    assert session.state == before
    play_randomly(session, 1)
    assert session.legal() == [] and session.values(0)
    with pytest.raises(IllegalMove):
        session.play(0)


def test_mistakes_equal_the_review_and_chances_belong_to_the_moves() -> None:
    session = PlaySession(table())
    play_randomly(session, 2)
    rules = session.table.rules
    moves = [(session.turns[step].saved, session.turns[step].action) for step in session.decisions()]
    expected = [
        mistake
        for mistake in review(moves, rules, 10)
        if mistake.cost[0] >= 0.02 or mistake.best_value.difference is not None
    ]
    assert session.mistakes() == expected != []
    for chance in session.chances():
        values = session.values(chance.step)
        assert chance.best == max(value.score for value in values.values()) >= chance.played
        assert chance.played == values[session.turns[chance.step].action].score
    by_count = PlaySession(table(scoring="count"))
    play_randomly(by_count, 2)
    assert by_count.chances() == [] and by_count.mistakes()


def test_values_are_computed_once_and_forgotten_with_their_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    from rematch.worlds.beasty.play import session as play_session

    calls = []
    evaluate = play_session.evaluate_moves
    monkeypatch.setattr(play_session, "evaluate_moves", lambda *a: calls.append(a) or evaluate(*a))
    session = PlaySession(table())
    play_randomly(session, 2, steps=6)
    session.mistakes()
    session.chances()
    assert len(calls) == len(session.decisions())
    session.undo()
    session.values()
    assert len(calls) == len(session.decisions()) + 1  # the position now is that of the move taken back


def test_resignation_and_forfeit_end_the_game() -> None:
    class Failing:
        name = "failing"

        def act(self, seat: object, rng_key: object, recurrent_state: object = None) -> Decision:
            return Decision(np.zeros(1, np.int32), resigned=np.ones(1, bool))

    session = PlaySession(table((YOU, "random", "random")))
    session.play_opponents()
    session.resign()
    assert session.is_over and session.outcomes() == [0.0, 0.5, 0.5] and session.legal() == []
    lost = table()
    lost = type(lost)(**(vars(lost) | {"players": (None, Failing())}))
    session = PlaySession(lost)
    play_randomly(session, 0)
    assert session.forfeit == (1, "it resigned") and session.outcomes() == [1.0, 0.0]


def test_without_a_person_the_bots_play_to_the_end() -> None:
    session = PlaySession(table(("random", "heuristic", "random")))
    session.play_opponents()
    assert session.table.person is None and session.is_over and session.reviewed_seat == 0
    assert session.table.names == ("random A", "heuristic", "random B")


def test_equal_titles_get_letters() -> None:
    assert seat_names([YOU, "agent"]) == (YOU, "agent")
    assert seat_names(["search", YOU, "search"]) == ("search A", YOU, "search B")
