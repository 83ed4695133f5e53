"""Gymnasium spaces, options and seeds, for worlds that wrap environments of Gymnasium or PettingZoo.

Observations become fields of a spec, actions of a role become those of an environment.

Supported are observations Box (any shape, flattened, no pixels), Discrete, MultiDiscrete and Tuple of
Discrete, and actions Discrete and Box with finite bounds. Other spaces are refused in one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Quantity

SUPPORTED = (
    "supported are observations Box (numbers, not pixels), Discrete, MultiDiscrete and Tuple of Discrete, "
    "and actions Discrete and Box with finite bounds"
)
MAX_BOUND = 1e4  # larger bounds count as none: environments use 1e10 or the largest float for "unbounded"
MAX_SIZE = 4096  # columns of an observation; discrete actions, or columns of a continuous action


def scale_setting() -> Any:
    """The field `scale` of a world's settings."""
    return knob(
        "raw", "scale of observations; raw: unchanged; bounds: bounded numbers are mapped to [-1, 1], "
        "unbounded ones pass a signed square root", choices=("raw", "bounds"),
    )  # fmt: skip


def reward_scale_setting() -> Any:
    """The field `reward_scale` of a world's settings."""
    return knob(1.0, "factor on rewards in training; reported returns do not contain it", low=1e-9)


def installed_version(package: str) -> str:
    """The installed version of a package, or an empty string: an exact resume needs the same version."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def refusal(kind: str, space: Any) -> ConfigError:
    text = " ".join(str(space).split())
    return ConfigError(f"{kind} {text if len(text) < 60 else text[:57] + '...'}: {SUPPORTED}")


@dataclass(frozen=True)
class ObservationEncoder:
    """Converts observations of the environment to the observation field of the role.

    With scale "bounds", bounded columns are mapped to [-1, 1]; other columns pass the signed square root of
    Pohlen et al. 2018 (times two, without its last term), which has slope 1 at zero and compresses large
    numbers. Both use basic IEEE 754 operations, so all machines compute the same. "raw" changes nothing.
    """

    field: Field
    flat: bool  # the observations are one-dimensional
    starts: NDArray[np.int64]  # [F] first value of each Discrete space; empty: a Box
    raw: bool
    bounded: NDArray[np.bool_]  # [F] columns with bounds
    middle: Floats  # [F] centre of the bounds
    half: Floats  # [F] half of the range

    @property
    def categorical(self) -> bool:
        """Whether all columns are categories."""
        return bool(self.field.categories)

    def outside(self, obs: Floats) -> NDArray[np.bool_]:
        """[n] whether an observation [n, F] has a number that is not finite, or no category of its column."""
        if not self.categorical:
            return np.asarray(~np.isfinite(obs).all(1))
        return np.asarray(((obs < 0) | (obs >= np.array(self.field.categories))).any(1))

    def encode(self, obs: Floats, out: Floats) -> None:
        """obs [n, F] from the environment -> out [n, F]."""
        if self.raw or self.categorical:
            out[:] = obs
            return
        np.divide(obs - self.middle, self.half, out=out)
        if self.bounded.all():
            np.clip(out, -1.0, 1.0, out=out)
            return
        out[:, self.bounded] = np.clip(out[:, self.bounded], -1.0, 1.0)
        unbounded = out[:, ~self.bounded]
        root = np.sqrt(np.abs(unbounded) + np.float32(1.0)) - 1
        out[:, ~self.bounded] = np.sign(unbounded) * np.float32(2.0) * root


def observation_encoder(space: Any, scale: str) -> ObservationEncoder:
    import gymnasium.spaces as spaces

    none = np.zeros(1, np.float32)
    if counts := category_counts(space):
        if not (min(counts) >= 1 and max(counts) >= 2 and sum(counts) <= 1 << 20 and len(counts) <= MAX_SIZE):
            raise refusal("observation", space)
        names = ("state",) if len(counts) == 1 else tuple(f"x{i}" for i in range(len(counts)))
        most = max(counts) - 1.0
        starts = first_values(space)
        offsets = tuple(Quantity(unit="category", middle=float(start), low=-np.inf, high=np.inf)
                        for start in starts)
        field = Field(name="observation", columns=names, low=0.0, high=most, categories=tuple(counts),
                      quantities=offsets)
        return ObservationEncoder(field, True, starts, True, none.astype(bool), none, none)
    if not isinstance(space, spaces.Box):
        raise refusal("observation", space)
    pixels = space.dtype == np.uint8 and len(space.shape) >= 2
    size = int(np.prod(space.shape))
    if pixels or not 1 <= size <= MAX_SIZE:
        raise refusal("observation", space)
    low, high = (np.asarray(edge, np.float64).reshape(-1) for edge in (space.low, space.high))
    bounded = np.isfinite(low) & np.isfinite(high) & (high > low) & (np.maximum(-low, high) <= MAX_BOUND)
    middle, half = np.zeros(size), np.ones(size)
    middle[bounded], half[bounded] = (high[bounded] + low[bounded]) / 2, (high[bounded] - low[bounded]) / 2
    least, most = (float(low.min()), float(high.max())) if scale == "raw" else (-1.0, 1.0)
    if not bounded.all() or least >= most:
        least, most = -np.inf, np.inf
    quantities = () if scale == "raw" else tuple(map(box_quantity, bounded, middle, half))
    names = tuple(f"x{i}" for i in range(size))
    field = Field(name="observation", columns=names, low=least, high=most, quantities=quantities)
    flat = len(space.shape) == 1
    bounds = (array.astype(np.float32) for array in (middle, half))
    return ObservationEncoder(field, flat, np.zeros(0, np.int64), scale == "raw", bounded, *bounds)


def box_quantity(bounded: bool, middle: float, half: float) -> Quantity:
    """How `ObservationEncoder.encode` scales a column; its unit is that of the environment."""
    if not bounded:
        return Quantity(low=-np.inf, high=np.inf, root=True)
    return Quantity(middle=float(middle), half=float(half))


def category_counts(space: Any) -> list[int]:
    """Number of categories of each column of a Discrete, MultiDiscrete or Tuple of Discrete; else empty."""
    import gymnasium.spaces as spaces

    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(count) for count in space.nvec.ravel()]
    if isinstance(space, spaces.Tuple):
        counts = [int(part.n) for part in space.spaces if isinstance(part, spaces.Discrete)]
        return counts if len(counts) == len(space.spaces) else []
    return []


def first_values(space: Any) -> NDArray[np.int64]:
    """The smallest value of each column of such a space."""
    parts = getattr(space, "spaces", [space])
    return np.concatenate([np.ravel(part.start) for part in parts]).astype(np.int64)


@dataclass(frozen=True)
class ActionDecoder:
    """Converts actions of the role to actions of the environment."""

    actions: Actions
    start: int  # first value of a Discrete space
    shape: tuple[int, ...]  # shape of a Box
    low: Floats  # [A]
    span: Floats  # [A] high - low
    dtype: np.dtype[Any]  # dtype of stored actions, for replay

    @property
    def discrete(self) -> bool:
        return self.actions.kind == "discrete"

    def to_stored(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions [n] or [n, A] in the form that states store; invalid ones are refused."""
        if self.discrete:
            invalid = (actions < 0) | (actions >= self.actions.size)
        else:
            actions = np.clip(actions, -1.0, 1.0)
            invalid = ~np.isfinite(actions).all(-1)
        if invalid.any():
            game = int(np.flatnonzero(invalid)[0])
            raise ConfigError(f"the action of game {game} is not an action of this environment")
        return actions.astype(self.dtype)

    def decode(self, stored: NDArray[Any]) -> list[Any]:
        """The arguments of `env.step`, one for each stored action."""
        if self.discrete:
            return list((stored.astype(np.int64) + self.start).tolist())
        scaled = self.low + (stored + np.float32(1.0)) * np.float32(0.5) * self.span
        return list(scaled.reshape(len(stored), *self.shape))


def action_decoder(space: Any) -> ActionDecoder:
    import gymnasium.spaces as spaces

    none = np.zeros(1, np.float32)
    if isinstance(space, spaces.Discrete) and 2 <= int(space.n) <= MAX_SIZE:
        count = int(space.n)
        actions = Actions(kind="discrete", names=tuple(f"a{i}" for i in range(count)))
        dtype = np.dtype(np.uint8 if count <= 256 else np.int32)
        return ActionDecoder(actions, int(space.start), (), none, none, dtype)
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise refusal("action", space)
    size = int(np.prod(space.shape))
    low, high = (np.asarray(edge, np.float32).reshape(-1) for edge in (space.low, space.high))
    bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
    bounded &= np.maximum(-low, high) <= np.float32(1e9)
    if not 1 <= size <= MAX_SIZE or not bounded.all():
        raise refusal("action", space)
    quantities = tuple(Quantity(middle=float(a + (b - a) / 2), half=float((b - a) / 2))
                       for a, b in zip(low, high))
    actions = Actions(kind="continuous", names=tuple(f"u{i}" for i in range(size)), quantities=quantities)
    return ActionDecoder(actions, 0, space.shape, low, high - low, np.dtype(np.float32))


# --- options, errors, seeds ------------------------------------------------------------------------------


def one_line(error: BaseException) -> str:
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split()
    return f"{type(error).__name__}: {' '.join(words)}"[:300]


def read_options(options: Sequence[str]) -> dict[str, Any]:
    """("gravity=5", "is_slippery=false") -> keyword arguments of the environment's constructor."""
    out: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.isidentifier() or name in out or name in ("id", "max_episode_steps"):
            raise ConfigError(f"options = {option!r}: expected name=value, each name once")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = {"True": True, "False": False, "None": None}.get(text, text)
        out[name] = value
    return out


def episode_seed(seed: int, episode: int) -> int:
    """The 31-bit seed for `env.reset`, from the key of the game and its episode.

    SplitMix64 (Steele, Lea and Flood 2014). Most environments accept no larger seed.
    """
    mask = (1 << 64) - 1
    z = (seed + (episode + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return (z ^ z >> 31) >> 33
