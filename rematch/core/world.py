"""World: N copies of a game that step together, and the arrays it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.spec import Spec

Observations = dict[str, dict[str, Floats]]  # role -> field -> [N, k, *shape]

RUNNING, DECIDED, CUT_OFF = 0, 1, 2  # values of View.ended


@dataclass
class View:
    """The arrays a world has just written; borrowed, valid until its next step."""

    fields: Observations
    acting: Bytes  # [N, seats] 1 where the seat is to move
    reward: Floats  # [N, seats] for the step just made
    ended: Bytes  # [N] RUNNING, DECIDED or CUT_OFF, for the step just made
    outcome: Floats  # [N, seats] 1 won, 0 lost, 0.5 drawn; meaningful where ended
    length: Ints  # [N] steps of the game that just ended, or of the running one
    mask: dict[str, Bytes] = field(default_factory=dict)  # role -> [N, k, A]; absent: all legal
    final: Observations = field(default_factory=dict)  # last sight of a game that was cut off

    def __getitem__(self, role: str) -> dict[str, Floats]:
        return self.fields[role]


@dataclass
class Next:
    """What each game restarts from. The engine refills it between rollouts, never inside one.

    The k-th episode of a game draws from the key (seed, k), so a game may end twice before a refill.
    """

    seed: NDArray[np.uint64]  # [N]
    slot: Ints  # [N, seats] who sits there: 0 the learner, 1.. a rival's slot
    stage: Floats  # [N, len(spec.stage)]


class World(Protocol):
    """N copies of a game stepping together; knows the rules, never who plays."""

    spec: Spec
    games: int
    first: int  # number of this part's first game in the whole batch: random streams go by it
    view: View
    next: Next
    slot: Ints  # [N, seats] who sits in the running games

    @property
    def counters(self) -> Mapping[str, int]:
        """Events worth showing, for example spawn redraws."""

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        """Move all games once. actions: role -> [N, k, A] floats, or [N, k] ints.

        An ended game restarts at once from `next`; its outcome and reward stand in the view.
        """

    def observe(self, rows: Ints) -> Observations:
        """What every seat sees in these games now: role -> field -> [n, k, F], a copy; nothing aside."""

    def save(self, rows: Ints) -> Bytes:
        """The whole state of these games, [n, S]."""

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved states into these games and refresh their part of the view."""

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """States [n, S] that this seat cannot tell from the true ones."""

    def parts(self, count: int) -> Sequence[World]:
        """This world as `count` neighbouring worlds over the same memory, one per thread."""


class StagedWorld(World, Protocol):
    """A world whose module has `levels`: all its games can begin anew from `next`."""

    def restart(self) -> None: ...


class TellingWorld(World, Protocol):
    """A world with a story: what happens in its games has names. What it tells changes nothing."""

    episode_infos: Sequence[tuple[int, dict[str, Any]]]
    """(row, what) of the episodes that ended with the step just made: the `milestones` reached since they
    began, the `savestate` they began from ("": none), and whatever else is worth a word in their line."""
    headlines: tuple[str, ...]  # the milestones that people ask for first, in the order of the story

    def milestones(self, row: int) -> tuple[str, ...]:
        """Those that are set in the running game."""

    def bands(self) -> list[str]:
        """[N] where the running games began: early, mid or late."""
