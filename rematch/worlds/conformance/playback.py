"""The world under test: plays it with actions that depend on game and step alone, and compares two plays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.world import CUT_OFF, RUNNING, World

Arrays = dict[str, NDArray[Any]]  # name -> one array, the game first
Make = Callable[..., World]  # make(config, games, first=0, seed=0)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How a world is tested, and facts that its spec does not hold."""

    games: int = 5
    steps: int = 30  # steps over which two worlds are compared
    bound: int = 2000  # steps within which every game must end
    seed: int = 0
    chance: bool | None = True  # whether what happens in a game depends on its seed; None: not checked
    stage: tuple[float, ...] = ()  # a legal stage unlike the one that new worlds start from
    fixed: tuple[str, ...] = ()  # hidden things that `resample` does not redraw; the report names them
    all_seeing: bool = False  # the bots read the true state; the report says so
    rare_results: bool = False  # random play may earn no reward and have no winner
    seconds: float = math.inf  # time after which long random play ends; then games need not end


# --- reading a world ------------------------------------------------------------------------------


def observations(world: World) -> Arrays:
    """The borrowed arrays that show the present: fields, masks, whose turn it is."""
    view = world.view
    out: Arrays = {
        f"view[{role!r}][{name!r}]": a for role, fs in view.fields.items() for name, a in fs.items()
    }
    out |= {f"view.mask[{role!r}]": mask for role, mask in view.mask.items()}
    return out | {"view.acting": view.acting}


def finals(world: World) -> Arrays:
    """The borrowed arrays of last observations."""
    shown = world.view.final.items()
    return {f"view.final[{role!r}][{name!r}]": a for role, fields in shown for name, a in fields.items()}


def events(world: World) -> Arrays:
    """The borrowed arrays that describe the step just made."""
    view = world.view
    return {
        "view.reward": view.reward,
        "view.ended": view.ended,
        "view.outcome": view.outcome,
        "view.length": view.length,
    }


def seen(world: World) -> Arrays:
    """Copies of the present: the observations of all seats, and the slots of their players."""
    return {name: a.copy() for name, a in observations(world).items()} | {"world.slot": np.array(world.slot)}


def happened(world: World) -> Arrays:
    """Copies of what the last step wrote, zero where it has no meaning."""
    out = {name: a.copy() for name, a in events(world).items()}
    out["view.outcome"][world.view.ended == RUNNING] = 0
    for name, array in finals(world).items():
        out[name] = array.copy()
        out[name][world.view.ended != CUT_OFF] = 0
    return out


def difference(one: Arrays, other: Arrays, rows: Sequence[int] | NDArray[Any] | None = None) -> str:
    """Where `other` first differs from `one`, or an empty string."""
    every: Any = slice(None) if rows is None else rows
    for name, array in one.items():
        compared = other[name]
        if (compared.dtype, compared.shape) == (array.dtype, array.shape):
            if compared[every].tobytes() == array[every].tobytes():
                continue  # almost always
        for game in range(len(array)) if rows is None else rows:
            if not np.array_equal(array[game], compared[game], equal_nan=True):
                return f"{name} of game {game} is {short(compared[game])}, expected {short(array[game])}"
    return ""


def short(value: Any) -> str:
    text = np.array2string(np.asarray(value), precision=6, threshold=8, separator=" ").replace("\n", "")
    return text if len(text) <= 80 else text[:77] + "..."


# --- playing --------------------------------------------------------------------------------------


class BrokenPromise(ConfigError):
    """A world does not do what its spec says."""


class WorldUnderTest:
    """Makes worlds of one kind and plays them with actions that depend on game number and step alone."""

    def __init__(self, make: Make, config: Any, trial: Trial) -> None:
        self.make, self.config, self.trial = make, config, trial
        self._uniform: dict[int, NDArray[np.float64]] = {}  # game number -> [steps, numbers]
        self.spec = self.world().spec
        self.all_rows: Ints = np.arange(trial.games, dtype=np.int32)
        self.first_end = 0  # the first step that ends a game; found by the check of values
        self.check = ""  # name of the running check
        self.passed: list[str] = []
        self.skipped: list[str] = []  # what was not checked, and why

    def start(self, check: str) -> None:
        """A check begins; its name stands in the messages."""
        self.check = check

    def require(self, holds: bool, message: str, name: str = "") -> None:
        """Raise BrokenPromise with this message unless the condition holds; name: instead of the check's."""
        if not holds:
            raise BrokenPromise(f"{self.spec.world}: {name or self.check}: {message}")

    def check_points(self) -> list[int]:
        """Steps at which states are compared: the start, an early one, and just before a game ends."""
        return sorted({0, min(2, self.first_end), max(0, self.first_end - 3)})

    def copy(self, world: World, states: Bytes) -> World:
        """Another world, made from another seed, with these states in it and the same `next`."""
        other = self.world(first=world.first, seed=self.trial.seed + 1)
        other.next.seed[:], other.next.slot[:] = world.next.seed, world.next.slot
        other.next.stage[:] = world.next.stage
        other.load(self.all_rows, states)
        return other

    def timer(self) -> Callable[[], bool]:
        """A function that is true for the next `trial.seconds` seconds."""
        end = time.monotonic() + self.trial.seconds
        return lambda: time.monotonic() < end

    def world(self, games: int | None = None, first: int = 0, seed: int | None = None) -> World:
        games = self.trial.games if games is None else games
        return self.make(self.config, games, first=first, seed=self.trial.seed if seed is None else seed)

    def actions(self, world: World, step: int) -> dict[str, NDArray[Any]]:
        """role -> legal actions [N, k, A] or [N, k] of every seat at this step."""
        widths = [len(role.seats) * role.actions.size for role in world.spec.roles.values()]
        uniform = np.stack(
            [self._of_game(world.first + row, sum(widths))[step] for row in range(world.games)]
        )
        out: dict[str, NDArray[Any]] = {}
        blocks = np.split(uniform, np.cumsum(widths)[:-1], 1)
        for role, block in zip(world.spec.roles.values(), blocks, strict=True):
            numbers = block.reshape(world.games, len(role.seats), role.actions.size)
            if role.actions.kind == "continuous":
                out[role.name] = (2 * numbers - 1).astype(np.float32)
            else:
                legal = world.view.mask.get(role.name, np.ones(numbers.shape, np.uint8))
                out[role.name] = np.where(legal, numbers, -1.0).argmax(-1).astype(np.int32)
        return out

    def _of_game(self, game: int, width: int) -> NDArray[np.float64]:
        if game not in self._uniform:
            steps = self.trial.bound + 2 * self.trial.steps + 1
            self._uniform[game] = rng.generator(self.trial.seed, rng.ACT, game).random((steps, width))
        return self._uniform[game]

    def steps(self, world: World, start: int) -> Iterator[tuple[int, Arrays]]:
        """Play on for `trial.steps` steps; after each, its number and everything that can be read."""
        for step in range(start, start + self.trial.steps):
            world.step(self.actions(world, step))
            yield step, seen(world) | happened(world)

    def advanced(self, to: int, seed: int | None = None) -> World:
        """A world after its first `to` steps."""
        world = self.world(seed=seed)
        for step in range(to):
            world.step(self.actions(world, step))
        return world

    def first_difference(self, one: World, other: World, start: int = 0) -> str:
        """Where two worlds first differ when both get the same actions, or an empty string."""
        for (step, a), (_, b) in zip(self.steps(one, start), self.steps(other, start), strict=True):
            where = difference(a, b)
            if where:
                return f"at step {step} {where}"
        return ""
