"""match.gif: one recorded game, from the first step to its result, at a speed that a person can follow.

The rules are stepped through the replay again. A game's renderer, `draw(world, row, trail) -> PIL.Image`,
makes each picture; a game without one is shown as text (worlds/text_renderer.py). `trail` is one list for
the whole game, empty at its start: draw may append to it what it wants to show of the past (positions, cards
played) and is asked once before every step, in order, so nothing is missed where the film skips pictures.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rematch.core.errors import ConfigError
from rematch.core.recording import CompressedImage, Replay
from rematch.evaluation.replay import Playback
from rematch.evaluation.text import clean
from rematch.reporting import mp4
from rematch.worlds import text_renderer
from rematch.worlds.capabilities import Renderer

if TYPE_CHECKING:
    from PIL.Image import Image

FPS = 20  # pictures per second, at most; GIF delays are hundredths of a second (GIF89a, 23.c.vi)
SIDE = 480  # largest width or height, in pixels
COLOURS = 64  # one palette for the film: small files, and areas that do not change cost nothing
MOST_BYTES = 1_500_000
MOST_PICTURES = 800  # of a GIF, which is encoded in memory
SECONDS = 60.0  # longest film, unless another length is wanted
HOLD = 2.0  # seconds for which the last picture is shown


@dataclass(frozen=True)
class Pace:
    """Which steps are shown, and for how long: every `stride`-th one, for `delay` seconds."""

    stride: int
    delay: float

    @classmethod
    def of(cls, length: int, steps_per_second: float, seconds: float, most: int) -> Pace:
        """The pace of the world, or a faster one where the game would last longer than `seconds`."""
        per_step = min(1 / steps_per_second, (seconds - HOLD) / max(1, length))
        shortest = max(1 / FPS, per_step * length / most)  # of one picture
        stride = max(1, math.ceil(shortest / per_step - 1e-9))
        return cls(stride, stride * per_step)


class MatchFilm:
    """The pictures of one replay."""

    def __init__(
        self, replay: Replay, seconds: float = SECONDS, before_step: Callable[[], None] = lambda: None
    ) -> None:
        self.replay, self.seconds, self.before_step = replay, seconds, before_step
        self.caption = clean(replay.caption())

    def pictures(self, most: int) -> Iterator[tuple[Image, float]]:
        """Pictures and the seconds for which they are shown; the last one again, with the caption."""
        playback = Playback(self.replay)
        renderer = playback.game.renderer or Renderer(draw=text_renderer.TextRenderer(self.replay).draw)
        rate = renderer.steps_per_second(playback.config)
        pace, trail = Pace.of(self.replay.length, rate, self.seconds, most), []  # type: ignore[var-annotated]
        picture = None
        for step in playback.steps():
            self.before_step()
            # Before the step: an ended game restarts at once, so its last position is never in the view.
            picture = renderer.draw(playback.world, 0, trail)
            if step % pace.stride == 0:
                yield _fitted(picture), pace.delay
        if picture is None:
            raise ConfigError("the replay has no step to show")
        yield captioned(_fitted(picture), self.caption), HOLD

    def gif(self) -> bytes:
        """Equal replays give equal bytes."""
        shown = [(CompressedImage.of(picture), delay) for picture, delay in self.pictures(MOST_PICTURES)]
        *pictures, last = (compressed.image() for compressed, _ in shown)
        return gif(pictures, last, MOST_BYTES, shown[0][1])

    def mp4(self) -> tuple[bytes, str]:
        """The bytes of an MP4 file; or none, and the reason."""
        return mp4.mp4(self._video, FPS)

    def _video(self) -> Iterator[Image]:
        """Pictures one by one, each as often as its time needs; all at once would take gigabytes."""
        due = 0.0
        for picture, delay in self.pictures(int(self.seconds * FPS)):
            even = picture.crop((0, 0, picture.width & ~1, picture.height & ~1))  # encoders need even sides
            due += delay * FPS
            while due >= 0.5:
                due -= 1
                yield even


def film(
    replay: Replay, seconds: float = SECONDS, before_step: Callable[[], None] = lambda: None
) -> tuple[bytes, str]:
    """A recorded game as a GIF, and its caption. `before_step` may raise StopRequested."""
    made = MatchFilm(replay, seconds, before_step)
    return made.gif(), made.caption


def _fitted(picture: Image) -> Image:
    from PIL import Image as Images

    picture = picture.convert("RGB")
    scale = SIDE / max(picture.size)
    if scale < 1:
        size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
        picture = picture.resize(size, Images.Resampling.LANCZOS)
    return picture


def captioned(picture: Image, caption: str) -> Image:
    """The picture with the caption in a dark strip at its bottom, in several lines if needed."""
    from PIL import ImageDraw, ImageFont

    picture = picture.copy()
    pen = ImageDraw.Draw(picture)
    size = max(9, min(20, picture.width // 24))
    font = ImageFont.load_default(size)  # Pillow's font: the same glyphs on every machine
    lines: list[str] = []
    for word in caption.split():
        if lines and pen.textlength(f"{lines[-1]} {word}", font) <= picture.width - 16:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    height = round(1.3 * size)
    top = picture.height - height * len(lines) - 6
    pen.rectangle((0, top - 6, picture.width, picture.height), fill=(20, 20, 20))
    for i, line in enumerate(lines):
        pen.text((picture.width / 2, top + (i + 0.5) * height), line, (255, 255, 255), font, anchor="mm")
    return picture


def gif(pictures: list[Image], last: Image, most: int, seconds: float = 1 / FPS) -> bytes:
    """A GIF of at most `most` bytes, each picture for some `seconds`: pictures are dropped evenly, and the
    duration stays the same."""
    delay = 1000 * seconds
    while True:
        data = _encoded([*pictures, last], [round(delay)] * len(pictures) + [round(1000 * HOLD)])
        if len(data) <= most or len(pictures) <= 2:
            return data
        fewer = min(max(2, math.ceil(len(data) / most)), len(pictures) - 1)
        pictures, delay = pictures[::fewer], fewer * delay


def _encoded(pictures: list[Image], delays: list[int]) -> bytes:
    from PIL import Image as Images

    # One palette from a strip of sample pictures, without dithering: areas that do not move keep their bytes.
    width = max(picture.width for picture in pictures)
    sample = [*pictures[:: max(1, len(pictures) // 6)], pictures[-1]]
    strip = Images.new("RGB", (width, sum(picture.height for picture in sample)))
    top = 0
    for picture in sample:
        strip.paste(picture, (0, top))
        top += picture.height
    palette = strip.quantize(COLOURS, method=Images.Quantize.MEDIANCUT, dither=Images.Dither.NONE)
    frames = [picture.quantize(palette=palette, dither=Images.Dither.NONE) for picture in pictures]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=delays, loop=0,
                   optimize=False, disposal=1)
    return out.getvalue()
