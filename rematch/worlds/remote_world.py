"""Games that are played elsewhere: their states are here as bytes, whichever process steps them.

A RemoteWorld has a twin in this process, from which it takes its spec, its first games and its checks. The
states after the last rollout are fetched only when a caller asks for them, and loaded into the twin only when
it asks for more than those bytes: loading a game may be as dear as playing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import WorldError
from rematch.core.spec import Spec
from rematch.core.world import EventLog, Observations, PointCounter, View, World

RESULTS = ("reward", "ended", "outcome", "length")  # arrays of the view that no state holds
WITHOUT_STATES = frozenset({"library", "title", "set_capture_rule", "config"})  # the same in all games


@dataclass
class PlayedPart:
    """What a rollout left in some games."""

    states: Bytes | None  # [n, S]; None: they are where the games were played
    slot: Ints  # [n, seats]
    results: dict[str, NDArray[Any]]  # RESULTS: name -> [n] or [n, seats]
    counters: dict[str, int]
    bands: list[str]  # EventLog.bands; empty where the world has no milestones


class RemoteView:
    """The view of a RemoteWorld: results of the last step at hand, observations after a copy to the twin."""

    def __init__(self, world: RemoteWorld) -> None:
        self.world = world
        view = world.twin.view
        self.reward, self.ended = view.reward, view.ended
        self.outcome, self.length = view.outcome, view.length

    def __getattr__(self, name: str) -> Any:
        self.world.load_twin()
        return getattr(self.world.twin.view, name)

    def __getitem__(self, role: str) -> Any:
        return self.fields[role]


class RemoteEventLog:
    """The event log of a RemoteWorld: it answers with the start groups that came back with the games."""

    def __init__(self, world: RemoteWorld) -> None:
        self.world = world

    def bands(self) -> list[str]:
        bands = [band for part in self.world.parts_played.values() for band in part.bands]
        if bands:
            return bands
        log = self.world.twin.event_log
        return [] if log is None else log.bands()

    def __getattr__(self, name: str) -> Any:
        if name != "headlines":
            self.world.load_twin()
        return getattr(self.world.twin.event_log, name)


class RemoteWorld:
    """See rematch.core.world.World. `step` is not offered: a collector plays the games elsewhere."""

    def __init__(self, twin: World) -> None:
        self.twin: Any = twin
        self.spec: Spec = twin.spec
        self.games, self.first, self.next = twin.games, twin.first, twin.next
        self.view: Any = RemoteView(self)
        self.parts_played: dict[int, PlayedPart] = {}  # first game -> its part; empty: the twin is newest
        self.twin_is_newest = True
        self.fetch: Callable[[], None] = lambda: None  # sets the states of all parts that were played

    def store(self, games: slice, part: PlayedPart) -> None:
        """Take the games of one part after a rollout. The collector stores all parts, or none."""
        self.parts_played[games.start] = part
        self.twin_is_newest = False
        for name in RESULTS:
            getattr(self.view, name)[games] = part.results[name]

    @property
    def changed_here(self) -> bool:
        """Whether games were loaded or restarted in this process since the last rollout."""
        return not self.parts_played

    @property
    def newest_states(self) -> Bytes:
        """[N, S] of all games."""
        parts = [self.parts_played[start] for start in sorted(self.parts_played)]
        if any(part.states is None for part in parts):
            self.fetch()
        return np.concatenate([part.states for part in parts if part.states is not None])

    def load_twin(self) -> None:
        """Load the newest states into the twin, which then steps from there like any world."""
        if self.twin_is_newest:
            return
        results = {name: getattr(self.view, name).copy() for name in RESULTS}
        self.twin.load(np.arange(self.games, dtype=np.int32), self.newest_states)
        for name, array in results.items():
            getattr(self.view, name)[:] = array
        self.twin_is_newest = True

    def _change(self) -> Any:
        """The twin with the newest states, about to be changed in this process."""
        self.load_twin()
        self.parts_played = {}
        return self.twin

    # --- World ---

    @property
    def slot(self) -> Ints:
        if not self.parts_played:
            slot: Ints = self.twin.slot
            return slot
        return np.concatenate([self.parts_played[start].slot for start in sorted(self.parts_played)])

    @property
    def event_log(self) -> EventLog | None:
        log: Any = RemoteEventLog(self)
        return None if self.twin.event_log is None else log

    @property
    def points(self) -> PointCounter | None:
        self.load_twin()
        points: PointCounter | None = self.twin.points
        return points

    @property
    def counters(self) -> Mapping[str, int]:
        """Event counts of all parts together."""
        if not self.parts_played:
            return dict(self.twin.counters)
        totals: dict[str, int] = {}
        for part in self.parts_played.values():
            for name, count in part.counters.items():
                totals[name] = totals.get(name, 0) + count
        return totals

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        raise WorldError("games that are played elsewhere are stepped by their collector")

    def observe(self, rows: Ints) -> Observations:
        self.load_twin()
        observations: Observations = self.twin.observe(rows)
        return observations

    def save(self, rows: Ints) -> Bytes:
        if self.twin_is_newest:
            states: Bytes = self.twin.save(rows)
            return states
        return self.newest_states[np.asarray(rows, np.intp)]

    def load(self, rows: Ints, states: Bytes) -> None:
        self._change().load(rows, states)

    def restart(self) -> None:
        self._change().restart()

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        self.load_twin()
        states: Bytes = self.twin.resample(rows, seat, key)
        return states

    def parts(self, count: int) -> Sequence[World]:
        raise WorldError("games that are played elsewhere have no parts in this process")

    def __getattr__(self, name: str) -> Any:
        """Whatever else the twin offers; with the newest states where they matter."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in WITHOUT_STATES:
            self.load_twin()
        return getattr(self.twin, name)
