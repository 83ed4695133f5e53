"""A recorded episode: pictures, actions, scores and rewards of its steps."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rematch.core.arrays import Floats


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
