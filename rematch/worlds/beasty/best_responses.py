"""The best responses to each opponent that were measured: responses.json, by
tools/experiments/beasty_responses.py.

An entry says who responds, how often it wins with the interval, in how many games, and the command that plays
the match again. It is what has been found, not what can be: "at least".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rematch.core import config as settings

from .config import Config

FILE = Path(__file__).with_name("responses.json")


def best_known(rival: str, config: Config, file: Path = FILE) -> dict[str, Any] | None:
    """The entry of an opponent; None where none was measured under these rules."""
    try:
        found = json.loads(file.read_text())
    except OSError:
        return None
    if found["rules"] != settings.tree(config):
        return None
    entry: dict[str, Any] | None = found["responses"].get(rival)
    return entry
