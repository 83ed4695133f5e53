"""Positions of Beasty Bar for tests: built from a line, and played in both engines."""

from __future__ import annotations

import numpy as np

from rematch.worlds.beasty import native
from rematch.worlds.beasty.config import ACTIONS, SPECIES, Config
from rematch.worlds.beasty.reference import rules as reference
from rematch.worlds.beasty.state import State, pack

PLAIN, DOCUMENT = Config(), Config(earlier_rules=True)


def cards(text: str) -> list[tuple[int, str]]:
    """ "0 lion, 1 zebra" as cards."""
    return [(int(word.split()[0]), word.split()[1]) for word in text.split(", ") if word]


def line_text(line: list[tuple[int, str]]) -> str:
    return ", ".join(f"{owner} {name}" for owner, name in line)


def position(line: str, hand: str, config: Config = PLAIN, turn: int = 0) -> State:
    """A possible state with this line and these cards in the hand of the player to move.

    It has as few turns as the line allows; all other played cards are in THAT'S IT.
    """
    line_cards, players, hand_cards = cards(line), config.players, hand.split()
    step = 0
    while step % players != turn or any(
        (step + players - 1 - p) // players < sum(owner == p for owner, _ in line_cards)
        for p in range(players)
    ):
        step += 1
    state = State(line_cards, [], [], [set() for _ in range(players)], [], turn)
    for p in range(players):
        played = (step + players - 1 - p) // players
        in_line = [name for owner, name in line_cards if owner == p]
        required = hand_cards if p == turn else []
        free = [name for name in SPECIES if name not in in_line and name not in required]
        out = played - len(in_line)
        state.thats_it.append(set(free[:out]))
        remaining = required + free[out:]
        in_deck = 8 - min(played, 8)
        in_hand = 12 - played - in_deck
        state.hands.append(set(remaining[:in_hand]))
        state.decks.append(remaining[in_hand:])
    return state


def play(state: State, action: str, config: Config = PLAIN) -> State:
    """Play a turn in both engines, which must agree; returns the state of the reference."""
    number = ACTIONS.index(action)
    assert number in reference.legal(state, config), f"{action} is not legal"
    after = reference.play(state, number, config)
    rules, game = native.Core(config.values()), pack([state], config)
    rules.turn(game, np.array([number], np.int32))
    table = game.view(native.GAME_TYPE)[0, 0]
    line = [(int(card) >> 4, SPECIES[(int(card) & 15) - 1]) for card in table["line"] if card]
    assert line == after.line, f"{line_text(line)} in C, {line_text(after.line)} in Python"
    return after


def legal(state: State, config: Config = PLAIN) -> set[str]:
    """The legal actions, which must agree in both engines."""
    bits = int(native.Core(config.values()).legal(pack([state], config))[0])
    slow = {ACTIONS[number] for number in reference.legal(state, config)}
    assert slow == {name for number, name in enumerate(ACTIONS) if bits >> number & 1}
    return slow
