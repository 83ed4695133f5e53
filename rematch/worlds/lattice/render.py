"""Pictures of a lattice from above: cells, block, robots and headings, capture radius, fading trails."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from .config import HEADINGS, free_cells

if TYPE_CHECKING:
    from .world import LatticeWorld

SIDE, CAPTION, BORDER = 480, 30, 12  # pixels of the finished picture
FINE = 2  # factor by which the drawing is larger before it is scaled down
TRAIL = 40  # past moves that are drawn
PAPER, FLOOR, LINE = (236, 239, 243), (250, 251, 253), (214, 220, 228)
WALL, STONE, INK = (71, 85, 105), (148, 163, 184), (30, 41, 59)
PAINT = {"pursuer": (220, 68, 55), "evader": (37, 110, 220)}

Colour = tuple[int, int, int]
Cell = tuple[float, float]
Moment = tuple[Cell, Cell]  # cells of (pursuer, evader); an element of `trail`


def frame_point(world: LatticeWorld, row: int) -> Moment:
    """The present cells of both robots on the board; pictures are never rotated or mirrored."""
    n = world.config.n
    pursuer, evader = (state // 8 for state in world.state_of(row)["robot"])
    return (pursuer % n, pursuer // n), (evader % n, evader // n)


def draw(world: LatticeWorld, row: int, trail: list[Moment]) -> Image.Image:
    """A picture of one game; adds this moment to `trail`, which the caller empties when a game restarts."""
    trail.append(frame_point(world, row))
    game = world.state_of(row)
    cells, past = trail[-1], trail[-TRAIL:]
    sheet = _Sheet(world)
    sheet.reach(cells[0], world.config.radius, PAINT["pursuer"])
    for seat, colour in enumerate(PAINT.values()):
        offset = 0.09 * (1 - 2 * seat)  # so that trails along the same path stay visible
        sheet.trail([(cell[seat][0] + offset, cell[seat][1] + offset) for cell in past], colour)
    for seat, colour in enumerate(PAINT.values()):
        sheet.robot(cells[seat], game["robot"][seat] % 8, colour)
    remaining = game["moves_left"]
    unit = "move" if remaining == 1 else "moves"
    sheet.caption(f"{remaining} {unit} left", f"distance {math.dist(*cells):.2f}")
    return sheet.image.resize((SIDE, SIDE), Image.Resampling.BOX)


class _Sheet:
    """The drawing before it is scaled down; coordinates are cells, y upwards."""

    def __init__(self, world: LatticeWorld) -> None:
        self.n = n = world.config.n
        height = SIDE - CAPTION - BORDER
        self.cell = FINE * height / n
        self.left, self.foot = FINE * (SIDE - height) / 2, FINE * (CAPTION + height)
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
        """A transparent disc for the capture radius."""
        overlay = Image.new("RGBA", self.image.size, (0, 0, 0, 0))
        ImageDraw.Draw(overlay).ellipse(
            self.box(cell, max(radius, 0.05)), fill=(*colour, 36), outline=(*colour, 140), width=FINE)
        self.image.paste(overlay, (0, 0), overlay)

    def trail(self, cells: list[Cell], colour: Colour) -> None:
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
