"""Hidden information: resamples a history from the information set of a seat.

In small games every history is enumerated. An information set of a seat holds the histories in which the seat
has the same observation; one is drawn by its probability when the other seat plays uniformly. Larger games
use OpenSpiel's `resample_from_infostate`; where a game has none, resampling is refused: returning the true
history would show a searching player what its seat cannot know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.errors import ConfigError

from .games import CHANCE, DECISION, Game, silenced
from .history_table import Table, current

MOST_HISTORIES = 300_000  # that are enumerated
MOST_STATES = 100_000  # information states for NashConv, or for numbers (a row each of the network's tables)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """All histories of a game, parents before children, with the information states of both seats."""

    table: Table
    info_states: tuple[dict[int, str], dict[int, str]]  # seat -> row of a decision -> information state
    reach: NDArray[np.float64]  # [rows, 2] probability by chance and a uniform other seat


@lru_cache(maxsize=4)
def full_tree(game: Game) -> Tree | None:
    """The tree of all histories, or None where there are too many."""
    if estimate_leaves(game) > 100 * MOST_HISTORIES:
        return None
    table = Table(game, 0)
    has_names = game.spiel.get_type().provides_information_state_string
    info_states: tuple[dict[int, str], dict[int, str]] = ({}, {})

    def visit(row: int, state: Any) -> None:
        if table.kind[row] == DECISION:
            for seat in (0, 1):
                info_states[seat][row] = state.information_state_string(seat) if has_names else ""

    if not table.enumerate_all(MOST_HISTORIES, visit):
        return None
    reach = np.ones((len(table.histories), 2))
    for row in range(len(reach)):
        edges = table.edges_of(row)
        if table.kind[row] == CHANCE:
            share = np.repeat(table.chance_probabilities(row)[:, None], 2, 1)  # [edges, 2]
        else:
            legal = np.maximum(table.mask[row].sum(1), 1)
            uniform = np.where(table.acting[row][::-1] == 1, 1.0 / legal[::-1], 1.0)  # of the other seat
            share = np.repeat(uniform[None], len(edges), 0)
        reach[table.child[row, edges]] = reach[row] * share
    return Tree(table=table, info_states=info_states, reach=reach)


@lru_cache(maxsize=64)
def numbered(game: Game) -> Game:
    """The same game with numbered information states; ConfigError where it has too many.

    Numbers follow the order of the strings, so a number means the same on every machine.
    """
    if not game.spiel.get_type().provides_information_state_string:
        raise ConfigError(f"named = true: {game.text} does not name its information states; expected false")
    tree = full_tree(game)
    states = [] if tree is None else sorted(
        {(seat, text) for seat, by_row in enumerate(tree.info_states) for text in by_row.values()}
    )
    if not 0 < len(states) <= MOST_STATES:
        count = f"{len(states):,} information states" if states else f"more than {MOST_HISTORIES:,} histories"
        limit = f"at most {MOST_STATES:,} information states in {MOST_HISTORIES:,} histories"
        raise ConfigError(f"named = true: {game.text} has {count}; expected {limit}, or false")
    return replace(game, state_numbers={state: number for number, state in enumerate(states)})


def estimate_leaves(game: Game) -> float:
    """A low estimate of the number of terminal histories: Knuth (1975), with the median of random games.

    It saves the enumeration of games that are far too large, which would take half a minute.
    """
    generator = np.random.Generator(np.random.Philox(key=0))
    sizes = []
    for _ in range(15):
        state, size = game.spiel.new_initial_state(), 1.0
        while not state.is_terminal() and size < 1e30:
            if state.is_simultaneous_node():
                joint = [state.legal_actions(seat) or [0] for seat in (0, 1)]
                state.apply_actions([int(generator.choice(legal)) for legal in joint])
                size *= len(joint[0]) * len(joint[1])
            else:
                legal = state.legal_actions()
                state.apply_action(int(generator.choice(legal)))
                size *= len(legal)
        sizes.append(size)
    return float(np.median(sizes))


InfoSets = dict[tuple[Any, ...], tuple[NDArray[np.int64], NDArray[np.float64]]]
"""Key of an information set -> rows, cumulative probabilities."""


@lru_cache(maxsize=4)
def _info_sets(game: Game) -> InfoSets | None:
    """The information sets of both seats; None where the game has too many histories."""
    tree = full_tree(game)
    if tree is None:
        return None
    rows: dict[tuple[Any, ...], list[int]] = {}
    for seat in (0, 1):
        for row in tree.info_states[seat]:
            rows.setdefault(_key(tree, row, seat), []).append(row)
    out: InfoSets = {}
    for key, members in rows.items():
        weight = np.cumsum(tree.reach[members, key[0]])
        out[key] = (np.array(members), weight / weight[-1])
    return out


def _key(tree: Tree, row: int, seat: int) -> tuple[Any, ...]:
    t = tree.table
    visible = (t.obs[row, seat].tobytes(), t.mask[row, seat].tobytes(), int(t.acting[row, seat]))
    return (seat, tree.info_states[seat][row], *visible)


def resample(game: Game, states: Any, seat: int, uniform: NDArray[np.float64]) -> None:
    """Replace the histories of these states [n] by samples from the information sets of `seat`.

    `uniform` [n] are random numbers in [0, 1).
    """
    sets, tree = _info_sets(game), full_tree(game)
    for i, state in enumerate(states):
        history = state["history"][: state["moves"]].tobytes()
        if sets is not None and tree is not None:
            members, odds = sets[_key(tree, tree.table.number[history], seat)]
            row = int(members[min(int(np.searchsorted(odds, uniform[i], side="right")), len(members) - 1)])
            sample, depth = tree.table.histories[row], int(tree.table.depth[row])
        else:
            sample, depth = _resample_by_openspiel(game, history, seat, float(uniform[i]))
        moves = np.frombuffer(sample, state["history"].dtype)
        states["history"][i] = 0
        states["history"][i, : len(moves)] = moves
        states["moves"][i], states["time"][i] = len(moves), depth


def _resample_by_openspiel(game: Game, history: bytes, seat: int, uniform: float) -> tuple[bytes, int]:
    """A history and its steps, drawn by OpenSpiel: for games that are too large to enumerate."""
    table = current(game)
    row = table.find(history)
    random = np.random.Generator(np.random.Philox(key=int(uniform * 2.0**53))).random
    try:
        with silenced():
            state = table.states[row].resample_from_infostate(seat, random)
        sample = np.array([move.action for move in state.full_history()], table.codes).tobytes()
    except RuntimeError:  # pyspiel.SpielError: not implemented
        raise ConfigError(
            f"{game.text}: more than {MOST_HISTORIES:,} histories, and OpenSpiel cannot resample it: "
            "its hidden information cannot be resampled"
        ) from None
    new_row = table.find(sample)
    same = new_row >= 0 and bool((table.obs[new_row, seat] == table.obs[row, seat]).all())
    if not same:
        raise ConfigError(f"{game.text}: OpenSpiel's resampled history shows seat {seat} another observation")
    return sample, int(table.depth[new_row])
