"""Pursuit on a board so small that its exact solution is known; N boards step together.

Seat 0 is the pursuer, seat 1 the evader; both move at once: left, straight or right. Each sees one field,
`state`, of five whole numbers that name things: its own state, the other's, the relative cell with its own
heading, the same with the other's, and the moves left less one. With `symmetry` both see the game in one
canonical frame, and their actions are meant in that frame: where it is a reflection (`world.mirrored`), left
is right on the board.
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
from rematch.worlds.native_world import NativeWorld, Shown, blank_view, first_next

from . import native
from .bots import ACTIONS
from .config import STAGE, Config, free_cells, roots_below, stage_of

ROLES = ("pursuer", "evader")
COLUMNS = ("own", "other", "apart_own", "apart_other", "to_go")
NAME = __name__.split(".")[-2]  # of this folder: a copied folder is a game with a name of its own


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> LatticeWorld:
    """`games` lattices, numbered from `first`; game i draws from a key of (seed, first + i)."""
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
    states, apart = 8 * config.n**2, 8 * (2 * config.n - 1) ** 2
    categories = (states, states, apart, apart, config.horizon)
    high = float(max(categories) - 1)
    field = Field(name="state", columns=COLUMNS, low=0.0, high=high, categories=categories)
    turn = Actions(kind="discrete", names=ACTIONS)
    roles = {name: Role(name=name, fields=(field,), actions=turn, seats=(seat,))
             for seat, name in enumerate(ROLES)}
    return Spec(world=NAME, roles=roles, stage=STAGE)


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What a world and its parts have in common."""

    rules: native.Core
    spec: Spec
    first: int  # number of the whole batch's first game
    mirrored: Bytes  # [N of the whole batch] in which games the players see a mirrored board


class LatticeWorld(NativeWorld):
    """See rematch.core.world.World."""

    config: Config
    shared: _Shared
    kind = native.GAME_TYPE

    def _attach(self) -> None:
        at = self.first - self.shared.first
        self._mirrored = self.shared.mirrored[at : at + self.games]
        self.mirrored = self._mirrored.view()  # [N] 1 where left and right are swapped, to be read only
        self.mirrored.flags.writeable = False
        self._boards = native.Boards(self.shared.rules, self._states, self._mirrored, self.view, self.next)

    # --- moving ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """Move all games once: actions role -> [N, 1], 0 to 2. Threads never change the result."""
        pursuer, evader = (self._discrete_actions(actions, role) for role in ROLES)
        verdict, number = self._boards.step(pursuer, evader, threads)
        if verdict < 0:
            row, seat = divmod(number, 2)
            raise WorldError(f"game {self.first + row}: the {ROLES[seat]}'s action is not 0, 1 or 2")
        if verdict:
            self._refuse_stage(self._named["stage"][number])
        return self.view

    def restart(self) -> None:
        """Begin every game anew from `next`, as its episode 0."""
        self._states[:] = 0
        verdict, row = self._boards.start(0)
        if verdict:
            self._refuse_stage(self._named["stage"][row])
        self._quiet(slice(None))

    def set_stage(self, rows: Ints, values: Floats) -> None:
        """Start values [n, 3] (spec.stage) for the next episodes of these games; refused if unplayable."""
        chosen = np.asarray(values, np.float32).reshape(-1, len(STAGE))
        self._check_stages(chosen)
        self.next.stage[self._rows(rows)] = chosen

    def _check_stages(self, stages: Floats) -> None:
        """Refuse starts that this board does not have."""
        rules, nearer = self.shared.rules, self.shared.rules.table["nearer"]
        most = len(nearer) - 1
        while len(stages):  # a few kinds, each looked at once: sorting would cost more than all the rest
            stage = stages[0]
            stages = stages[~(stages == stage).all(1)] if np.isfinite(stage).all() else stages[:0]
            anywhere, near, far = stage.tolist()
            low, high = roots_below(near, False), roots_below(far, True)
            if anywhere == 1:
                low, high = rules.reach + 1, most
            fine = np.isfinite(stage).all() and anywhere in (0, 1)
            if not fine or nearer[min(low, most)] >= nearer[min(high, most)]:
                self._refuse_stage(stage)

    def _refuse_stage(self, stage: Floats) -> None:
        config, told = self.config, ", ".join(f"{k} = {v:g}" for k, v in zip(STAGE, stage.tolist()))
        raise WorldError(
            f"stage {told}: expected anywhere = 0 or 1 and distances that two free cells of "
            f"n = {config.n}, block = {config.block} have; with anywhere = 1, cells further apart than "
            f"radius = {config.radius:g}")

    # --- looking --------------------------------------------------------------------------------------

    def look(self, pursuer: Ints, evader: Ints, moves_left: Ints) -> tuple[Observations, Bytes]:
        """What any positions [n] would show: role -> field -> [n, 1, F], and where it is mirrored [n]."""
        states = self.position(pursuer, evader, moves_left)
        self._refuse(states)
        return self._seen(states)

    def position(self, pursuer: Ints, evader: Ints, moves_left: Ints) -> Bytes:
        """[n, S] games that stand so, to be loaded: robots' states and moves left [n]."""
        games = np.zeros(len(pursuer), native.GAME_TYPE)
        games["mark"], games["stage"] = native.MARK, stage_of(self.config)
        games["robot"][:, 0], games["robot"][:, 1] = pursuer, evader
        games["moves_left"], games["step"] = moves_left, self.config.horizon - np.asarray(moves_left)
        return games.view(np.uint8).reshape(len(games), -1)

    def _seen(self, states: Bytes) -> tuple[Observations, Bytes]:
        seen = [np.zeros((len(states), 1, len(COLUMNS)), np.float32) for _ in ROLES]
        mirrored = np.zeros(len(states), np.uint8)
        self.shared.rules.observe(states, seen[0], seen[1], mirrored)
        return {role: {"state": obs} for role, obs in zip(ROLES, seen)}, mirrored

    def _look(self, states: Bytes) -> Shown:
        return Shown(self._seen(states)[0], np.ones((len(states), 2), np.uint8), {})

    # --- saving ---------------------------------------------------------------------------------------

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and what their robots see into the view."""
        super().load(rows, states)
        where = self._rows(rows)
        self._mirrored[where] = self._seen(self._states[where])[1]

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """Both robots see the whole game, so this is the true state."""
        return self.save(rows)

    def _refuse(self, states: Bytes) -> None:
        """Saved bytes may come from anywhere: what the rules rely on must hold."""
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
