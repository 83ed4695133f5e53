"""Forced actions: episodes that follow a recorded demonstration for their first steps.

The actions are bytes pushed down once, between rollouts. Each game has a cursor into them; a game that
restarts inside a rollout takes its next cursor. So nothing asks the host while games are stepped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Ints, Tree, stored_array
from rematch.core.component import PlayState
from rematch.core.world import RUNNING
from rematch.rollout.rollout_buffer import FORCED

PLACES = ("cursor", "until", "index", "helped")  # arrays [N] that playing changes
NEXT = ("next_from", "next_until", "next_index")  # arrays [N] that playing reads
OFF = -1  # no index on the demonstration: the episode has left it, or never was on it


class ForcedActions:
    """Which games of a batch follow which bytes, and the columns that say so: [T, N] each."""

    def __init__(self, games: int, steps: int) -> None:
        self.actions: Bytes = np.zeros(0, np.uint8)
        self.demonstration = b""  # the newest bytes that were pushed
        self.bounds = (np.zeros(games, np.int64), np.zeros(games, np.int64))  # pushed with them
        self.next_from, self.next_until = np.zeros(games, np.int64), np.zeros(games, np.int64)
        self.next_index = np.full(games, OFF, np.int64)  # where on the demonstration the next episodes start
        self.cursor, self.until = np.zeros(games, np.int64), np.zeros(games, np.int64)
        self.index = np.full(games, OFF, np.int64)  # where on the demonstration the running episodes are
        self.helped = np.zeros(games, bool)  # whether a running episode was forced at all
        self.forced: Bytes = np.zeros((steps, games), np.uint8)  # POLICY, HELPED or FORCED
        self.demo_index = np.full((steps, games), OFF, np.int64)

    def push(self, actions: bytes, bounds: tuple[NDArray[np.int64], NDArray[np.int64]],
             index: NDArray[np.int64]) -> None:
        """New bytes for the episodes that start from now on; running ones keep theirs.

        bounds: (from, until) [N] into `actions`, equal where an episode is not forced; index [N] or OFF.
        """
        running = [self.actions[a:b] for a, b in zip(self.cursor, self.until)]
        remaining = np.concatenate([np.zeros(0, np.uint8), *running])
        ends = np.cumsum([len(part) for part in running])
        self.cursor, self.until = ends - [len(part) for part in running], ends
        self.actions = np.concatenate([remaining, np.frombuffer(actions, np.uint8)])
        self.next_from, self.next_until = bounds[0] + len(remaining), bounds[1] + len(remaining)
        self.next_index = index.copy()
        self.demonstration, self.bounds = actions, (bounds[0].copy(), bounds[1].copy())

    def apply(self, games: Ints, started: NDArray[np.bool_], t: int, action: NDArray[np.int32]) -> None:
        """Replace the actions [n] of these games in step t of a rollout; started [n]: an episode's first."""
        if t:  # an episode that ended with a rollout was restarted by `end_rollout`
            self._restart(games[started])
        forced = self.cursor[games] < self.until[games]
        self.forced[t, games] = np.where(forced, FORCED, self.helped[games])
        index = self.index[games]
        self.demo_index[t, games] = index
        self.index[games] = np.where(forced & (index != OFF), index + 1, OFF)
        rows = games[forced]
        action[forced] = self.actions[self.cursor[rows]]
        self.cursor[rows] += 1

    def end_rollout(self, ended: Bytes) -> None:
        """`ended` [N] of the rollout's last step: these games restart."""
        self._restart(np.flatnonzero(ended != RUNNING))

    def _restart(self, games: NDArray[np.integer]) -> None:
        self.cursor[games], self.until[games] = self.next_from[games], self.next_until[games]
        self.helped[games] = self.until[games] > self.cursor[games]
        self.index[games] = self.next_index[games]

    def state_dict(self) -> Tree:
        running = [self.actions[a:b] for a, b in zip(self.cursor, self.until)]
        return {"actions": np.concatenate([np.zeros(0, np.uint8), *running]), "helped": self.helped,
                "index": self.index, "sizes": np.array([len(part) for part in running], np.int64)}

    def next_state(self) -> Tree:
        """What the episodes that start from now on follow: the last `push`."""
        return {"demonstration": np.frombuffer(self.demonstration, np.uint8), "index": self.next_index.copy(),
                "from": self.bounds[0], "until": self.bounds[1]}

    def load_next_state(self, tree: Tree) -> None:
        """The inverse of `next_state`, after `load_state_dict`."""
        self.push(tree["demonstration"].tobytes(), (tree["from"], tree["until"]), tree["index"])

    def load_state_dict(self, tree: Tree) -> None:
        self.actions, ends = tree["actions"].copy(), np.cumsum(tree["sizes"])
        self.cursor, self.until = ends - tree["sizes"], ends
        self.helped, self.index = tree["helped"].copy(), tree["index"].copy()


class ForcedActionsState(PlayState):
    """The demonstration and the games' places in it; `first` is the number of the first game here."""

    def __init__(self, forced: ForcedActions, first: int) -> None:
        self.forced, self.first = forced, first

    def _rows(self, games: slice) -> slice:
        return slice(games.start - self.first, games.stop - self.first)

    def shared(self) -> Tree:
        return {"actions": self.forced.actions}

    def load_shared(self, tree: Tree) -> None:
        self.forced.actions = tree["actions"]

    def inputs(self, games: slice) -> Tree:
        return {name: getattr(self.forced, name)[self._rows(games)] for name in (*NEXT, *PLACES)}

    def load_inputs(self, tree: Tree, games: slice) -> None:
        for name in tree:
            rows = getattr(self.forced, name)[self._rows(games)]
            rows[:] = stored_array(tree, name, rows)

    def results(self, games: slice) -> Tree:
        return {name: getattr(self.forced, name)[self._rows(games)] for name in PLACES}

    def load_results(self, tree: Tree, games: slice) -> None:
        self.load_inputs({name: tree[name] for name in PLACES}, games)
