"""A table of histories that grows as games are played: a step of many games is array indexing.

A history is the list of all moves since the start, chance's too. Each has a row: who is to move, what is
legal, what both seats see, what each has gained, where every move leads. OpenSpiel is asked once per row.
Rows are numbered as they are met, so no number of a row is ever saved: a state holds its history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .games import CHANCE, DECISION, TERMINAL, Game

LIMIT = 512 << 20  # bytes of a table; a full one is left to be forgotten, and an empty one begun
BESIDES = 2048  # bytes of a row that are not in its arrays: OpenSpiel's state, the history as a key

Nodes = NDArray[np.int32]  # [n] numbers of rows


class Table:
    """Rows for the histories met so far. Growing is locked; reading is not (see `follow`)."""

    def __init__(self, game: Game, age: int) -> None:
        self.game, self.age, self.lock = game, age, threading.Lock()
        self.codes: Any = np.int16 if max(len(game.moves), game.outcomes) < 1 << 15 else np.int32
        self.number: dict[bytes, int] = {}  # a history's bytes -> its row
        self.histories: list[bytes] = []
        self.states: list[Any] = []  # pyspiel.State
        moves, seen = len(game.moves), len(game.columns)
        self.kind = np.zeros(64, np.int8)  # CHANCE, DECISION or TERMINAL
        self.depth = np.zeros(64, np.int32)  # steps: decisions so far, one for both seats of a joint move
        self.joint = np.zeros(64, bool)  # both seats move at once
        self.acting = np.zeros((64, 2), np.uint8)
        self.mask = np.zeros((64, 2, moves), np.uint8)
        self.obs = np.zeros((64, 2, seen), np.float32)
        self.known = np.zeros((64, 2, 1), np.float32)  # information states by number, if they have any
        self.gain = np.zeros((64, 2), np.float64)  # utilities so far
        self.child = np.zeros((64, game.edges), np.int32)  # row after each move or chance outcome; -1 unknown
        self.event = np.zeros(64, np.int32)  # of a chance history: its row in `odds` and `outcome`
        self.events = 0
        self.odds = np.zeros((16, game.outcomes), np.float64)  # cumulative probabilities
        self.outcome = np.zeros((16, game.outcomes), np.int32)  # chance's moves
        self.add(game.spiel.new_initial_state(), b"", 0)

    # --- size ---

    @property
    def full(self) -> bool:
        return len(self.states) * (self.row_bytes + BESIDES) + self.events * 12 * self.game.outcomes > LIMIT

    @property
    def row_bytes(self) -> int:
        return sum(int(np.prod(a.shape[1:])) * a.itemsize for a in self._rows().values())

    def _rows(self) -> dict[str, NDArray[Any]]:
        names = ("kind", "depth", "joint", "acting", "mask", "obs", "known", "gain", "child", "event")
        return {name: getattr(self, name) for name in names}

    def _double(self, arrays: Iterable[str]) -> None:
        for name in arrays:
            old = getattr(self, name)
            new = np.zeros((2 * len(old), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    # --- growing: only under the lock ---

    def add(self, state: Any, history: bytes, depth: int) -> int:
        """A row for a history that has none."""
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
                self.known[row, seat] = self.game.number(state, seat)
        self.states.append(state)
        self.histories.append(history)
        self.number[history] = row
        return row

    def _add_event(self, state: Any) -> int:
        event, listed = self.events, state.chance_outcomes()
        if event == len(self.odds):
            self._double(("odds", "outcome"))
        self.odds[event] = 2.0  # beyond every number drawn: outcomes that do not exist never happen
        self.odds[event, : len(listed) - 1] = np.cumsum([chance for _, chance in listed])[:-1]
        self.outcome[event, : len(listed)] = [move for move, _ in listed]
        self.events += 1
        return event

    def _go(self, row: int, edge: int) -> int:
        """The row after one move, one chance outcome or one joint move."""
        known = int(self.child[row, edge])
        if known >= 0:
            return known
        moves = self.moves_of(row, edge)
        history = self.histories[row] + np.array(moves, self.codes).tobytes()
        found = self.number.get(history)
        if found is None:
            state = self.states[row].clone()
            self._apply(state, moves)
            found = self.add(state, history, int(self.depth[row]) + (self.kind[row] == DECISION))
        self.child[row, edge] = found  # last, so that whoever reads it finds the row complete
        return found

    def moves_of(self, row: int, edge: int) -> list[int]:
        """What an edge adds to the history: one move, or both of a joint one."""
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
        """The rows [n] after these edges. Other threads may grow the table meanwhile: a row, once named by
        `child`, never changes, and an edge that an older array does not know is looked up under the lock."""
        after: Nodes = self.child[rows, edges]
        unknown = np.flatnonzero(after < 0)
        if unknown.size:
            with self.lock:
                for i in unknown.tolist():
                    after[i] = self._go(int(rows[i]), int(edges[i]))
        return after

    def find(self, history: bytes) -> int:
        """The row of a history, or -1 where the rules do not allow it."""
        with self.lock:
            found = self.number.get(history)
            return self._replay(history) if found is None else found

    def _replay(self, history: bytes) -> int:
        state, depth = self.game.spiel.new_initial_state(), 0
        moves = np.frombuffer(history, self.codes).tolist()
        while moves:
            if state.is_terminal():
                return -1
            if state.is_chance_node():
                legal, taken = [[move for move, _ in state.chance_outcomes()]], moves[:1]
            elif state.is_simultaneous_node():
                # A seat that cannot move in a joint move is written down as 0.
                legal, taken = [state.legal_actions(seat) or [0] for seat in (0, 1)], moves[:2]
            else:
                legal, taken = [state.legal_actions()], moves[:1]
            if len(taken) != len(legal) or any(move not in among for move, among in zip(taken, legal)):
                return -1
            depth += not state.is_chance_node()
            self._apply(state, taken)
            moves = moves[len(taken) :]
        return self.add(state, history, depth)

    def grow_whole(self, most: int, tell: Callable[[int, Any], None]) -> bool:
        """Meet every history there is, parents before children, and `tell` each with its OpenSpiel state.

        The states are not kept. False where there are more than `most`, or more than fit into LIMIT.
        """
        waiting, kept = [0], 0  # bytes of histories, each of which is a key and in a list
        with self.lock:
            while waiting:
                row = waiting.pop()
                waiting += [self._go(row, edge) for edge in self.edges_of(row)]
                kept += 2 * len(self.histories[row])
                if len(self.states) > most or len(self.states) * self.row_bytes + kept > LIMIT:
                    return False
                tell(row, self.states[row])
                self.states[row] = None
        return True

    def edges_of(self, row: int) -> list[int]:
        """All edges of a row."""
        if self.kind[row] == TERMINAL:
            return []
        if self.kind[row] == CHANCE:
            return list(range(int((self.odds[self.event[row]] < 2.0).sum()) + 1))
        ways = [np.flatnonzero(mask).tolist() or [0] for mask in self.mask[row]]
        if self.joint[row]:
            return [one * len(self.game.moves) + other for one in ways[0] for other in ways[1]]
        return ways[int(self.acting[row, 1])]

    def chances_of(self, row: int) -> NDArray[np.float64]:
        """Probabilities of a chance history's outcomes."""
        cumulative = self.odds[self.event[row]]
        return np.diff(np.append(cumulative[cumulative < 2.0], 1.0), prepend=0.0)


MOST_TABLES = 8  # games whose tables are kept at the same time
_tables: dict[Game, Table] = {}
_lock = threading.Lock()


def current(game: Game) -> Table:
    """The table that all worlds of a game share.

    A full one is replaced; who still holds it may go on with it, and finds the rows of its games anew, by
    their histories, in the next.
    """
    with _lock:
        table = _tables.get(game)
        if table is None or table.full:
            table = _tables[game] = Table(game, table.age + 1 if table else 1)
            while len(_tables) > MOST_TABLES:
                del _tables[next(iter(_tables))]
        return table
