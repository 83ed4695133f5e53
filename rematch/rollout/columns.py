"""Finds columns of a role's observation by name."""

from __future__ import annotations

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.spec import Role


def find_columns(role: Role, names: tuple[str, ...], setting: str = "count_bonus.columns") -> list[int]:
    """Where these columns lie in a sight; a name is a column's own, or field.column; NAME* is all such."""
    out = []
    for name in names:
        if name.endswith("*"):
            many_found = [i for i, full in enumerate(role.columns)
                          if any(word.startswith(name[:-1]) for word in (full, full.partition(".")[2]))]
            if many_found:
                out += many_found
                continue
        found = [i for i, full in enumerate(role.columns) if name in (full, full.partition(".")[2])]
        if len(found) != 1:
            near = nearest(name, list(role.columns))
            known = f"; nearest: {near}" if near and not found else ""
            many = f"{role.name} sees {len(found) or 'no'} columns of that name"
            raise ConfigError(f"{setting} = {name!r}: {many}; expected field.column{known}")
        out += found
    return out
