"""The smallest run that still does everything: seconds to train, a flag for each thing made small."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "games": 8, "steps": 4, "total_steps": 96, "save_every": 1, "evaluation.games": 4,
    "evaluation.opponents": ["random"], "world.max_steps": 20, "world.prep_steps": 0, "network.hidden": [8],
}


def flags(**changes: Any) -> list[str]:
    """SMALL as flags; `changes` with `__` for the dot."""
    values = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    words = []
    for key, value in values.items():
        words += [f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words
