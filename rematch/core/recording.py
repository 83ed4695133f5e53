"""A recorded episode: pictures, actions, scores and rewards of its steps."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rematch.core.arrays import Floats


@dataclass(frozen=True)
class CompressedImage:
    """A compressed RGB image: a recording holds hundreds of them until its episode ends."""

    size: tuple[int, int]  # width, height
    data: bytes  # zlib

    @classmethod
    def of(cls, picture: Any) -> CompressedImage:
        """Compress a PIL.Image.Image."""
        return cls(picture.size, zlib.compress(picture.convert("RGB").tobytes(), 1))

    def image(self) -> Any:
        """The PIL.Image.Image."""
        from PIL import Image

        return Image.frombytes("RGB", self.size, zlib.decompress(self.data))


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame of a recorded episode: picture, action, action scores, rewards and milestones."""

    picture: CompressedImage  # of the world's renderer
    action: int
    scores: Floats  # [A] Q values or probabilities of the actions
    rewards: Mapping[str, tuple[float, float]]  # term -> value of the previous step, sum so far
    milestones: tuple[tuple[str, float | None, bool], ...]  # name, posterior mean, whether it is reached


@dataclass(frozen=True, kw_only=True)
class EpisodeRecording:
    """A recorded episode with one frame per `steps_per_frame` steps."""

    name: str
    actions: tuple[str, ...]
    frames: list[Frame]
    steps_per_frame: int
    caption: str  # end of the episode: reason, steps, returns
