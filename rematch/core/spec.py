"""The words that everything else is written in: what a world promises, what a player does.

This file imports nothing of ours. Shapes are written as [N games, k seats of one role, F numbers].
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Sight = dict[str, dict[str, Floats]]  # role -> field -> [N, k, *shape]

RUNNING, DECIDED, CUT_OFF = 0, 1, 2  # values of View.ended
MILESTONE = "milestone_"  # what columns begin with that show one


@dataclass(frozen=True, kw_only=True)
class Field:
    """One named block of numbers that a seat sees.

    With `choices`, each column names one of so many things (a cell, a card) instead of measuring something:
    it holds 0 .. n - 1, and a network looks it up in a table of its own (the product with a one-hot vector).
    With `shape`, the columns are an array flattened row by row: (10, 43) is ten steps of 43 numbers, oldest
    first. Encoders (agents/networks/history_encoders.py) read the field called `history` so.
    """

    name: str
    columns: tuple[str, ...]  # a name for every number, in order
    low: float = -1.0
    high: float = 1.0
    choices: tuple[int, ...] = ()  # n of every column; empty: quantities
    shape: tuple[int, ...] = ()  # its product is the number of columns; empty: a plain row

    @property
    def size(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, kw_only=True)
class Actions:
    """What a seat may do. Continuous actions live in [-1, 1] per name; the world scales and clips them."""

    kind: Literal["continuous", "discrete"]
    names: tuple[str, ...]  # one per dimension, or one per choice

    @property
    def size(self) -> int:
        return len(self.names)


@dataclass(frozen=True, kw_only=True)
class Role:
    """A part to play: its own fields, actions and network; `seats` are the places that play it.

    `aside` are fields that a learner may read while it trains and that no player ever sees: what others hold.
    A world writes them into its view like the rest, and leaves them out of `observe`.
    """

    name: str
    fields: tuple[Field, ...]
    actions: Actions
    seats: tuple[int, ...]
    hidden: tuple[str, ...] = ()  # what the world holds and no field of this role shows
    aside: tuple[Field, ...] = ()  # for a learner alone

    @cached_property  # a screen has thousands, and bots ask at every move
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{f.name}.{c}" for f in self.fields for c in f.columns)

    @cached_property
    def milestones(self) -> tuple[str, ...]:
        """Names of what a world's `events` may tell: each has a column milestone_NAME, 1 once it is set."""
        columns = (column for f in self.fields for column in f.columns)
        return tuple(c.removeprefix(MILESTONE) for c in columns if c.startswith(MILESTONE))

    @property
    def size(self) -> int:
        return sum(f.size for f in self.fields)

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """For every column the number of things it may name; 0 where it is a quantity."""
        return _choices(self.fields)

    @property
    def aside_size(self) -> int:
        return sum(f.size for f in self.aside)

    @property
    def aside_choices(self) -> tuple[int, ...]:
        return _choices(self.aside)


def _choices(fields: tuple[Field, ...]) -> tuple[int, ...]:
    return tuple(n for f in fields for n in (f.choices or (0,) * f.size))


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a world promises."""

    world: str
    roles: Mapping[str, Role]
    stage: tuple[str, ...] = ()  # the numbers a curriculum may set per episode, by name
    resume: Literal["state", "replay", "episode"] = "state"
    cutoffs: bool = False  # whether an episode can end undecided (then `View.final` is written)
    zero_sum: bool = True  # whether the seats' rewards add to zero
    reward_scale: float = 1.0  # rewards are the game's own points times this; returns are told in points

    @property
    def seats(self) -> int:
        return sum(len(role.seats) for role in self.roles.values())

    def role_of(self, seat: int) -> Role:
        return next(role for role in self.roles.values() if seat in role.seats)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """What a curriculum asks of a world's `levels(config, ladder)`: its own steps, or a range that grows."""

    kind: str  # discrete | smooth
    increment: float  # smooth: by how much the largest distance grows per level
    min_obstacles: int  # smooth: never fewer, where the world has obstacles


@dataclass(frozen=True)
class Level:
    """A step of a curriculum: how people call it, and the stage numbers that it sets."""

    name: str
    start: Mapping[str, float]  # these replace settings of the world, which then must not be set
    more: Mapping[str, float] = field(default_factory=dict)  # these depend on settings of the world


@dataclass
class View:
    """The arrays a world has just written; borrowed, valid until its next step."""

    fields: Sight
    acting: Bytes  # [N, seats] 1 where the seat is to move
    reward: Floats  # [N, seats] for the step just made
    ended: Bytes  # [N] RUNNING, DECIDED or CUT_OFF, for the step just made
    outcome: Floats  # [N, seats] 1 won, 0 lost, 0.5 drawn; meaningful where ended
    length: Ints  # [N] steps of the game that just ended, or of the running one
    mask: dict[str, Bytes] = field(default_factory=dict)  # role -> [N, k, A]; absent: all legal
    final: Sight = field(default_factory=dict)  # last sight of a game that was cut off

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

    def observe(self, rows: Ints) -> Sight:
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

    told: Sequence[tuple[int, dict[str, Any]]]
    """(row, what) of the episodes that ended with the step just made: the `milestones` reached since they
    began, the `savestate` they began from ("": none), and whatever else is worth a word in their line."""
    headlines: tuple[str, ...]  # the milestones that people ask for first, in the order of the story

    def milestones(self, row: int) -> tuple[str, ...]:
        """Those that are set in the running game."""

    def bands(self) -> list[str]:
        """[N] where the running games began: early, mid or late."""


@dataclass(frozen=True)
class Noise:
    """The key of a player's random numbers: with the game's number it names every draw."""

    seed: int
    stream: int
    step: int


@dataclass
class Seat:
    """One decision point handed to a player: n games in which it is to move."""

    role: Role
    seat: int
    world: World
    rows: Ints  # [n] which games of `world`
    sight: Floats  # [n, role.size] all fields side by side
    mask: Bytes | None = None  # [n, A]


@dataclass
class Move:
    """A player's answer: action [n, A] or [n], and for policies logp [n], value [n], memory.

    Who has `resigned` [n] has lost that game on a scoreboard; its action must be legal all the same.
    """

    action: NDArray[Any]
    logp: Floats | None = None
    value: Floats | None = None
    memory: NDArray[Any] | None = None
    resigned: NDArray[np.bool_] | None = None
    scores: Floats | None = None  # [n, A] what each action is thought to be worth, where that is known


@runtime_checkable
class Player(Protocol):
    """Anything that chooses actions."""

    name: str

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move: ...


class Open(Protocol):
    """A player whose chances can be read, of discrete actions."""

    name: str

    def chances(self, seat: Seat) -> Floats:
        """[n, A] what `act` draws from."""


@dataclass(frozen=True)
class Pressed:
    """A picture in RGB, compressed: hundreds of them are kept until an episode is over."""

    size: tuple[int, int]
    rows: bytes

    @classmethod
    def of(cls, picture: Any) -> Pressed:
        """Of a PIL.Image.Image."""
        return cls(picture.size, zlib.compress(picture.convert("RGB").tobytes(), 1))

    def image(self) -> Any:
        from PIL import Image

        return Image.frombytes("RGB", self.size, zlib.decompress(self.rows))


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One picture of a filmed episode, and what was thought and paid when it was taken."""

    picture: Pressed  # as the world draws it
    action: int
    scores: Floats  # [A] what each action was thought to be worth
    paid: Mapping[str, tuple[float, float]]  # by component of the reward: for the step before; so far
    bars: tuple[tuple[str, float | None, bool], ...]  # milestone, its posterior mean, whether it is set


@dataclass(frozen=True, kw_only=True)
class Take:
    """A filmed episode: every `pace`-th step of it."""

    name: str
    actions: tuple[str, ...]
    shots: list[Shot]
    pace: int
    caption: str  # how it ended


Tree = dict[str, Any]  # nested dicts with arrays, numbers, strings and lists at the leaves
