"""Finds columns of a role's observation by name."""

from __future__ import annotations

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.spec import Role


def find_columns(role: Role, names: tuple[str, ...], setting: str = "count_bonus.columns") -> list[int]:
    """Indices of these columns of an observation; a name is COLUMN or FIELD.COLUMN; NAME* is all such."""
    out = []
    for name in names:
        if name.endswith("*"):
            matching = [i for i, full in enumerate(role.columns)
                          if any(word.startswith(name[:-1]) for word in (full, full.partition(".")[2]))]
            if matching:
                out += matching
                continue
        indices = [i for i, full in enumerate(role.columns) if name in (full, full.partition(".")[2])]
        if len(indices) != 1:
            near = nearest(name, list(role.columns))
            hint = f"; nearest: {near}" if near and not indices else ""
            count = f"{role.name} observes {len(indices) or 'no'} columns of that name"
            raise ConfigError(f"{setting} = {name!r}: {count}; expected field.column{hint}")
        out += indices
    return out
