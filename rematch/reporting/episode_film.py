"""A film of one episode: the world's picture beside the player's Q values, rewards and milestones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from rematch.core.recording import EpisodeRecording, Frame
from rematch.evaluation.text import clean
from rematch.reporting import match_film, mp4

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Colour = tuple[int, int, int]
PANEL, EDGE, LINE = 240, 12, 17  # pixels
PAPER, INK, FAINT, TRACK = (24, 28, 38), (240, 243, 248), (140, 150, 168), (52, 60, 76)
GOLD, BLUE, GREEN = (250, 196, 60), (96, 156, 236), (104, 190, 120)
MAX_PICTURES, MAX_BYTES = 200, 4_000_000  # of the GIF


def films(recording: EpisodeRecording) -> tuple[dict[str, bytes], str]:
    """Name -> bytes of the GIF and of the MP4; and the reason where the MP4 is missing."""
    last = match_film.captioned(composed(recording.frames[-1], recording), recording.caption)
    selected = recording.frames[:: -(-len(recording.frames) // MAX_PICTURES)]
    gif = match_film.gif([composed(frame, recording) for frame in selected], last, MAX_BYTES)
    data, reason = mp4.mp4(lambda: _reel(recording, last), match_film.FPS)
    return {f"{recording.name}.gif": gif} | ({f"{recording.name}.mp4": data} if data else {}), reason


def _reel(recording: EpisodeRecording, last: Image) -> Iterator[Image]:
    """One picture after the other, then the last one for HOLD seconds: all at once would take a gigabyte."""
    yield from (composed(frame, recording) for frame in recording.frames)
    yield from [last] * int(match_film.FPS * match_film.HOLD)


def composed(frame: Frame, recording: EpisodeRecording) -> Image:
    """The picture with the panel to its right; width and height are even, as encoders require."""
    from PIL import Image, ImageDraw

    picture = frame.picture.image()
    bars = max(len(each.milestones) for each in recording.frames)  # all pictures of a film are of one size
    needed = EDGE * 4 + LINE * (3 + len(recording.actions) + len(frame.rewards) + bars)
    height = max(picture.height, needed)
    sheet = Image.new("RGB", (picture.width + PANEL + picture.width % 2, height + height % 2), PAPER)
    sheet.paste(picture, (0, 0))
    pen = ImageDraw.Draw(sheet)
    left = sheet.width - PANEL + EDGE
    top = _values(pen, frame, recording.actions, (left, EDGE))
    top = _rewards(pen, frame, (left, top + EDGE))
    if frame.milestones:
        _milestones(pen, frame, (left, top + EDGE))
    return sheet


@lru_cache(4096)
def _text_mask(text: str) -> Image:
    """A text as a mask, LINE pixels high; cached, because most texts return in the next picture."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(12)  # Pillow's font: the same glyphs on every machine
    mask = Image.new("L", (max(1, math.ceil(font.getlength(text))), LINE))
    ImageDraw.Draw(mask).text((0, LINE / 2), text, 255, font, anchor="lm")
    return mask


def _text_left(pen: ImageDraw, at: tuple[int, int], text: str, colour: Colour = INK) -> None:
    pen.bitmap(at, _text_mask(clean(text)), colour)


def _text_right(pen: ImageDraw, at: tuple[int, int], text: str, colour: Colour = INK) -> None:
    mask = _text_mask(clean(text))
    pen.bitmap((at[0] - mask.width, at[1]), mask, colour)


def _bar(pen: ImageDraw, at: tuple[int, int], share: float, colour: Colour) -> None:
    x, y = at
    width = PANEL - 2 * EDGE - 136
    pen.rectangle((x, y + 4, x + width, y + LINE - 5), fill=TRACK)
    if share > 0:
        pen.rectangle((x, y + 4, x + round(width * min(1.0, share)), y + LINE - 5), fill=colour)


def _values(pen: ImageDraw, frame: Frame, actions: tuple[str, ...], at: tuple[int, int]) -> int:
    """Q of every action: a bar from the lowest to the highest value; the chosen action in gold."""
    left, top = at
    right = left + PANEL - 2 * EDGE
    _text_left(pen, (left, top), "action", FAINT)
    _text_right(pen, (right, top), "Q", FAINT)
    low, high = float(frame.scores.min()), float(frame.scores.max())
    for number, name in enumerate(actions):
        top += LINE
        score, taken = float(frame.scores[number]), number == frame.action
        _text_left(pen, (left, top), name, GOLD if taken else INK)
        _bar(pen, (left + 76, top), (score - low) / (high - low or math.inf), GOLD if taken else BLUE)
        _text_right(pen, (right, top), f"{score:.3f}", GOLD if taken else INK)
    return top + LINE


def _rewards(pen: ImageDraw, frame: Frame, at: tuple[int, int]) -> int:
    """The reward terms: of the step before, and the sum of the episode."""
    left, top = at
    right = left + PANEL - 2 * EDGE
    _text_left(pen, (left, top), "reward", FAINT)
    _text_right(pen, (right - 70, top), "step", FAINT)
    _text_right(pen, (right, top), "total", FAINT)
    for name, (step_reward, total) in frame.rewards.items():
        top += LINE
        _text_left(pen, (left, top), f"r_{name}", INK)
        _text_right(pen, (right - 70, top), f"{step_reward:+.3f}", INK if step_reward else FAINT)
        _text_right(pen, (right, top), f"{total:.2f}", INK)
    return top + LINE


def _milestones(pen: ImageDraw, frame: Frame, at: tuple[int, int]) -> None:
    """Posterior means as bars; milestones that were reached are green."""
    left, top = at
    right = left + PANEL - 2 * EDGE
    _text_left(pen, (left, top), "milestones", FAINT)
    if any(mean is not None for _, mean, _ in frame.milestones):
        _text_right(pen, (right, top), "theta", FAINT)
    for name, mean, reached in frame.milestones:
        top += LINE
        colour = GREEN if reached else INK
        _text_left(pen, (left, top), f"{name:.14}", colour)
        _bar(pen, (left + 106, top), float(reached) if mean is None else mean, GREEN if reached else BLUE)
        state = "set" if reached else "-"
        _text_right(pen, (right, top), state if mean is None else f"{mean:.2f}", colour)
