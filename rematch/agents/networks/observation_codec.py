"""Packs observations: frames in 2 bits per pixel, masks in 1 bit, numbers in half precision.

The frame is the first field with a two-dimensional shape; the field `visited`, of any square size, is a mask;
all other columns are numbers. Numbers are in half precision where their bounds allow it. Networks read the
unpacked form in play and in training, so that stored recurrent states are those of the training inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Field, Role

MAX_LEVEL = 3  # grey levels 0 .. 3: two bits
MAX_HALF_INT = 2048.0  # whole numbers up to this one are exact in half precision (IEEE 754)
_BITS = np.arange(256, dtype=np.uint8)
# [256, 4] the four pixels of each byte
_PIXELS_OF_BYTE: Bytes = np.stack([_BITS >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)


def pack_levels(levels: Bytes) -> Bytes:
    """Grey levels 0 .. 3 [..., pixels] as two bits each [..., ceil(pixels / 4)], the first pixel lowest."""
    missing = -levels.shape[-1] % 4
    if missing:
        levels = np.concatenate([levels, np.zeros((*levels.shape[:-1], missing), np.uint8)], axis=-1)
    four = levels.reshape(*levels.shape[:-1], -1, 4)
    return np.asarray(four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6, np.uint8)


def unpack_levels(packed: Bytes, pixels: int) -> Bytes:
    """The reverse: [..., pixels]."""
    return _PIXELS_OF_BYTE[packed].reshape(*packed.shape[:-1], -1)[..., :pixels]


@dataclass(frozen=True)
class DecodedObservation:
    """Unpacked: frames [..., H, W] and visited [..., K, K] as uint8, or None; numbers."""

    frames: Bytes | None
    visited: Bytes | None
    numbers: Floats  # [..., S]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """name -> array, without those that are None."""
        return {name: array for name, array in vars(self).items() if array is not None}


class ObservationCodec:
    """Which observation columns of a role are frame, mask and numbers, and how each is packed."""

    def __init__(self, role: Role) -> None:
        self.image_field: Field | None = None
        self.visited_side = 0  # of the visited mask; 0: none
        number_columns: list[int] = []
        self.categories: tuple[int, ...] = ()
        bound, offset = 0.0, 0
        for f in role.fields:
            columns = slice(offset, offset + f.size)
            square = round(f.size**0.5)
            is_image = len(f.shape) == 2 and not f.categories and f.name not in ("history", "visited")
            if self.image_field is None and is_image:
                self.image_field, self._frame = f, columns
            elif f.name == "visited" and not f.categories and not self.visited_side:
                if square * square != f.size:
                    raise ConfigError(f"{role.name}: visited has {f.size} numbers; expected a square")
                self.visited_side, self._mask, self._middle = square, columns, (f.low + f.high) / 2
            else:
                number_columns += range(columns.start, columns.stop)
                self.categories += f.categories or (0,) * f.size
                bound = max(bound, abs(f.low), abs(f.high), *(f.categories or (0,)))
            offset += f.size
        self.columns = np.array(number_columns, np.intp)
        self.number_dtype = np.dtype(np.float16 if bound <= MAX_HALF_INT else np.float32)
        self.shape: tuple[int, ...] = self.image_field.shape if self.image_field else ()
        self.pixels = int(np.prod(self.shape)) if self.image_field else 0

    @property
    def packed(self) -> dict[str, tuple[int, np.dtype[np.generic]]]:
        """name -> (size per step, dtype) of the arrays that `pack` returns."""
        out: dict[str, tuple[int, np.dtype[np.generic]]] = {}
        if self.image_field:
            out["frame"] = (-(-self.pixels // 4), np.dtype(np.uint8))
        if self.visited_side:
            out["visited"] = (-(-self.visited_side * self.visited_side // 8), np.dtype(np.uint8))
        return out | {"numbers": (len(self.columns), self.number_dtype)}

    def pack(self, obs: Floats) -> dict[str, NDArray[np.generic]]:
        """Observations [..., F] -> name -> [..., size]."""
        out: dict[str, NDArray[np.generic]] = {}
        if self.image_field:
            low, high = self.image_field.low, self.image_field.high
            levels = (obs[..., self._frame] - np.float32(low)) * np.float32(MAX_LEVEL / (high - low))
            out["frame"] = pack_levels(np.rint(levels).clip(0, MAX_LEVEL).astype(np.uint8))
        if self.visited_side:
            out["visited"] = np.packbits(obs[..., self._mask] > self._middle, axis=-1)
        out["numbers"] = obs[..., self.columns].astype(self.number_dtype)
        return out

    def tensors(self, obs: Any) -> tuple[Any, Any, Any]:
        """As `unpack(pack(obs))` in torch, for ONNX files: frames in [0, 1], visited, numbers [n, S]."""
        import torch

        frames = visited = None
        if self.image_field:
            low, high = self.image_field.low, self.image_field.high
            levels = torch.round((obs[:, self._frame] - low) * (MAX_LEVEL / (high - low)))
            frames = levels.clamp(0, MAX_LEVEL).div(MAX_LEVEL).reshape(-1, *self.shape)
        if self.visited_side:
            mask = (obs[:, self._mask] > self._middle).float()
            visited = mask.reshape(-1, self.visited_side, self.visited_side)
        numbers = obs[:, torch.from_numpy(self.columns)]
        is_half = self.number_dtype == np.float16
        return frames, visited, numbers.half().float() if is_half else numbers

    def unpack(self, packed: dict[str, NDArray[np.generic]]) -> DecodedObservation:
        frames = visited = None
        lead = packed["numbers"].shape[:-1]
        if self.image_field:
            levels = unpack_levels(np.asarray(packed["frame"], np.uint8), self.pixels)
            frames = levels.reshape(*lead, *self.shape)
        if self.visited_side:
            bits = np.unpackbits(np.asarray(packed["visited"], np.uint8), axis=-1, count=self.visited_side**2)
            visited = bits.reshape(*lead, self.visited_side, self.visited_side)
        return DecodedObservation(frames, visited, packed["numbers"].astype(np.float32))
