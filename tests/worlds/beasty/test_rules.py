"""Beasty Bar's rules: the animals case by case, in both engines; random games compared move by move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import beasty_transcripts
from support.beasty_positions import DOCUMENT, PLAIN, cards, legal, line_text, play, position

from rematch.worlds.beasty import native
from rematch.worlds.beasty.config import ACTIONS, ACTS, POINTS, SPECIES, Config
from rematch.worlds.beasty.reference import rules as reference
from rematch.worlds.beasty.reference.compare import Difference, compare_rules, deal_games, random_actions
from rematch.worlds.beasty.state import State, StateError, check, pack, unpack

# Line before, action of player 0, line after; missing animals are out.
ANIMALS = {
    "lion goes first and scares monkeys": ("1 monkey, 1 snake, 0 monkey", "lion", "0 lion, 1 snake"),
    "a second lion is out and nothing else happens": ("1 lion, 1 monkey", "lion", "1 lion, 1 monkey"),
    "hippo passes all that are weaker": (
        "1 seal, 0 parrot, 1 snake", "hippo", "0 hippo, 1 seal, 0 parrot, 1 snake"),
    "hippo stops behind a zebra": (
        "1 seal, 1 zebra, 0 parrot", "hippo", "1 seal, 1 zebra, 0 hippo, 0 parrot"),
    "hippo stops behind a lion": ("1 lion, 0 parrot", "hippo", "1 lion, 0 hippo, 0 parrot"),
    "hippo stops behind a hippo": ("1 hippo, 0 parrot", "hippo", "1 hippo, 0 hippo, 0 parrot"),
    "crocodile eats, own ones too": ("1 seal, 0 parrot, 1 snake", "crocodile", "0 crocodile"),
    "crocodile stops at a zebra": ("1 seal, 1 zebra, 0 parrot", "crocodile", "1 seal, 1 zebra, 0 crocodile"),
    "crocodile stops at strength ten": ("1 crocodile, 0 parrot", "crocodile", "1 crocodile, 0 crocodile"),
    "snake sorts, itself included": (
        "0 parrot, 1 lion, 0 zebra", "snake", "1 lion, 0 snake, 0 zebra, 0 parrot"),
    "snake keeps the order of equals": (
        "1 snake, 1 seal, 0 seal", "snake", "1 snake, 0 snake, 1 seal, 0 seal"),
    "giraffe hops over one": ("1 parrot, 0 seal", "giraffe", "1 parrot, 0 giraffe, 0 seal"),
    "giraffe hops over a zebra": ("1 zebra", "giraffe", "0 giraffe, 1 zebra"),
    "giraffe does not pass a giraffe": ("1 parrot, 1 giraffe", "giraffe", "1 giraffe, 1 parrot, 0 giraffe"),
    "zebra stands": ("1 parrot", "zebra", "1 parrot, 0 zebra"),
    "seal reverses, itself included": ("1 lion, 0 zebra", "seal", "0 seal, 0 zebra, 1 lion"),
    "a monkey alone does nothing": ("1 hippo, 1 lion", "monkey", "1 hippo, 1 lion, 0 monkey"),
    "monkeys throw out the heavy": ("1 hippo, 1 monkey, 0 crocodile", "monkey", "0 monkey, 1 monkey"),
    "monkeys go first": ("1 lion, 1 monkey, 0 zebra", "monkey", "0 monkey, 1 monkey, 1 lion, 0 zebra"),
    "kangaroo hops over one": ("1 lion, 1 zebra", "kangaroo over 1", "1 lion, 0 kangaroo, 1 zebra"),
    "kangaroo hops over two": (
        "1 seal, 1 lion, 1 zebra", "kangaroo over 2", "1 seal, 0 kangaroo, 1 lion, 1 zebra"),
    "kangaroo alone": ("", "kangaroo over 0", "0 kangaroo"),
    "parrot sends one out and stays": ("1 lion, 0 zebra", "parrot at 0", "0 zebra, 0 parrot"),
    "parrot may send an own one": ("1 lion, 0 zebra", "parrot at 1", "1 lion, 0 parrot"),
    "parrot on an empty line": ("", "parrot", "0 parrot"),
    "skunk sends the two strongest out": ("1 lion, 0 zebra, 1 zebra, 1 seal", "skunk", "1 seal, 0 skunk"),
    "skunk sends the only species out": ("1 zebra, 0 zebra", "skunk", "0 skunk"),
    "skunks neither count nor leave": ("1 skunk, 1 lion", "skunk", "1 skunk, 0 skunk"),
}  # fmt: skip

CHAMELEONS = {
    "copying a lion is suicide": ("1 lion, 0 monkey", "chameleon as lion", "1 lion, 0 monkey"),
    "copying a zebra does nothing": ("1 zebra", "chameleon as zebra", "1 zebra, 0 chameleon"),
    "copying a parrot takes a target": (
        "1 parrot, 1 lion", "chameleon as parrot at 1", "1 parrot, 0 chameleon"),
    "the target may be the copied parrot": (
        "1 parrot, 1 lion", "chameleon as parrot at 0", "1 lion, 0 chameleon"),
    "copying a kangaroo takes a choice": (
        "1 kangaroo, 1 lion", "chameleon as kangaroo over 2", "0 chameleon, 1 kangaroo, 1 lion"),
    "it counts as a monkey": ("1 lion, 1 monkey", "chameleon as monkey", "0 chameleon, 1 monkey, 1 lion"),
    "as a monkey among monkeys": (
        "1 monkey, 1 lion, 0 monkey", "chameleon as monkey", "0 chameleon, 0 monkey, 1 monkey, 1 lion"),
    "as a skunk it is exempt": ("1 skunk, 1 parrot", "chameleon as skunk", "1 skunk, 0 chameleon"),
    "as a skunk it does not exempt others": (
        "1 chameleon, 1 skunk", "chameleon as skunk", "1 skunk, 0 chameleon"),
    "a snake sorts it as a nine": (
        "1 snake, 0 zebra, 1 lion", "chameleon as snake", "1 lion, 1 snake, 0 chameleon, 0 zebra"),
    "as a hippo it passes the weaker": (
        "1 zebra, 1 hippo, 0 snake", "chameleon as hippo", "1 zebra, 1 hippo, 0 chameleon, 0 snake"),
    "a crocodile that it passed as a hippo eats it": (
        "1 zebra, 1 hippo, 0 crocodile", "chameleon as hippo", "1 zebra, 1 hippo, 0 crocodile"),
    "as a crocodile it eats": ("1 crocodile, 0 snake", "chameleon as crocodile", "1 crocodile, 0 chameleon"),
    "as a giraffe it hops": ("1 giraffe, 0 zebra", "chameleon as giraffe", "1 giraffe, 0 chameleon, 0 zebra"),
    "before the recurring phase it is a five again": (  # hops as an 8; then the giraffe hops over a 5
        "0 lion, 1 zebra, 1 giraffe", "chameleon as zebra", "0 lion, 1 giraffe, 1 zebra, 0 chameleon"),
    "a crocodile that recurs eats it": (
        "1 seal, 0 crocodile", "chameleon as seal", "0 crocodile, 1 seal"),
    "as a seal it reverses": ("1 seal, 1 lion", "chameleon as seal", "0 chameleon, 1 lion, 1 seal"),
    "with nothing to copy": ("1 chameleon", "chameleon", "1 chameleon, 0 chameleon"),
}  # fmt: skip


@pytest.mark.parametrize("case", ANIMALS)
def test_effects_of_animals(case: str) -> None:
    line, action, after = ANIMALS[case]
    state = position(line, ACTS[ACTIONS.index(action)].card)
    for config in (PLAIN, DOCUMENT):
        if not (config.earlier_rules and action == "parrot"):
            assert line_text(play(state, action, config).line) == after


@pytest.mark.parametrize("case", CHAMELEONS)
def test_effects_of_chameleons(case: str) -> None:
    line, action, after = CHAMELEONS[case]
    assert line_text(play(position(line, "chameleon"), action).line) == after


def test_order_of_a_turn() -> None:
    """Effect, recurring animals, five in line, draw: the giraffe hops before two animals enter the bar."""
    state = position("1 lion, 1 seal, 1 parrot, 0 giraffe", "zebra")
    after = play(state, "zebra")
    assert line_text(after.line) == "0 giraffe, 1 parrot"  # lion and seal went in, the zebra bounced
    assert after.bar == [set(), {"lion", "seal"}] and "zebra" in after.thats_it[0]
    assert len(after.hands[0]) == 4 and len(after.decks[0]) == len(state.decks[0]) - 1 and after.turn == 1


def test_played_card_does_not_recur() -> None:
    """A giraffe hops once in the turn in which it is played, and once in each later turn."""
    state = position("1 parrot, 0 seal", "giraffe")
    assert line_text(play(state, "giraffe").line) == "1 parrot, 0 giraffe, 0 seal"
    state = position("1 parrot, 0 giraffe, 0 seal", "zebra")
    assert line_text(play(state, "zebra").line) == "0 giraffe, 1 parrot, 0 seal, 0 zebra"


def test_each_recurring_animal_acts_once_in_the_order_of_the_line() -> None:
    state = position("1 parrot, 1 seal, 1 giraffe, 0 hippo", "monkey")
    after = play(state, "monkey")  # giraffe over seal, then the hippo past all: hippo, parrot in; monkey out
    assert after.bar == [{"hippo"}, {"parrot"}] and line_text(after.line) == "1 giraffe, 1 seal"


def test_earlier_rules_giraffe_passed_by_a_hippo_hops_twice() -> None:
    state = position("1 parrot, 1 seal, 1 giraffe, 0 hippo", "monkey", DOCUMENT)
    after = play(state, "monkey", DOCUMENT)
    assert after.bar == [{"hippo"}, {"giraffe"}] and line_text(after.line) == "1 parrot, 1 seal"


def test_removed_animal_does_not_recur() -> None:
    state = position("1 crocodile, 0 giraffe, 1 zebra", "seal")  # reversed: seal, zebra, giraffe, crocodile
    assert line_text(play(state, "seal").line) == "0 seal, 0 giraffe, 1 zebra, 1 crocodile"
    state = position(
        "0 crocodile, 1 giraffe", "seal"
    )  # seal, giraffe, crocodile: the giraffe hops, both are eaten
    assert line_text(play(state, "seal").line) == "0 crocodile"


def test_legal_actions() -> None:
    every = "kangaroo parrot chameleon lion"
    assert legal(position("", every)) == {"kangaroo over 0", "parrot", "chameleon", "lion"}
    assert legal(position("", every, DOCUMENT), DOCUMENT) == {"kangaroo over 0", "lion"}
    assert legal(position("1 seal", every)) == {"kangaroo over 1", "parrot at 0", "chameleon as seal", "lion"}
    assert legal(position("1 chameleon", "chameleon lion skunk seal")) == {
        "chameleon",
        "lion",
        "skunk",
        "seal",
    }
    assert "chameleon" not in legal(position("1 chameleon", "chameleon lion skunk seal", DOCUMENT), DOCUMENT)
    two = legal(position("1 seal, 0 seal, 1 parrot", "kangaroo chameleon zebra skunk"))
    assert two == {"kangaroo over 1", "kangaroo over 2", "chameleon as seal", "chameleon as parrot at 0",
                   "chameleon as parrot at 1", "chameleon as parrot at 2", "zebra", "skunk"}  # fmt: skip


def test_five_in_line_and_the_end() -> None:
    assert sum(POINTS.values()) == 36 and len(ACTIONS) == 33 == native.ACTIONS
    state = reference.deal([SPECIES, SPECIES], PLAIN)
    remaining = []
    while not reference.is_over(state):
        state = reference.play(state, reference.legal(state, PLAIN)[-1], PLAIN)
        remaining.append(len(state.line) + sum(map(len, state.hands)) + sum(map(len, state.decks)))
    assert remaining[-1] < 5 <= min(remaining[:-1])


def test_scoring_by_points_and_by_count() -> None:
    state = position("", "lion")
    state.bar = [{"skunk", "parrot"}, {"lion", "hippo", "seal"}]  # 8 points of two; 6 points of three
    assert reference.outcomes(state, Config()) == [1.0, 0.0]
    assert reference.outcomes(state, Config(scoring="count")) == [0.0, 1.0]
    state.bar = [{"lion", "hippo"}, {"seal", "snake"}]
    for scoring in ("points", "count"):
        assert reference.outcomes(state, Config(scoring=scoring)) == [0.5, 0.5]


# --- both engines, move by move


@pytest.mark.slow
@pytest.mark.parametrize(("config", "games"), [
    (PLAIN, 5000), (DOCUMENT, 5000), (Config(players=3, scoring="count", first=-1), 1200),
    (Config(players=4, first=2), 800),
], ids=["two", "document", "three", "four"])  # fmt: skip
def test_random_games_are_the_same_in_both_engines(config: Config, games: int) -> None:
    assert compare_rules(config, games, seed=1) > 20 * games


def test_comparison_detects_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.Turn, "seal", lambda self: None)
    with pytest.raises(Difference, match="line is"):
        compare_rules(PLAIN, 20, seed=1)


def test_golden_games() -> None:
    """Both engines reproduce the transcripts, with the line after every move."""
    text = (Path(__file__).parents[2] / "support/beasty_games.txt").read_text()
    assert beasty_transcripts.replay(text) == text


# --- invariants


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([PLAIN, DOCUMENT, Config(players=3), Config(players=4, first=-1)])
)
def test_invariants(seed: int, config: Config) -> None:
    rules, states = deal_games(config, 4, seed)
    for step in range(12 * config.players):
        ended = rules.turn(states, random_actions(rules.legal(states), seed, step))
        for row in np.flatnonzero(ended == 0):
            state = unpack(states[row : row + 1], config)[0]  # cards conserved, hands full, line 1 to 4, ...
            assert state.step == step + 1 and state.turn == (state.turn if config.first < 0 else (
                config.first + step + 1) % config.players)  # fmt: skip
            assert np.array_equal(pack([state], config)[0][:40], states[row][:40])
        assert np.array_equal(rules.valid(states), 1 - ended)
        states = np.ascontiguousarray(states[ended == 0])
        if not len(states):
            return
    raise AssertionError("a game did not end")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 20), st.integers(0, 39), st.integers(0, 255), st.booleans())
def test_invalid_bytes_are_refused_in_both_engines(step: int, at: int, byte: int, document: bool) -> None:
    config = DOCUMENT if document else PLAIN
    rules, states = deal_games(config, 1, step)
    for k in range(step):
        rules.turn(states, random_actions(rules.legal(states), 1, k))
    states[0, at] = byte
    valid = bool(rules.valid(states)[0])
    try:
        again = pack(unpack(states, config), config)[0][:38]
        assert valid == np.array_equal(again, states[0][:38])  # members of absent players must be zero
    except StateError:
        assert not valid


def spoil(state: State, what: str) -> None:
    """Make a state impossible."""
    hand, deck = state.hands[0], state.decks[0]
    name = sorted(hand)[0]
    match what:
        case "twice":
            deck[0] = name
        case "nowhere":
            hand.remove(name)
        case "five":
            state.line = cards("1 lion, 1 hippo, 1 seal, 1 snake, 1 zebra")
        case "unknown":
            deck[0] = "lyon"
        case "counts":
            hand.add(deck.pop())
        case "turn":
            state.turn = 2
        case "whose":
            state.turn = 1
        case "owner":
            state.line[0] = (3, state.line[0][1])
        case "pair":
            state.bar[1].add(state.thats_it[1].pop())
        case "players":
            state.hands.pop()


@pytest.mark.parametrize(("what", "words"), [
    ("twice", "is in hand and in deck"), ("nowhere", "is nowhere"),
    ("five", "5 animals in line: expected at most 4"),
    ("unknown", "'lyon' is no animal; nearest: lion"), ("counts", "player 0 has 5 cards in hand and"),
    ("turn", "turn = 2: expected a player from 0 to 1"), ("whose", "expected player 0, as player 0 began"),
    ("owner", "expected a player from 0 to 1"), ("pair", "expected an even number"),
    ("players", "hands of 1 players: expected those of 2"),
])  # fmt: skip
def test_impossible_states_are_refused_with_the_reason(what: str, words: str) -> None:
    state = position("1 seal, 0 seal, 0 snake, 0 parrot", "lion")
    check(state, PLAIN)
    spoil(state, what)
    with pytest.raises(StateError) as error:
        pack([state], PLAIN)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_finished_game_is_refused() -> None:
    rules, states = deal_games(PLAIN, 1, 3)
    step = 0
    while not rules.turn(states, random_actions(rules.legal(states), 1, step))[0]:
        step += 1
    with pytest.raises(StateError, match="the game is over below 5"):
        unpack(states, PLAIN)
