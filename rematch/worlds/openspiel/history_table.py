"""A table of histories that grows as games are played: a step of many games is array indexing.

A history is the list of all moves since the start, with those of chance. Each history has a row: the seats to
move, legal moves, observations and utilities of both seats, and the row after each move. OpenSpiel computes
each row once. Rows are numbered in the order of their first visit, so row numbers are never saved: a saved
state holds its history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .games import CHANCE, DECISION, TERMINAL, Game

LIMIT = 512 << 20  # bytes of a table; a full table is replaced by an empty one
ROW_OVERHEAD = 2048  # bytes of a row outside its arrays: OpenSpiel's state, the history as a key

Nodes = NDArray[np.int32]  # [n] numbers of rows


class Table:
    """Rows of the histories visited so far. Growing takes the lock; reading does not (see `follow`)."""

    def __init__(self, game: Game, age: int) -> None:
        self.game, self.age = game, age
        self.lock = threading.Lock()
        self.codes: Any = np.int16 if max(len(game.moves), game.outcomes) < 1 << 15 else np.int32
        self.number: dict[bytes, int] = {}  # a history's bytes -> its row
        self.histories: list[bytes] = []
        self.states: list[Any] = []  # pyspiel.State
        moves, columns = len(game.moves), len(game.columns)
        self.kind = np.zeros(64, np.int8)  # CHANCE, DECISION or TERMINAL
        self.depth = np.zeros(64, np.int32)  # steps: decisions so far, one for both seats of a joint move
        self.joint = np.zeros(64, bool)  # both seats move simultaneously
        self.acting = np.zeros((64, 2), np.uint8)
        self.mask = np.zeros((64, 2, moves), np.uint8)
        self.obs = np.zeros((64, 2, columns), np.float32)
        self.state_number = np.zeros((64, 2, 1), np.float32)  # of the information states; 0 without numbers
        self.gain = np.zeros((64, 2), np.float64)  # utilities so far
        self.child = np.zeros((64, game.edges), np.int32)  # row after each edge; -1: not computed
        self.event = np.zeros(64, np.int32)  # row of a chance history in `odds` and `outcome`
        self.events = 0
        self.odds = np.zeros((16, game.outcomes), np.float64)  # cumulative probabilities
        self.outcome = np.zeros((16, game.outcomes), np.int32)  # moves of chance
        self.add(game.spiel.new_initial_state(), b"", 0)

    # --- size ---

    @property
    def full(self) -> bool:
        row_bytes = len(self.states) * (self.row_bytes + ROW_OVERHEAD)
        return row_bytes + self.events * 12 * self.game.outcomes > LIMIT

    @property
    def row_bytes(self) -> int:
        return sum(int(np.prod(a.shape[1:])) * a.itemsize for a in self._rows().values())

    def _rows(self) -> dict[str, NDArray[Any]]:
        names = ("kind", "depth", "joint", "acting", "mask", "obs", "state_number", "gain", "child", "event")
        return {name: getattr(self, name) for name in names}

    def _double(self, arrays: Iterable[str]) -> None:
        for name in arrays:
            old = getattr(self, name)
            new = np.zeros((2 * len(old), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    # --- growing: only under the lock ---

    def add(self, state: Any, history: bytes, depth: int) -> int:
        """Add a row for a new history; returns its number."""
        row = len(self.states)
        if row == len(self.kind):
            self._double(self._rows())
        self.child[row], self.depth[row], self.gain[row] = -1, depth, state.returns()
        if state.is_terminal():
            self.kind[row] = TERMINAL
        elif state.is_chance_node():
            self.kind[row], self.event[row] = CHANCE, self._add_event(state)
        else:
            self.kind[row] = DECISION
            self.joint[row] = state.is_simultaneous_node()
            for seat in (0, 1):
                legal = state.legal_actions(seat) if self.joint[row] or state.current_player() == seat else []
                self.acting[row, seat] = len(legal) > 0
                self.mask[row, seat, legal] = 1
                self.obs[row, seat] = self.game.observe(state, seat)
                self.state_number[row, seat] = self.game.number(state, seat)
        self.states.append(state)
        self.histories.append(history)
        self.number[history] = row
        return row

    def _add_event(self, state: Any) -> int:
        event, outcomes = self.events, state.chance_outcomes()
        if event == len(self.odds):
            self._double(("odds", "outcome"))
        self.odds[event] = 2.0  # above every uniform number: missing outcomes are never drawn
        self.odds[event, : len(outcomes) - 1] = np.cumsum([probability for _, probability in outcomes])[:-1]
        self.outcome[event, : len(outcomes)] = [move for move, _ in outcomes]
        self.events += 1
        return event

    def _successor(self, row: int, edge: int) -> int:
        """The row after one move, one chance outcome or one joint move."""
        child = int(self.child[row, edge])
        if child >= 0:
            return child
        moves = self.moves_of(row, edge)
        history = self.histories[row] + np.array(moves, self.codes).tobytes()
        new_row = self.number.get(history)
        if new_row is None:
            state = self.states[row].clone()
            self._apply(state, moves)
            new_row = self.add(state, history, int(self.depth[row]) + (self.kind[row] == DECISION))
        self.child[row, edge] = new_row  # last: readers without the lock see complete rows only
        return new_row

    def moves_of(self, row: int, edge: int) -> list[int]:
        """The moves that an edge adds to the history: one, or both of a joint move."""
        if self.kind[row] == CHANCE:
            return [int(self.outcome[self.event[row], edge])]
        return list(divmod(edge, len(self.game.moves))) if self.joint[row] else [edge]

    @staticmethod
    def _apply(state: Any, moves: Sequence[int]) -> None:
        if len(moves) == 2:
            state.apply_actions(moves)
        else:
            state.apply_action(moves[0])

    # --- walking ---

    def follow(self, rows: Nodes, edges: NDArray[Any]) -> Nodes:
        """The rows [n] after these edges.

        Other threads may grow the table meanwhile. A row that `child` refers to never changes; an edge that
        is missing in an older array is looked up under the lock.
        """
        after: Nodes = self.child[rows, edges]
        missing = np.flatnonzero(after < 0)
        if missing.size:
            with self.lock:
                for i in missing.tolist():
                    after[i] = self._successor(int(rows[i]), int(edges[i]))
        return after

    def find(self, history: bytes) -> int:
        """The row of a history, or -1 where the rules do not allow it."""
        with self.lock:
            row = self.number.get(history)
            return self._replay(history) if row is None else row

    def _replay(self, history: bytes) -> int:
        state, depth = self.game.spiel.new_initial_state(), 0
        moves = np.frombuffer(history, self.codes).tolist()
        while moves:
            if state.is_terminal():
                return -1
            if state.is_chance_node():
                legal, taken = [[move for move, _ in state.chance_outcomes()]], moves[:1]
            elif state.is_simultaneous_node():
                # In a joint move, a seat without legal moves is recorded as 0.
                legal, taken = [state.legal_actions(seat) or [0] for seat in (0, 1)], moves[:2]
            else:
                legal, taken = [state.legal_actions()], moves[:1]
            if len(taken) != len(legal) or any(move not in allowed for move, allowed in zip(taken, legal)):
                return -1
            depth += not state.is_chance_node()
            self._apply(state, taken)
            moves = moves[len(taken) :]
        return self.add(state, history, depth)

    def enumerate_all(self, max_rows: int, visit: Callable[[int, Any], None]) -> bool:
        """Add every history, parents before children, and call `visit(row, OpenSpiel state)` for each.

        The OpenSpiel states are dropped. False where there are more than `max_rows` rows, or more than LIMIT
        bytes.
        """
        open_rows = [0]
        history_bytes = 0  # each history is stored as a key and in a list
        with self.lock:
            while open_rows:
                row = open_rows.pop()
                open_rows += [self._successor(row, edge) for edge in self.edges_of(row)]
                history_bytes += 2 * len(self.histories[row])
                array_bytes = len(self.states) * self.row_bytes
                if len(self.states) > max_rows or array_bytes + history_bytes > LIMIT:
                    return False
                visit(row, self.states[row])
                self.states[row] = None
        return True

    def edges_of(self, row: int) -> list[int]:
        """All edges of a row."""
        if self.kind[row] == TERMINAL:
            return []
        if self.kind[row] == CHANCE:
            return list(range(int((self.odds[self.event[row]] < 2.0).sum()) + 1))
        legal = [np.flatnonzero(mask).tolist() or [0] for mask in self.mask[row]]
        if self.joint[row]:
            return [one * len(self.game.moves) + other for one in legal[0] for other in legal[1]]
        return legal[int(self.acting[row, 1])]

    def chance_probabilities(self, row: int) -> NDArray[np.float64]:
        """Probabilities of the outcomes of a chance history."""
        cumulative = self.odds[self.event[row]]
        return np.diff(np.append(cumulative[cumulative < 2.0], 1.0), prepend=0.0)


MAX_TABLES = 8  # tables that are cached at the same time
_tables: dict[Game, Table] = {}
_lock = threading.Lock()


def current(game: Game) -> Table:
    """The table that all worlds of a game share.

    A full table is replaced. A world that still refers to the old one may continue with it; in the new one it
    looks up the rows of its games by their histories.
    """
    with _lock:
        table = _tables.get(game)
        if table is None or table.full:
            table = _tables[game] = Table(game, table.age + 1 if table else 1)
            while len(_tables) > MAX_TABLES:
                del _tables[next(iter(_tables))]
        return table
