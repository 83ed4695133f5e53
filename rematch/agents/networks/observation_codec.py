"""What a network with eyes makes of a sight: a picture, the mask of places visited, and the other numbers.

The picture is the first field with a shape of two numbers; `visited` is a mask by its name (a field of any
square size); the rest is structured. All three are kept packed: two bits a pixel (four grey levels), one bit
a place, numbers in half precision where their bounds allow it. A network only ever sees what the packed form
says, while it acts as while it learns, so that a stored memory is the one that learning would have had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Field, Role

LEVELS = 3  # the brightest of four: two bits
HALF = 2048.0  # whole numbers up to here are exact in half precision (IEEE 754)
_BITS = np.arange(256, dtype=np.uint8)
_FOUR: Bytes = np.stack([_BITS >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)  # a byte's four pixels


def pack_levels(levels: Bytes) -> Bytes:
    """Grey levels 0 .. 3 [..., pixels] as two bits each [..., ceil(pixels / 4)], the first pixel lowest."""
    short = -levels.shape[-1] % 4
    if short:
        levels = np.concatenate([levels, np.zeros((*levels.shape[:-1], short), np.uint8)], axis=-1)
    four = levels.reshape(*levels.shape[:-1], -1, 4)
    return np.asarray(four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6, np.uint8)


def unpack_levels(packed: Bytes, pixels: int) -> Bytes:
    """The reverse: [..., pixels]."""
    return _FOUR[packed].reshape(*packed.shape[:-1], -1)[..., :pixels]


@dataclass(frozen=True)
class Seen:
    """Unpacked: frames [..., H, W] and visited [..., K, K] as uint8 (None where there is none), numbers."""

    frames: Bytes | None
    visited: Bytes | None
    numbers: Floats  # [..., S]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Those that there are, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}


class Senses:
    """Where a role's sight holds what, and how each is kept."""

    def __init__(self, role: Role) -> None:
        self.picture: Field | None = None
        self.side = 0  # of the visited mask
        rest: list[int] = []
        self.categories: tuple[int, ...] = ()
        bound, at = 0.0, 0
        for f in role.fields:
            here = slice(at, at + f.size)
            square = round(f.size**0.5)
            image = len(f.shape) == 2 and not f.categories and f.name not in ("history", "visited")
            if self.picture is None and image:
                self.picture, self._frame = f, here
            elif f.name == "visited" and not f.categories and not self.side:
                if square * square != f.size:
                    raise ConfigError(f"{role.name}: visited has {f.size} numbers; expected a square")
                self.side, self._mask, self._middle = square, here, (f.low + f.high) / 2
            else:
                rest += range(here.start, here.stop)
                self.categories += f.categories or (0,) * f.size
                bound = max(bound, abs(f.low), abs(f.high), *(f.categories or (0,)))
            at += f.size
        self.columns = np.array(rest, np.intp)
        self.kind = np.dtype(np.float16 if bound <= HALF else np.float32)
        self.shape: tuple[int, ...] = self.picture.shape if self.picture else ()
        self.pixels = int(np.prod(self.shape)) if self.picture else 0

    @property
    def packed(self) -> dict[str, tuple[int, np.dtype[np.generic]]]:
        """name -> (numbers a step, type): what `pack` gives."""
        out: dict[str, tuple[int, np.dtype[np.generic]]] = {}
        if self.picture:
            out["frame"] = (-(-self.pixels // 4), np.dtype(np.uint8))
        if self.side:
            out["visited"] = (-(-self.side * self.side // 8), np.dtype(np.uint8))
        return out | {"numbers": (len(self.columns), self.kind)}

    def pack(self, obs: Floats) -> dict[str, NDArray[np.generic]]:
        """sight [..., F] -> name -> [..., numbers]."""
        out: dict[str, NDArray[np.generic]] = {}
        if self.picture:
            low, high = self.picture.low, self.picture.high
            levels = (obs[..., self._frame] - np.float32(low)) * np.float32(LEVELS / (high - low))
            out["frame"] = pack_levels(np.rint(levels).clip(0, LEVELS).astype(np.uint8))
        if self.side:
            out["visited"] = np.packbits(obs[..., self._mask] > self._middle, axis=-1)
        out["numbers"] = obs[..., self.columns].astype(self.kind)
        return out

    def unpack(self, packed: dict[str, NDArray[np.generic]]) -> Seen:
        frames = visited = None
        lead = packed["numbers"].shape[:-1]
        if self.picture:
            levels = unpack_levels(np.asarray(packed["frame"], np.uint8), self.pixels)
            frames = levels.reshape(*lead, *self.shape)
        if self.side:
            bits = np.unpackbits(np.asarray(packed["visited"], np.uint8), axis=-1, count=self.side**2)
            visited = bits.reshape(*lead, self.side, self.side)
        return Seen(frames, visited, packed["numbers"].astype(np.float32))
