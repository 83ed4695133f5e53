"""The readable search: resamples the hidden cards, plays every action out and sums the values.

search.h computes the same sums.
"""

from __future__ import annotations

import numpy as np

from rematch.core import rng

from .. import native
from ..config import STRENGTH, Config
from ..state import State
from . import bots as bots_reference
from .bots import TIE_MARGIN, BotKey
from .rules import is_over, legal, outcomes, play, score, unseen

WORD = (1 << 64) - 1


class SplitMix:
    """A random number generator: SplitMix64 (Steele, Lea and Flood 2014)."""

    def __init__(self, state: int) -> None:
        self.state = state

    def word(self) -> int:
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & WORD
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        return z ^ z >> 31

    def below(self, count: int) -> int:
        return (self.word() >> 32) * count >> 32


def complete(state: State, seat: int, generator: SplitMix) -> State:
    """Resample the cards that this seat cannot see; reads only sets and sizes that the seat knows."""
    out = state.copy()
    for player in range(state.players):
        hidden = set(state.decks[player]) if player == seat else unseen(state, player)
        in_hand = 0 if player == seat else len(state.hands[player])
        cards, order = sorted(hidden, key=lambda name: STRENGTH[name]), []
        for k in range(len(cards)):
            at = k + generator.below(len(cards) - k)
            order.append(cards[at])
            cards[at] = cards[k]
        out.decks[player] = order[in_hand:]
        if player != seat:
            out.hands[player] = set(order[:in_hand])
    return out


def difference(state: State, seat: int, config: Config) -> int:
    """The score of a seat minus the best score of the others (rules.h, score_of)."""

    def single(player: int) -> int:
        first, second = score(state, player, config)
        return first if config.scoring == "points" else 64 * first + second

    return single(seat) - max(single(player) for player in range(state.players) if player != seat)


def play_out(state: State, seat: int, bots: tuple[str, str], generator: SplitMix, config: Config) -> State:
    """Play to the end: the seat like bots[0], the others like bots[1], ties at random."""
    while not is_over(state):
        trials, bot = bots_reference.try_actions(state, config), bots[state.turn != seat]
        noisy = bot == "noisy" and len(trials) > 1
        bot_key = BotKey(generator.word() if noisy else 0, 0, rng.BOT, 0)
        scores = bots_reference.scores(trials, bot, bot_key, config)
        best = max(scores.values())
        tied = [action for action, total in scores.items() if best - total < TIE_MARGIN]
        action = tied[0]
        if len(tied) > 1:
            weighted = [a for a in tied for _ in range(bots_reference.tie_weight(state, a, config))]
            action = weighted[(generator.word() >> 32) * len(weighted) >> 32]
        state = play(state, action, config)
    return state


def reward(state: State, seat: int, config: Config) -> float:
    """+1 for the winner, -1 / (players - 1) for the others, shared in a draw; rounded as in rules.h."""
    outcome = outcomes(state, config)
    sharing, n = sum(value > 0 for value in outcome), np.float32(state.players)
    if sharing == state.players:
        return 0.0
    share = np.float32(1) / np.float32(sharing) if outcome[seat] else np.float32(0)
    return float((share * n - np.float32(1)) / (n - np.float32(1)))


def minimax(state: State, config: Config) -> int:
    """Two players, empty decks: the score of the player to move minus the other's under best play."""
    if is_over(state):
        return difference(state, state.turn, config)
    return max(-minimax(play(state, action, config), config) for action in legal(state, config))


def action_sums(
    state: State, playouts: tuple[str, int, str], bot_key: BotKey, config: Config
) -> dict[int, float]:
    """Sums of values for every legal action; playouts: (bot, completions, bot of the others)."""
    seat, actions = state.turn, legal(state, config)
    out = dict.fromkeys(actions, 0.0)
    if len(actions) == 1:
        return out
    if state.players == 2 and not any(state.decks):
        return {a: float(-native.EXACT * minimax(play(state, a, config), config)) for a in actions}
    high, low, *_ = bot_key.words(0)
    for c in range(playouts[1]):
        w = [int(word) for word in rng.philox(high << 32 | low, np.array([c, 0, rng.BOT, 0], np.uint64))]
        sample = complete(state, seat, SplitMix(w[0] << 32 | w[1]))
        for action in actions:
            generator = SplitMix(w[2] << 32 | w[3])
            end = play_out(play(sample, action, config), seat, (playouts[0], playouts[2]), generator, config)
            out[action] += reward(end, seat, config) + 0.01 * difference(end, seat, config)
    return out


def decide(state: State, playouts: tuple[str, int, str], bot_key: BotKey, config: Config) -> int:
    """The action with the largest sum; the first one in a tie."""
    sums = action_sums(state, playouts, bot_key, config)
    return max(sums, key=lambda action: (sums[action], -action))
