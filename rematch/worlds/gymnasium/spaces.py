"""What an environment's spaces are in the words of spec.py: fields, actions, and the arithmetic between.

Supported: observations Box (any shape, flattened, not of pixels) and Discrete; actions Discrete and Box with
finite bounds. Anything else is refused in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field

SUPPORTED = (
    "supported are observations Box (numbers, not pixels) and Discrete, and actions Discrete and Box "
    "with finite bounds"
)
WIDEST = (
    1e4  # bounds further out are no bounds: environments write 1e10 or the largest float for "any number"
)
MOST = 4096  # numbers in an observation, choices or numbers in an action


def refusal(what: str, space: Any) -> ConfigError:
    text = " ".join(str(space).split())
    return ConfigError(f"{what} {text if len(text) < 60 else text[:57] + '...'}: {SUPPORTED}")


@dataclass(frozen=True)
class Looking:
    """From an observation to the numbers that a network sees.

    With scale "bounds" a column with known bounds goes to [-1, 1], any other through the signed root of
    Pohlen et al. 2018 (twice it, without its last term): 1 : 1 near zero, large numbers are tamed. Both are
    basic operations of IEEE 754, so the same on every machine. With "raw" nothing is done.
    """

    field: Field
    flat: bool  # one-dimensional already
    choice: bool  # Discrete: one column that names a thing
    start: int  # of a Discrete space
    raw: bool
    known: NDArray[np.bool_]  # [F] columns with bounds
    middle: Floats  # [F]
    half: Floats  # [F]

    def show(self, seen: Floats, out: Floats) -> None:
        """seen [n, F] as the environment gave it -> out [n, F]."""
        if self.raw or self.choice:
            out[:] = seen
            return
        np.divide(seen - self.middle, self.half, out=out)
        if self.known.all():
            np.clip(out, -1.0, 1.0, out=out)
            return
        out[:, self.known] = np.clip(out[:, self.known], -1.0, 1.0)
        wide = out[:, ~self.known]
        out[:, ~self.known] = np.sign(wide) * np.float32(2.0) * (np.sqrt(np.abs(wide) + np.float32(1.0)) - 1)


def looking(space: Any, scale: str) -> Looking:
    import gymnasium.spaces as spaces

    none = np.zeros(1, np.float32)
    if isinstance(space, spaces.Discrete):
        count = int(space.n)
        if not 2 <= count <= 1 << 20:
            raise refusal("observation", space)
        field = Field(name="observation", columns=("state",), low=0.0, high=count - 1.0, categories=(count,))
        return Looking(field, True, True, int(space.start), True, none.astype(bool), none, none)
    if not isinstance(space, spaces.Box):
        raise refusal("observation", space)
    pixels = space.dtype == np.uint8 and len(space.shape) >= 2
    size = int(np.prod(space.shape))
    if pixels or not 1 <= size <= MOST:
        raise refusal("observation", space)
    low, high = (np.asarray(edge, np.float64).reshape(-1) for edge in (space.low, space.high))
    known = np.isfinite(low) & np.isfinite(high) & (high > low) & (np.maximum(-low, high) <= WIDEST)
    middle, half = np.zeros(size), np.ones(size)
    middle[known], half[known] = (high[known] + low[known]) / 2, (high[known] - low[known]) / 2
    least, most = (float(low.min()), float(high.max())) if scale == "raw" else (-1.0, 1.0)
    if not known.all() or least >= most:
        least, most = -np.inf, np.inf
    field = Field(name="observation", columns=tuple(f"x{i}" for i in range(size)), low=least, high=most)
    flat = len(space.shape) == 1
    return Looking(
        field, flat, False, 0, scale == "raw", known, *(a.astype(np.float32) for a in (middle, half))
    )


@dataclass(frozen=True)
class Acting:
    """From a move in our words to an action in the environment's."""

    actions: Actions
    start: int  # of a Discrete space
    shape: tuple[int, ...]  # of a Box
    low: Floats  # [A]
    span: Floats  # [A] high - low
    kind: np.dtype[Any]  # what a move is kept as, for replaying

    @property
    def discrete(self) -> bool:
        return self.actions.kind == "discrete"

    def kept(self, moves: NDArray[Any]) -> NDArray[Any]:
        """Moves [n] or [n, A] as they are kept; those that are none are refused."""
        if self.discrete:
            wrong = (moves < 0) | (moves >= self.actions.size)
        else:
            moves = np.clip(moves, -1.0, 1.0)
            wrong = ~np.isfinite(moves).all(-1)
        if wrong.any():
            raise ConfigError(
                f"the action of game {int(np.flatnonzero(wrong)[0])} is none of this environment"
            )
        return moves.astype(self.kind)

    def given(self, kept: NDArray[Any]) -> list[Any]:
        """What `env.step` is handed, one for each of the kept moves."""
        if self.discrete:
            return list((kept.astype(np.int64) + self.start).tolist())
        scaled = self.low + (kept + np.float32(1.0)) * np.float32(0.5) * self.span
        return list(scaled.reshape(len(kept), *self.shape))


def acting(space: Any) -> Acting:
    import gymnasium.spaces as spaces

    none = np.zeros(1, np.float32)
    if isinstance(space, spaces.Discrete) and 2 <= int(space.n) <= MOST:
        count = int(space.n)
        actions = Actions(kind="discrete", names=tuple(f"a{i}" for i in range(count)))
        kind = np.dtype(np.uint8 if count <= 256 else np.int32)
        return Acting(actions, int(space.start), (), none, none, kind)
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise refusal("action", space)
    size = int(np.prod(space.shape))
    low, high = (np.asarray(edge, np.float32).reshape(-1) for edge in (space.low, space.high))
    fine = np.isfinite(low) & np.isfinite(high) & (high > low) & (np.maximum(-low, high) <= np.float32(1e9))
    if not 1 <= size <= MOST or not fine.all():
        raise refusal("action", space)
    actions = Actions(kind="continuous", names=tuple(f"u{i}" for i in range(size)))
    return Acting(actions, 0, space.shape, low, high - low, np.dtype(np.float32))
