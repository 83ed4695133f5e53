"""Reading a run folder as a stranger's: links are not followed, sizes are bounded, numbers are finite.

A file that is missing or damaged raises Unreadable with words for the page; what is read of a JSON file holds
nothing but text, finite numbers, lists and dicts, however it was written.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Row = Mapping[str, Any]

LARGEST = 256 << 20  # bytes of any one file that is read
MOST_LINES = 200  # of one kind that are shown of a log
PICTURES = {"learning.png": (b"\x89PNG\r\n\x1a\n", "image/png"), "match.gif": (b"GIF8", "image/gif")}
FILES = ("config.yaml", "sight.json", "history.json", "metrics.jsonl", *PICTURES)


class Unreadable(Exception):
    """Why a file cannot be shown, in words for the page."""


def read(run: Path, name: str) -> bytes:
    """The bytes of a plain file of the folder; links, devices and giants are refused."""
    try:
        descriptor = os.open(run / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Unreadable(f"{name} is not a plain file")
            if about.st_size > LARGEST:
                raise Unreadable(f"{name} is larger than {LARGEST >> 20} MiB")
            return file.read()
    except FileNotFoundError:
        raise Unreadable(f"{name} is missing") from None
    except OSError as error:
        raise Unreadable(f"{name} cannot be read ({error.strerror})") from None


def tame(value: Any) -> Any:
    """The same without numbers that are not finite, or so large that sums of them would not be."""
    if isinstance(value, dict):
        return {str(key): tame(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [tame(inner) for inner in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if math.isfinite(value) and abs(value) < 1e15 else None
    return value


def loads(text: bytes | str) -> Any:
    """JSON, tamed; ValueError where it is none, or so deep or large that nobody wrote it on purpose."""
    try:
        return tame(json.loads(text))
    except (RecursionError, OverflowError):
        raise ValueError("not JSON") from None


def read_json(run: Path, name: str) -> Any:
    data = read(run, name)
    try:
        return loads(data)
    except ValueError:
        raise Unreadable(f"{name} is damaged (not JSON)") from None


def history(run: Path) -> list[dict[str, Any]]:
    rows = read_json(run, "history.json")
    if not isinstance(rows, list):
        raise Unreadable("history.json is damaged (not a list)")
    return [row for row in rows if isinstance(row, dict)]


def json_lines(run: Path, name: str) -> tuple[list[dict[str, Any]], int]:
    """The rows of a log, and how many of its lines are no such row (a torn last line, for example)."""
    rows: list[dict[str, Any]] = []
    lines = read(run, name).splitlines()
    for line in lines:
        try:
            row = loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, len(lines) - len(rows)


def log_lines(run: Path, start: str) -> list[str]:
    """The lines of train.log that begin with a word, the first MOST_LINES of them."""
    text = read(run, "train.log").decode("utf-8", "replace")
    found = (line for line in text.split("\n") if line.lower().startswith(start.lower()))
    return [line[:400] for line, _ in zip(found, range(MOST_LINES))]


def picture(run: Path, name: str) -> bytes:
    data = read(run, name)
    magic, kind = PICTURES[name]
    if not data.startswith(magic):
        raise Unreadable(f"{name} is damaged (not {kind})")
    return data


def title(run: Path) -> str:
    """The run's name, recipe and game as its settings say (not the folder's name: a copy's page is equal).

    Only those lines are parsed: a whole file could be a bomb of aliases.
    """
    words = []
    try:
        for line in read(run, "config.yaml").decode("utf-8", "replace").splitlines():
            if re.match(r"(name|recipe|game|world):.{,200}$", line):
                value = yaml.safe_load(line.partition(":")[2])
                words += [value] if isinstance(value, str) and value else []
    except (Unreadable, yaml.YAMLError, ValueError, RecursionError):
        pass
    return " · ".join(dict.fromkeys(words))[:200] or "A run"
