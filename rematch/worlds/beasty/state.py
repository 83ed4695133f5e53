"""Readable states of games, and their conversion to and from the bytes of `Game` in rules.h.

    state = State(line=[(1, "lion")], hands=[{"skunk", ...}, {...}], decks=[["parrot", ...], [...]],
                  bar=[set(), set()], thats_it=[set(), set()], turn=0)
    world.load(rows, pack([state], config))

An impossible state raises a StateError with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes
from rematch.core.config import nearest
from rematch.core.errors import ConfigError

from . import native
from .config import POINTS, SPECIES, STRENGTH, Config

Card = tuple[int, str]  # owner, animal
BIT = {name: 1 << strength for name, strength in STRENGTH.items()}
HAND, DECK, PLACES = 4, 8, 4


class StateError(ConfigError):
    """A state that no game can reach, with the reason in one line."""


@dataclass
class State:
    """The cards on the table; lists are by player. line[0] is next to the gate, decks[p][0] is drawn next."""

    line: list[Card]
    hands: list[set[str]]
    decks: list[list[str]]
    bar: list[set[str]]
    thats_it: list[set[str]] = field(default_factory=list)
    turn: int = 0

    @property
    def players(self) -> int:
        return len(self.hands)

    @property
    def step(self) -> int:
        """Turns played: the number of cards that are not in hands or decks."""
        return len(SPECIES) * self.players - sum(map(len, self.hands)) - sum(map(len, self.decks))

    def points(self, player: int) -> int:
        return sum(POINTS[name] for name in self.bar[player])

    def copy(self) -> State:
        return State(
            list(self.line),
            [set(hand) for hand in self.hands],
            [list(deck) for deck in self.decks],
            [set(pile) for pile in self.bar],
            [set(pile) for pile in self.thats_it],
            self.turn,
        )


# --- validation ---------------------------------------------------------------------------------------


def check(state: State, config: Config) -> None:
    """StateError for a state that no running game of this config can reach."""
    players = config.players
    for name in ("hands", "decks", "bar", "thats_it"):
        if len(getattr(state, name)) != players:
            raise StateError(f"{name} of {len(getattr(state, name))} players: expected those of {players}")
    if not (isinstance(state.turn, int) and 0 <= state.turn < players):
        raise StateError(f"turn = {state.turn!r}: expected a player from 0 to {players - 1}")
    if len(state.line) > PLACES:
        raise StateError(f"{len(state.line)} animals in line: expected at most {PLACES} between turns")
    for owner, _ in state.line:
        if not (isinstance(owner, int) and 0 <= owner < players):
            raise StateError(f"owner {owner!r} in line: expected a player from 0 to {players - 1}")
    for player in range(players):
        _check_cards(state, player)
    first = (state.turn - state.step) % players
    if config.first not in (-1, first):
        raise StateError(
            f"turn = {state.turn} after {state.step} turns: expected player "
            f"{(config.first + state.step) % players}, as player {config.first} began"
        )
    for player in range(players):
        _check_counts(state, player, first)
    _check_piles(state)


def _check_cards(state: State, player: int) -> None:
    """Every animal of a player lies in exactly one place."""
    place_of: dict[str, str] = {}
    places = {
        "hand": state.hands[player],
        "deck": state.decks[player],
        "bar": state.bar[player],
        "THAT'S IT": state.thats_it[player],
        "line": [name for owner, name in state.line if owner == player],
    }
    for place, cards in places.items():
        for name in cards:
            if name not in STRENGTH:
                near = nearest(str(name), SPECIES)
                raise StateError(
                    f"player {player}, {place}: {name!r} is no animal"
                    + (f"; nearest: {near}" if near else "")
                )
            if name in place_of:
                raise StateError(f"player {player}: the {name} is in {place_of[name]} and in {place}")
            place_of[name] = place
    missing = [name for name in SPECIES if name not in place_of]
    if missing:
        raise StateError(f"player {player}: the {missing[0]} is nowhere")


def _check_counts(state: State, player: int, first: int) -> None:
    """A player who has played k cards has drawn k cards, while the deck had any."""
    players = state.players
    played = (state.step + players - 1 - (player - first) % players) // players
    deck = DECK - min(played, DECK)
    hand = len(SPECIES) - played - deck
    actual = len(state.hands[player]), len(state.decks[player])
    if actual != (hand, deck):
        raise StateError(
            f"player {player} has {actual[0]} cards in hand and {actual[1]} in the deck: expected "
            f"{hand} and {deck} after {state.step} turns"
        )


def _check_piles(state: State) -> None:
    entered, out = sum(map(len, state.bar)), sum(map(len, state.thats_it))
    if entered % 2:
        raise StateError(f"{entered} animals in the bar: expected an even number, as they enter in pairs")
    if out < entered // 2:
        raise StateError(
            f"{out} animals in THAT'S IT: expected at least {entered // 2}, one for each pair in the bar"
        )
    if state.step and not state.line:
        raise StateError("no animal in line: expected one or more after the first turn")
    remaining = len(state.line) + len(SPECIES) * state.players - state.step
    if remaining < 5:
        raise StateError(f"{remaining} animals in line, hands and decks: the game is over below 5")


# --- to and from bytes --------------------------------------------------------------------------------


def pack(states: Sequence[State], config: Config) -> Bytes:
    """[n, S] saved games with these states, for `world.load`; StateError where one is impossible."""
    games = np.zeros(len(states), native.GAME_TYPE)
    for row, state in enumerate(states):
        check(state, config)
        for name, value in columns(state).items():
            if isinstance(value, list):
                games[name][row, : len(value)] = value
            else:
                games[name][row] = value
    games["mark"] = native.MARK
    return games.view(np.uint8).reshape(len(states), -1)


def columns(state: State) -> dict[str, Any]:
    """The members of `Table` in rules.h."""
    return {
        "deck": [sum(STRENGTH[name] << 4 * k for k, name in enumerate(deck)) for deck in state.decks],
        "hand": [sum(BIT[name] for name in hand) for hand in state.hands],
        "bar": [sum(BIT[name] for name in pile) for pile in state.bar],
        "line": [owner << 4 | STRENGTH[name] for owner, name in state.line],
        "turn": state.turn, "step": state.step,
    }  # fmt: skip


def unpack(states: Bytes, config: Config) -> list[State]:
    """The readable states of saved games [n, S]; StateError where one is impossible."""
    return [_read(game, config) for game in np.ascontiguousarray(states).view(native.GAME_TYPE)[:, 0]]


def _read(game: NDArray[Any], config: Config) -> State:
    def cards(bits: int) -> set[str]:
        return {name for name in SPECIES if bits & BIT[name]}

    def species_name(strength: int) -> str:
        return SPECIES[strength - 1] if 1 <= strength <= len(SPECIES) else f"species {strength}"

    players = range(config.players)
    line = [(int(card) >> 4, species_name(int(card) & 15)) for card in game["line"] if card]
    hands, bar = ([cards(int(game[name][p])) for p in players] for name in ("hand", "bar"))
    decks = [
        [species_name(int(d) >> 4 * k & 15) for k in range(DECK) if int(d) >> 4 * k]
        for d in game["deck"][: len(players)]
    ]
    thats_it = []
    for p in players:
        in_line = {name for owner, name in line if owner == p}
        thats_it.append(set(SPECIES) - (hands[p] | bar[p] | set(decks[p]) | in_line))
    out = State(line, hands, decks, bar, thats_it, int(game["turn"]))
    check(out, config)
    return out
