"""match.gif: one game between players, from the first step to its result.

A game's renderer, `draw(world, row, trail) -> PIL.Image`, makes each picture. `trail` is one list for the
whole game, empty at its start: draw may append to it what it wants to show of the past (positions, cards
played) and is asked once before every step, in order, so nothing is missed where the film itself skips
pictures.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.stepping import SeatedPlayers, empty_actions
from rematch.core.world import CUT_OFF, RUNNING, View, World
from rematch.evaluation.text import clean
from rematch.worlds.capabilities import Draw

if TYPE_CHECKING:
    from PIL.Image import Image

FPS = 20  # pictures per second; GIF delays are hundredths of a second (GIF89a, 23.c.vi)
SIDE = 480  # largest width or height, in pixels
COLOURS = 64  # one palette for the film: small files, and areas that do not change cost nothing
MOST_BYTES = 1_500_000
MOST_STEPS = 100_000  # limit for a game that never ends
HOLD = 2.0  # seconds for which the last picture is shown


class Reel:
    """At most `most` pictures, evenly spaced: when full, every second one is dropped."""

    def __init__(self, most: int) -> None:
        self.most, self.pace, self.seen = max(2, most), 1, 0
        self.pictures: list[Image] = []
        self.last: Image | None = None

    def add(self, picture: Image) -> None:
        if self.seen % self.pace == 0:
            if len(self.pictures) == self.most:
                self.pictures, self.pace = self.pictures[::2], 2 * self.pace
            if self.seen % self.pace == 0:
                self.pictures.append(_fitted(picture))
        self.last = picture
        self.seen += 1

    def end(self) -> list[Image]:
        """The selected pictures, always with the last one."""
        if self.last is not None and (self.seen - 1) % self.pace:
            return [*self.pictures, _fitted(self.last)]
        return self.pictures


def film(
    world: World, players: Mapping[str, Player], draw: Draw, seconds: float = 12.0, seed: int = 0,
    before_step: Callable[[], None] = lambda: None,
) -> tuple[bytes, str]:  # fmt: skip
    """The running game of `world` (games=1) to its end as a GIF, and its caption; arguments as `played`.

    Equal worlds, players and seeds give equal bytes.
    """
    pictures, last, caption = played(world, players, draw, seconds, seed, before_step)
    return gif(pictures, last, MOST_BYTES), caption


def played(
    world: World, players: Mapping[str, Player], draw: Draw, seconds: float, seed: int,
    before_step: Callable[[], None] = lambda: None,
) -> tuple[list[Image], Image, str]:  # fmt: skip
    """Pictures of a game that is played to its end, the last one again with its caption, and the caption.

    players: role -> Player; a player takes all seats of its role. Of a game that is longer than `seconds`,
    pictures are left out. `before_step` may raise StopRequested.
    """
    if world.games != 1:
        raise ConfigError(f"film: games = {world.games}: expected a world of 1 game")
    missing = [role for role in world.spec.roles if role not in players]
    if missing:
        raise ConfigError(f"film: no player for {', '.join(missing)}")
    reel = Reel(int((seconds - HOLD) * FPS))
    trail: list[Any] = []
    by_seat = {seat: players[world.spec.role_of(seat).name] for seat in range(world.spec.seats)}
    seeds = {seat: rng.key(seed, rng.EVALUATION, seat) for seat in by_seat}
    seated = SeatedPlayers(by_seat, seeds, rng.ACT)
    while True:
        before_step()
        # Before the step: an ended game restarts at once, so its last position is never in the view.
        reel.add(draw(world, 0, trail))
        actions = empty_actions(world)
        seated.act(world, actions, reel.seen - 1)
        view = world.step(actions)
        if view.ended[0] != RUNNING or reel.seen == MOST_STEPS:
            break
    caption = outcome(world, view, players)
    pictures = reel.end()
    return pictures, captioned(pictures[-1], caption), caption


def outcome(world: World, view: View, players: Mapping[str, Player]) -> str:
    """The result of a game: "pursuer (pure_pursuit) wins after 143 steps"."""
    after = f"after {int(view.length[0])} steps"
    if view.ended[0] == RUNNING:
        return f"still undecided {after}"
    if view.ended[0] == CUT_OFF:
        return f"undecided, cut off {after}"
    score = view.outcome[0]
    if world.spec.seats == 1:  # no opponent
        return f"{'goal reached' if score[0] > 0 else 'over'} {after}"
    best = float(score.max())
    winners = [number for number in range(world.spec.seats) if score[number] == best]
    if best <= 0 or len(winners) == world.spec.seats or best == 0.5:
        return f"drawn {after}"
    names = []
    for number in winners:
        role = world.spec.role_of(number)
        seat = f" {role.seats.index(number) + 1}" if len(role.seats) > 1 else ""
        name = players[role.name].name
        names.append(name if name.startswith(role.name) and not seat else f"{role.name}{seat} ({name})")
    return clean(f"{' and '.join(names)} {'wins' if len(names) == 1 else 'win'} {after}")


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


def gif(pictures: list[Image], last: Image, most: int) -> bytes:
    """A GIF of at most `most` bytes: pictures are dropped evenly, and the duration stays the same."""
    delay = 1000 // FPS
    while True:
        data = _encoded([*pictures, last], [delay] * len(pictures) + [round(1000 * HOLD)])
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
