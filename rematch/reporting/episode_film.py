"""A filmed episode: the world's picture, and beside it what the player thought, was paid and has reached."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from rematch.core.recording import Shot, Take
from rematch.reporting import match_film, mp4
from rematch.reporting.text import clean

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Colour = tuple[int, int, int]
PANEL, EDGE, LINE = 240, 12, 17  # pixels
PAPER, INK, FAINT, TRACK = (24, 28, 38), (240, 243, 248), (140, 150, 168), (52, 60, 76)
GOLD, BLUE, GREEN = (250, 196, 60), (96, 156, 236), (104, 190, 120)
MOST_PICTURES, MOST_BYTES = 200, 4_000_000  # of the GIF


def films(take: Take) -> tuple[dict[str, bytes], str]:
    """Name -> bytes of its GIF and its MP4; and why one of them is missing."""
    last = match_film.captioned(composed(take.shots[-1], take), take.caption)
    fewer = take.shots[:: -(-len(take.shots) // MOST_PICTURES)]
    made = {f"{take.name}.gif": match_film.gif([composed(shot, take) for shot in fewer], last, MOST_BYTES)}
    data, why = mp4.mp4(lambda: _reel(take, last), match_film.FPS)
    return made | ({f"{take.name}.mp4": data} if data else {}), why


def _reel(take: Take, last: Image) -> Iterator[Image]:
    """One picture after the other, the last one held: all of them at once would take a gigabyte."""
    yield from (composed(shot, take) for shot in take.shots)
    yield from [last] * int(match_film.FPS * match_film.HOLD)


def composed(shot: Shot, take: Take) -> Image:
    """The picture with the panel at its right; both sides even, as encoders want them."""
    from PIL import Image, ImageDraw

    picture = shot.picture.image()
    bars = max(len(each.bars) for each in take.shots)  # all pictures of a film are of one size
    needed = EDGE * 4 + LINE * (3 + len(take.actions) + len(shot.paid) + bars)
    height = max(picture.height, needed)
    sheet = Image.new("RGB", (picture.width + PANEL + picture.width % 2, height + height % 2), PAPER)
    sheet.paste(picture, (0, 0))
    pen = ImageDraw.Draw(sheet)
    left = sheet.width - PANEL + EDGE
    top = _values(pen, shot, take.actions, (left, EDGE))
    top = _rewards(pen, shot, (left, top + EDGE))
    if shot.bars:
        _milestones(pen, shot, (left, top + EDGE))
    return sheet


@lru_cache(4096)
def _written(text: str) -> Image:
    """A word as a mask, LINE high: most words come again in the next picture, and glyphs are slow to draw."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(12)  # Pillow's own: the same glyphs on every machine
    mask = Image.new("L", (max(1, math.ceil(font.getlength(text))), LINE))
    ImageDraw.Draw(mask).text((0, LINE / 2), text, 255, font, anchor="lm")
    return mask


def _left(pen: ImageDraw, at: tuple[int, int], text: str, colour: Colour = INK) -> None:
    pen.bitmap(at, _written(clean(text)), colour)


def _right(pen: ImageDraw, at: tuple[int, int], text: str, colour: Colour = INK) -> None:
    mask = _written(clean(text))
    pen.bitmap((at[0] - mask.width, at[1]), mask, colour)


def _bar(pen: ImageDraw, at: tuple[int, int], share: float, colour: Colour) -> None:
    x, y = at
    width = PANEL - 2 * EDGE - 136
    pen.rectangle((x, y + 4, x + width, y + LINE - 5), fill=TRACK)
    if share > 0:
        pen.rectangle((x, y + 4, x + round(width * min(1.0, share)), y + LINE - 5), fill=colour)


def _values(pen: ImageDraw, shot: Shot, actions: tuple[str, ...], at: tuple[int, int]) -> int:
    """Q of every action: a bar from the worst to the best, the action taken in gold."""
    left, top = at
    right = left + PANEL - 2 * EDGE
    _left(pen, (left, top), "action", FAINT)
    _right(pen, (right, top), "Q", FAINT)
    low, high = float(shot.scores.min()), float(shot.scores.max())
    for number, name in enumerate(actions):
        top += LINE
        score, taken = float(shot.scores[number]), number == shot.action
        _left(pen, (left, top), name, GOLD if taken else INK)
        _bar(pen, (left + 76, top), (score - low) / (high - low or math.inf), GOLD if taken else BLUE)
        _right(pen, (right, top), f"{score:.3f}", GOLD if taken else INK)
    return top + LINE


def _rewards(pen: ImageDraw, shot: Shot, at: tuple[int, int]) -> int:
    """The reward's components: of the step before, and so far."""
    left, top = at
    right = left + PANEL - 2 * EDGE
    _left(pen, (left, top), "reward", FAINT)
    _right(pen, (right - 70, top), "step", FAINT)
    _right(pen, (right, top), "so far", FAINT)
    for name, (now, so_far) in shot.paid.items():
        top += LINE
        _left(pen, (left, top), f"r_{name}", INK)
        _right(pen, (right - 70, top), f"{now:+.3f}", INK if now else FAINT)
        _right(pen, (right, top), f"{so_far:.2f}", INK)
    return top + LINE


def _milestones(pen: ImageDraw, shot: Shot, at: tuple[int, int]) -> None:
    """Posterior means as bars; what the game has set is green, with or without a belief about it."""
    left, top = at
    right = left + PANEL - 2 * EDGE
    _left(pen, (left, top), "milestones", FAINT)
    if any(mean is not None for _, mean, _ in shot.bars):
        _right(pen, (right, top), "theta", FAINT)
    for name, mean, reached in shot.bars:
        top += LINE
        colour = GREEN if reached else INK
        _left(pen, (left, top), f"{name:.14}", colour)
        _bar(pen, (left + 106, top), float(reached) if mean is None else mean, GREEN if reached else BLUE)
        said = ("set" if reached else "-") if mean is None else f"{mean:.2f}"
        _right(pen, (right, top), said, colour)
