"""Tiles from text art: their bytes, their places, and that what is drawn differs where it must."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rematch.worlds.gameboy.cartridge.tiles import BAR, FRIEND, LETTERS, SPECIES, art, encode, pictures
from rematch.worlds.gameboy.cartridge.world_text import BLOCKS


def shades(tile: bytes) -> list[list[int]]:
    """[8][8] shades 0 to 3, by the manual's formula."""
    return [
        [(tile[2 * y] >> 7 - x & 1) | (tile[2 * y + 1] >> 7 - x & 1) << 1 for x in range(8)] for y in range(8)
    ]


def test_bytes_of_a_tile() -> None:
    rows = [".-+#.-+#"] * 4 + ["####...."] * 4
    assert shades(encode(rows)) == [[0, 1, 2, 3] * 2] * 4 + [[3] * 4 + [0] * 4] * 4


def test_letters_are_all_there_and_all_different() -> None:
    drawn = art()
    assert set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?'-/:$+>") <= set(drawn.charmap)
    low = min(drawn.charmap.values())
    assert low == LETTERS and all(drawn.charmap[str(n)] == drawn.charmap["0"] + n for n in range(10))
    tiles = {
        letter: drawn.banks[1][16 * (n - LETTERS) : 16 * (n - LETTERS) + 16]
        for letter, n in drawn.charmap.items()
    }
    assert len(set(tiles.values())) == len(tiles) and not any(tiles[" "])


def test_bars_fill_pixel_by_pixel() -> None:
    drawn = art()
    for pixels in range(BAR):
        at = 16 * (drawn.bar - LETTERS + pixels)
        assert sum(shade > 0 for shade in shades(drawn.banks[1][at : at + 16])[3]) == pixels


def test_blocks_creatures_and_player_have_their_own_tiles() -> None:
    drawn = art()
    assert all(len(bank) // 16 <= 128 for bank in drawn.banks)
    seen = {tuple(drawn.blocks[picture]) for _, _, picture in BLOCKS}
    assert len(seen) == len({picture for _, _, picture in BLOCKS})
    assert len({tuple(drawn.creatures[name]) for name in (FRIEND, *SPECIES)}) == 1 + len(SPECIES)
    assert all(len(drawn.creatures[name]) == 16 for name in SPECIES)
    starts = sorted(drawn.player.values())
    assert len(starts) == 6 and all(b - a >= 4 for a, b in pairwise(starts))


@pytest.mark.parametrize("name", ["blocks.txt", "pictures.txt"])
def test_pictures_are_sixteen_by_sixteen(name: str) -> None:
    for title, rows in pictures(name).items():
        assert len(rows) == 16 and all(len(row) == 16 and set(row) <= set(".-+#") for row in rows), title
