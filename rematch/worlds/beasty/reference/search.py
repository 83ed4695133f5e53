"""The search in words: deals what the seat cannot see anew, plays every action out, adds up.

search.h must come to the same sums.
"""

from __future__ import annotations

import numpy as np

from rematch.core import rng

from .. import native
from ..config import STRENGTH, Config
from ..state import State
from . import bots as bots_reference
from .bots import SAME, Chance
from .rules import is_over, legal, outcomes, play, score, unseen

WORD = (1 << 64) - 1


class Luck:
    """A short stream of random numbers: splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""

    def __init__(self, at: int) -> None:
        self.at = at

    def word(self) -> int:
        self.at = z = (self.at + 0x9E3779B97F4A7C15) & WORD
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        return z ^ z >> 31

    def below(self, count: int) -> int:
        return (self.word() >> 32) * count >> 32


def complete(state: State, seat: int, luck: Luck) -> State:
    """Another state that this seat cannot tell from the true one: uses unseen sets and sizes only."""
    out = state.copy()
    for player in range(state.players):
        hidden = set(state.decks[player]) if player == seat else unseen(state, player)
        in_hand = 0 if player == seat else len(state.hands[player])
        cards, order = sorted(hidden, key=lambda name: STRENGTH[name]), []
        for k in range(len(cards)):
            at = k + luck.below(len(cards) - k)
            order.append(cards[at])
            cards[at] = cards[k]
        out.decks[player] = order[in_hand:]
        if player != seat:
            out.hands[player] = set(order[:in_hand])
    return out


def difference(state: State, seat: int, config: Config) -> int:
    """A seat's score less the best of the others', on the scale that decides (rules.h, score_of)."""

    def single(player: int) -> int:
        first, then = score(state, player, config)
        return first if config.scoring == "points" else 64 * first + then

    return single(seat) - max(single(player) for player in range(state.players) if player != seat)


def play_out(state: State, seat: int, bots: tuple[str, str], luck: Luck, config: Config) -> State:
    """The seat plays on like bots[0], the others like bots[1], equals by luck."""
    while not is_over(state):
        tries, bot = bots_reference.tries(state, config), bots[state.turn != seat]
        noise = Chance(luck.word() if bot == "noisy" and len(tries) > 1 else 0, 0, rng.BOT, 0)
        found = bots_reference.scores(tries, bot, noise, config)
        best = max(found.values())
        among = [action for action, total in found.items() if best - total < SAME]
        action = among[0]
        if len(among) > 1:
            listed = [a for a in among for _ in range(bots_reference.weight(state, a, config))]
            action = listed[(luck.word() >> 32) * len(listed) >> 32]
        state = play(state, action, config)
    return state


def reward(state: State, seat: int, config: Config) -> float:
    """+1 won, -1 / (players - 1) lost, shared by those who share the best; as rules.h rounds it."""
    won = outcomes(state, config)
    sharing, n = sum(outcome > 0 for outcome in won), np.float32(state.players)
    if sharing == state.players:
        return 0.0
    share = np.float32(1) / np.float32(sharing) if won[seat] else np.float32(0)
    return float((share * n - np.float32(1)) / (n - np.float32(1)))


def minimax(state: State, config: Config) -> int:
    """Two players, empty decks: the mover's score less the other's under best play, every line played out."""
    if is_over(state):
        return difference(state, state.turn, config)
    return max(-minimax(play(state, action, config), config) for action in legal(state, config))


def worths(state: State, how: tuple[str, int, str], chance: Chance, config: Config) -> dict[int, float]:
    """What the search adds up for every legal action; how: who plays on, completions, the others' bot."""
    seat, actions = state.turn, legal(state, config)
    out = dict.fromkeys(actions, 0.0)
    if len(actions) == 1:
        return out
    if state.players == 2 and not any(state.decks):
        return {a: float(-native.EXACT * minimax(play(state, a, config), config)) for a in actions}
    high, low, *_ = chance.words(0)
    for c in range(how[1]):
        w = [int(word) for word in rng.philox(high << 32 | low, np.array([c, 0, rng.BOT, 0], np.uint64))]
        sample = complete(state, seat, Luck(w[0] << 32 | w[1]))
        for action in actions:
            luck = Luck(w[2] << 32 | w[3])
            end = play_out(play(sample, action, config), seat, (how[0], how[2]), luck, config)
            out[action] += reward(end, seat, config) + 0.01 * difference(end, seat, config)
    return out


def decide(state: State, how: tuple[str, int, str], chance: Chance, config: Config) -> int:
    """The action of the largest worth, the first among equals."""
    found = worths(state, how, chance, config)
    return max(found, key=lambda action: (found[action], -action))
