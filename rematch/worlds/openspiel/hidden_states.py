"""What a seat cannot know: histories that look the same to it, and how one of them is drawn.

In games small enough every history is listed once. A seat's information set holds those in which it is shown
the same; one is drawn by how likely chance makes it, as if the other seat chose among its moves alike. In
larger games OpenSpiel's own `resample_from_infostate` is asked; where a game has none, the redraw is refused:
handing back the truth would tell a searching player what its seat cannot know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.errors import ConfigError

from .games import CHANCE, DECISION, Game, hushed
from .history_table import Table, current

MOST_HISTORIES = 300_000  # that are listed
MOST_STATES = 100_000  # information states that are judged or numbered, a row each of the network's tables


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """All histories of a game, parents before children, and what each seat knows in them."""

    table: Table
    known: tuple[dict[int, str], dict[int, str]]  # seat -> row of a decision -> its information state
    reach: NDArray[np.float64]  # [rows, 2] by chance and the other seat's moves, those being all alike


@lru_cache(maxsize=4)
def whole(game: Game) -> Tree | None:
    """Every history there is, or None where there are too many."""
    if guessed_leaves(game) > 100 * MOST_HISTORIES:
        return None
    table, text = Table(game, 0), game.spiel.get_type().provides_information_state_string
    known: tuple[dict[int, str], dict[int, str]] = ({}, {})

    def tell(row: int, state: Any) -> None:
        if table.kind[row] == DECISION:
            for seat in (0, 1):
                known[seat][row] = state.information_state_string(seat) if text else ""

    if not table.grow_whole(MOST_HISTORIES, tell):
        return None
    reach = np.ones((len(table.histories), 2))
    for row in range(len(reach)):
        edges = table.edges_of(row)
        if table.kind[row] == CHANCE:
            share = np.repeat(table.chances_of(row)[:, None], 2, 1)  # [edges, 2]
        else:
            legal = np.maximum(table.mask[row].sum(1), 1)
            alike = np.where(table.acting[row][::-1] == 1, 1.0 / legal[::-1], 1.0)  # the other seat's choice
            share = np.repeat(alike[None], len(edges), 0)
        reach[table.child[row, edges]] = reach[row] * share
    return Tree(table=table, known=known, reach=reach)


@lru_cache(maxsize=64)
def numbered(game: Game) -> Game:
    """The same game, whose seats are also told their information state's number; ConfigError where it has too
    many. In the order of their texts, so that a number means the same wherever the game is played."""
    if not game.spiel.get_type().provides_information_state_string:
        raise ConfigError(f"named = true: {game.text} does not name its information states; expected false")
    tree = whole(game)
    states = [] if tree is None else sorted(
        {(seat, text) for seat, known in enumerate(tree.known) for text in known.values()}
    )
    if not 0 < len(states) <= MOST_STATES:
        many = f"{len(states):,} information states" if states else f"more than {MOST_HISTORIES:,} histories"
        most = f"at most {MOST_STATES:,} information states in {MOST_HISTORIES:,} histories"
        raise ConfigError(f"named = true: {game.text} has {many}; expected {most}, or false")
    return replace(game, known={state: number for number, state in enumerate(states)})


def guessed_leaves(game: Game) -> float:
    """How many ends a game has, guessed low: Knuth's estimate (1975) from random games, but their median.

    It spares the listing of games that are far too large, which would take half a minute to find out.
    """
    dice, sizes = np.random.Generator(np.random.Philox(key=0)), []
    for _ in range(15):
        state, size = game.spiel.new_initial_state(), 1.0
        while not state.is_terminal() and size < 1e30:
            if state.is_simultaneous_node():
                ways = [state.legal_actions(seat) or [0] for seat in (0, 1)]
                state.apply_actions([int(dice.choice(legal)) for legal in ways])
                size *= len(ways[0]) * len(ways[1])
            else:
                legal = state.legal_actions()
                state.apply_action(int(dice.choice(legal)))
                size *= len(legal)
        sizes.append(size)
    return float(np.median(sizes))


Sets = dict[tuple[Any, ...], tuple[NDArray[np.int64], NDArray[np.float64]]]  # key -> rows, cumulative odds


@lru_cache(maxsize=4)
def _sets(game: Game) -> Sets | None:
    """Each seat's information sets."""
    tree = whole(game)
    if tree is None:
        return None
    rows: dict[tuple[Any, ...], list[int]] = {}
    for seat in (0, 1):
        for row in tree.known[seat]:
            rows.setdefault(_key(tree, row, seat), []).append(row)
    out: Sets = {}
    for key, members in rows.items():
        weight = np.cumsum(tree.reach[members, key[0]])
        out[key] = (np.array(members), weight / weight[-1])
    return out


def _key(tree: Tree, row: int, seat: int) -> tuple[Any, ...]:
    t = tree.table
    shown = (t.obs[row, seat].tobytes(), t.mask[row, seat].tobytes(), int(t.acting[row, seat]))
    return (seat, tree.known[seat][row], *shown)


def redraw(game: Game, states: Any, seat: int, luck: NDArray[np.float64]) -> None:
    """Put into these states [n] histories that `seat` cannot tell from those that are there."""
    sets, tree = _sets(game), whole(game)
    for i, state in enumerate(states):
        history = state["history"][: state["moves"]].tobytes()
        if sets is not None and tree is not None:
            members, odds = sets[_key(tree, tree.table.number[history], seat)]
            row = int(members[min(int(np.searchsorted(odds, luck[i], side="right")), len(members) - 1)])
            other, depth = tree.table.histories[row], int(tree.table.depth[row])
        else:
            other, depth = _resampled(game, history, seat, float(luck[i]))
        moves = np.frombuffer(other, state["history"].dtype)
        states["history"][i] = 0
        states["history"][i, : len(moves)] = moves
        states["moves"][i], states["time"][i] = len(moves), depth


def _resampled(game: Game, history: bytes, seat: int, luck: float) -> tuple[bytes, int]:
    """By OpenSpiel, for games that are too large to list: a history and its steps."""
    table = current(game)
    row = table.find(history)
    dice = np.random.Generator(np.random.Philox(key=int(luck * 2.0**53))).random
    try:
        with hushed():
            drawn = table.states[row].resample_from_infostate(seat, dice)
        other = np.array([move.action for move in drawn.full_history()], table.codes).tobytes()
    except RuntimeError:  # pyspiel.SpielError: not implemented
        raise ConfigError(
            f"{game.text}: more than {MOST_HISTORIES:,} histories, and OpenSpiel cannot resample it: "
            "what is hidden in it cannot be redrawn"
        ) from None
    found = table.find(other)
    alike = found >= 0 and bool((table.obs[found, seat] == table.obs[row, seat]).all())
    if not alike:
        raise ConfigError(f"{game.text}: OpenSpiel's resampled history shows seat {seat} something else")
    return other, int(table.depth[found])
