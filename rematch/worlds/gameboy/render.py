"""Pictures for films: the screen, three times enlarged, below a strip with place, step and reward."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .cartridge.constants import ACTIONS

if TYPE_CHECKING:
    from .world import GameboyWorld

SCALE, STRIP, EDGE = 3, 48, 8  # pixels
PAPER, INK, FAINT, GOLD = (24, 28, 38), (240, 243, 248), (140, 150, 168), (250, 196, 60)
# Four greens from dark to light instead of greys, as on the display of the console.
SHADES = np.array([(22, 44, 40), (64, 104, 74), (142, 178, 104), (224, 240, 192)], np.uint8)


def picture(world: GameboyWorld, row: int, trail: list[Any]) -> Image.Image:
    """480 x 480 pixels; the last item of `trail` is the sum of rewards so far."""
    state = world.state[row]
    time = int(state["time"])
    reward = float(world.view.reward[row, 0]) if time else 0.0
    trail.append((trail[-1] if trail else 0.0) + reward)
    colours = SHADES[world.screen(row) >> 6]
    screen = Image.fromarray(colours).resize((160 * SCALE, 144 * SCALE), Image.Resampling.NEAREST)
    sheet = Image.new("RGB", (screen.width, screen.height + STRIP), PAPER)
    sheet.paste(screen, (0, STRIP))
    facts = world._facts(np.array([row]))
    place = f"{world.title.map_name(int(facts.map[0]))}  {int(facts.x[0])}, {int(facts.y[0])}"
    action = ACTIONS[int(state["inputs"][time - 1])] if time else "-"
    pen = ImageDraw.Draw(sheet)
    large, small = _font(17), _font(13)
    pen.text((EDGE, 14), place, INK, large, anchor="lm")
    pen.text((EDGE, 35), f"step {time}   {action}", FAINT, small, anchor="lm")
    pen.text((sheet.width - EDGE, 14), f"reward {trail[-1]:.2f}", INK, large, anchor="rm")
    pen.text((sheet.width - EDGE, 35), f"{reward:+.3f}", FAINT, small, anchor="rm")
    owned, total = facts.badges[0].tolist(), _badges(world)
    for number in range(total):
        x = sheet.width / 2 + 20 * (number - (total - 1) / 2)
        spot = (x - 7, 28, x + 7, 42)
        colour = GOLD if owned[number] else FAINT
        pen.ellipse(spot, fill=colour if owned[number] else None, outline=colour, width=2)
    pen.text((sheet.width / 2, 14), "badges", FAINT, small, anchor="mm")
    return sheet


@lru_cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _badges(world: GameboyWorld) -> int:
    return sum(milestone.kind == "badge" for milestone in world.title.milestones)
