"""The ten bots, readable: each scores every legal action by its result.

bots.h computes the same bits: sums are of floats, in the order of this file. `before` is the state to move
in, `after` the state after the turn without the drawn card, which is the same for every action.
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
TIE_MARGIN = 1e-6  # scores closer than this are tied
NOISE_SIGMA = 0.15  # standard deviation of the noise of `noisy`
THREATS = ("crocodile", "hippo", "lion", "zebra", "giraffe")


def points_of(cards: set[str]) -> int:
    return sum(POINTS[name] for name in cards)


@dataclass
class Trial:
    """The result of one action. "their" sums over all other players."""

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
        """Points that entered a pile in this turn: mine, theirs."""
        piles = zip(getattr(self.after, pile), getattr(self.before, pile))
        gains = [points_of(after) - points_of(before) for after, before in piles]
        return gains[self.me], sum(gains[player] for player in self.others)

    def count_theirs(self, state: State, species: tuple[str, ...]) -> int:
        """The number of animals of the others in line that are of these species."""
        return sum(owner != self.me and name in species for owner, name in state.line)

    def target(self) -> Card | None:
        """The target of a parrot (not of a chameleon) in the line before the turn."""
        return self.before.line[self.act.choice] if self.act.card == self.act.effect == "parrot" else None

    def all_played(self, name: str) -> bool:
        """Whether all other players have played this animal."""
        return all(name not in unseen(self.before, player) for player in self.others)


# --- heuristic bots ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeuristicWeights:
    bar: float = 2.0
    front: float = 1.1
    aggression: float = 0.5
    skunk: int = 4  # points of a skunk


HEURISTIC_WEIGHTS = {
    "aggressive": HeuristicWeights(bar=3.0, aggression=0.8),
    "defensive": HeuristicWeights(bar=1.0, aggression=0.2),
    "queue": HeuristicWeights(front=2.0), "skunk": HeuristicWeights(skunk=8),
}  # fmt: skip


def material(trial: Trial, weights: HeuristicWeights, config: Config) -> float:
    """bw (my bar points - theirs) + sum over the line +-w_i points - 0.5 mine out + 0.5 theirs + 0.1 hand."""
    points = POINTS | {"skunk": weights.skunk}
    aggression = 0.5 if config.earlier_rules else weights.aggression

    def pile_points(piles: list[set[str]], players: list[int]) -> int:
        return sum(points[name] for player in players for name in piles[player])

    after, me, others = trial.after, [trial.me], trial.others
    total = weights.bar * float(pile_points(after.bar, me) - pile_points(after.bar, others))
    n = len(after.line)
    for i, (owner, name) in enumerate(after.line):
        behind = i / n
        weight = weights.front * (1.0 - behind) + 0.3 * behind
        total += weight * points[name] if owner == trial.me else -(weight * points[name])
    total -= (1.0 - aggression) * pile_points(after.thats_it, me)
    total += aggression * pile_points(after.thats_it, others)
    hand = trial.before.hands[trial.me] - {trial.act.card}
    total += 0.1 * sum(points[name] for name in hand)
    return total


def species_term(trial: Trial) -> float:
    """The term of the played card; a chameleon has only its own term."""
    return TERMS[trial.act.card](trial)


def _place(trial: Trial) -> int:
    """The place of the played card in the line after the turn, or -1."""
    card = (trial.me, trial.act.card)
    return trial.after.line.index(card) if card in trial.after.line else -1


def _skunk(t: Trial) -> float:
    if t.their_loss >= 5:
        return 3.0
    if t.their_loss >= 3:
        return 1.5
    return -2.0 if t.their_loss == 0 and t.my_loss > 0 else 0.0


def _parrot(t: Trial) -> float:
    target = t.target()
    if target is None:
        return 0.0
    return (-0.5 if target[0] == t.me else 0.5) * POINTS[target[1]]


def _seal(t: Trial) -> float:
    return 1.5 if t.my_gain > t.their_gain else -1.0 if t.their_gain > t.my_gain else 0.0


def _snake(t: Trial) -> float:
    mine_before, mine_after = (sum(owner == t.me for owner, _ in s.line) for s in (t.before, t.after))
    if mine_after <= mine_before:
        return 0.0
    return 0.5 * sum(POINTS[name] for owner, name in t.after.line[:2] if owner == t.me)


TERMS: dict[str, Callable[[Trial], float]] = {
    "skunk": _skunk,
    "parrot": _parrot,
    "lion": lambda t: 2.0 if _place(t) == 0 else 0.0,
    "monkey": lambda t: 2.5 if t.their_loss >= 4 else 0.0,
    "seal": _seal,
    "snake": _snake,
    "zebra": lambda t: 1.5 if t.count_theirs(t.after, ("hippo", "crocodile")) else -0.5,
    "kangaroo": lambda t: 1.0 if _place(t) in (0, 1) else 0.0,
    "giraffe": lambda t: {0: 1.5, 1: 0.5}.get(_place(t), 0.0),
    "crocodile": lambda t: 0.3 * t.their_loss,
    "chameleon": lambda t: 0.1 * (STRENGTH[t.act.effect] if t.act.effect else 0),
    "hippo": lambda t: 0.0,
}


# --- online -------------------------------------------------------------------------------------------


def reaction(t: Trial) -> float:
    """The term of `online`, from the line before the turn."""
    line = t.before.line
    in_line = {name for _, name in line}
    if t.act.card == "crocodile":
        if "chameleon" in in_line:
            return 5.0
        return 0.0 if t.all_played("chameleon") else -1.0
    if t.act.card == "skunk":
        strongest = sorted(in_line - {"skunk"}, key=lambda name: STRENGTH[name])[-2:]
        if len(strongest) < 2:
            return -1.5
        net = sum((-1 if owner == t.me else 1) * POINTS[name] for owner, name in line if name in strongest)
        return 4.0 if net >= 4 else 2.0 if net >= 2 else -3.0 if net <= -2 else 0.0
    if t.act.card == "lion":
        if t.count_theirs(t.before, ("lion",)):
            return -5.0
        return 3.0 if t.all_played("lion") else -2.0
    target = t.target()
    if target is None:
        return 0.0
    if target[0] == t.me:
        return -0.5 * POINTS[target[1]]
    return 0.3 * POINTS[target[1]] + 2.0 * (1.0 - t.act.choice / len(line))


# --- outcome bots -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutcomeWeights:
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


DISTILLED = OutcomeWeights(
    bar=4.2, their_bar=-2.5, loss=-3.5, their_loss=2.8, line=1.8, front=2.5, threats=2.2,
    parrot=0.6, skunk=0.7, monkey=18.0, early=0.6, late=0.4,
)  # fmt: skip


def line_value(state: State, me: int) -> float:
    """ "places weigh .53 .37 .25 .27 .10; theirs -0.6 of that" """
    total = 0.0
    for weight, (owner, name) in zip((0.53, 0.37, 0.25, 0.27, 0.10), state.line):
        points = weight * POINTS[name]
        total += points if owner == me else -0.6 * points
    return total


def outcome_score(t: Trial, w: OutcomeWeights) -> float:
    before, after, card = t.before, t.after, t.act.card
    total = w.bar * t.my_gain
    total += w.their_bar * t.their_gain
    total += w.loss * t.my_loss
    total += w.their_loss * t.their_loss
    total += w.line * (line_value(after, t.me) - line_value(before, t.me))
    if any(owner == t.me for owner, _ in after.line[:2]):
        total += w.front
    total += w.threats * max(0, t.count_theirs(before, THREATS) - t.count_theirs(after, THREATS))
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
        total += w.monkey if t.count_theirs(after, heavy) < t.count_theirs(before, heavy) else 0.0
        total += 0.8 * w.monkey if t.count_theirs(before, ("monkey",)) else 0.0
    if card in RECURRING and before.step <= 3:  # "at most 3 cards lay in line, bar and THAT'S IT"
        total += w.early
    if card in ("parrot", "skunk", "crocodile") and before.step >= 8:
        total += w.late
    return total


# --- decisions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BotKey:
    """The random key of a bot's decision."""

    key: int
    game: int
    stream: int
    step: int

    def words(self, purpose: int) -> list[int]:
        counter = [self.game, self.step & 0xFFFFFFFF, self.stream | purpose << 8, self.step >> 32]
        return [int(word) for word in rng.philox(self.key, np.array(counter, np.uint64))]

    def normal(self, action: int) -> float:
        """A standard normal number (Box and Muller 1958)."""
        u, v = ((word + 0.5) * (1.0 / 4294967296.0) for word in self.words(action + 1)[:2])
        return math.sqrt(-2.0 * math.log(u)) * math.cos(6.283185307179586 * v)


def try_actions(state: State, config: Config) -> dict[int, Trial]:
    """The results of all legal actions."""
    return {action: Trial(state, play(state, action, config), ACTS[action], state.turn)
            for action in legal(state, config)}  # fmt: skip


def score(trial: Trial, bot: str, config: Config) -> float:
    """The score of an action, without the noise of `noisy`."""
    if bot == "random":
        return 0.0
    if bot in ("outcome_heuristic", "distilled_outcome"):
        return outcome_score(trial, DISTILLED if bot == "distilled_outcome" else OutcomeWeights())
    total = material(trial, HEURISTIC_WEIGHTS.get(bot, HeuristicWeights()), config)
    total += reaction(trial) if bot == "online" else species_term(trial)
    return total


def scores(trials: dict[int, Trial], bot: str, bot_key: BotKey, config: Config) -> dict[int, float]:
    """A bot's scores of the tried actions."""
    out = {action: score(trial, bot, config) for action, trial in trials.items()}
    if bot == "noisy":
        out = {action: total + NOISE_SIGMA * bot_key.normal(action) for action, total in out.items()}
    return out


def decide(state: State, bot: str, bot_key: BotKey, config: Config) -> int:
    """The action of a bot."""
    return choose(state, scores(try_actions(state, config), bot, bot_key, config), bot_key, config)


def choose(state: State, scores: dict[int, float], bot_key: BotKey, config: Config) -> int:
    """The action with the best score, ties at random."""
    best = max(scores.values())
    tied = [action for action, score in scores.items() if best - score < TIE_MARGIN]
    if len(tied) == 1:
        return tied[0]
    weighted = [action for action in tied for _ in range(tie_weight(state, action, config))]
    return weighted[bot_key.words(0)[0] * len(weighted) >> 32]


def tie_weight(state: State, action: int, config: Config) -> int:
    """Weight of an action in a tie. With earlier_rules a chameleon counts once per animal it can copy."""
    act = ACTS[action]
    if not config.earlier_rules or act.card != "chameleon":
        return 1
    return sum(name == act.effect for _, name in state.line)


assert set(TERMS) == set(SPECIES)
