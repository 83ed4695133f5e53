"""The compiled rules and opponents beside their readable references: where the first difference is.

Used by the tests in small and by tools/checks/beasty_check.py in large.
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

AT_ONCE = 1000  # games that the compiled rules play side by side


class Difference(AssertionError):
    """Where two engines part."""


def dealt(config: Config, games: int, seed: int) -> tuple[native.Core, Bytes]:
    """New games [n, S], game i from the key (seed, i)."""
    from ..world import make

    world = make(config, games, seed=seed)
    return world.shared.rules, world.save(np.arange(games, dtype=np.int32))


def random_actions(legal: NDArray[np.uint64], seed: int, step: int) -> Ints:
    """[n] any of the legal actions, given as bits."""
    bits = (legal[:, None] >> np.arange(len(ACTIONS), dtype=np.uint64)) & np.uint64(1)
    pick = (rng.units(seed, rng.ACT, len(legal), step) * bits.sum(1)).astype(np.int64)
    return np.asarray((np.cumsum(bits, 1) <= pick[:, None]).sum(1), np.int32)


def playouts(
    config: Config, games: int, seed: int
) -> Iterator[tuple[Bytes, NDArray[np.uint64], Ints, Bytes, Bytes]]:
    """Random games, turn by turn: running games before, what was legal, what was played, after, over."""
    rules, states = dealt(config, games, seed)
    numbers = np.arange(games)
    for step in range(len(SPECIES) * config.players):
        legal = rules.legal(states)
        actions = random_actions(legal, rng.key(seed, rng.ACT), step)
        after = states.copy()
        over = rules.turn(after, actions)
        yield states, legal, actions, after, over
        states, numbers = np.ascontiguousarray(after[over == 0]), numbers[over == 0]
        if not len(states):
            return


def compare_rules(config: Config, games: int, seed: int) -> int:
    """Play random games in both engines; every state, legal set, end and outcome must be the same.

    Gives the number of turns compared; raises Difference at the first that differs.
    """
    turns = 0
    for at in range(0, games, AT_ONCE):
        turns += _compare_some(config, min(AT_ONCE, games - at), seed + at)
    return turns


def _compare_some(config: Config, games: int, seed: int) -> int:
    rules, states = dealt(config, games, seed)
    slow, turns = unpack(states, config), 0
    for _, legal, actions, after, over in playouts(config, games, seed):
        table = after.view(native.GAME_TYPE)[:, 0]
        fast = {name: table[name].tolist() for name in ("deck", "hand", "bar", "line", "turn", "step")}
        outcome = rules.judge(after)[0].tolist()
        for row, action in enumerate(actions.tolist()):
            state = slow[row]
            allowed = sum(1 << number for number in reference.legal(state, config))
            if allowed != int(legal[row]):
                raise Difference(f"legal actions {int(legal[row]):#x} and {allowed:#x} in {state}")
            then = slow[row] = reference.play(state, action, config)
            unlike = _difference(then, {name: column[row] for name, column in fast.items()})
            if unlike:
                raise Difference(f"{unlike} after {ACTIONS[action]} in {state}")
            if reference.is_over(then) != bool(over[row]):
                raise Difference(f"is it over? {bool(over[row])} in C, after {ACTIONS[action]} in {state}")
            if over[row] and reference.outcomes(then, config) != outcome[row]:
                raise Difference(
                    f"outcomes {outcome[row]} in C, {reference.outcomes(then, config)} of {then}"
                )
        turns += len(actions)
        slow = [state for row, state in enumerate(slow) if not over[row]]
    return turns


def _difference(state: State, fast: dict[str, Any]) -> str:
    """The first part of a state that C has otherwise, in words; empty: none."""
    for name, value in columns(state).items():
        found = fast[name]
        wanted = [*value, *[0] * (len(found) - len(value))] if isinstance(value, list) else value
        if found != wanted:
            return f"{name} is {found} in C and {wanted} in Python"
    return ""


def positions(config: Config, count: int, seed: int) -> Bytes:
    """[count, S] positions of random games, all stages of a game alike."""
    games = 1 + count // (10 * config.players)
    found = np.concatenate([before for before, *_ in playouts(config, games, seed)])
    pick = np.argsort(rng.words(seed, rng.SHUFFLE, len(found)))[:count]
    return np.ascontiguousarray(found[pick])


def compare_bots(config: Config, count: int, seed: int) -> int:
    """All ten opponents in C and Python: every score, every decision. Gives how many decisions."""
    states = positions(config, count, seed)
    rules, numbers = dealt(config, 1, seed)[0], np.arange(len(states), dtype=np.int32)
    key, slow = rng.key(seed, rng.BOT), unpack(states, config)
    noises = [(key, rng.BOT, seed << 33 | number) for number in range(len(BOTS))]
    scores = [rules.scores(states, numbers, bot, noise) for bot, noise in enumerate(noises)]
    actions = [rules.decide(states, numbers, bot, noise) for bot, noise in enumerate(noises)]
    for row, state in enumerate(slow):
        tries = bots.tries(state, config)
        for bot, name in enumerate(BOTS):
            chance = bots.Chance(key, row, rng.BOT, noises[bot][2])
            found = bots.scores(tries, name, chance, config)
            fast = {action: float(scores[bot][row, action]) for action in found}
            if name != "random" and fast != found:
                raise Difference(f"{name} scores {fast} in C and {found} in Python of {state}")
            wanted, decision = bots.choose(state, found, chance, config), int(actions[bot][row])
            if decision != wanted:
                raise Difference(
                    f"{name} plays {ACTIONS[decision]} in C, {ACTIONS[wanted]} in Python, in {state}"
                )
    return len(states) * len(BOTS)


def compare_search(
    config: Config, count: int, seed: int, completions: int = 1, model: str = "outcome_heuristic"
) -> int:
    """The search in C and Python: every sum, every decision. Gives how many decisions."""
    states = positions(config, count, seed)
    rules, numbers = dealt(config, 1, seed)[0], np.arange(len(states), dtype=np.int32)
    name, noise = "outcome_heuristic", (rng.key(seed, rng.BOT), rng.BOT, seed)
    how = (BOTS.index(name), 0, completions, BOTS.index(model))
    sums, actions = rules.search(states, numbers, how, noise)
    compared = 0
    for row, state in enumerate(unpack(states, config)):
        if not any(state.decks) and sum(map(len, state.hands)) > 5:
            continue  # every line to the end takes Python minutes; solved with pruning, and compared later on
        chance = bots.Chance(noise[0], row, rng.BOT, seed)
        found = search.worths(state, (name, completions, model), chance, config)
        fast = {action: float(sums[row, action]) for action in found}
        if fast != found:
            raise Difference(f"search adds up {fast} in C and {found} in Python of {state}")
        wanted = max(found, key=lambda action: (found[action], -action))
        if actions[row] != wanted:
            raise Difference(f"search: {ACTIONS[actions[row]]} in C, {ACTIONS[wanted]} in Python, in {state}")
        compared += 1
    return compared


def match(
    config: Config, names: tuple[str, str], deals: int, seed: int, threads: int = 1
) -> NDArray[np.float64]:
    """[3] shares that the first player won, drew and lost: each deal twice, seats exchanged."""
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
                    at = seat_at(world, seat, rows)
                    actions[rows, seat] = players[seat ^ swapped].act(at, RngKey(seed, rng.BOT, step)).action
            view = world.step({ROLE: actions}, threads)
            ended = running & (view.ended != 0)
            won = view.outcome[ended, swapped]
            total += [(won == 1).sum(), (won == 0.5).sum(), (won == 0).sum()]
            running &= ~ended
            step += 1
    return total / (2 * deals)
