"""Pursuit on a board that is small enough to be solved exactly; N boards step together.

Seat 0 is the pursuer, seat 1 the evader; both move at once: left, straight or right. Each observes one field,
`state`, of five categories: its own state, the other's state, the relative cell with its own heading, the
same with the other's heading, and the moves left minus one. With `symmetry` both observe the game in one
canonical frame, and their actions refer to that frame: if it is a reflection (`world.mirrored`), left is
right on the board.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.config import validate
from rematch.core.errors import WorldError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import Observations, View
from rematch.worlds.native_world import NativeWorld, StateObservations, blank_view, first_next

from . import native
from .bots import ACTIONS
from .config import STAGE, Config, free_cells, roots_below, stage_of

ROLES = ("pursuer", "evader")
COLUMNS = ("own", "other", "apart_own", "apart_other", "to_go")
NAME = __name__.split(".")[-2]  # of this folder, so that a copy of the folder is a game with another name


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> LatticeWorld:
    """`games` lattices, numbered from `first`; game i has the random key of (seed, first + i)."""
    spec = make_spec(config)
    next = first_next(spec, games, first, seed, stage_of(config))
    rules = native.Core({name: getattr(config, name) for name in native.RULES})
    states = np.zeros((games, native.GAME_TYPE.itemsize), np.uint8)
    shared = _Shared(rules, spec, first, np.zeros(games, np.uint8))
    world = LatticeWorld(config, shared, (states, blank_view(spec, games, masked=False), next), first)
    world.restart()
    return world


def make_spec(config: Config) -> Spec:
    """The spec of a world with these settings."""
    validate(config)
    states, relative = 8 * config.n**2, 8 * (2 * config.n - 1) ** 2
    categories = (states, states, relative, relative, config.horizon)
    high = float(max(categories) - 1)
    field = Field(name="state", columns=COLUMNS, low=0.0, high=high, categories=categories)
    turn = Actions(kind="discrete", names=ACTIONS)
    roles = {name: Role(name=name, fields=(field,), actions=turn, seats=(seat,))
             for seat, name in enumerate(ROLES)}
    return Spec(world=NAME, roles=roles, stage=STAGE)


@dataclasses.dataclass(frozen=True)
class _Shared:
    """The data that a world shares with its parts."""

    rules: native.Core
    spec: Spec
    first: int  # number of the first game of the whole batch
    mirrored: Bytes  # [N of the whole batch] 1 where the observed frame is a reflection


class LatticeWorld(NativeWorld):
    """See rematch.core.world.World."""

    config: Config
    shared: _Shared
    game_type = native.GAME_TYPE

    def _attach(self) -> None:
        start = self.first - self.shared.first
        self._mirrored = self.shared.mirrored[start : start + self.games]
        self.mirrored = self._mirrored.view()  # [N] 1 where left and right are swapped; read-only
        self.mirrored.flags.writeable = False
        self._boards = native.Boards(self.shared.rules, self._states, self._mirrored, self.view, self.next)

    @property
    def frame_flags(self) -> Bytes:
        """[N] `mirrored`, to be written by a copy of these games that steps elsewhere."""
        return self._mirrored

    # --- steps ----------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """Step all games once: actions role -> [N, 1], 0 to 2. Threads never change the result."""
        pursuer, evader = (self._discrete_actions(actions, role) for role in ROLES)
        status, number = self._boards.step(pursuer, evader, threads)
        if status < 0:
            row, seat = divmod(number, 2)
            raise WorldError(f"game {self.first + row}: the {ROLES[seat]}'s action is not 0, 1 or 2")
        if status:
            self._refuse_stage(self._named["stage"][number])
        return self.view

    def restart(self) -> None:
        """Start every game from `next`, as its episode 0."""
        self._states[:] = 0
        status, row = self._boards.start(0)
        if status:
            self._refuse_stage(self._named["stage"][row])
        self._clear_results(slice(None))

    def set_stage(self, rows: Ints, values: Floats) -> None:
        """Start values [n, 3] (spec.stage) for the next episodes of these games; WorldError if unplayable."""
        stages = np.asarray(values, np.float32).reshape(-1, len(STAGE))
        self._check_stages(stages)
        self.next.stage[self._rows(rows)] = stages

    def _check_stages(self, stages: Floats) -> None:
        """WorldError for start values that are impossible on this board."""
        rules, nearer = self.shared.rules, self.shared.rules.table["nearer"]
        most = len(nearer) - 1
        while len(stages):  # few different rows, each checked once: faster than np.unique
            stage = stages[0]
            stages = stages[~(stages == stage).all(1)] if np.isfinite(stage).all() else stages[:0]
            anywhere, near, far = stage.tolist()
            low, high = roots_below(near, False), roots_below(far, True)
            if anywhere == 1:
                low, high = rules.reach + 1, most
            valid = np.isfinite(stage).all() and anywhere in (0, 1)
            if not valid or nearer[min(low, most)] >= nearer[min(high, most)]:
                self._refuse_stage(stage)

    def _refuse_stage(self, stage: Floats) -> None:
        config, values = self.config, ", ".join(f"{k} = {v:g}" for k, v in zip(STAGE, stage.tolist()))
        raise WorldError(
            f"stage {values}: expected anywhere = 0 or 1 and distances that two free cells of "
            f"n = {config.n}, block = {config.block} have; with anywhere = 1, cells further apart than "
            f"radius = {config.radius:g}")

    # --- observations ---------------------------------------------------------------------------------

    def observe_positions(self, pursuer: Ints, evader: Ints, moves_left: Ints) -> tuple[Observations, Bytes]:
        """The observations of positions [n]: role -> field -> [n, 1, F]; and [n] 1 for a reflected frame."""
        states = self.position(pursuer, evader, moves_left)
        self._check_states(states)
        return self._observations(states)

    def position(self, pursuer: Ints, evader: Ints, moves_left: Ints) -> Bytes:
        """[n, S] games to be loaded, from robot states and moves left [n]."""
        games = np.zeros(len(pursuer), native.GAME_TYPE)
        games["mark"], games["stage"] = native.MARK, stage_of(self.config)
        games["robot"][:, 0], games["robot"][:, 1] = pursuer, evader
        games["moves_left"], games["step"] = moves_left, self.config.horizon - np.asarray(moves_left)
        return games.view(np.uint8).reshape(len(games), -1)

    def _observations(self, states: Bytes) -> tuple[Observations, Bytes]:
        obs = [np.zeros((len(states), 1, len(COLUMNS)), np.float32) for _ in ROLES]
        mirrored = np.zeros(len(states), np.uint8)
        self.shared.rules.observe(states, obs[0], obs[1], mirrored)
        return {role: {"state": obs} for role, obs in zip(ROLES, obs)}, mirrored

    def _observe_states(self, states: Bytes) -> StateObservations:
        return StateObservations(self._observations(states)[0], np.ones((len(states), 2), np.uint8), {})

    # --- saving ---------------------------------------------------------------------------------------

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and their observations into the view."""
        super().load(rows, states)
        row_index = self._rows(rows)
        self._mirrored[row_index] = self._observations(self._states[row_index])[1]

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """The true state: both robots observe the whole game."""
        return self.save(rows)

    def _check_states(self, states: Bytes) -> None:
        """WorldError if these bytes are not valid games. They may come from any file."""
        config, games = self.config, states.view(native.GAME_TYPE)[:, 0]
        bounds = {
            "robot": (0, 8 * config.n**2 - 1), "moves_left": (1, config.horizon),
            "step": (0, config.horizon - 1), "slot": (0, 2**31), "mark": (native.MARK, native.MARK),
        }
        for name, (low, high) in bounds.items():
            if not ((games[name] >= low) & (games[name] <= high)).all():
                raise WorldError(f"saved games: {name} is not from {low} to {high} in all of them")
        if not free_cells(config)[games["robot"] // 8].all():
            raise WorldError("saved games: a robot stands in a blocked cell")
        if (games["moves_left"] + games["step"] > config.horizon).any():
            raise WorldError(f"saved games: moves_left and step add to more than {config.horizon}")
        self._check_stages(games["stage"])
