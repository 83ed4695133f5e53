"""Describes turns, moves and cards as text, for transcripts, the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .config import ACTIONS, ACTS, SPECIES
from .state import Card, State


def cards_text(cards: Iterable[Card]) -> str:
    """ "0 lion, 1 zebra": owner and animal."""
    return ", ".join(f"{owner} {name}" for owner, name in cards)


def turn_text(before: State, action: int, after: State) -> str:
    """ "player 0 plays lion. Line: 0 lion, 1 zebra. Out: 1 monkey." """
    text = f"player {before.turn} plays {ACTIONS[action]}. Line: {cards_text(after.line)}."
    for title, pile in (("In", "bar"), ("Out", "thats_it")):
        cards = entered(before, after, pile)
        text += f" {title}: {cards_text(cards)}." if cards else ""
    return text


def entered(before: State, after: State, pile: str) -> list[Card]:
    """The cards that entered a pile, by player and strength."""
    new, old = getattr(after, pile), getattr(before, pile)
    return [(p, name) for p in range(after.players) for name in SPECIES if name in new[p] - old[p]]


# --- for people -------------------------------------------------------------------------------------------

# Animal -> its effect, in one line.
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

# Animal -> its effect in one or two sentences, for the page.
EXPLANATIONS = {
    "lion": "The lion goes straight to the gate and drives all monkeys out. If another lion is in line, this "
    "lion is out instead.",
    "hippo": "In every turn the hippo pushes forward past all weaker animals. It never passes a zebra, a "
    "lion or another hippo.",
    "crocodile": "In every turn the crocodile eats the weaker animals directly ahead of it, your own too. It "
    "stops at a zebra and at animals that are as strong as itself.",
    "snake": "The snake sorts the whole line: the strongest animal stands next to the gate.",
    "giraffe": "In every turn the giraffe hops over the one animal directly ahead of it, if that animal is "
    "weaker.",
    "zebra": "Hippos cannot pass the zebra. Crocodiles eat neither the zebra nor any animal ahead of it.",
    "seal": "The seal turns the whole line around: the last animal becomes the first.",
    "chameleon": "The chameleon does what another animal in line does, once, with the strength of that "
    "animal.",
    "monkey": "Alone the monkey does nothing. With another monkey in line, all hippos and crocodiles are out "
    "and the monkeys go to the gate.",
    "kangaroo": "The kangaroo hops over the last one or two animals, as you choose.",
    "parrot": "The parrot sends one animal in line out, whichever you choose.",
    "skunk": "The skunk drives out all animals of the two strongest species in line. Skunks are never driven "
    "out.",
}


def label(action: int) -> str:
    """The name of an action: as in ACTIONS, but with the places of a parrot counted from 1."""
    act = ACTS[action]
    if act.effect == "kangaroo" and not act.choice:
        return act.card
    return str(act) if act.effect != "parrot" else f"{str(act).rpartition(' ')[0]} {act.choice + 1}"


def card_text(card: Card, names: Sequence[str]) -> str:
    """ "your lion", "search's zebra"."""
    owner, name = card
    return f"your {name}" if names[owner] == "you" else f"{names[owner]}'s {name}"


def move_text(state: State, action: int, names: Sequence[str]) -> str:
    """ "parrot: out with your lion (place 1)", "chameleon as kangaroo, over 2"; place 1: at the gate."""
    act = ACTS[action]
    text = act.card + (f" as {act.effect}" if act.card == "chameleon" and act.effect else "")
    if act.effect == "parrot":
        return f"{text}: out with {card_text(state.line[act.choice], names)} (place {act.choice + 1})"
    if act.effect == "kangaroo" and act.choice:
        return f"{text}, over {act.choice}"
    return text if act.effect or not state.line else f"{text}, without effect"


def named_turn_text(before: State, action: int, after: State, names: Sequence[str]) -> str:
    """ "Search plays parrot: out with your lion (place 1). Out: your lion." """
    verb = "play" if names[before.turn] == "you" else "plays"
    text = f"{names[before.turn]} {verb} {move_text(before, action, names)}."
    for title, pile in (("Into the bar", "bar"), ("Out", "thats_it")):
        cards = entered(before, after, pile)
        text += f" {title}: {', '.join(card_text(card, names) for card in cards)}." if cards else ""
    return text[0].upper() + text[1:]
