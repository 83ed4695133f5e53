"""Parts of a replay as JSON columns: actions and values of each seat; numbers that JSON has not are null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rematch.core.arrays import Floats
from rematch.core.recording import Replay
from rematch.core.spec import Spec


def number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def action_rows(replay: Replay, spec: Spec) -> list[dict[str, Any]]:
    """By seat: the names of the actions, and the action of every step (a list of numbers, or a choice)."""
    out = []
    for seat in range(spec.seats):
        role = spec.role_of(seat)
        column = replay.actions[role.name][:, role.seats.index(seat)]
        discrete = role.actions.kind == "discrete"
        # worlds clip continuous actions to [-1, 1]: the page shows what was done
        rows = column.tolist() if discrete else [list(map(number, row)) for row in column.clip(-1, 1)]
        out.append({"kind": role.actions.kind, "names": list(role.actions.names), "rows": rows})
    return out


def value_rows(replay: Replay) -> list[list[float | None] | None]:
    """By seat: the value that the player expects before every step; None where it gives none."""
    return [_list(replay.values.get(seat)) for seat in range(len(replay.players))]


def prob_rows(replay: Replay) -> list[list[list[float | None]] | None]:
    """By seat: the action probabilities before every step; None where the player gives none."""
    return [_rows(replay.probs, seat) for seat in range(len(replay.players))]


def _list(array: Floats | None) -> list[float | None] | None:
    return None if array is None else [number(value) for value in array]


def _rows(arrays: Mapping[int, Floats], seat: int) -> list[list[float | None]] | None:
    return [[number(value) for value in row] for row in arrays[seat]] if seat in arrays else None
