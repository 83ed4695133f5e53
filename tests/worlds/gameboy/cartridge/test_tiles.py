"""Tiles from text art: their bytes, their numbers, and that different pictures have different tiles."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rematch.worlds.gameboy.cartridge.tiles import (
    BAR_TILES,
    FIRST_LETTER_TILE,
    FRIEND,
    SPECIES,
    encode,
    load_graphics,
    pictures,
)
from rematch.worlds.gameboy.cartridge.world_text import BLOCKS


def shades(tile: bytes) -> list[list[int]]:
    """[8][8] shades 0 to 3, by the formula of the manual."""
    return [
        [(tile[2 * y] >> 7 - x & 1) | (tile[2 * y + 1] >> 7 - x & 1) << 1 for x in range(8)] for y in range(8)
    ]


def test_bytes_of_a_tile() -> None:
    rows = [".-+#.-+#"] * 4 + ["####...."] * 4
    assert shades(encode(rows)) == [[0, 1, 2, 3] * 2] * 4 + [[3] * 4 + [0] * 4] * 4


def test_all_letters_exist_and_differ() -> None:
    graphics = load_graphics()
    assert set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?'-/:$+>") <= set(graphics.charmap)
    low = min(graphics.charmap.values())
    assert low == FIRST_LETTER_TILE and all(
        graphics.charmap[str(n)] == graphics.charmap["0"] + n for n in range(10)
    )
    tiles = {
        letter: graphics.banks[1][16 * (n - FIRST_LETTER_TILE) : 16 * (n - FIRST_LETTER_TILE) + 16]
        for letter, n in graphics.charmap.items()
    }
    assert len(set(tiles.values())) == len(tiles) and not any(tiles[" "])


def test_bars_fill_pixel_by_pixel() -> None:
    graphics = load_graphics()
    for pixels in range(BAR_TILES):
        at = 16 * (graphics.bar - FIRST_LETTER_TILE + pixels)
        assert sum(shade > 0 for shade in shades(graphics.banks[1][at : at + 16])[3]) == pixels


def test_blocks_creatures_and_player_have_their_own_tiles() -> None:
    graphics = load_graphics()
    assert all(len(bank) // 16 <= 128 for bank in graphics.banks)
    seen = {tuple(graphics.blocks[picture]) for _, _, picture in BLOCKS}
    assert len(seen) == len({picture for _, _, picture in BLOCKS})
    assert len({tuple(graphics.creatures[name]) for name in (FRIEND, *SPECIES)}) == 1 + len(SPECIES)
    assert all(len(graphics.creatures[name]) == 16 for name in SPECIES)
    starts = sorted(graphics.player.values())
    assert len(starts) == 6 and all(b - a >= 4 for a, b in pairwise(starts))


@pytest.mark.parametrize("name", ["blocks.txt", "pictures.txt"])
def test_pictures_are_sixteen_by_sixteen(name: str) -> None:
    for title, rows in pictures(name).items():
        assert len(rows) == 16 and all(len(row) == 16 and set(row) <= set(".-+#") for row in rows), title
