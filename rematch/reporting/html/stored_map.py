"""Reads map and savestates of a run folder that may come from someone else: every value is checked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch.curriculum import archive_files
from rematch.evaluation.text import clean
from rematch.reporting import untrusted_folder
from rematch.reporting.untrusted_folder import Absent, Unreadable
from rematch.training.components.episode_log import START_GROUPS
from rematch.training.components.world_map import DIGITS, FILE

Json = dict[str, Any]
MOST_BYTES = 64 << 20  # of the file
MOST_SAVESTATES, MOST_GAMES, MOST_PATH, MOST_MAPS = 2000, 1024, 1024, 256
MOST_TRAIL = 100_000
STATE_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,90}\.state")
DIGEST = re.compile(r"[0-9a-f]{64}")


class Malformed(Exception):
    """A value of a file is not what it should be."""


@dataclass(frozen=True, kw_only=True)
class StoredGame:
    """A game of world_map.json: where it started, what was pressed since, where it came by."""

    group: str
    start: str  # SHA-256 of a savestate; "" is power-on
    inputs: tuple[int, ...] | None  # None: not known
    path: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, kw_only=True)
class StoredMap:
    """world_map.json after all checks."""

    step: int
    maps: list[Json]
    games: list[StoredGame]
    places: dict[str, list[int]]  # SHA-256 of a savestate -> its place
    frontier: list[list[int]]


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """A line of savestates/index.json."""

    file: str
    sha256: str
    entry: Json  # what the page shows of it


# --- values -----------------------------------------------------------------------------------------------


def whole(value: Any, high: int) -> int:
    if type(value) is not int or not 0 <= value <= high:
        raise Malformed(f"expected a whole number from 0 to {high}")
    return value


def listed(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise Malformed(f"expected a list of at most {most}")
    return value


def place(value: Any) -> tuple[int, int, int]:
    number, y, x = (whole(part, 255) for part in listed(value, 3))
    return number, y, x


def digest(value: Any, empty: bool = False) -> str:
    if not isinstance(value, str) or not (DIGEST.fullmatch(value) or (empty and not value)):
        raise Malformed("expected a SHA-256")
    return value


def game(value: Any) -> StoredGame:
    inputs = value["inputs"]
    if inputs is not None:
        if not isinstance(inputs, str) or any(digit not in DIGITS for digit in inputs):
            raise Malformed("expected inputs")
        inputs = tuple(map(DIGITS.index, inputs))
    if value["group"] not in START_GROUPS:
        raise Malformed("expected a start group")
    path = tuple(place(one) for one in listed(value["path"], MOST_PATH))
    if not path:
        raise Malformed("expected a place")
    start = digest(value["start"], empty=True)
    return StoredGame(group=value["group"], start=start, inputs=inputs, path=path)


# --- files -----------------------------------------------------------------------------------------------


def read_map(folder: Path) -> StoredMap:
    """The checked map of a run; Unreadable with the reason where there is none."""
    try:
        if os.lstat(folder / FILE).st_size > MOST_BYTES:
            raise Unreadable(f"{FILE} is larger than {MOST_BYTES >> 20} MiB")
    except OSError:
        raise Absent("this run has no map yet: a run writes it after its first steps") from None
    value = untrusted_folder.read_json(folder, FILE)
    try:
        maps = [{"map": whole(one["map"], 255), "name": clean(str(one["name"]))[:60],
                 "tiles": [tile(each) for each in listed(one["tiles"], 1 << 16)]}
                for one in listed(value["maps"], MOST_MAPS)]  # fmt: skip
        marks = listed(value["savestates"], MOST_SAVESTATES)
        return StoredMap(
            step=whole(value["step"], 10**15), maps=maps,
            games=[game(one) for one in listed(value["games"], MOST_GAMES)],
            places={digest(one["sha256"]): list(place(one["place"])) for one in marks},
            frontier=[list(place(one)) for one in listed(value["frontier"], MOST_TRAIL)],
        )  # fmt: skip
    except (Malformed, KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise Unreadable(f"{FILE} is damaged") from None


def tile(value: Any) -> list[int]:
    y, x, steps = listed(value, 3)
    return [whole(y, 255), whole(x, 255), whole(steps, 10**15)]


def read_savestates(folder: Path) -> list[StoredState]:
    """The starts of the archive, oldest first, without power-on; empty where the index is damaged."""
    inner = folder / archive_files.FOLDER
    try:
        if not untrusted_folder.is_folder(inner):
            return []
        rows = listed(untrusted_folder.read_json(inner, archive_files.INDEX), 10**6)[: MOST_SAVESTATES + 1]
        return [state(row) for row in rows if row["file"] != ""]
    except (OSError, Unreadable, Malformed, KeyError, TypeError, ValueError):
        return []


def state(row: Any) -> StoredState:
    sha256, file = digest(row["sha256"]), row["file"]
    if not isinstance(file, str) or not STATE_FILE.fullmatch(file) or row["band"] not in START_GROUPS:
        raise Malformed("expected a savestate")
    numbers = {key: whole(row[key], 10**15) for key in ("step", "visits", "successes")}
    texts = {key: clean(str(row[key]))[:80] for key in ("milestone", "map")}
    entry = {"id": sha256, "group": row["band"], "reached": len(listed(row["milestones"], 10**4))}
    return StoredState(file=file, sha256=sha256, entry=entry | numbers | texts)
