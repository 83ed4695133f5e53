"""The best measured response to each bot: responses.json, which tools/experiments/beasty_responses.py writes.

An entry has the responding player, its score with the interval, the number of games, and the command that
repeats the match. It is a lower bound: better responses may exist.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rematch.core import config as settings

from .config import Config

FILE = Path(__file__).with_name("responses.json")


def best_known(opponent: str, config: Config, file: Path = FILE) -> dict[str, Any] | None:
    """The entry of an opponent; None where it was not measured under these rules."""
    try:
        table = json.loads(file.read_text())
    except OSError:
        return None
    if table["rules"] != settings.tree(config):
        return None
    entry: dict[str, Any] | None = table["responses"].get(opponent)
    return entry
