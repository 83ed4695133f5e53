"""Reads a run folder that may come from someone else: follows no links, bounds sizes, accepts finite numbers.

A missing or damaged file raises Unreadable with a message for the page. Values from a JSON file are text,
finite numbers, lists and dicts only.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rematch.storage import policy_files
from rematch.storage.atomic_files import record_read_failure
from rematch.worlds import registry

Row = Mapping[str, Any]

LARGEST = 256 << 20  # bytes of a file
LARGEST_NUMBER = 1e15
MOST_VALUES = 4_000_000  # of a JSON file: each takes about 100 bytes of memory
MOST_LINES = 200  # lines of one kind that are read from a log
PICTURES = {"learning.png": (b"\x89PNG\r\n\x1a\n", "image/png"), "match.gif": (b"GIF8", "image/gif")}
FILMS, FILM_NAME = "films", re.compile(r"[\w.-]{1,100}\.gif")
LARGEST_FILM = 16 << 20  # bytes
FILES = ("config.yaml", "observations.json", "history.json", "metrics.jsonl", *PICTURES)


class Unreadable(Exception):
    """The reason why a file cannot be shown, as a message for the page."""


class Absent(Unreadable):
    """There is nothing to show, and nothing is wrong: the section is left out."""


def read(run: Path, name: str) -> bytes:
    """The bytes of a regular file of the folder; links, devices and huge files are refused."""
    try:
        descriptor = os.open(run / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise Unreadable(f"{name} is not a regular file")
            if info.st_size > LARGEST:
                raise Unreadable(f"{name} is larger than {LARGEST >> 20} MiB")
            return file.read()
    except FileNotFoundError:
        raise Absent(f"{name} is missing") from None
    except OSError as error:
        record_read_failure(name, error)
        raise Unreadable(f"{name} cannot be read ({error.strerror})") from None


def first_bytes(path: Path, most: int) -> bytes:
    """At most the first `most` bytes of a plain file."""
    return _part(path, most, last=False)


def last_lines(path: Path, most: int) -> list[bytes]:
    """The whole lines among the last `most` bytes of a plain file."""
    return _part(path, most, last=True).split(b"\n")


def _part(path: Path, most: int, last: bool) -> bytes:
    """The first or the last `most` bytes of a plain file, without a line that was cut."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read ({error.strerror})") from None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise Unreadable(f"{path.name} is not a plain file")
        start = max(0, info.st_size - most) if last else 0
        data = os.pread(descriptor, most, start)
        return data.partition(b"\n")[2] if start else data
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read ({error.strerror})") from None
    finally:
        os.close(descriptor)


def bounded(value: Any) -> Any:
    """The value with None for numbers that are not finite, or so large that their sum may not be finite."""
    kind = type(value)
    if kind is float or kind is int:  # most values of a log: rows of 10 M steps are read while a page opens
        return value if -LARGEST_NUMBER < value < LARGEST_NUMBER else None
    if kind is dict:
        return {key: bounded(inner) for key, inner in value.items()}
    if kind is list:
        return [bounded(inner) for inner in value]
    return value


def loads(text: bytes | str) -> Any:
    """JSON with bounded numbers; ValueError for other text, and for JSON of extreme depth or size."""
    try:
        return bounded(json.loads(text))
    except (RecursionError, OverflowError):
        raise ValueError("not JSON") from None


def read_json(run: Path, name: str) -> Any:
    data = read(run, name)
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > MOST_VALUES:
        raise Unreadable(f"{name} has more than {MOST_VALUES:,} values")
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
    """The rows of a log, and the number of lines that are not a row (an incomplete last line)."""
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
    """The first MOST_LINES lines of train.log that begin with a word."""
    text = read(run, "train.log").decode("utf-8", "replace")
    matching = (line for line in text.split("\n") if line.lower().startswith(start.lower()))
    return [line[:400] for line, _ in zip(matching, range(MOST_LINES))]


def picture(run: Path, name: str) -> bytes:
    data = read(run, name)
    magic, kind = PICTURES[name]
    if not data.startswith(magic):
        raise Unreadable(f"{name} is damaged (not {kind})")
    return data


def is_folder(path: Path) -> bool:
    """Whether a folder lies here, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def policy_names(run: Path, subfolder: str) -> set[str]:
    """The names of the policies in a subfolder, which must not be a link."""
    try:
        return policy_files.policy_names(run, subfolder) if is_folder(run / subfolder) else set()
    except OSError:
        return set()


def newest_film(run: Path) -> tuple[list[str], bytes]:
    """The names of the films of episodes in films/, newest first, and the bytes of the newest."""
    try:
        names = [name for name in os.listdir(run / FILMS) if FILM_NAME.fullmatch(name)]
    except OSError:
        names = []
    if not names:
        raise Absent("no episode was filmed")
    numbers = {name: [int(digits) for digits in re.findall("[0-9]+", name)][-1:] or [0] for name in names}
    names.sort(key=lambda name: (numbers[name], name), reverse=True)
    if (run / FILMS).is_symlink():
        raise Unreadable(f"{FILMS} is a link")
    data = read(run, f"{FILMS}/{names[0]}")
    if not data.startswith(b"GIF8") or len(data) > LARGEST_FILM:
        raise Unreadable(f"{FILMS}/{names[0]} is damaged or larger than {LARGEST_FILM >> 20} MiB")
    return names, data


def title(run: Path) -> str:
    """The run's name, recipe and game from its settings. The folder's name is not used: a copy of a run has
    the same page.

    Only these lines are parsed: a whole file could be a YAML alias bomb.
    """
    names = []
    try:
        for line in read(run, "config.yaml").decode("utf-8", "replace").splitlines():
            if re.match(r"(name|recipe|game|world):.{,200}$", line):
                value = yaml.safe_load(line.partition(":")[2])
                names += [registry.title(value)] if isinstance(value, str) and value else []
    except (Unreadable, yaml.YAMLError, ValueError, RecursionError):
        pass
    return " · ".join(dict.fromkeys(names))[:200] or "A run"
