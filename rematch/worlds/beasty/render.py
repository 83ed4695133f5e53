"""A picture of one game: the gate, the line, both piles, and the hand and deck of every player."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .config import POINTS, STRENGTH
from .state import PLACES, Card, State

if TYPE_CHECKING:
    from .world import BeastyWorld

WIDTH, SCALE = 720, 2  # pixels; the picture is drawn SCALE times larger and then averaged down
TOP, CARD, GAP = 44, (104, 132), 14  # height above the line; size of its cards; space between them
ROW, SMALL = 92, (52, 60)  # height of a player's row; size of its cards
FELT, RIM, INK, PALE = (38, 92, 74), (28, 70, 56), (24, 32, 38), (221, 232, 226)
FACE, DOOR = (252, 250, 244), (236, 190, 84)
COLOURS = ((206, 62, 48), (38, 104, 206), (226, 152, 24), (126, 76, 172))  # by owner

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]


def draw(world: BeastyWorld, row: int, trail: list[Any]) -> Image.Image:
    """A picture of one game; `trail` stores the line of each picture, to highlight new animals."""
    state = world.read(np.array([row], np.int32))[0]
    before = trail[-1] if trail else []
    trail.append(list(state.line))
    height = TOP + CARD[1] + 3 * GAP + ROW * state.players + GAP
    sheet = _Sheet(height)
    sheet.text((GAP, TOP / 2), "Beasty Bar", 20, PALE)
    sheet.text((WIDTH - GAP, TOP / 2), f"turn {state.step + 1}: player {state.turn} to play", 15, PALE, "rm")
    sheet.line(state, new=[card for card in state.line if card not in before] if before else [])
    for player in range(state.players):
        sheet.player(state, player, TOP + CARD[1] + 3 * GAP + player * ROW)
    return sheet.image.resize((WIDTH, height), Image.Resampling.BOX)


class _Sheet:
    """The enlarged drawing; coordinates are pixels of the final picture."""

    def __init__(self, height: int) -> None:
        self.image = Image.new("RGB", (SCALE * WIDTH, SCALE * height), FELT)
        self.pen = ImageDraw.Draw(self.image)

    def text(
        self, at: tuple[float, float], words: str, size: int, colour: Colour, anchor: str = "lm"
    ) -> None:
        place = (SCALE * at[0], SCALE * at[1])
        self.pen.text(place, words, fill=colour, font=ImageFont.load_default(size * SCALE), anchor=anchor)

    def box(self, box: Box, fill: Colour | None, edge: Colour, width: int = 2) -> None:
        scaled = tuple(SCALE * side for side in box)
        self.pen.rounded_rectangle(scaled, radius=6 * SCALE, fill=fill, outline=edge, width=width * SCALE)

    def dot(self, x: float, y: float, r: float, colour: Colour) -> None:
        self.pen.ellipse([SCALE * (x - r), SCALE * (y - r), SCALE * (x + r), SCALE * (y + r)], fill=colour)

    def line(self, state: State, new: list[Card]) -> None:
        """The gate and the places of the line; empty places as outlines, THAT'S IT at the end."""
        left = 4 * GAP + 30
        self.box((GAP, TOP, GAP + 40, TOP + CARD[1]), DOOR, RIM, 3)
        for k, letter in enumerate("GATE"):
            self.text((GAP + 20, TOP + 26 + 27 * k), letter, 18, INK, "mm")
        for place in range(PLACES + 1):
            x = left + place * (CARD[0] + GAP)
            box = (x, TOP, x + CARD[0], TOP + CARD[1])
            if place < len(state.line):
                self.card(box, state.line[place], state.line[place] in new)
            else:
                self.box(box, None, RIM, 2)
                if place == PLACES:
                    self.text((x + CARD[0] / 2, TOP + CARD[1] / 2), "THAT'S IT", 13, (92, 140, 122), "mm")

    def card(self, box: Box, card: Card, new: bool) -> None:
        owner, name = card
        x, y, right, low = box
        self.box(box, FACE, (255, 214, 90) if new else COLOURS[owner], 5 if new else 3)
        self.pen.rectangle(
            [SCALE * (x + 6), SCALE * (y + 36), SCALE * (right - 6), SCALE * (y + 62)], fill=COLOURS[owner]
        )
        middle = (x + right) / 2
        self.text((x + 12, y + 20), str(STRENGTH[name]), 22, INK)
        self.text((right - 10, y + 20), f"player {owner}", 11, COLOURS[owner], "rm")
        self.text((middle, y + 49), name, 15, (255, 255, 255), "mm")
        for k in range(POINTS[name]):
            self.dot(middle + 16 * (k - (POINTS[name] - 1) / 2), y + 86, 5.5, DOOR)
        self.text((middle, low - 18), f"{POINTS[name]} points", 12, INK, "mm")

    def player(self, state: State, player: int, y: float) -> None:
        """The row of one player: name, score, hand, deck, bar and THAT'S IT."""
        to_play = state.turn == player
        self.box((GAP, y, WIDTH - GAP, y + ROW - 10), RIM, (255, 214, 90) if to_play else RIM, 2)
        self.pen.rectangle(
            [SCALE * (GAP + 6), SCALE * (y + 8), SCALE * (GAP + 16), SCALE * (y + ROW - 18)],
            fill=COLOURS[player],
        )
        self.text((GAP + 26, y + 26), f"player {player}", 15, PALE)
        self.text((GAP + 26, y + 54), f"{state.points(player)} points", 17, (255, 255, 255))
        x = GAP + 132.0
        for name in sorted(state.hands[player], key=lambda name: STRENGTH[name]):
            self.box((x, y + 11, x + SMALL[0], y + 11 + SMALL[1]), FACE, COLOURS[player], 2)
            self.text((x + SMALL[0] / 2, y + 30), str(STRENGTH[name]), 18, INK, "mm")
            self.text((x + SMALL[0] / 2, y + 55), name[:9], 10, INK, "mm")
            x += SMALL[0] + 6
        x = GAP + 140 + 4 * (SMALL[0] + 6)
        for k in range(len(state.decks[player])):
            self.box((x + 2 * k, y + 20 - k, x + 26 + 2 * k, y + 56 - k), COLOURS[player], RIM, 1)
        self.text((x + 14, y + 69), f"deck {len(state.decks[player])}", 11, PALE, "mm")
        piles = (("bar", state.bar[player], FACE, INK), ("out", state.thats_it[player], FELT, PALE))
        for k, (words, pile, face, ink) in enumerate(piles):
            self.text((x + 56, y + 26 + 29 * k), words, 13, DOOR if k == 0 else PALE)
            for place, name in enumerate(sorted(pile, key=lambda name: -STRENGTH[name])):
                left, top = x + 82 + 20 * place, y + 15 + 29 * k
                self.box((left, top, left + 18, top + 22), face, COLOURS[player], 1)
                self.text((left + 9, top + 11), str(STRENGTH[name]), 12, ink, "mm")
