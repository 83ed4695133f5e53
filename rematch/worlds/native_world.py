"""Worlds with compiled rules: the part that all of them share.

Every game is one row of bytes in an array, so that saving copies rows and a part of a world is a slice. A
subclass attaches its core to the arrays (`_attach`), observes saved games (`_observe_states`), checks saved
bytes (`_check_states`) and steps the games (`step`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.errors import ConfigError, WorldError
from rematch.core.spec import Spec
from rematch.core.world import RUNNING, EventLog, Next, Observations, PointCounter, View


def compare_with_struct(config: type, struct: Mapping[str, str], header: str) -> None:
    """ImportError if the C struct `Rules` and the dataclass differ in a name or a type."""
    c_types = {"float": "float", "int": "int32_t", "bool": "rm_flag", "str": "rm_choice"}
    fields = {field.name: c_types[str(field.type)] for field in dataclasses.fields(config)}
    for name in sorted(fields.keys() | struct.keys()):
        if fields.get(name) != struct.get(name):
            raise ImportError(f"setting {name} is {fields.get(name, 'absent')} in {config.__module__} and "
                              f"{struct.get(name, 'absent')} in {header}")


@dataclass
class StateObservations:
    """Observations of saved games, privileged fields included: copies, named as in View."""

    fields: Observations
    acting: Bytes
    mask: dict[str, Bytes]


def blank_view(spec: Spec, games: int, masked: bool) -> View:
    """Zeros in all arrays that a world of this spec writes; `masked`: with action masks."""
    places = {role.name: (games, len(role.seats)) for role in spec.roles.values()}
    mask = {
        role.name: np.zeros((*places[role.name], role.actions.size), np.uint8) for role in spec.roles.values()
    }

    def obs() -> Observations:
        return {
            role.name: {
                field.name: np.zeros((*places[role.name], field.size), np.float32)
                for field in (*role.fields, *role.privileged)
            }
            for role in spec.roles.values()
        }

    return View(
        fields=obs(),
        acting=np.ones((games, spec.seats), np.uint8),
        reward=np.zeros((games, spec.seats), np.float32),
        ended=np.zeros(games, np.uint8),
        outcome=np.zeros((games, spec.seats), np.float32),
        length=np.zeros(games, np.int32),
        mask=mask if masked else {},
        final=obs() if spec.cutoffs else {},
    )


def first_next(spec: Spec, games: int, first: int, seed: int, stage: Floats | None = None) -> Next:
    """The first `next` of games numbered from `first`: game i has the random key of (seed, first + i)."""
    if games < 1:
        raise ConfigError(f"games = {games}: expected at least 1")
    stage = np.zeros(len(spec.stage), np.float32) if stage is None else stage
    return Next(
        seed=rng.words(seed, rng.GAME, first + games)[first:].copy(),
        slot=np.zeros((games, spec.seats), np.int32),
        stage=np.tile(stage, (games, 1)),
    )


def slice_view(view: View, cut: slice) -> View:
    """The rows of a slice, as views of the same memory."""

    def obs(fields: Observations) -> Observations:
        return {role: {name: a[cut] for name, a in named.items()} for role, named in fields.items()}

    return View(
        fields=obs(view.fields), acting=view.acting[cut], reward=view.reward[cut], ended=view.ended[cut],
        outcome=view.outcome[cut], length=view.length[cut],
        mask={role: mask[cut] for role, mask in view.mask.items()}, final=obs(view.final),
    )  # fmt: skip


class NativeWorld:
    """See rematch.core.world.World. Arrays are allocated once; parts are slices of the same memory."""

    game_type: np.dtype[np.void]  # of one game; has the members `slot` and `step`

    def __init__(self, config: Any, shared: Any, arrays: tuple[Bytes, View, Next], first: int) -> None:
        """shared: data of a world and its parts, with attribute `spec`; arrays: states [N, S], view, next."""
        self.config, self.shared, self.first = config, shared, first
        self.spec: Spec = shared.spec
        self._states, self.view, self.next = arrays
        self.games = len(self._states)
        self._named = self._states.view(self.game_type)[:, 0]  # the same bytes as a structured array
        self.slot: Ints = self._named["slot"][:, : self.spec.seats]
        self._attach()

    event_log: EventLog | None = None

    @property
    def states(self) -> Bytes:
        """[N, S] the bytes of the running games."""
        return self._states

    @property
    def points(self) -> PointCounter | None:
        """None: the game counts no points."""
        return None

    @property
    def counters(self) -> Mapping[str, int]:
        """Event counts for the log; a world without events has none."""
        return {}

    # --- methods of a subclass ---

    def _attach(self) -> None:
        """Pass the arrays to the compiled core."""
        raise NotImplementedError

    def _observe_states(self, states: Bytes) -> StateObservations:
        """The observations of saved games [n, S]."""
        raise NotImplementedError

    def _check_states(self, states: Bytes) -> None:
        """WorldError if one of these rows [n, S] is not a valid game."""
        raise NotImplementedError

    def restart(self) -> None:
        """Start every game from `next`, as its episode 0."""
        raise NotImplementedError

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """[n, S] these games with new values of what the seat cannot observe."""
        raise NotImplementedError

    def set_stage(self, rows: Ints, values: Floats) -> None:
        """Start values of the next episodes of these games; only where the spec names some."""
        raise NotImplementedError

    # --- World ---

    def observe(self, rows: Ints) -> Observations:
        """role -> field -> [n, k, F], a copy."""
        fields = self._observe_states(self._states[self._rows(rows)]).fields
        return {
            role.name: {f.name: fields[role.name][f.name] for f in role.fields}
            for role in self.spec.roles.values()
        }

    def save(self, rows: Ints) -> Bytes:
        """[n, S] the running games, without `next`."""
        return self._states[self._rows(rows)]

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and their observations into the view."""
        row_index = self._rows(rows)
        shape = (len(row_index), self.game_type.itemsize)
        if not isinstance(states, np.ndarray) or states.dtype != np.uint8 or states.shape != shape:
            raise WorldError(f"saved games: expected bytes {list(shape)}")
        states = np.ascontiguousarray(states)
        self._check_states(states)
        self._states[row_index] = states
        obs = self._observe_states(states)
        for role, fields in obs.fields.items():
            for name, array in fields.items():
                self.view.fields[role][name][row_index] = array
        self.view.acting[row_index] = obs.acting
        for role, mask in obs.mask.items():
            self.view.mask[role][row_index] = mask
        self._clear_results(row_index)

    def state_of(self, row: int) -> dict[str, Any]:
        """One game as numbers and lists: member of the C struct -> value."""
        game = self._named[int(self._rows(np.array([row], np.int32))[0])]
        return {name: game[name].tolist() for name in self.game_type.names or () if name != "mark"}

    def parts(self, count: int) -> list[Self]:
        """Consecutive slices of the same memory, as equal in size as possible."""
        if not 1 <= count <= self.games:
            raise ConfigError(f"parts = {count}: expected from 1 to {self.games}, the number of games")
        edges = [self.games * n // count for n in range(count + 1)]
        return [self._part(slice(a, b)) for a, b in itertools.pairwise(edges)]

    def _part(self, cut: slice) -> Self:
        next = Next(seed=self.next.seed[cut], slot=self.next.slot[cut], stage=self.next.stage[cut])
        arrays = (self._states[cut], slice_view(self.view, cut), next)
        return type(self)(self.config, self.shared, arrays, self.first + cut.start)

    def _rows(self, rows: Ints) -> Ints:
        row_index = np.ascontiguousarray(rows, np.int32).reshape(-1)
        if len(row_index) and not (row_index.min() >= 0 and row_index.max() < self.games):
            raise WorldError(
                f"rows {row_index.min()} to {row_index.max()}: expected from 0 to {self.games - 1}")
        return row_index

    def _clear_results(self, row_index: Any) -> None:
        """Reset the results of the last step in these games."""
        self.view.reward[row_index] = 0
        self.view.ended[row_index] = RUNNING
        self.view.outcome[row_index] = 0
        self.view.length[row_index] = self._named["step"][row_index]

    def _discrete_actions(self, actions: Mapping[str, NDArray[Any]], role: str) -> Ints:
        """The discrete actions of a role [N, k] for the core; invalid numbers stay invalid."""
        role_spec = self.spec.roles[role]
        shape = (self.games, len(role_spec.seats))
        action = np.asarray(actions[role]) if role in actions else np.zeros(0)
        if action.shape != shape or action.dtype.kind not in "iu":
            actual = f"{action.dtype} {list(action.shape)}" if role in actions else "none"
            raise WorldError(f"actions of {role}: expected whole numbers {list(shape)}, found {actual}")
        if action.dtype != np.int32:
            action = np.clip(action, -1, role_spec.actions.size).astype(np.int32)
        return np.ascontiguousarray(action)
