"""Two robots in a walled arena, a pursuer and an evader; N arenas step together.

Seat 0 is the pursuer, seat 1 the evader; both move at once. Each observes one field, `state`, of 14 + 2 K + 1
numbers in [-1, 1] (K obstacles), or with `full_obs` off its sensors (observations.py). An action is
(speed, turn), or (turn) with `fixed_speed`, in [-1, 1]. An action that is not finite is rejected before
anything moves; others are clipped. With `safety_filter` the action of the pursuer is replaced by a safe one
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
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import Observations, View
from rematch.worlds.native_world import NativeWorld, blank_view, first_next

from . import native, quantities
from .config import STAGE, Config, check_stage, stage_of, struct_values
from .observations import (
    ROLES,
    Resampler,
    blank,
    fields_of,
    hidden_of,
    privileged_of,
    resample_disturbances,
)

NAME = __name__.split(".")[-2]  # of this folder, so that a copy of the folder is a game with another name


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> PursuitWorld:
    """`games` arenas, numbered from `first`; game i has the random key of (seed, first + i)."""
    spec = make_spec(config)
    rules = native.Core(struct_values(config))
    next = first_next(spec, games, first, seed, stage_of(config))
    states = np.zeros((games, native.GAME_TYPE.itemsize), np.uint8)
    shared = _Shared(rules, spec, first, np.zeros((games, rules.optional_type.itemsize), np.uint8))
    world = PursuitWorld(config, shared, (states, blank_view(spec, games, masked=False), next), first)
    world.restart()
    return world


def make_spec(config: Config) -> Spec:
    """The spec of a world with these settings."""
    validate(config)
    rules = native.Core(struct_values(config))
    names = ("turn",) if config.fixed_speed else ("speed", "turn")
    roles = {
        name: Role(
            name=name, fields=fields_of(config, rules, seat), privileged=privileged_of(config),
            actions=Actions(kind="continuous", names=names, quantities=quantities.actions(config, seat)),
            seats=(seat,), hidden=hidden_of(config),
        )
        for seat, name in enumerate(ROLES)
    }
    return Spec(world=NAME, roles=roles, stage=STAGE, zero_sum=config.zero_sum)


@dataclasses.dataclass(frozen=True)
class _Shared:
    """The data that a world shares with its parts."""

    rules: native.Core
    spec: Spec
    first: int  # number of the first game of the whole batch
    optional: Bytes  # [N of the whole batch, T] `OptionalState` of state.h


class PursuitWorld(NativeWorld):
    """See rematch.core.world.World. A saved game is a `Game` of state.h, then its `OptionalState` if any."""

    config: Config
    shared: _Shared
    game_type = native.GAME_TYPE

    def _attach(self) -> None:
        start = self.first - self.shared.first
        self._optional = self.shared.optional[start : start + self.games]
        self._arena = native.Arena(self.shared.rules, self._states, self._optional, self.view, self.next)

    @property
    def optional(self) -> Bytes:
        """[N, T] the bytes of their optional state."""
        return self._optional

    # --- steps ----------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """Step all games once: actions role -> [N, 1, A] in [-1, 1]. Threads never change the result."""
        pursuer, evader = (self._action(actions, role) for role in ROLES)
        status, number = self._arena.step(pursuer, evader, threads)
        if status:
            self._raise_error(status, number)
        return self.view

    def restart(self) -> None:
        """Start every game from `next`, as its episode 0."""
        self._states[:] = 0
        self._optional[:] = 0
        status, row = self._arena.start(0)
        if status:
            self._raise_error(status, row)
        self._clear_results(slice(None))

    def set_stage(self, rows: Ints, values: Floats) -> None:
        """Start values [n, 4] (spec.stage) of the next episodes of these games; ConfigError if impossible."""
        stages = np.asarray(values, np.float32).reshape(-1, len(STAGE))
        for row in np.unique(stages, axis=0):
            check_stage(self.config, dict(zip(STAGE, row.tolist())))
        self.next.stage[self._rows(rows)] = stages

    def _action(self, actions: Mapping[str, NDArray[Any]], role: str) -> Floats:
        shape = (self.games, 1, self.shared.rules.controls)
        action = np.ascontiguousarray(actions[role], np.float32) if role in actions else None
        if action is None or action.shape != shape:
            actual = "none" if action is None else f"{list(action.shape)}"
            raise WorldError(f"actions of {role}: expected an array {list(shape)}, found {actual}")
        return action

    def _raise_error(self, status: int, number: int) -> None:
        if status < 0:
            row, seat = divmod(number, 2)
            raise WorldError(f"game {self.first + row}: the {ROLES[seat]}'s action is not a finite number")
        stage = dict(zip(STAGE, self._named["stage"][number].tolist()))
        check_stage(self.config, stage)
        raise WorldError(
            f"game {self.first + number}: no start found for {stage}; expected a wider range of "
            "distances or fewer and smaller obstacles")

    # --- observations ---------------------------------------------------------------------------------

    def observe(self, rows: Ints) -> Observations:
        """role -> field -> [n, 1, F], a copy."""
        row_index = self._rows(rows)
        fields = self.spec.roles[ROLES[0]].fields
        return self._observations(self._states[row_index], self._optional[row_index], fields)

    def _observations(self, games: Bytes, optional: Bytes, fields: tuple[Field, ...]) -> Observations:
        """The observations of these games; with sensors the newest frame in `optional` is written too."""
        obs = blank(fields, len(games))
        if len(games):
            self.shared.rules.observe(games, optional, obs)
        return obs

    @property
    def counters(self) -> Mapping[str, int]:
        """Redrawn obstacle layouts, obstacles that could not be placed, events of the safety filter."""
        names = ("spawn_redraws", "obstacles_missing")
        out = {name: int(self._named[name].sum(dtype=np.int64)) for name in names}
        if self.config.safety_filter:
            optional = self._optional.view(self.shared.rules.optional_type)[:, 0]
            for name in ("safety_interventions", "safety_relaxed", "safety_violations"):
                out[name] = int(optional[name].sum(dtype=np.int64))
        return out

    def bot_actions(self, rows: Ints, seat_and_bot: tuple[int, int], rng_key: Any) -> Floats:
        """[n, A] the actions of a scripted player in these games; bots have the numbers of bots.h."""
        return self.shared.rules.bot(self._states, self._rows(rows), seat_and_bot, rng_key, self.first)

    # --- saving ---------------------------------------------------------------------------------------

    def save(self, rows: Ints) -> Bytes:
        """[n, S] the running games without `next`: the bytes of `Game`, then those of `OptionalState`."""
        row_index = self._rows(rows)
        return np.concatenate([self._states[row_index], self._optional[row_index]], axis=1)

    def _split(self, states: Bytes) -> tuple[Bytes, Bytes]:
        """Saved games as (games, optional): copies."""
        size = native.GAME_TYPE.itemsize
        return states[:, :size].copy(), states[:, size:].copy()

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and their observations into the view."""
        row_index = self._rows(rows)
        shape = (len(row_index), native.GAME_TYPE.itemsize + self._optional.shape[1])
        if not isinstance(states, np.ndarray) or states.dtype != np.uint8 or states.shape != shape:
            raise WorldError(f"saved games: expected bytes {list(shape)}")
        games, optional = self._split(states)
        self._check_saved_games(games.view(native.GAME_TYPE)[:, 0], optional)
        shown = self.spec.roles[ROLES[0]]
        every = (*shown.fields, *shown.privileged)
        for role, fields in self._observations(games, optional, every).items():
            for name, field in fields.items():
                self.view.fields[role][name][row_index] = field
        self._states[row_index], self._optional[row_index] = games, optional
        self._clear_results(row_index)

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """With `full_obs` the true state except the grid of w_search; with sensors see `Resampler`.

        Disturbances: factors, future noise and the delayed actions of the other robot are drawn again. The
        state behind the noise of the present observation is not.
        """
        games, optional = self._split(self.save(rows))
        if self.config.w_search:
            named = games.view(native.GAME_TYPE)[:, 0]
            uniform = rng.units(key, rng.RESET, named["visited"].size).reshape(named["visited"].shape)
            named["visited"] = uniform * named["step"][:, None]
        if not self.config.full_obs and len(games):
            Resampler(self.config, self.shared.rules, seat, key)(games, optional)
        if self.config.disturbed and len(games):
            named_optional = optional.view(self.shared.rules.optional_type)[:, 0]
            resample_disturbances(self.config, named_optional, seat, key)
        return np.concatenate([games, optional], axis=1)

    def _check_saved_games(self, games: NDArray[Any], optional: Bytes) -> None:
        """WorldError if these bytes are not valid games. They may come from any file."""
        config = self.config
        half_x, half_y = config.arena_width / 2, config.arena_height / 2
        radius = config.robot_radius
        fastest = max(config.pursuer_v_max, config.evader_v_max) * (1 + config.speed_variation)
        most_turn = config.omega_max * (1 + config.turn_variation)
        bounds = {
            "x": (-half_x + radius, half_x - radius), "y": (-half_y + radius, half_y - radius),
            "theta": (-np.pi, np.pi), "v": (0.0, fastest), "omega": (-most_turn, most_turn),
            "obstacle_x": (-half_x, half_x), "obstacle_y": (-half_y, half_y),
            "obstacle_radius": (0.0, config.obstacle_radius_max),
            "step": (0, config.max_steps - 1), "obstacles": (0, config.n_obstacles_max),
            "slot": (0, 2**31), "visited": (0, config.max_steps), "mark": (native.MARK, native.MARK),
        }
        _check_bounds(games, bounds)
        optional_bounds = {
            "frames": (-1.0, 1.0), "delayed": (-1.0, 1.0),
            "speed_factor": (1 - config.speed_variation, 1 + config.speed_variation),
            "turn_factor": (1 - config.turn_variation, 1 + config.turn_variation),
        }
        optional_type = self.shared.rules.optional_type
        present = [name for name in optional_bounds if name in (optional_type.names or ())]
        if present:
            named_optional = optional.view(optional_type)[:, 0]
            _check_bounds(named_optional, {name: optional_bounds[name] for name in present})
        for row in np.unique(games["stage"], axis=0):
            check_stage(config, dict(zip(STAGE, row.tolist())))


def _check_bounds(games: NDArray[Any], bounds: Mapping[str, tuple[float, float]]) -> None:
    """WorldError if a field of these games is out of its bounds; NaN is."""
    float_tolerance = 1e-3  # the bounds are doubles, the games floats
    for name, (low, high) in bounds.items():
        tolerance = float_tolerance if games[name].dtype.kind == "f" else 0
        valid = (games[name] >= low - tolerance) & (games[name] <= high + tolerance)
        if not valid.all():
            raise WorldError(f"saved games: {name} is not from {low:g} to {high:g} in all of them")
