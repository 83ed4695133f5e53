"""A lattice from above: cells, block, both robots with their headings, the capture radius, fading trails."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from .config import HEADINGS, free_cells

if TYPE_CHECKING:
    from .world import LatticeWorld

SIDE, CAPTION, BORDER = 480, 30, 12  # pixels of the finished picture
FINE = 2  # drawn this much larger, then averaged down
TRAIL = 40  # moves of the past that are shown
PAPER, FLOOR, LINE = (236, 239, 243), (250, 251, 253), (214, 220, 228)
WALL, STONE, INK = (71, 85, 105), (148, 163, 184), (30, 41, 59)
PAINT = {"pursuer": (220, 68, 55), "evader": (37, 110, 220)}

Colour = tuple[int, int, int]
Cell = tuple[float, float]
Moment = tuple[Cell, Cell]  # the cells of (pursuer, evader); what `trail` is made of


def frame_point(world: LatticeWorld, row: int) -> Moment:
    """Where both robots are now, on the board itself: pictures are never turned or mirrored."""
    n = world.config.n
    pursuer, evader = (state // 8 for state in world.state_of(row)["robot"])
    return (pursuer % n, pursuer // n), (evader % n, evader // n)


def draw(world: LatticeWorld, row: int, trail: list[Moment]) -> Image.Image:
    """A picture of one game; adds this moment to `trail`, which the caller empties when a game restarts."""
    trail.append(frame_point(world, row))
    game, here, past = world.state_of(row), trail[-1], trail[-TRAIL:]
    sheet = _Sheet(world)
    sheet.reach(here[0], world.config.radius, PAINT["pursuer"])
    for seat, colour in enumerate(PAINT.values()):
        side = 0.09 * (1 - 2 * seat)  # beside one another where they share a path
        sheet.fading([(cell[seat][0] + side, cell[seat][1] + side) for cell in past], colour)
    for seat, colour in enumerate(PAINT.values()):
        sheet.robot(here[seat], game["robot"][seat] % 8, colour)
    left = game["moves_left"]
    sheet.caption(f"{left} move{'s' if left != 1 else ''} left", f"distance {math.dist(*here):.2f}")
    return sheet.image.resize((SIDE, SIDE), Image.Resampling.BOX)


class _Sheet:
    """The large drawing; takes cells, y upwards."""

    def __init__(self, world: LatticeWorld) -> None:
        self.n = n = world.config.n
        room = SIDE - CAPTION - BORDER
        self.cell = FINE * room / n
        self.left, self.foot = FINE * (SIDE - room) / 2, FINE * (CAPTION + room)
        self.image = Image.new("RGB", (FINE * SIDE, FINE * SIDE), PAPER)
        self.pen = ImageDraw.Draw(self.image)
        for index, free in enumerate(free_cells(world.config).tolist()):
            place = index % n, index // n
            self.pen.rectangle(self.box(place, 0.5), fill=FLOOR if free else STONE, outline=LINE, width=FINE)
        self.pen.rectangle(self.box(((n - 1) / 2, (n - 1) / 2), n / 2), outline=WALL, width=2 * FINE)

    def at(self, cell: Cell) -> Cell:
        """The middle of a cell."""
        return self.left + (cell[0] + 0.5) * self.cell, self.foot - (cell[1] + 0.5) * self.cell

    def box(self, cell: Cell, half: float) -> tuple[float, float, float, float]:
        x, y = self.at(cell)
        return x - half * self.cell, y - half * self.cell, x + half * self.cell, y + half * self.cell

    def reach(self, cell: Cell, radius: float, colour: Colour) -> None:
        """A pale disc for the capture radius."""
        veil = Image.new("RGBA", self.image.size, (0, 0, 0, 0))
        ImageDraw.Draw(veil).ellipse(
            self.box(cell, max(radius, 0.05)), fill=(*colour, 36), outline=(*colour, 140), width=FINE)
        self.image.paste(veil, (0, 0), veil)

    def fading(self, cells: list[Cell], colour: Colour) -> None:
        width = max(FINE, round(0.07 * self.cell))
        for k, (a, b) in enumerate(itertools.pairwise(cells)):
            share = 0.15 + 0.6 * (k + 1) / len(cells)
            r, g, b_ = (round(share * c + (1 - share) * ground) for c, ground in zip(colour, FLOOR))
            self.pen.line([self.at(a), self.at(b)], fill=(r, g, b_), width=width)

    def robot(self, cell: Cell, heading: int, colour: Colour) -> None:
        """A disc with an arrowhead in it."""
        self.pen.ellipse(self.box(cell, 0.38), fill=colour, outline=(255, 255, 255), width=FINE)
        dx, dy = (step / math.hypot(*HEADINGS[heading]) for step in HEADINGS[heading])
        tip = [(0.32, 0.0), (-0.18, 0.22), (-0.08, 0.0), (-0.18, -0.22)]
        turned = [(cell[0] + x * dx - y * dy, cell[1] + x * dy + y * dx) for x, y in tip]
        self.pen.polygon([self.at(point) for point in turned], fill=(255, 255, 255))

    def caption(self, left: str, right: str) -> None:
        font = ImageFont.load_default(14 * FINE)
        line = FINE * CAPTION / 2
        self.pen.text((FINE * BORDER, line), left, fill=INK, font=font, anchor="lm")
        self.pen.text((FINE * (SIDE - BORDER), line), right, fill=INK, font=font, anchor="rm")
        spot = FINE * SIDE / 2 - FINE * 84
        for name, colour in PAINT.items():
            self.pen.ellipse((spot, line - 5 * FINE, spot + 10 * FINE, line + 5 * FINE), fill=colour)
            self.pen.text((spot + 15 * FINE, line), name, fill=INK, font=font, anchor="lm")
            spot += 92 * FINE
