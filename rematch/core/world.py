"""World: N copies of a game that step together, and the arrays it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
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
    final: Observations = field(default_factory=dict)  # last observations of games that were cut off

    def __getitem__(self, role: str) -> dict[str, Floats]:
        return self.fields[role]


@dataclass(frozen=True)
class SeatRule:
    """How the player of one seat is drawn from an opponent pool."""

    learns: bool | None  # the learner always has the seat, or never; None: in the games that draw this seat
    bot_share: float  # share of scripted players among the opponents
    bot_limits: NDArray[np.float64]  # cumulative probabilities of the scripted players
    bot_slots: Ints
    open_slots: Ints  # of past policies, with equal probabilities

    def choose(self, uniforms: NDArray[np.float64], kind: NDArray[np.float64]) -> Ints:
        """A slot for each random number [n]; a bot where `kind` [n] is below `bot_share`.

        Slot 0 where the pool has neither bots nor snapshots.
        """
        chosen = np.zeros(len(uniforms), np.int32)
        if self.bot_share > 0:
            index = np.searchsorted(self.bot_limits, uniforms, side="right")
            chosen = self.bot_slots[index.clip(max=len(self.bot_slots) - 1)]
        if len(self.open_slots):
            index = (uniforms * len(self.open_slots)).astype(int).clip(max=len(self.open_slots) - 1)
            chosen = np.where(kind < self.bot_share, chosen, self.open_slots[index]).astype(np.int32)
        return chosen


@dataclass(frozen=True)
class SlotRule:
    """How the players of the next games are drawn: in `opponent_share` of the games opponents have seats."""

    seed: int
    iteration: int
    opponent_share: float
    seats: tuple[SeatRule, ...]

    def draw(self, games: int) -> Ints:
        """[games, seats] slots; 0 is the learner's. The readable reference of worlds/native/cuda_step.h."""
        u = [rng.units(self.seed, rng.SEATING, games, step) for step in self.random_steps()]
        has_opponents, learner_seat = u[0] < self.opponent_share, (u[1] * len(self.seats)).astype(int)
        slots = np.zeros((games, len(self.seats)), np.int32)
        for seat, rule in enumerate(self.seats):
            learns = learner_seat == seat if rule.learns is None else np.full(games, rule.learns)
            chosen = rule.choose((u[2] + SEAT_OFFSET * seat) % 1.0, u[3])
            slots[:, seat] = np.where(has_opponents & ~learns, chosen, 0)
        return slots

    def random_steps(self) -> list[int]:
        """The steps of the four random numbers of each game."""
        return [self.iteration << 8 | i for i in range(64, 68)]


SEAT_OFFSET = 0.618  # between the random numbers of neighbouring seats


@dataclass
class Next:
    """What each game restarts from. Components refill it between rollouts, never inside one.

    The k-th episode of a game draws from the key (seed, k), so a game may end twice before a refill.
    """

    seed: NDArray[np.uint64]  # [N]
    slot: Ints  # [N, seats] slot of the player: 0 the learner, others opponents
    stage: Floats  # [N, len(spec.stage)]
    in_use: Ints | None = None  # [seats, slots] not 0 where a slot plays now; None: only `World.slot` says it

    def draw_slots(self, rule: SlotRule) -> None:
        """Fill `slot` by a rule."""
        self.slot[:] = rule.draw(len(self.slot))

    def fix_slots(self, slots: Sequence[int]) -> None:
        """The same slots [seats] in all games."""
        self.slot[:] = slots


class EventLog(Protocol):
    """What happens in the games of a world with milestones. Reading it changes nothing."""

    @property
    def events(self) -> Sequence[tuple[int, str]]:
        """(row, milestone) of the step just made."""

    @property
    def captured(self) -> Mapping[int, Any]:
        """row -> the savestate that was captured after the step just made."""

    @property
    def episode_infos(self) -> Sequence[tuple[int, dict[str, Any]]]:
        """(row, info) of the episodes that ended with the step just made: their `milestones`, the `savestate`
        that they started from ("": none), and further entries for the line of the episode log."""

    @property
    def headlines(self) -> tuple[str, ...]:
        """The most important milestones, in the order in which a game reaches them."""

    def milestones(self, row: int) -> tuple[str, ...]:
        """Those that the running game has reached."""

    def bands(self) -> list[str]:
        """[N] the part of the game that each running episode started in: early, mid or late."""


class PointCounter(Protocol):
    """The points of a game that counts some, beside its outcome."""

    def after(self, actions: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """[N, seats] final points of the games that these actions will end; nan in all others."""


class World(Protocol):
    """N copies of a game that step together. It knows the rules, not the players."""

    spec: Spec
    games: int
    first: int  # number of this part's first game in the whole batch: random streams go by it
    view: View
    next: Next
    slot: Ints  # [N, seats] slots of the players in the running games

    @property
    def event_log(self) -> EventLog | None:
        """None where the world has no milestones."""

    @property
    def points(self) -> PointCounter | None:
        """None where the game counts no points."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Event counts to log, for example spawn redraws."""

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        """Move all games once. actions: role -> [N, k, A] floats, or [N, k] ints.

        An ended game restarts at once from `next`; its outcome and reward stand in the view.
        """

    def observe(self, rows: Ints) -> Observations:
        """The observations of all seats in these games: role -> field -> [n, k, F], a copy; no privileged
        fields."""

    def save(self, rows: Ints) -> Bytes:
        """The whole state of these games, [n, S]."""

    def load(self, rows: Ints, states: Bytes) -> None:
        """Put saved states into these games and refresh their part of the view."""

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """States [n, S] that this seat cannot tell from the true ones."""

    def parts(self, count: int) -> Sequence[World]:
        """This world as `count` neighbouring worlds over the same memory, one per thread."""


def slots_in_use(world: World, seats: Sequence[int]) -> set[int]:
    """The slots that play these seats in the running games."""
    if world.next.in_use is not None:
        return set(np.flatnonzero(world.next.in_use[list(seats)].any(0)).tolist())
    return set(np.flatnonzero(np.bincount(world.slot[:, list(seats)].reshape(-1))).tolist())


class RestartableWorld(World, Protocol):
    """A world of a game with `levels`: all its games can restart from `next` at once."""

    def restart(self) -> None: ...
