"""Two robots in a walled arena: one hunts, one hides; N arenas step together.

Seat 0 is the pursuer, seat 1 the evader; both move at once. Each sees one field, `state`, of 14 + 2 K + 1
numbers in [-1, 1] (K obstacles), or with `full_obs` off what its sensors show (observations.py), and chooses
(speed, turn), or (turn) with `fixed_speed`, in [-1, 1]. An action that is not finite is refused before
anything moves; others are clipped. With `safety_filter` the pursuer drives what that makes of it
(safety_filter.h).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.config import validate
from rematch.core.errors import WorldError
from rematch.core.spec import Actions, Role, Spec
from rematch.core.world import Observations, View
from rematch.worlds.native_world import NativeWorld, blank_view, first_next

from . import native
from .config import STAGE, Config, check_stage, numbers_of, stage_of
from .observations import ROLES, Redraw, blank, fields_of, hidden_of, privileged_of, write_privileged

NAME = __name__.split(".")[-2]  # of this folder: a copied folder is a game with a name of its own


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> PursuitWorld:
    """`games` arenas, numbered from `first`; game i draws from a key of (seed, first + i)."""
    spec = make_spec(config)
    rules = native.Core(numbers_of(config))
    next = first_next(spec, games, first, seed, stage_of(config))
    states = np.zeros((games, native.GAME_TYPE.itemsize), np.uint8)
    shared = _Shared(rules, spec, first, np.zeros((games, rules.annex_type.itemsize), np.uint8))
    world = PursuitWorld(config, shared, (states, blank_view(spec, games, masked=False), next), first)
    world.restart()
    return world


def make_spec(config: Config) -> Spec:
    """The spec of a world with these settings."""
    validate(config)
    rules = native.Core(numbers_of(config))
    names = ("turn",) if config.fixed_speed else ("speed", "turn")
    roles = {
        name: Role(
            name=name, fields=fields_of(config, rules), privileged=privileged_of(config),
            actions=Actions(kind="continuous", names=names), seats=(seat,), hidden=hidden_of(config),
        )
        for seat, name in enumerate(ROLES)
    }
    return Spec(world=NAME, roles=roles, stage=STAGE, zero_sum=config.zero_sum)


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What a world and its parts have in common."""

    rules: native.Core
    spec: Spec
    first: int  # number of the whole batch's first game
    annex: Bytes  # [N of the whole batch, ...] what sensors have shown, and what the safety filter counts


class PursuitWorld(NativeWorld):
    """See rematch.core.world.World. A game is a row of `Game` in state.h, then one of its `Annex` where the
    rules need one."""

    config: Config
    shared: _Shared
    kind = native.GAME_TYPE

    def _attach(self) -> None:
        at = self.first - self.shared.first
        self._annex = self.shared.annex[at : at + self.games]
        self._arena = native.Arena(self.shared.rules, self._states, self._annex, self.view, self.next)

    # --- moving ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """Move all games once: actions role -> [N, 1, A] in [-1, 1]. Threads never change the result."""
        pursuer, evader = (self._action(actions, role) for role in ROLES)
        verdict, number = self._arena.step(pursuer, evader, threads)
        if verdict:
            self._complain(verdict, number)
        write_privileged(self.config, self._named, self.view.fields, slice(None))
        return self.view

    def restart(self) -> None:
        """Begin every game anew from `next`, as its episode 0."""
        self._states[:] = 0
        self._annex[:] = 0
        verdict, row = self._arena.start(0)
        if verdict:
            self._complain(verdict, row)
        self._quiet(slice(None))

    def set_stage(self, rows: Ints, values: Floats) -> None:
        """Start values [n, 4] (spec.stage) for the next episodes of these games; refused if unplayable."""
        chosen = np.asarray(values, np.float32).reshape(-1, len(STAGE))
        for row in np.unique(chosen, axis=0):
            check_stage(self.config, dict(zip(STAGE, row.tolist())))
        self.next.stage[self._rows(rows)] = chosen

    def _action(self, actions: Mapping[str, NDArray[Any]], role: str) -> Floats:
        shape = (self.games, 1, self.shared.rules.controls)
        given = np.ascontiguousarray(actions[role], np.float32) if role in actions else None
        if given is None or given.shape != shape:
            found = "none" if given is None else f"{list(given.shape)}"
            raise WorldError(f"actions of {role}: expected an array {list(shape)}, found {found}")
        return given

    def _complain(self, verdict: int, number: int) -> None:
        if verdict < 0:
            row, seat = divmod(number, 2)
            raise WorldError(f"game {self.first + row}: the {ROLES[seat]}'s action is not a finite number")
        stage = dict(zip(STAGE, self._named["stage"][number].tolist()))
        check_stage(self.config, stage)
        raise WorldError(
            f"game {self.first + number}: no start found for {stage}; expected a wider range of "
            "distances or fewer and smaller obstacles")

    # --- looking --------------------------------------------------------------------------------------

    def observe(self, rows: Ints) -> Observations:
        """role -> field -> [n, 1, F], a copy."""
        where = self._rows(rows)
        return self._seen(self._states[where], self._annex[where])

    def _seen(self, games: Bytes, annex: Bytes) -> Observations:
        """What both robots see in these games; with sensors the newest frame in `annex` is written too."""
        obs = blank(self.spec.roles[ROLES[0]].fields, len(games))
        if len(games):
            self.shared.rules.observe(games, annex, obs)
        return obs

    @property
    def counters(self) -> Mapping[str, int]:
        """Obstacle layouts given up for want of a start, obstacles without a place; what the filter did."""
        names = ("spawn_redraws", "obstacles_missing")
        out = {name: int(self._named[name].sum(dtype=np.int64)) for name in names}
        if self.config.safety_filter:
            annex = self._annex.view(self.shared.rules.annex_type)[:, 0]
            for name in ("safety_interventions", "safety_relaxed", "safety_violations"):
                out[name] = int(annex[name].sum(dtype=np.int64))
        return out

    def scripted(self, rows: Ints, who: tuple[int, int], rng_key: Any) -> Floats:
        """[n, A] what the scripted player `who` = (seat, number) does in these games."""
        return self.shared.rules.bot(self._states, self._rows(rows), who, rng_key, self.first)

    # --- saving ---------------------------------------------------------------------------------------

    def save(self, rows: Ints) -> Bytes:
        """[n, S] the running games, `next` not included: their bytes, then those of their annex."""
        where = self._rows(rows)
        return np.concatenate([self._states[where], self._annex[where]], axis=1)

    def _apart(self, states: Bytes) -> tuple[Bytes, Bytes]:
        """Saved games as (games, annex), copies of their own."""
        size = native.GAME_TYPE.itemsize
        return states[:, :size].copy(), states[:, size:].copy()

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and what their robots see into the view."""
        where = self._rows(rows)
        shape = (len(where), native.GAME_TYPE.itemsize + self._annex.shape[1])
        if not isinstance(states, np.ndarray) or states.dtype != np.uint8 or states.shape != shape:
            raise WorldError(f"saved games: expected bytes {list(shape)}")
        games, annex = self._apart(states)
        self._check_states(games.view(native.GAME_TYPE)[:, 0], annex)
        for role, fields in self._seen(games, annex).items():
            for name, field in fields.items():
                self.view.fields[role][name][where] = field
        self._states[where], self._annex[where] = games, annex
        self._quiet(where)

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """With `full_obs` the true state but for the grid of w_search; with sensors see sensors.Redraw."""
        games, annex = self._apart(self.save(rows))
        if self.config.w_search:
            named = games.view(native.GAME_TYPE)[:, 0]
            drawn = rng.units(key, rng.RESET, named["visited"].size).reshape(named["visited"].shape)
            named["visited"] = drawn * named["step"][:, None]
        if not self.config.full_obs and len(games):
            Redraw(self.config, self.shared.rules, seat, key)(games, annex)
        return np.concatenate([games, annex], axis=1)

    def _quiet(self, where: Any) -> None:
        super()._quiet(where)
        write_privileged(self.config, self._named, self.view.fields, where)

    def _check_states(self, games: NDArray[Any], annex: Bytes) -> None:
        """Saved bytes may come from anywhere: what the rules rely on must hold."""
        config = self.config
        half_x, half_y = config.arena_width / 2, config.arena_height / 2
        radius = config.robot_radius
        slack = 1e-3  # floats against doubles
        bounds = {
            "x": (-half_x + radius, half_x - radius), "y": (-half_y + radius, half_y - radius),
            "theta": (-np.pi, np.pi), "v": (0.0, max(config.pursuer_v_max, config.evader_v_max)),
            "omega": (-config.omega_max, config.omega_max),
            "obstacle_x": (-half_x, half_x), "obstacle_y": (-half_y, half_y),
            "obstacle_radius": (0.0, config.obstacle_radius_max),
            "step": (0, config.max_steps - 1), "obstacles": (0, config.n_obstacles_max),
            "slot": (0, 2**31), "visited": (0, config.max_steps), "mark": (native.MARK, native.MARK),
        }
        for name, (low, high) in bounds.items():
            room = slack if games[name].dtype.kind == "f" else 0
            fine = (games[name] >= low - room) & (games[name] <= high + room)  # false for NaN
            if not fine.all():
                raise WorldError(f"saved games: {name} is not from {low:g} to {high:g} in all of them")
        if not config.full_obs:
            frames = annex.view(self.shared.rules.annex_type)[:, 0]["frames"]
            if not (np.abs(frames) <= 1).all():  # false for NaN
                raise WorldError("saved games: frames are not from -1 to 1 in all of them")
        for row in np.unique(games["stage"], axis=0):
            check_stage(config, dict(zip(STAGE, row.tolist())))
