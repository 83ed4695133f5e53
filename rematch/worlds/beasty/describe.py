"""What happened in a turn, in words: for games that people read or play."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .config import ACTIONS, ACTS, SPECIES
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


# --- for people at the table ------------------------------------------------------------------------------

# The table of animals of the specification's section 1, for somebody who holds the card.
EFFECTS = {
    "lion": "goes first and scares monkeys out; is out itself if another lion is in line",
    "hippo": "every turn: pushes past weaker animals, never past a zebra",
    "crocodile": "every turn: eats weaker animals directly ahead, stops at a zebra",
    "snake": "sorts the line, strongest first",
    "giraffe": "every turn: hops over one weaker animal directly ahead",
    "zebra": "hippos cannot pass it, crocodiles eat neither it nor what is ahead of it",
    "seal": "reverses the line",
    "chameleon": "does what another animal in line does",
    "monkey": "with another monkey: hippos and crocodiles out, monkeys to the front; alone nothing",
    "kangaroo": "hops over the last one or two animals",
    "parrot": "sends one animal in line out",
    "skunk": "sends all animals of the two strongest species out, never skunks",
}


def label(action: int) -> str:
    """An action's name for people: as in ACTIONS, but a parrot's places are counted from 1."""
    act = ACTS[action]
    if act.effect == "kangaroo" and not act.choice:
        return act.card
    return str(act) if act.effect != "parrot" else f"{str(act).rpartition(' ')[0]} {act.choice + 1}"


def whose(card: Card, names: Sequence[str]) -> str:
    """ "your lion", "search's zebra"."""
    owner, name = card
    return f"your {name}" if names[owner] == "you" else f"{names[owner]}'s {name}"


def move_in_words(state: State, action: int, names: Sequence[str]) -> str:
    """ "parrot: out with your lion (place 1)", "chameleon as kangaroo, over 2"; place 1 is at the gate."""
    act = ACTS[action]
    said = act.card + (f" as {act.effect}" if act.card == "chameleon" and act.effect else "")
    if act.effect == "parrot":
        return f"{said}: out with {whose(state.line[act.choice], names)} (place {act.choice + 1})"
    if act.effect == "kangaroo" and act.choice:
        return f"{said}, over {act.choice}"
    return said if act.effect or not state.line else f"{said}, in vain"


def happened(before: State, action: int, after: State, names: Sequence[str]) -> str:
    """ "search plays parrot: out with your lion (place 1). In: your seal. Out: your lion." """
    verb = "play" if names[before.turn] == "you" else "plays"
    said = f"{names[before.turn]} {verb} {move_in_words(before, action, names)}."
    for word, pile in (("Into the bar", "bar"), ("Out", "thats_it")):
        now, then = getattr(after, pile), getattr(before, pile)
        came = [(p, name) for p in range(after.players) for name in SPECIES if name in now[p] - then[p]]
        said += f" {word}: {', '.join(whose(card, names) for card in came)}." if came else ""
    return said[0].upper() + said[1:]
