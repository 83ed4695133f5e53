"""What happened in a turn, in words: for games that people read or play."""

from __future__ import annotations

from collections.abc import Iterable

from .rules import ACTIONS, SPECIES
from .state import Card, State


def cards_in_words(cards: Iterable[Card]) -> str:
    """ "0 lion, 1 zebra": whose, which."""
    return ", ".join(f"{owner} {name}" for owner, name in cards)


def turn_in_words(before: State, action: int, after: State) -> str:
    """ "player 0 plays lion. Line: 0 lion, 1 zebra. Out: 1 monkey." """
    said = f"player {before.turn} plays {ACTIONS[action]}. Line: {cards_in_words(after.line)}."
    for words, pile in (("In", "bar"), ("Out", "thats_it")):
        now, then = getattr(after, pile), getattr(before, pile)
        came = [(p, name) for p in range(after.players) for name in SPECIES if name in now[p] - then[p]]
        said += f" {words}: {cards_in_words(came)}." if came else ""
    return said
