"""Positions of Beasty Bar for tests: built around a line, played in both engines at once, told in words."""

from __future__ import annotations

import numpy as np

from rematch.worlds.beasty import native
from rematch.worlds.beasty.config import ACTIONS, SPECIES, Config
from rematch.worlds.beasty.reference import rules as reference
from rematch.worlds.beasty.state import State, pack

PLAIN, DOCUMENT = Config(), Config(document_variant=True)


def cards(text: str) -> list[tuple[int, str]]:
    """ "0 lion, 1 zebra" as cards."""
    return [(int(word.split()[0]), word.split()[1]) for word in text.split(", ") if word]


def told(line: list[tuple[int, str]]) -> str:
    return ", ".join(f"{owner} {name}" for owner, name in line)


def position(line: str, hand: str, config: Config = PLAIN, turn: int = 0) -> State:
    """A state that can be, with this line and these cards in the mover's hand; what else was played is out.

    With as few turns behind it as the line allows.
    """
    standing, players, wanted = cards(line), config.players, hand.split()
    step = 0
    while step % players != turn or any(
        (step + players - 1 - p) // players < sum(owner == p for owner, _ in standing) for p in range(players)
    ):
        step += 1
    state = State(standing, [], [], [set() for _ in range(players)], [], turn)
    for p in range(players):
        played = (step + players - 1 - p) // players
        own = [name for owner, name in standing if owner == p]
        kept = wanted if p == turn else []
        free = [name for name in SPECIES if name not in own and name not in kept]
        out = played - len(own)
        state.thats_it.append(set(free[:out]))
        left = kept + free[out:]
        in_deck = 8 - min(played, 8)
        in_hand = 12 - played - in_deck
        state.hands.append(set(left[:in_hand]))
        state.decks.append(left[in_hand:])
    return state


def play(state: State, action: str, config: Config = PLAIN) -> State:
    """A turn in both engines, which must agree; the reference's state."""
    number = ACTIONS.index(action)
    assert number in reference.legal(state, config), f"{action} is not legal"
    after = reference.play(state, number, config)
    rules, game = native.Core(config.values()), pack([state], config)
    rules.turn(game, np.array([number], np.int32))
    table = game.view(native.GAME_TYPE)[0, 0]
    line = [(int(card) >> 4, SPECIES[(int(card) & 15) - 1]) for card in table["line"] if card]
    assert line == after.line, f"{told(line)} in C, {told(after.line)} in Python"
    return after


def legal(state: State, config: Config = PLAIN) -> set[str]:
    """What may be played, by both engines."""
    bits = int(native.Core(config.values()).legal(pack([state], config))[0])
    slow = {ACTIONS[number] for number in reference.legal(state, config)}
    assert slow == {name for number, name in enumerate(ACTIONS) if bits >> number & 1}
    return slow
