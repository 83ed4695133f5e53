"""Native worlds: the C structs have the recorded layout, on which stored checkpoints and savestates rely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rematch.worlds.beasty import native as beasty
from rematch.worlds.lattice import native as lattice
from rematch.worlds.pursuit import native as pursuit
from rematch.worlds.pursuit.config import Config, struct_values

# A row: type, offset in bytes, name.
PURSUIT_GAME = """
    u8 0 seed | 2f4 8 x | 2f4 16 y | 2f4 24 theta | 2f4 32 v | 2f4 40 omega | i4 48 step | i4 52 obstacles
    8f4 56 obstacle_x | 8f4 88 obstacle_y | 8f4 120 obstacle_radius | u4 152 episode | 2i4 156 slot
    4f4 164 stage | u4 180 spawn_redraws | u4 184 obstacles_missing | 100u2 188 visited | u4 388 mark
"""
LATTICE_GAME = """
    u8 0 seed | 2i4 8 robot | i4 16 moves_left | i4 20 step | u4 24 episode | 2i4 28 slot
    3f4 36 stage | u4 48 mark
"""
BEASTY_GAME = """
    4u4 0 deck | 4u2 16 hand | 4u2 24 bar | 4u1 32 line | u1 36 turn | u1 37 step | u8 40 seed | u4 48 episode
    4i4 52 slot | u4 68 mark
"""
PURSUIT_OPTIONAL = """
    2u8 0 noise | u4 16 safety_interventions | u4 20 safety_relaxed | u4 24 safety_violations | u4 28 spare
"""


def dtype_from(rows: str, size: int) -> np.dtype[np.void]:
    cells = [row.split() for line in rows.strip().splitlines() for row in line.split("|")]
    return np.dtype({
        "names": [name for _, _, name in cells],
        "formats": [kind for kind, _, _ in cells],
        "offsets": [int(offset) for _, offset, _ in cells],
        "itemsize": size,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("module", "mark", "rows", "size"),
    [
        (pursuit, b"PUR1", PURSUIT_GAME, 392),
        (lattice, b"LAT1", LATTICE_GAME, 56),
        (beasty, b"BEY1", BEASTY_GAME, 72),
    ],
)
def test_game_struct_has_recorded_layout(module: Any, mark: bytes, rows: str, size: int) -> None:
    assert dtype_from(rows, size) == module.GAME_TYPE
    assert module.MARK.to_bytes(4, "little") == mark


@pytest.mark.parametrize(("module", "size"), [(pursuit, 212), (lattice, 32), (beasty, 16)])
def test_rules_struct_is_packed_in_the_order_of_its_names(module: Any, size: int) -> None:
    """Every setting has four bytes, one behind the other."""
    numbers = {"float": "f4", "int32_t": "i4", "rm_flag": "i4", "rm_choice": "i4"}
    packed = np.dtype([(name, numbers[kind]) for name, kind in module.RULES.items()])
    assert packed == module.RULES_TYPE
    assert module.RULES_TYPE.itemsize == size


@pytest.mark.parametrize(
    ("settings", "frames", "size"),
    [
        ({"safety_filter": True}, "", 32),
        ({"full_obs": False}, "| (2,10,43)f4 32 frames", 3472),
        ({"full_obs": False, "lidar_rays": 7, "history_length": 3}, "| (2,3,14)f4 32 frames", 368),
    ],
)
def test_pursuit_optional_state_has_recorded_layout(settings: dict[str, Any], frames: str, size: int) -> None:
    core = pursuit.Core(struct_values(Config(**settings)))
    assert core.optional_type == dtype_from(PURSUIT_OPTIONAL.rstrip() + frames, size)


def test_pursuit_without_sensors_and_filter_has_no_optional_state() -> None:
    assert pursuit.Core(struct_values(Config())).optional_type == np.dtype([])
