"""Tiles from text art: letters, map blocks, player and creatures, in the format of video RAM.

A tile has 8 x 8 pixels of two bits: sixteen bytes (low bits of a row, then its high bits). Bank 0 (tiles
0-127 at $8000) holds blocks and player, bank 1 (128-255 at $8800) letters and frames, bank 2 (0-127 at
$9000, selected on the battle and title screens) creatures and title.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

SHADES = {".": 0, "-": 1, "+": 2, "#": 3}
Picture = list[str]  # rows of SHADES
FIRST_LETTER_TILE = 0x80  # number of the first letter's tile
FRAME = ("┌", "─", "┐", "│", "└", "┘")  # letters of the text box's frame
BAR_TILES = 9  # tiles of a bar: 0 to 8 pixels filled
SPECIES = ("CINDER", "PUDDLE", "SPRIG", "MAGMOL", "FINLET", "MOSSUM")  # element: index modulo 3
FRIEND = "REMY"


def read_game_file(name: str) -> str:
    return (files(__package__) / "game" / name).read_text(encoding="utf-8")


def sections(name: str) -> list[list[str]]:
    """Paragraphs of a file as lists of lines, without the first paragraph, which describes the file."""
    return [part.strip("\n").split("\n") for part in read_game_file(name).split("\n\n")[1:]]


@cache
def pictures(name: str) -> dict[str, Picture]:
    """The named 16 x 16 pictures of a file."""
    named = {}
    for header, *rows in sections(name):
        title, *options = header.split()
        pixels = [row + row[::-1] for row in rows] if options == ["mirror"] else rows
        assert len(pixels) == 16 and {len(row) for row in pixels} == {16}, title
        named[title] = pixels
    return named


def double_size(picture: Picture) -> Picture:
    return [row for line in picture for row in ["".join(c + c for c in line)] * 2]


def encode(tile: Picture) -> bytes:
    """Sixteen bytes of a tile of 8 x 8 pixels."""
    out = bytearray()
    for row in tile:
        shades = [SHADES[c] for c in row]
        out.append(sum((s & 1) << 7 - i for i, s in enumerate(shades)))
        out.append(sum((s >> 1) << 7 - i for i, s in enumerate(shades)))
    return bytes(out)


@dataclass
class Bank:
    """Tiles of one bank; equal tiles are stored once."""

    first: int
    tiles: list[bytes] = field(default_factory=list)

    def add(self, picture: Picture, share: bool = True) -> list[int]:
        """Adds the tiles of a picture; returns their numbers, row by row."""
        numbers = []
        for y in range(0, len(picture), 8):
            for x in range(0, len(picture[0]), 8):
                tile = encode([row[x : x + 8] for row in picture[y : y + 8]])
                if not share or tile not in self.tiles:
                    self.tiles.append(tile)
                    numbers.append(self.first + len(self.tiles) - 1)
                else:
                    numbers.append(self.first + self.tiles.index(tile))
        assert len(self.tiles) <= 128, "a bank holds 128 tiles"
        return numbers

    def image(self) -> bytes:
        return b"".join(self.tiles)


@dataclass(frozen=True)
class Graphics:
    """Tile banks, and the tile numbers of everything that the game draws."""

    banks: tuple[bytes, bytes, bytes]
    charmap: dict[str, int]
    bar: int  # tile of the empty bar; the next eight are filled by 1 to 8 pixels
    blocks: dict[str, list[int]]  # tiles: top left, top right, bottom left, bottom right
    player: dict[str, int]  # "down", "down-walk", … -> first of four tiles
    creatures: dict[str, list[int]]  # sixteen tiles
    title: list[int]  # two rows


def load_font() -> dict[str, Picture]:
    font = {" ": ["." * 8] * 8}
    for header, *rows in sections("font.txt"):
        names = header.split()
        for index, name in enumerate(names):
            glyph = [row.split()[index] for row in rows]
            assert len(glyph) == 7 and {len(row) for row in glyph} == {5}, name
            font[name] = ["." * 8, *("." + row + ".." for row in glyph)]
    return font


def frame_tiles() -> dict[str, Picture]:
    """Corners and sides of the text box: lines of two pixels."""
    side, empty = "..##....", "." * 8
    line = "#" * 8
    left, right = "..######", "####...."
    return {
        "┌": [empty, empty, left, left, side, side, side, side],
        "─": [empty, empty, line, line, empty, empty, empty, empty],
        "┐": [empty, empty, right, right, side, side, side, side],
        "│": [side] * 8,
        "└": [side, side, left, left, empty, empty, empty, empty],
        "┘": [side, side, right, right, empty, empty, empty, empty],
    }


def walking_frame(name: str, picture: Picture) -> Picture:
    """The figure in mid-step: one foot lifted, or, seen from the side, with the feet apart."""
    if name == "left":
        return [*picture[:13], "...##+++++#.....", "..#--#..#--#....", "...##....##....."]
    return [
        *picture[:13],
        "....####" + picture[13][8:],
        "........" + picture[14][8:],
        "........" + picture[15][8:],
    ]


@cache
def load_graphics() -> Graphics:
    low, middle, high = Bank(0), Bank(FIRST_LETTER_TILE), Bank(0)
    blocks = {name: low.add(picture) for name, picture in pictures("blocks.txt").items()}
    figures = pictures("pictures.txt")
    player = {}
    for name in ("down", "up", "left"):
        player[name] = low.add(figures[name], share=False)[0]
        player[name + "-walk"] = low.add(walking_frame(name, figures[name]), share=False)[0]
    charmap = {}
    font = load_font()
    for name, glyph in {**font, **frame_tiles()}.items():
        charmap[name] = middle.add(glyph, share=False)[0]
    first_bar = len(middle.tiles)
    for pixels in range(BAR_TILES):
        line = "#" * pixels + "." * (8 - pixels)
        middle.add(["." * 8, "#" * 8, *[line] * 4, "#" * 8, "." * 8], share=False)
    creatures = {name: high.add(double_size(figures[name])) for name in (FRIEND, *SPECIES)}
    title_letters = [double_size(font[c]) for c in "REMATCH"]
    title = [high.add([row[x : x + 8] for row in glyph[y : y + 8]])[0]
             for y in (0, 8) for glyph in title_letters for x in (0, 8)]  # fmt: skip
    banks = (low.image(), middle.image(), high.image())
    return Graphics(banks, charmap, FIRST_LETTER_TILE + first_bar, blocks, player, creatures, title)
