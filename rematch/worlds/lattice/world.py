"""Pursuit on a board so small that its exact solution is known; N boards step together.

Seat 0 is the pursuer, seat 1 the evader; both move at once: left, straight or right. Each sees one field,
`state`, of five whole numbers that name things: its own state, the other's, the relative cell with its own
heading, the same with the other's, and the moves left less one. With `symmetry` both see the game in one
canonical frame, and their actions are meant in that frame: where it is a reflection (`world.mirrored`), left
is right on the board.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch import keys
from rematch.config import ConfigError, validate
from rematch.spec import RUNNING, Actions, Bytes, Field, Floats, Ints, Next, Role, Sight, Spec, View

from . import core
from .bots import ACTIONS, BOTS, bot
from .exact import exact, exact_picture
from .levels import levels
from .rules import STAGE, Config, free_cells, roots_below, stage_of
from .solve import solve

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["BOTS", "BUILD", "RATE_NAMES", "Config", "LatticeWorld", "WorldError",
           "bot", "draw", "exact", "exact_picture", "levels", "make", "short", "solve"]

RATE_NAMES = {"pursuer": "SR_P", "evader": "SR_E"}  # success rates, as people who grep logs know them

ROLES = ("pursuer", "evader")
COLUMNS = ("own", "other", "apart_own", "apart_other", "to_go")
BUILD = core.BUILD  # a run goes on to the same bits only under the same rules
NAME = __name__.split(".")[-2]  # of this folder: a copy of it is a world of its own


class WorldError(ConfigError):
    """A world that was handed something it cannot play: one line naming the game."""


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> LatticeWorld:
    """`games` lattices, numbered from `first`; game i draws from a key of (seed, first + i)."""
    validate(config)
    if games < 1:
        raise ConfigError(f"games = {games}: expected at least 1")
    rules = core.Core({name: getattr(config, name) for name in core.RULES})
    view = View(
        fields={role: {"state": np.zeros((games, 1, len(COLUMNS)), np.float32)} for role in ROLES},
        acting=np.ones((games, 2), np.uint8),
        reward=np.zeros((games, 2), np.float32),
        ended=np.zeros(games, np.uint8),
        outcome=np.zeros((games, 2), np.float32),
        length=np.zeros(games, np.int32),
    )
    next = Next(
        seed=keys.words(seed, keys.GAME, first + games)[first:].copy(),
        slot=np.zeros((games, 2), np.int32),
        stage=np.tile(stage_of(config), (games, 1)),
    )
    memory = _Memory(np.zeros((games, core.GAME_TYPE.itemsize), np.uint8), np.zeros(games, np.uint8))
    world = LatticeWorld(_Shared(config, rules, _spec(config)), memory, view, next, first)
    world.restart()
    return world


def short(config: Config) -> Config:
    """The same rules with games that end within a rehearsal's few steps (engine/rehearsal.py)."""
    return dataclasses.replace(config, horizon=min(config.horizon, 12))


def draw(world: LatticeWorld, row: int, trail: list[Any]) -> Image:
    """One game seen from above; see draw.py."""
    from .draw import draw as picture  # pillow only where pictures are made

    return picture(world, row, trail)


def _spec(config: Config) -> Spec:
    states, apart = 8 * config.n**2, 8 * (2 * config.n - 1) ** 2
    choices = (states, states, apart, apart, config.horizon)
    field = Field(name="state", columns=COLUMNS, low=0.0, high=float(max(choices) - 1), choices=choices)
    turn = Actions(kind="discrete", names=ACTIONS)
    roles = {name: Role(name=name, fields=(field,), actions=turn, seats=(seat,))
             for seat, name in enumerate(ROLES)}
    return Spec(world=NAME, roles=roles, stage=STAGE)


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What a world and its parts have in common."""

    config: Config
    rules: core.Core
    spec: Spec


@dataclasses.dataclass(frozen=True)
class _Memory:
    """The running games: `Game` in rules.h, and in which of them the players see a mirrored board."""

    states: Bytes  # [N, S]
    mirrored: Bytes  # [N]


class LatticeWorld:
    """See rematch.spec.World. Arrays are allocated once; parts are slices of the same memory."""

    def __init__(self, shared: _Shared, memory: _Memory, view: View, next: Next, first: int) -> None:
        self._shared, self._memory, self._states = shared, memory, memory.states
        self.config, self.spec = shared.config, shared.spec
        self.view, self.next, self.first = view, next, first
        self.games = len(memory.states)
        self._named = memory.states.view(core.GAME_TYPE)[:, 0]  # the same bytes, by name
        self.slot: Ints = self._named["slot"]
        self.mirrored = memory.mirrored.view()  # [N] 1 where left and right are swapped, to be read only
        self.mirrored.flags.writeable = False
        self.counters: Mapping[str, int] = {}
        self._boards = core.Boards(shared.rules, memory.states, memory.mirrored, view, next)

    # --- moving ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """Move all games once: actions role -> [N, 1], 0 to 2. Threads never change the result."""
        pursuer, evader = (self._action(actions, role) for role in ROLES)
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

    def _action(self, actions: Mapping[str, NDArray[Any]], role: str) -> Ints:
        given = np.asarray(actions[role]) if role in actions else np.zeros(0)
        if given.shape != (self.games, 1) or given.dtype.kind not in "iu":
            found = f"{given.dtype} {list(given.shape)}" if role in actions else "none"
            raise WorldError(f"actions of {role}: expected whole numbers [{self.games}, 1], found {found}")
        if given.dtype != np.int32:
            given = np.clip(given, -1, len(ACTIONS)).astype(np.int32)  # what is no action stays none
        return np.ascontiguousarray(given)

    def _check_stages(self, stages: Floats) -> None:
        """Refuse starts that this board does not have."""
        rules, nearer = self._shared.rules, self._shared.rules.table["nearer"]
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

    def observe(self, rows: Ints) -> Sight:
        """role -> field -> [n, 1, F], a copy."""
        return self._look(self._states[self._rows(rows)])[0]

    def look(self, pursuer: Ints, evader: Ints, moves_left: Ints) -> tuple[Sight, Bytes]:
        """What any positions [n] would show: role -> field -> [n, 1, F], and where it is mirrored [n]."""
        states = self.position(pursuer, evader, moves_left)
        self._check_states(states.view(core.GAME_TYPE)[:, 0])
        return self._look(states)

    def position(self, pursuer: Ints, evader: Ints, moves_left: Ints) -> Bytes:
        """[n, S] games that stand so, to be loaded: robots' states and moves left [n]."""
        games = np.zeros(len(pursuer), core.GAME_TYPE)
        games["mark"], games["stage"] = core.MARK, stage_of(self.config)
        games["robot"][:, 0], games["robot"][:, 1] = pursuer, evader
        games["moves_left"], games["step"] = moves_left, self.config.horizon - np.asarray(moves_left)
        return games.view(np.uint8).reshape(len(games), -1)

    def _look(self, states: Bytes) -> tuple[Sight, Bytes]:
        seen = [np.zeros((len(states), 1, len(COLUMNS)), np.float32) for _ in ROLES]
        mirrored = np.zeros(len(states), np.uint8)
        self._shared.rules.observe(states, seen[0], seen[1], mirrored)
        return {role: {"state": sight} for role, sight in zip(ROLES, seen)}, mirrored

    def state_of(self, row: int) -> dict[str, Any]:
        """One game as plain numbers and lists, by the names of `Game` in rules.h."""
        game = self._named[int(self._rows(np.array([row], np.int32))[0])]
        return {name: game[name].tolist() for name in core.GAME_TYPE.names or () if name != "mark"}

    # --- saving ---------------------------------------------------------------------------------------

    def save(self, rows: Ints) -> Bytes:
        """[n, S] the running games, `next` not included."""
        return self._states[self._rows(rows)]

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and what their robots see into the view."""
        where = self._rows(rows)
        shape = (len(where), core.GAME_TYPE.itemsize)
        if not isinstance(states, np.ndarray) or states.dtype != np.uint8 or states.shape != shape:
            raise WorldError(f"saved games: expected bytes {list(shape)}")
        states = np.ascontiguousarray(states)
        self._check_states(states.view(core.GAME_TYPE)[:, 0])
        self._states[where] = states
        sight, self._memory.mirrored[where] = self._look(states)
        for role in ROLES:
            self.view.fields[role]["state"][where] = sight[role]["state"]
        self._quiet(where)

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """Both robots see the whole game, so this is the true state."""
        return self.save(rows)

    def parts(self, count: int) -> Sequence[LatticeWorld]:
        """Neighbouring slices over the same memory, as even as can be."""
        if not 1 <= count <= self.games:
            raise ConfigError(f"parts = {count}: expected from 1 to {self.games}, the number of games")
        edges = [self.games * n // count for n in range(count + 1)]
        return [self._part(slice(a, b)) for a, b in itertools.pairwise(edges)]

    def _part(self, cut: slice) -> LatticeWorld:
        old = self.view
        view = View(
            fields={role: {"state": old.fields[role]["state"][cut]} for role in ROLES},
            acting=old.acting[cut], reward=old.reward[cut], ended=old.ended[cut],
            outcome=old.outcome[cut], length=old.length[cut],
        )
        next = Next(seed=self.next.seed[cut], slot=self.next.slot[cut], stage=self.next.stage[cut])
        memory = _Memory(self._states[cut], self._memory.mirrored[cut])
        return LatticeWorld(self._shared, memory, view, next, self.first + cut.start)

    def _rows(self, rows: Ints) -> Ints:
        where = np.ascontiguousarray(rows, np.int32).reshape(-1)
        if len(where) and not (where.min() >= 0 and where.max() < self.games):
            raise WorldError(f"rows {where.min()} to {where.max()}: expected from 0 to {self.games - 1}")
        return where

    def _quiet(self, where: Any) -> None:
        """No step has been made yet in these games."""
        self.view.reward[where] = 0
        self.view.ended[where] = RUNNING
        self.view.outcome[where] = 0
        self.view.length[where] = self._named["step"][where]

    def _check_states(self, games: NDArray[Any]) -> None:
        """Saved bytes may come from anywhere: what the rules rely on must hold."""
        config = self.config
        bounds = {
            "robot": (0, 8 * config.n**2 - 1), "moves_left": (1, config.horizon),
            "step": (0, config.horizon - 1), "slot": (0, 2**31), "mark": (core.MARK, core.MARK),
        }
        for name, (low, high) in bounds.items():
            if not ((games[name] >= low) & (games[name] <= high)).all():
                raise WorldError(f"saved games: {name} is not from {low} to {high} in all of them")
        if not free_cells(config)[games["robot"] // 8].all():
            raise WorldError("saved games: a robot stands in a blocked cell")
        if (games["moves_left"] + games["step"] > config.horizon).any():
            raise WorldError(f"saved games: moves_left and step add to more than {config.horizon}")
        self._check_stages(games["stage"])
