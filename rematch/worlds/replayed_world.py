"""Worlds of environment objects that cannot be copied: a state is a seed and actions, which are played again.

A subclass wraps N objects of another library. Where those are not reproducible, a resumed run starts new
episodes.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING
from rematch.worlds.numpy_world import MAGIC, NumpyWorld, Rows


class ReplayedWorld(NumpyWorld):
    """A NumpyWorld whose games live in environment objects; see gymnasium/ and pettingzoo/."""

    made = False  # whether the environments exist

    # --- what a subclass defines ---

    def make_environments(self) -> None:
        """Make the environment objects of all games."""
        raise self._missing("make_environments", "the environment objects")

    def reset_environment(self, row: int) -> None:
        """Start the episode of a game, as `state` says: its seed and its number."""
        raise self._missing("reset_environment", "the start of an episode")

    def replay(self, row: int) -> bool:
        """Play the stored actions of the running episode; False where it ends before the last of them."""
        raise self._missing("replay", "how stored actions are played again")

    # --- World ---

    def _restart(self, rows: Rows) -> None:
        """Start new episodes. Unlike in NumpyWorld, each environment has its own generator."""
        if not rows.size:
            return
        if not self.made:
            self.make_environments()
            self.made = True
        old, state = self.state[rows], self.state
        state[rows] = np.zeros(1, state.dtype)[0]
        state["magic"][rows], state["episode"][rows] = MAGIC, old["episode"] + (old["magic"] == MAGIC)
        state["seed"][rows], state["slot"][rows] = self.next.seed[rows], self.next.slot[rows]
        for row in rows.tolist():
            self.reset_environment(row)

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.made = self.made
        return part

    def load(self, rows: Ints, states: Bytes) -> None:
        """Restore the environments by playing their actions again; where a state is invalid, restore none."""
        games, name = np.asarray(rows, np.intp), self.spec.world
        size = self.state.dtype.itemsize
        if states.dtype != np.uint8 or states.shape != (len(games), size):
            actual = f"{states.dtype} {list(states.shape)}"
            raise ConfigError(f"{name}: expected states uint8 [{len(games)}, {size}], found {actual}")
        loaded = np.ascontiguousarray(states).view(self.state.dtype).reshape(len(games))
        valid = (loaded["magic"] == MAGIC) & (loaded["time"] >= 0) & self.valid_states(loaded)
        invalid = np.flatnonzero(~valid)
        if invalid.size:
            raise ConfigError(f"{name}: state {invalid[0]} is no state of this world")
        before = self.state[games]
        self.state[games] = loaded
        if self.spec.resume == "episode":
            self.state["time"][games] = 0
        failed = [index for index, row in enumerate(games.tolist()) if not self.replay(row)]
        if failed:
            self.state[games] = before
            for row in games.tolist():
                self.replay(row)
            raise ConfigError(
                f"{name}: state {failed[0]} is no state of this world: its episode ends before it"
            )
        self.view.reward[games], self.view.outcome[games] = 0, 0
        self.view.ended[games] = RUNNING
        self.view.length[games] = self.state["time"][games]
        self.write_observations()
