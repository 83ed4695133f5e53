"""Tiles from text art: letters, map blocks, the player and the creatures, as the bytes that video RAM holds.

A tile is 8 x 8 pixels of two bits, sixteen bytes (low bits of a row, then its high bits). Bank 0 (tiles
0-127 at $8000) holds blocks and player, bank 1 (128-255 at $8800) the letters and frames, bank 2 (0-127
at $9000, which the battle and title screens select) the creatures and the title.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

SHADES = {".": 0, "-": 1, "+": 2, "#": 3}
Picture = list[str]  # rows of SHADES
LETTERS = 0x80  # the first letter's tile
FRAME = ("┌", "─", "┐", "│", "└", "┘")  # the text box
BAR = 9  # tiles of a bar that is filled 0 to 8 pixels
SPECIES = ("CINDER", "PUDDLE", "SPRIG", "MAGMOL", "FINLET", "MOSSUM")  # element: index modulo 3
FRIEND = "REMY"


def text(name: str) -> str:
    return (files(__package__) / "game" / name).read_text(encoding="utf-8")


def sections(name: str) -> list[list[str]]:
    """A file's paragraphs but for the first, which says what it is."""
    return [part.strip("\n").split("\n") for part in text(name).split("\n\n")[1:]]


@cache
def pictures(name: str) -> dict[str, Picture]:
    """The named 16 x 16 pictures of a file."""
    out = {}
    for header, *rows in sections(name):
        title, *how = header.split()
        whole = [row + row[::-1] for row in rows] if how == ["mirror"] else rows
        assert len(whole) == 16 and {len(row) for row in whole} == {16}, title
        out[title] = whole
    return out


def doubled(picture: Picture) -> Picture:
    return [row for line in picture for row in ["".join(c + c for c in line)] * 2]


def encode(tile: Picture) -> bytes:
    """The sixteen bytes of eight rows of eight."""
    out = bytearray()
    for row in tile:
        shades = [SHADES[c] for c in row]
        out.append(sum((s & 1) << 7 - i for i, s in enumerate(shades)))
        out.append(sum((s >> 1) << 7 - i for i, s in enumerate(shades)))
    return bytes(out)


@dataclass
class Bank:
    """Tiles of one bank; equal ones are kept once."""

    first: int
    tiles: list[bytes] = field(default_factory=list)

    def add(self, picture: Picture, share: bool = True) -> list[int]:
        """The numbers of the picture's tiles, row by row."""
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
class Art:
    """Everything that is drawn."""

    banks: tuple[bytes, bytes, bytes]
    charmap: dict[str, int]
    bar: int  # the empty bar's tile; the next eight are fuller
    blocks: dict[str, list[int]]  # tiles: top left, top right, bottom left, bottom right
    player: dict[str, int]  # the first of four tiles by "down", "down-walk", …
    creatures: dict[str, list[int]]  # sixteen tiles
    title: list[int]  # two rows


def letters() -> dict[str, Picture]:
    out = {" ": ["." * 8] * 8}
    for header, *rows in sections("font.txt"):
        names = header.split()
        for index, name in enumerate(names):
            glyph = [row.split()[index] for row in rows]
            assert len(glyph) == 7 and {len(row) for row in glyph} == {5}, name
            out[name] = ["." * 8, *("." + row + ".." for row in glyph)]
    return out


def frame() -> dict[str, Picture]:
    """The text box's corners and sides: a line of two pixels."""
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


def stride(name: str, picture: Picture) -> Picture:
    """The same figure with one foot lifted; seen from the side, with the feet apart."""
    if name == "left":
        return [*picture[:13], "...##+++++#.....", "..#--#..#--#....", "...##....##....."]
    return [
        *picture[:13],
        "....####" + picture[13][8:],
        "........" + picture[14][8:],
        "........" + picture[15][8:],
    ]


@cache
def art() -> Art:
    low, middle, high = Bank(0), Bank(LETTERS), Bank(0)
    blocks = {name: low.add(picture) for name, picture in pictures("blocks.txt").items()}
    figures = pictures("pictures.txt")
    player = {}
    for name in ("down", "up", "left"):
        player[name] = low.add(figures[name], share=False)[0]
        player[name + "-walk"] = low.add(stride(name, figures[name]), share=False)[0]
    charmap = {}
    drawn = letters()
    for name, glyph in {**drawn, **frame()}.items():
        charmap[name] = middle.add(glyph, share=False)[0]
    first = len(middle.tiles)
    for pixels in range(BAR):
        line = "#" * pixels + "." * (8 - pixels)
        middle.add(["." * 8, "#" * 8, *[line] * 4, "#" * 8, "." * 8], share=False)
    creatures = {name: high.add(doubled(figures[name])) for name in (FRIEND, *SPECIES)}
    word = [doubled(drawn[c]) for c in "REMATCH"]
    title = [high.add([row[x : x + 8] for row in glyph[y : y + 8]])[0]
             for y in (0, 8) for glyph in word for x in (0, 8)]  # fmt: skip
    banks = (low.image(), middle.image(), high.image())
    return Art(banks, charmap, LETTERS + first, blocks, player, creatures, title)
