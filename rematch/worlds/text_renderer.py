"""Pictures of games that have no renderer: actions and observations, as text and bars."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rematch.core.recording import Replay
from rematch.core.world import World

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE, EDGE, LINE, BAR = 480, 14, 19, 130  # pixels
MOST_ROWS = 20  # observed numbers of all roles together
PAPER, INK, FAINT = (250, 251, 253), (30, 41, 59), (100, 116, 139)
TRACK, BLUE = (226, 231, 238), (37, 110, 220)


class TextRenderer:
    """Draws the steps of one replay."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def draw(self, world: World, row: int, trail: list[Any]) -> Image:
        """A picture of the game before a step; `trail` counts the steps."""
        from PIL import Image as Images
        from PIL import ImageDraw

        step = len(trail)
        trail.append(step)
        picture = Images.new("RGB", (SIDE, SIDE), PAPER)
        pen = ImageDraw.Draw(picture)
        pen.text((EDGE, EDGE), f"step {step} of {self.replay.length}", INK, _font(17))
        top = EDGE + 2 * LINE
        for line in self._moves(world, step):
            pen.text((EDGE, top), line[:64], INK, _font(13))
            top += LINE
        top += LINE // 2
        shown = max(1, MOST_ROWS // len(world.spec.roles))
        for role in world.spec.roles.values():
            pen.text((EDGE, top), f"{role.name} observes", FAINT, _font(13))
            top += LINE
            columns = [(f, i, name) for f in role.fields for i, name in enumerate(f.columns)]
            for field, i, name in columns[:shown]:
                number = float(world.view[role.name][field.name][row, 0].reshape(-1)[i])
                share = (number - field.low) / ((field.high - field.low) or 1)
                _bar(pen, top, clean(name), number, min(1.0, max(0.0, share)))
                top += LINE
            if len(columns) > shown:
                pen.text((EDGE, top), f"and {len(columns) - shown} more numbers", FAINT, _font(13))
                top += LINE
        return picture

    def _moves(self, world: World, step: int) -> list[str]:
        """The actions of the seats that are to move now."""
        lines = []
        for seat in range(world.spec.seats):
            if not world.view.acting[0, seat]:
                continue
            role = world.spec.role_of(seat)
            action = self.replay.actions[role.name][step, role.seats.index(seat)]
            if role.actions.kind == "discrete":
                text = role.actions.names[int(action)]
            else:
                text = ", ".join(f"{name} {x:+.2f}" for name, x in zip(role.actions.names, action))
            lines.append(clean(f"{self.replay.seat_name(seat)}: {text}"))
        return lines


def clean(text: str) -> str:
    return "".join(c for c in text if c.isprintable())


def _bar(pen: Any, top: int, name: str, number: float, share: float) -> None:
    left = SIDE - EDGE - BAR
    pen.text((EDGE, top), name[:34], INK, _font(13))
    pen.text((left - 8, top), f"{number:.3g}", INK, _font(13), anchor="ra")
    pen.rectangle((left, top + 3, left + BAR, top + LINE - 5), fill=TRACK)
    pen.rectangle((left, top + 3, left + round(BAR * share), top + LINE - 5), fill=BLUE)


@lru_cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)  # Pillow's font: the same glyphs on every machine
