"""Spec: the roles, observation fields and actions of a world.

This file imports nothing of ours. Shapes are written as [N games, k seats of one role, F numbers].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

MILESTONE = "milestone_"  # prefix of the columns that show milestones


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """The measured quantity behind a number: number = (quantity - middle) / half, clipped to low .. high.

    Exported policies (agents/deployed_policy.py) take and return quantities; worlds observe the numbers. With
    `root` the number x of a quantity without bounds becomes 2 sign(x) (sqrt(|x| + 1) - 1).
    """

    unit: str = ""  # "m", "rad/s", "cards"; empty: the number has no unit
    middle: float = 0.0
    half: float = 1.0
    low: float = -1.0
    high: float = 1.0
    root: bool = False
    if_negative: float | None = None  # number for every negative quantity, such as "not visible"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One named block of numbers that a seat observes.

    With `categories`, each column is an index (of a cell, a card) instead of a quantity: it holds 0 .. n - 1,
    and a network looks it up in a table (the same result as the product with a one-hot vector).
    With `shape`, the columns are an array flattened row by row: (10, 43) is ten steps of 43 numbers, oldest
    first. Encoders (agents/networks/history_encoders.py) read the field called `history` so.
    """

    name: str
    columns: tuple[str, ...]  # a name for every number, in order
    low: float = -1.0
    high: float = 1.0
    categories: tuple[int, ...] = ()  # the n of every column; empty: quantities
    shape: tuple[int, ...] = ()  # its product is the number of columns; empty: a plain row
    # one per column; empty: the numbers have no unit and no scale. Fields with other quantities are equal: a
    # policy observes and chooses numbers.
    quantities: tuple[Quantity, ...] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, kw_only=True)
class Actions:
    """The actions of a seat. Continuous ones lie in [-1, 1]; the world scales and clips them."""

    kind: Literal["continuous", "discrete"]
    names: tuple[str, ...]  # one per dimension, or one per choice
    quantities: tuple[Quantity, ...] = field(default=(), compare=False)  # continuous: what is executed

    @property
    def size(self) -> int:
        return len(self.names)


@dataclass(frozen=True, kw_only=True)
class Role:
    """A part in the game, with its own observation fields, actions and network; `seats` play it.

    `privileged` fields are for learners only: no player observes them. A world writes them into its view like
    the others, and leaves them out of `observe`.
    """

    name: str
    fields: tuple[Field, ...]
    actions: Actions
    seats: tuple[int, ...]
    hidden: tuple[str, ...] = ()  # parts of the state that no field of this role shows
    privileged: tuple[Field, ...] = ()  # for learners only

    @cached_property  # a screen has thousands, and bots read this at every step
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{f.name}.{c}" for f in self.fields for c in f.columns)

    @cached_property
    def milestones(self) -> tuple[str, ...]:
        """Names of the milestones: each has a column milestone_NAME, which is 1 once it was reached."""
        columns = (column for f in self.fields for column in f.columns)
        return tuple(c.removeprefix(MILESTONE) for c in columns if c.startswith(MILESTONE))

    @property
    def size(self) -> int:
        return sum(f.size for f in self.fields)

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """The number of categories of every column; 0 where it is a quantity."""
        return _categories(self.fields)

    @property
    def privileged_size(self) -> int:
        return sum(f.size for f in self.privileged)

    @property
    def privileged_categories(self) -> tuple[int, ...]:
        return _categories(self.privileged)


def _categories(fields: tuple[Field, ...]) -> tuple[int, ...]:
    return tuple(n for f in fields for n in (f.categories or (0,) * f.size))


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a world promises."""

    world: str
    roles: Mapping[str, Role]
    stage: tuple[str, ...] = ()  # names of the numbers that a curriculum may set per episode
    resume: Literal["state", "replay", "episode"] = "state"
    cutoffs: bool = False  # whether an episode can end undecided (then `View.final` is written)
    zero_sum: bool = True  # whether the seats' rewards add to zero
    reward_scale: float = 1.0  # rewards are the game's own points times this; returns are reported in points

    @property
    def seats(self) -> int:
        return sum(len(role.seats) for role in self.roles.values())

    def role_of(self, seat: int) -> Role:
        return next(role for role in self.roles.values() if seat in role.seats)

    def slots_of(self, by_role: Mapping[str, int]) -> list[int]:
        """[seats] the slot of each seat's role; 0 where `by_role` has none."""
        return [by_role.get(self.role_of(seat).name, 0) for seat in range(self.seats)]


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """What kind of levels a curriculum wants from a game: its own list, or a range that grows."""

    kind: str  # discrete | smooth
    increment: float  # smooth: by how much the largest distance grows per level
    min_obstacles: int  # smooth: never fewer, where the world has obstacles


@dataclass(frozen=True)
class Level:
    """A level of a curriculum: its name for people, and the stage numbers that it sets."""

    name: str
    start: Mapping[str, float]  # these replace settings of the world, which then must not be set
    more: Mapping[str, float] = field(default_factory=dict)  # these depend on settings of the world
