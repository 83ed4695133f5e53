"""Worlds whose rules are compiled: what they all do alike over one array of packed games.

A world of this kind keeps every game as one row of bytes, so saving is copying rows and a part is a slice. A
subclass says how to attach its core to the arrays (`_attach`), what saved games show (`_look`), which bytes
can be games (`_refuse`) and how games move (`step`).
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
    """The C struct and the dataclass must be the same, name by name and type by type; else ImportError."""
    words = {"float": "float", "int": "int32_t", "bool": "rm_flag", "str": "rm_choice"}
    ours = {field.name: words[str(field.type)] for field in dataclasses.fields(config)}
    for name in sorted(ours.keys() | struct.keys()):
        if ours.get(name) != struct.get(name):
            raise ImportError(f"setting {name} is {ours.get(name, 'absent')} in {config.__module__} and "
                              f"{struct.get(name, 'absent')} in {header}")


@dataclass
class Shown:
    """What saved games show, those aside too: as the members of a View, copies."""

    fields: Observations
    acting: Bytes
    mask: dict[str, Bytes]


def blank_view(spec: Spec, games: int, masked: bool) -> View:
    """The arrays that a world of this spec writes."""
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
    """What games numbered from `first` begin from: game i draws from a key of (seed, first + i)."""
    if games < 1:
        raise ConfigError(f"games = {games}: expected at least 1")
    start = np.zeros(len(spec.stage), np.float32) if stage is None else stage
    return Next(
        seed=rng.words(seed, rng.GAME, first + games)[first:].copy(),
        slot=np.zeros((games, spec.seats), np.int32),
        stage=np.tile(start, (games, 1)),
    )


def cut_view(view: View, cut: slice) -> View:
    """The rows of a slice: the same memory."""

    def obs(fields: Observations) -> Observations:
        return {role: {name: a[cut] for name, a in named.items()} for role, named in fields.items()}

    return View(
        fields=obs(view.fields), acting=view.acting[cut], reward=view.reward[cut], ended=view.ended[cut],
        outcome=view.outcome[cut], length=view.length[cut],
        mask={role: mask[cut] for role, mask in view.mask.items()}, final=obs(view.final),
    )  # fmt: skip


class NativeWorld:
    """See rematch.core.world.World. Arrays are allocated once; parts are slices of the same memory."""

    kind: np.dtype[np.void]  # one game, by name; has `slot` and `step`

    def __init__(self, config: Any, shared: Any, arrays: tuple[Bytes, View, Next], first: int) -> None:
        """shared: what a world and its parts have in common, its `spec` too; arrays: states [N, S], ..."""
        self.config, self.shared, self.first = config, shared, first
        self.spec: Spec = shared.spec
        self._states, self.view, self.next = arrays
        self.games = len(self._states)
        self._named = self._states.view(self.kind)[:, 0]  # the same bytes, by name
        self.slot: Ints = self._named["slot"][:, : self.spec.seats]
        self._attach()

    event_log: EventLog | None = None

    @property
    def points(self) -> PointCounter | None:
        """None: the game counts no points."""
        return None

    @property
    def counters(self) -> Mapping[str, int]:
        """Events worth showing; none unless a world counts some."""
        return {}

    # --- what a world of one's own says ---

    def _attach(self) -> None:
        """Hand the arrays to the compiled core."""
        raise NotImplementedError

    def _look(self, states: Bytes) -> Shown:
        """What saved games [n, S] show."""
        raise NotImplementedError

    def _refuse(self, states: Bytes) -> None:
        """Raise WorldError where one of these [n, S] cannot be a game."""
        raise NotImplementedError

    # --- World ---

    def observe(self, rows: Ints) -> Observations:
        """role -> field -> [n, k, F], a copy."""
        shown = self._look(self._states[self._rows(rows)]).fields
        return {
            role.name: {f.name: shown[role.name][f.name] for f in role.fields}
            for role in self.spec.roles.values()
        }

    def save(self, rows: Ints) -> Bytes:
        """[n, S] the running games, `next` not included."""
        return self._states[self._rows(rows)]

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved games into these rows, and what they show into the view."""
        where = self._rows(rows)
        shape = (len(where), self.kind.itemsize)
        if not isinstance(states, np.ndarray) or states.dtype != np.uint8 or states.shape != shape:
            raise WorldError(f"saved games: expected bytes {list(shape)}")
        states = np.ascontiguousarray(states)
        self._refuse(states)
        self._states[where] = states
        shown = self._look(states)
        for role, fields in shown.fields.items():
            for name, array in fields.items():
                self.view.fields[role][name][where] = array
        self.view.acting[where] = shown.acting
        for role, mask in shown.mask.items():
            self.view.mask[role][where] = mask
        self._quiet(where)

    def state_of(self, row: int) -> dict[str, Any]:
        """One game as plain numbers and lists, by the names of its struct."""
        game = self._named[int(self._rows(np.array([row], np.int32))[0])]
        return {name: game[name].tolist() for name in self.kind.names or () if name != "mark"}

    def parts(self, count: int) -> list[Self]:
        """Neighbouring slices over the same memory, as even as can be."""
        if not 1 <= count <= self.games:
            raise ConfigError(f"parts = {count}: expected from 1 to {self.games}, the number of games")
        edges = [self.games * n // count for n in range(count + 1)]
        return [self._part(slice(a, b)) for a, b in itertools.pairwise(edges)]

    def _part(self, cut: slice) -> Self:
        later = Next(seed=self.next.seed[cut], slot=self.next.slot[cut], stage=self.next.stage[cut])
        arrays = (self._states[cut], cut_view(self.view, cut), later)
        return type(self)(self.config, self.shared, arrays, self.first + cut.start)

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

    def _discrete_actions(self, actions: Mapping[str, NDArray[Any]], role: str) -> Ints:
        """A role's discrete actions [N, k], ready for the core; what is no action stays none."""
        role_spec = self.spec.roles[role]
        shape = (self.games, len(role_spec.seats))
        given = np.asarray(actions[role]) if role in actions else np.zeros(0)
        if given.shape != shape or given.dtype.kind not in "iu":
            found = f"{given.dtype} {list(given.shape)}" if role in actions else "none"
            raise WorldError(f"actions of {role}: expected whole numbers {list(shape)}, found {found}")
        if given.dtype != np.int32:
            given = np.clip(given, -1, role_spec.actions.size).astype(np.int32)
        return np.ascontiguousarray(given)
