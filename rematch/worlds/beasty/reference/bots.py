"""The ten opponents in words: each scores every legal action by what it leads to.

bots.h must score the same bits: sums are of floats, in the order written here. *Before* is the position to
move in, *after* that after the whole turn but for the draw, which is the same for every action.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rematch.core import rng

from ..config import ACTS, POINTS, RECURRING, SPECIES, STRENGTH, Act, Config
from ..state import Card, State
from .rules import legal, play, unseen

BOTS = ("random", "heuristic", "aggressive", "defensive", "queue", "skunk", "noisy", "online",
        "outcome_heuristic", "distilled_outcome")  # fmt: skip
SAME = 1e-6  # scores this near are equal
NOISE = 0.15  # sigma of `noisy`
THREATS = ("crocodile", "hippo", "lion", "zebra", "giraffe")


def points_of(cards: set[str]) -> int:
    return sum(POINTS[name] for name in cards)


@dataclass
class Tried:
    """One action tried: before, after, and what it changed. With 3-4 players "they" are all the others."""

    before: State
    after: State
    act: Act
    me: int
    others: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.others = [player for player in range(self.before.players) if player != self.me]
        self.my_gain, self.their_gain = self.change("bar")
        self.my_loss, self.their_loss = self.change("thats_it")

    def change(self, pile: str) -> tuple[int, int]:
        """Points that came into a pile in this turn, whatever the cause: mine, theirs."""
        came = [
            points_of(a) - points_of(b) for a, b in zip(getattr(self.after, pile), getattr(self.before, pile))
        ]
        return came[self.me], sum(came[player] for player in self.others)

    def theirs(self, state: State, species: tuple[str, ...]) -> int:
        """How many of theirs in line are of these species."""
        return sum(owner != self.me and name in species for owner, name in state.line)

    def target(self) -> Card | None:
        """What a parrot (no chameleon) points at, in the line before."""
        return self.before.line[self.act.choice] if self.act.card == self.act.effect == "parrot" else None

    def played_them(self, name: str) -> bool:
        """Whether all of them have played this animal."""
        return all(name not in unseen(self.before, player) for player in self.others)


# --- the heuristic and its kin ------------------------------------------------------------------------


@dataclass(frozen=True)
class Taste:
    bar: float = 2.0
    front: float = 1.1
    aggression: float = 0.5
    skunk: int = 4  # what a skunk counts in the material


TASTES = {
    "aggressive": Taste(bar=3.0, aggression=0.8), "defensive": Taste(bar=1.0, aggression=0.2),
    "queue": Taste(front=2.0), "skunk": Taste(skunk=8),
}  # fmt: skip


def material(tried: Tried, taste: Taste, config: Config) -> float:
    """bw (my bar points - theirs) + sum over the line +-w_i points - 0.5 mine out + 0.5 theirs + 0.1 hand."""
    worth = POINTS | {"skunk": taste.skunk}
    aggression = 0.5 if config.document_variant else taste.aggression

    def worth_of(piles: list[set[str]], players: list[int]) -> int:
        return sum(worth[name] for player in players for name in piles[player])

    after, me, others = tried.after, [tried.me], tried.others
    total = taste.bar * float(worth_of(after.bar, me) - worth_of(after.bar, others))
    n = len(after.line)
    for i, (owner, name) in enumerate(after.line):
        behind = i / n
        weight = taste.front * (1.0 - behind) + 0.3 * behind
        total += weight * worth[name] if owner == tried.me else -(weight * worth[name])
    total -= (1.0 - aggression) * worth_of(after.thats_it, me)
    total += aggression * worth_of(after.thats_it, others)
    hand = tried.before.hands[tried.me] - {tried.act.card}
    total += 0.1 * sum(worth[name] for name in hand)
    return total


def species_term(tried: Tried) -> float:
    """By the card played: "a chameleon has its own term only"."""
    return TERMS[tried.act.card](tried)


def _place(tried: Tried) -> int:
    """Where the card just played stands after, or -1."""
    card = (tried.me, tried.act.card)
    return tried.after.line.index(card) if card in tried.after.line else -1


def _skunk(t: Tried) -> float:
    if t.their_loss >= 5:
        return 3.0
    if t.their_loss >= 3:
        return 1.5
    return -2.0 if t.their_loss == 0 and t.my_loss > 0 else 0.0


def _parrot(t: Tried) -> float:
    target = t.target()
    if target is None:
        return 0.0
    return (-0.5 if target[0] == t.me else 0.5) * POINTS[target[1]]


def _seal(t: Tried) -> float:
    return 1.5 if t.my_gain > t.their_gain else -1.0 if t.their_gain > t.my_gain else 0.0


def _snake(t: Tried) -> float:
    mine_before, mine_after = (sum(owner == t.me for owner, _ in s.line) for s in (t.before, t.after))
    if mine_after <= mine_before:
        return 0.0
    return 0.5 * sum(POINTS[name] for owner, name in t.after.line[:2] if owner == t.me)


TERMS: dict[str, Callable[[Tried], float]] = {
    "skunk": _skunk,
    "parrot": _parrot,
    "lion": lambda t: 2.0 if _place(t) == 0 else 0.0,
    "monkey": lambda t: 2.5 if t.their_loss >= 4 else 0.0,
    "seal": _seal,
    "snake": _snake,
    "zebra": lambda t: 1.5 if t.theirs(t.after, ("hippo", "crocodile")) else -0.5,
    "kangaroo": lambda t: 1.0 if _place(t) in (0, 1) else 0.0,
    "giraffe": lambda t: {0: 1.5, 1: 0.5}.get(_place(t), 0.0),
    "crocodile": lambda t: 0.3 * t.their_loss,
    "chameleon": lambda t: 0.1 * (STRENGTH[t.act.effect] if t.act.effect else 0),
    "hippo": lambda t: 0.0,
}


# --- online -------------------------------------------------------------------------------------------


def reaction(t: Tried) -> float:
    """All that `online` adds is read before."""
    line = t.before.line
    there = {name for _, name in line}
    if t.act.card == "crocodile":
        if "chameleon" in there:
            return 5.0
        return 0.0 if t.played_them("chameleon") else -1.0
    if t.act.card == "skunk":
        strongest = sorted(there - {"skunk"}, key=lambda name: STRENGTH[name])[-2:]
        if len(strongest) < 2:
            return -1.5
        net = sum((-1 if owner == t.me else 1) * POINTS[name] for owner, name in line if name in strongest)
        return 4.0 if net >= 4 else 2.0 if net >= 2 else -3.0 if net <= -2 else 0.0
    if t.act.card == "lion":
        if t.theirs(t.before, ("lion",)):
            return -5.0
        return 3.0 if t.played_them("lion") else -2.0
    target = t.target()
    if target is None:
        return 0.0
    if target[0] == t.me:
        return -0.5 * POINTS[target[1]]
    return 0.3 * POINTS[target[1]] + 2.0 * (1.0 - t.act.choice / len(line))


# --- the outcome players ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hopes:
    bar: float = 3.0
    their_bar: float = -2.0
    loss: float = -2.5
    their_loss: float = 2.0
    line: float = 1.5
    front: float = 2.0
    threats: float = 1.5
    parrot: float = 0.4
    skunk: float = 0.5
    monkey: float = 15.0
    early: float = 0.5
    late: float = 0.3


DISTILLED = Hopes(bar=4.2, their_bar=-2.5, loss=-3.5, their_loss=2.8, line=1.8, front=2.5, threats=2.2,
                  parrot=0.6, skunk=0.7, monkey=18.0, early=0.6, late=0.4)  # fmt: skip


def line_value(state: State, me: int) -> float:
    """ "places weigh .53 .37 .25 .27 .10; theirs -0.6 of that" """
    total = 0.0
    for weight, (owner, name) in zip((0.53, 0.37, 0.25, 0.27, 0.10), state.line):
        points = weight * POINTS[name]
        total += points if owner == me else -0.6 * points
    return total


def outcome_score(t: Tried, w: Hopes) -> float:
    before, after, card = t.before, t.after, t.act.card
    total = w.bar * t.my_gain
    total += w.their_bar * t.their_gain
    total += w.loss * t.my_loss
    total += w.their_loss * t.their_loss
    total += w.line * (line_value(after, t.me) - line_value(before, t.me))
    if any(owner == t.me for owner, _ in after.line[:2]):
        total += w.front
    total += w.threats * max(0, t.theirs(before, THREATS) - t.theirs(after, THREATS))
    target = t.target()
    if target is not None and target[0] == t.me:
        total += -0.8 * POINTS[target[1]]
    elif target is not None:
        total += w.parrot * POINTS[target[1]]
        total += 1.5 if target[1] in THREATS else 0.0
        total += 1.0 if target[1] in RECURRING else 0.0
        total += 0.5 * (1.0 - t.act.choice / len(before.line))
    if card == "skunk":
        total += w.skunk * (t.their_loss - t.my_loss)
    if card == "monkey":
        heavy = ("hippo", "crocodile")
        total += w.monkey if t.theirs(after, heavy) < t.theirs(before, heavy) else 0.0
        total += 0.8 * w.monkey if t.theirs(before, ("monkey",)) else 0.0
    if card in RECURRING and before.step <= 3:  # "at most 3 cards lay in line, bar and THAT'S IT"
        total += w.early
    if card in ("parrot", "skunk", "crocodile") and before.step >= 8:
        total += w.late
    return total


# --- choosing -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chance:
    """The key of a bot's random numbers at one decision."""

    key: int
    game: int
    stream: int
    step: int

    def words(self, purpose: int) -> list[int]:
        counter = [self.game, self.step & 0xFFFFFFFF, self.stream | purpose << 8, self.step >> 32]
        return [int(word) for word in rng.philox(self.key, np.array(counter, np.uint64))]

    def normal(self, action: int) -> float:
        """By Box and Muller's way."""
        one, other = ((word + 0.5) * (1.0 / 4294967296.0) for word in self.words(action + 1)[:2])
        return math.sqrt(-2.0 * math.log(one)) * math.cos(6.283185307179586 * other)


def tries(state: State, config: Config) -> dict[int, Tried]:
    """ "try every legal action in the engine" """
    return {action: Tried(state, play(state, action, config), ACTS[action], state.turn)
            for action in legal(state, config)}  # fmt: skip


def score(tried: Tried, bot: str, config: Config) -> float:
    """ "score it", without the noise of `noisy`."""
    if bot == "random":
        return 0.0
    if bot in ("outcome_heuristic", "distilled_outcome"):
        return outcome_score(tried, DISTILLED if bot == "distilled_outcome" else Hopes())
    total = material(tried, TASTES.get(bot, Taste()), config)
    total += reaction(tried) if bot == "online" else species_term(tried)
    return total


def scores(found: dict[int, Tried], bot: str, chance: Chance, config: Config) -> dict[int, float]:
    """A bot's score of every action tried."""
    out = {action: score(tried, bot, config) for action, tried in found.items()}
    if bot == "noisy":
        out = {action: total + NOISE * chance.normal(action) for action, total in out.items()}
    return out


def decide(state: State, bot: str, chance: Chance, config: Config) -> int:
    """The action that a bot takes."""
    return choose(state, scores(tries(state, config), bot, chance, config), chance, config)


def choose(state: State, found: dict[int, float], chance: Chance, config: Config) -> int:
    """ "take the best, ties (within 1e-6) at random" """
    best = max(found.values())
    among = [action for action, score in found.items() if best - score < SAME]
    if len(among) == 1:
        return among[0]
    listed = [action for action in among for _ in range(weight(state, action, config))]
    return listed[chance.words(0)[0] * len(listed) >> 32]


def weight(state: State, action: int, config: Config) -> int:
    """How often it counts among equals: "the document lists one chameleon action per animal in line"."""
    act = ACTS[action]
    if not config.document_variant or act.card != "chameleon":
        return 1
    return sum(name == act.effect for _, name in state.line)


assert set(TERMS) == set(SPECIES)
