"""Compares the compiled rules, bots and search with their readable references; reports the first difference.

The tests compare a few games, tools/checks/beasty_check.py many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Ints
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at

from .. import native
from ..config import ACTIONS, SPECIES, Config
from ..state import State, columns, unpack
from . import bots, search
from . import rules as reference
from .bots import BOTS

BATCH = 1000  # games that the compiled rules play together


class Difference(AssertionError):
    """The first difference between the two engines."""


def deal_games(config: Config, games: int, seed: int) -> tuple[native.Core, Bytes]:
    """New games [n, S], game i from the key (seed, i)."""
    from ..world import make

    world = make(config, games, seed=seed)
    return world.shared.rules, world.save(np.arange(games, dtype=np.int32))


def random_actions(legal: NDArray[np.uint64], seed: int, step: int) -> Ints:
    """[n] uniformly random legal actions, from bits [n]."""
    bits = (legal[:, None] >> np.arange(len(ACTIONS), dtype=np.uint64)) & np.uint64(1)
    index = (rng.units(seed, rng.ACT, len(legal), step) * bits.sum(1)).astype(np.int64)
    return np.asarray((np.cumsum(bits, 1) <= index[:, None]).sum(1), np.int32)


def playouts(
    config: Config, games: int, seed: int
) -> Iterator[tuple[Bytes, NDArray[np.uint64], Ints, Bytes, Bytes]]:
    """Random games, turn by turn: running games, legal actions as bits, actions, games after, ended."""
    rules, states = deal_games(config, games, seed)
    numbers = np.arange(games)
    for step in range(len(SPECIES) * config.players):
        legal = rules.legal(states)
        actions = random_actions(legal, rng.key(seed, rng.ACT), step)
        after = states.copy()
        ended = rules.turn(after, actions)
        yield states, legal, actions, after, ended
        states, numbers = np.ascontiguousarray(after[ended == 0]), numbers[ended == 0]
        if not len(states):
            return


def compare_rules(config: Config, games: int, seed: int) -> int:
    """Play random games in both engines and compare every state, legal set, end and outcome.

    Returns the number of compared turns; raises Difference at the first difference.
    """
    turns = 0
    for first in range(0, games, BATCH):
        turns += _compare_batch(config, min(BATCH, games - first), seed + first)
    return turns


def _compare_batch(config: Config, games: int, seed: int) -> int:
    rules, states = deal_games(config, games, seed)
    slow, turns = unpack(states, config), 0
    for _, legal, actions, after, ended in playouts(config, games, seed):
        table = after.view(native.GAME_TYPE)[:, 0]
        fast = {name: table[name].tolist() for name in ("deck", "hand", "bar", "line", "turn", "step")}
        outcome = rules.results(after)[0].tolist()
        for row, action in enumerate(actions.tolist()):
            state = slow[row]
            allowed = sum(1 << number for number in reference.legal(state, config))
            if allowed != int(legal[row]):
                raise Difference(f"legal actions {int(legal[row]):#x} and {allowed:#x} in {state}")
            expected = slow[row] = reference.play(state, action, config)
            difference = _difference(expected, {name: column[row] for name, column in fast.items()})
            if difference:
                raise Difference(f"{difference} after {ACTIONS[action]} in {state}")
            if reference.is_over(expected) != bool(ended[row]):
                raise Difference(f"ended: {bool(ended[row])} in C, after {ACTIONS[action]} in {state}")
            if ended[row] and reference.outcomes(expected, config) != outcome[row]:
                raise Difference(
                    f"outcomes {outcome[row]} in C, {reference.outcomes(expected, config)} of {expected}"
                )
        turns += len(actions)
        slow = [state for row, state in enumerate(slow) if not ended[row]]
    return turns


def _difference(state: State, fast: dict[str, Any]) -> str:
    """The first member in which a state differs from the C state; empty where there is none."""
    for name, value in columns(state).items():
        actual = fast[name]
        expected = [*value, *[0] * (len(actual) - len(value))] if isinstance(value, list) else value
        if actual != expected:
            return f"{name} is {actual} in C and {expected} in Python"
    return ""


def positions(config: Config, count: int, seed: int) -> Bytes:
    """[count, S] positions, uniformly sampled from all turns of random games."""
    games = 1 + count // (10 * config.players)
    states = np.concatenate([before for before, *_ in playouts(config, games, seed)])
    order = np.argsort(rng.words(seed, rng.SHUFFLE, len(states)))[:count]
    return np.ascontiguousarray(states[order])


def compare_bots(config: Config, count: int, seed: int) -> int:
    """Compare every score and decision of the ten bots; returns the number of decisions."""
    states = positions(config, count, seed)
    rules, numbers = deal_games(config, 1, seed)[0], np.arange(len(states), dtype=np.int32)
    key, slow = rng.key(seed, rng.BOT), unpack(states, config)
    rng_keys = [(key, rng.BOT, seed << 33 | number) for number in range(len(BOTS))]
    scores = [rules.scores(states, numbers, bot, rng_key) for bot, rng_key in enumerate(rng_keys)]
    actions = [rules.decide(states, numbers, bot, rng_key) for bot, rng_key in enumerate(rng_keys)]
    for row, state in enumerate(slow):
        trials = bots.try_actions(state, config)
        for bot, name in enumerate(BOTS):
            bot_key = bots.BotKey(key, row, rng.BOT, rng_keys[bot][2])
            expected = bots.scores(trials, name, bot_key, config)
            fast = {action: float(scores[bot][row, action]) for action in expected}
            if name != "random" and fast != expected:
                raise Difference(f"{name} scores {fast} in C and {expected} in Python of {state}")
            action, decision = bots.choose(state, expected, bot_key, config), int(actions[bot][row])
            if decision != action:
                raise Difference(
                    f"{name} plays {ACTIONS[decision]} in C, {ACTIONS[action]} in Python, in {state}"
                )
    return len(states) * len(BOTS)


def compare_search(
    config: Config, count: int, seed: int, completions: int = 1, model: str = "outcome_heuristic"
) -> int:
    """Compare every sum and decision of the search; returns the number of decisions."""
    states = positions(config, count, seed)
    rules, numbers = deal_games(config, 1, seed)[0], np.arange(len(states), dtype=np.int32)
    name, rng_key = "outcome_heuristic", (rng.key(seed, rng.BOT), rng.BOT, seed)
    playouts = (BOTS.index(name), 0, completions, BOTS.index(model))
    sums, actions = rules.search(states, numbers, playouts, rng_key)
    compared = 0
    for row, state in enumerate(unpack(states, config)):
        if not any(state.decks) and sum(map(len, state.hands)) > 5:
            continue  # the minimax without pruning takes minutes; later positions are compared
        bot_key = bots.BotKey(rng_key[0], row, rng.BOT, seed)
        expected = search.action_sums(state, (name, completions, model), bot_key, config)
        fast = {action: float(sums[row, action]) for action in expected}
        if fast != expected:
            raise Difference(f"sums of the search are {fast} in C and {expected} in Python of {state}")
        best = max(expected, key=lambda action: (expected[action], -action))
        if actions[row] != best:
            raise Difference(f"search: {ACTIONS[actions[row]]} in C, {ACTIONS[best]} in Python, in {state}")
        compared += 1
    return compared


def match(
    config: Config, names: tuple[str, str], deals: int, seed: int, threads: int = 1
) -> NDArray[np.float64]:
    """[3] fractions of games that the first player won, drew and lost; each deal in both seatings."""
    from ..bots import bot
    from ..world import ROLE, make

    players = [bot(name, ROLE) for name in names]
    total = np.zeros(3)
    for swapped in (0, 1):
        world = make(config, deals, seed=seed)
        running, step = np.ones(deals, bool), 0
        while running.any():
            actions = np.zeros((deals, 2), np.int32)
            for seat in (0, 1):
                rows = np.flatnonzero(running & (world.view.acting[:, seat] != 0)).astype(np.int32)
                idle = np.flatnonzero(~running & (world.view.acting[:, seat] != 0))
                actions[idle, seat] = world.view.mask[ROLE][idle, seat].argmax(1)
                if len(rows):
                    request = seat_at(world, seat, rows)
                    decision = players[seat ^ swapped].act(request, RngKey(seed, rng.BOT, step))
                    actions[rows, seat] = decision.action
            view = world.step({ROLE: actions}, threads)
            ended = running & (view.ended != 0)
            outcome = view.outcome[ended, swapped]
            total += [(outcome == 1).sum(), (outcome == 0.5).sum(), (outcome == 0).sum()]
            running &= ~ended
            step += 1
    return total / (2 * deals)
