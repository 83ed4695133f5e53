"""Pictures of an arena from above: obstacles, robots with their headings, capture radius, fading trails.

With sensors also the rays of both lidars and both fields of view.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from .world import PursuitWorld

SIDE, CAPTION, BORDER = 480, 30, 12  # pixels of the finished picture
FINE = 2  # factor by which the drawing is larger before it is scaled down
TRAIL = 240  # past steps that are drawn
PAPER, FLOOR, WALL, GRID = (236, 239, 243), (250, 251, 253), (71, 85, 105), (229, 233, 239)
STONE, STONE_EDGE, INK = (148, 163, 184), (100, 116, 139), (30, 41, 59)
PAINT = {"pursuer": (220, 68, 55), "evader": (37, 110, 220)}

Colour = tuple[int, int, int]
Place = tuple[float, float]
Moment = tuple[Place, Place]  # positions of (pursuer, evader); an element of `trail`


def frame_point(world: PursuitWorld, row: int) -> Moment:
    """The present positions of both robots."""
    game = world.state_of(row)
    return (game["x"][0], game["y"][0]), (game["x"][1], game["y"][1])


def draw(world: PursuitWorld, row: int, trail: list[Moment]) -> Image.Image:
    """A picture of one game; adds this moment to `trail`, which the caller empties when a game restarts."""
    trail.append(frame_point(world, row))
    sheet = _Sheet(world)
    game = world.state_of(row)
    if not world.config.full_obs:
        for seat, (role, colour) in enumerate(PAINT.items()):
            rays = world.view[role]["lidar"][row, 0].tolist()
            sheet.sensors(trail[-1][seat], game["theta"][seat], rays, colour)
    for k in range(game["obstacles"]):
        centre = (game["obstacle_x"][k], game["obstacle_y"][k])
        sheet.disc(centre, game["obstacle_radius"][k], STONE, STONE_EDGE)
    past = trail[-TRAIL:]
    for seat, colour in enumerate(PAINT.values()):
        sheet.trail([moment[seat] for moment in past], colour)
    positions = trail[-1]
    sheet.ring(positions[0], world.config.capture_radius, PAINT["pursuer"])
    for seat, colour in enumerate(PAINT.values()):
        sheet.robot(positions[seat], game["theta"][seat], colour)
    distance = math.dist(*positions)
    sheet.caption(f"step {game['step']} / {world.config.max_steps}", f"distance {distance:.2f} m")
    return sheet.downscaled()


def _mix(colour: Colour, share: float, background: Colour = FLOOR) -> Colour:
    """A mixture: `share` of the colour, 1 - share of the background."""
    r, g, b = (round(share * c + (1 - share) * w) for c, w in zip(colour, background))
    return r, g, b


class _Sheet:
    """The drawing before it is scaled down; coordinates are metres, y upwards."""

    def __init__(self, world: PursuitWorld) -> None:
        self.config = config = world.config
        self.robot_radius = config.robot_radius
        height = SIDE - CAPTION - BORDER
        self.scale = FINE * min((SIDE - 2 * BORDER) / config.arena_width, height / config.arena_height)
        self.middle = (FINE * SIDE / 2, FINE * (CAPTION + height / 2))
        self.image = Image.new("RGB", (FINE * SIDE, FINE * SIDE), PAPER)
        self.pen = ImageDraw.Draw(self.image)
        half_w, half_h = config.arena_width / 2, config.arena_height / 2
        corners = [*self.at((-half_w, half_h)), *self.at((half_w, -half_h))]
        left, top, right, bottom = (round(number) for number in corners)
        self.floor = (left, top, right, bottom)
        self.pen.rounded_rectangle(corners, radius=3 * FINE, fill=FLOOR)
        step = 10 ** math.floor(math.log10(max(config.arena_width, config.arena_height))) / 2
        for n in range(-math.floor(half_w / step), math.floor(half_w / step) + 1):
            self.pen.line([self.at((n * step, -half_h)), self.at((n * step, half_h))], fill=GRID, width=FINE)
        for n in range(-math.floor(half_h / step), math.floor(half_h / step) + 1):
            self.pen.line([self.at((-half_w, n * step)), self.at((half_w, n * step))], fill=GRID, width=FINE)
        self.pen.rounded_rectangle(corners, radius=3 * FINE, outline=WALL, width=2 * FINE)

    def at(self, place: Place) -> Place:
        return self.middle[0] + place[0] * self.scale, self.middle[1] - place[1] * self.scale

    def box(self, place: Place, radius: float) -> tuple[float, float, float, float]:
        x, y = self.at(place)
        r = radius * self.scale
        return x - r, y - r, x + r, y + r

    def disc(self, place: Place, radius: float, fill: Colour, edge: Colour) -> None:
        self.pen.ellipse(self.box(place, radius), fill=fill, outline=edge, width=FINE)

    def ring(self, place: Place, radius: float, colour: Colour) -> None:
        """A transparent disc with an edge, for the capture radius."""
        overlay = Image.new("RGBA", self.image.size, (0, 0, 0, 0))
        ImageDraw.Draw(overlay).ellipse(
            self.box(place, radius), fill=(*colour, 40), outline=(*colour, 150), width=FINE)
        self.image.paste(overlay, (0, 0), overlay)

    def sensors(self, place: Place, heading: float, rays: list[float], colour: Colour) -> None:
        """The field of view of a robot and the rays of its lidar."""
        config = self.config
        overlay = Image.new("RGBA", self.image.size, (*colour, 0))
        pen = ImageDraw.Draw(overlay)
        half = config.view_half_angle if config.visibility in ("fov", "combined") else 180.0
        ahead = -math.degrees(heading)  # pillow measures angles clockwise
        if config.visibility != "line_of_sight" and half > 0:
            pen.pieslice(self.box(place, config.view_range), ahead - half, ahead + half, fill=(*colour, 14))
        for k, share in enumerate(rays):
            angle, reach = heading - math.pi + 2 * math.pi * k / len(rays), share * config.lidar_range
            end = (place[0] + reach * math.cos(angle), place[1] + reach * math.sin(angle))
            pen.line([self.at(place), self.at(end)], fill=(*colour, 36), width=FINE)
        inside = overlay.crop(self.floor)
        self.image.paste(inside, self.floor[:2], inside)

    def trail(self, places: list[Place], colour: Colour) -> None:
        for n, (a, b) in enumerate(itertools.pairwise(places)):
            share = 0.08 + 0.67 * (n + 1) / len(places)
            self.pen.line([self.at(a), self.at(b)], fill=_mix(colour, share), width=2 * FINE)

    def robot(self, place: Place, heading: float, colour: Colour) -> None:
        """An arrowhead in a disc, with a smallest size of 7 pixels."""
        radius = max(1.6 * self.robot_radius, 7 * FINE / self.scale)
        self.disc(place, radius, colour, (255, 255, 255))
        tip = [(0.8, 0.0), (-0.5, 0.55), (-0.2, 0.0), (-0.5, -0.55)]
        turned = [(place[0] + radius * (x * math.cos(heading) - y * math.sin(heading)),
                   place[1] + radius * (x * math.sin(heading) + y * math.cos(heading))) for x, y in tip]
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

    def downscaled(self) -> Image.Image:
        return self.image.resize((SIDE, SIDE), Image.Resampling.BOX)
