"""The numbers of a growing log of JSON rows (metrics.jsonl) as columns: every byte of it is read once.

A page that follows a long run asks for its curves after every iteration. The file may come from someone else:
links are not followed, and sizes are bounded.
"""

from __future__ import annotations

import json
import os
import stat
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rematch.reporting.untrusted_folder import LARGEST, LARGEST_NUMBER, Unreadable

MOST_COLUMNS = 200
CHECKED = 256  # bytes before the present end that must be unchanged: a run that was resumed rewrites its log
NOT_COLUMNS = ("iteration", "step", "games")
MISSING = float("nan")


class MetricColumns:
    """The rows that were read so far; `update` reads what was appended."""

    def __init__(self, key: str = "step") -> None:
        self.key = key  # the whole number that orders the rows
        self._clear()

    def _clear(self) -> None:
        self.step = array("q")
        self.columns: dict[str, array[float]] = {}
        self.damaged = 0  # lines that are not a row
        self._file = (0, 0)  # device and inode
        self._end, self._tail = 0, b""  # bytes that were read, and the last ones of them

    def update(self, path: Path) -> None:
        """Read the new lines; all lines where the file is another one. Unreadable with the reason."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            self._clear()
            raise Unreadable(f"{path.name} cannot be read ({error.strerror})") from None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
                raise Unreadable(f"{path.name} is not a plain file, or larger than {LARGEST >> 20} MiB")
            begin = self._end - len(self._tail)
            known = os.pread(descriptor, len(self._tail), begin) if self._tail else b""
            if (info.st_dev, info.st_ino) != self._file or known != self._tail:
                self._clear()
                self._file = (info.st_dev, info.st_ino)
            self._read(descriptor, info.st_size)
        except OSError as error:
            raise Unreadable(f"{path.name} cannot be read ({error.strerror})") from None
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, size: int) -> None:
        rest = b""
        while self._end + len(rest) < size:
            block = os.pread(descriptor, 1 << 20, self._end + len(rest))
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._add(line)
            self._end += sum(map(len, lines)) + len(lines)  # an incomplete last line is read again later
        begin = max(0, self._end - CHECKED)
        self._tail = os.pread(descriptor, self._end - begin, begin)

    def _add(self, line: bytes) -> None:
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        self.damaged += not isinstance(row, dict)
        place = row.get(self.key) if isinstance(row, dict) else None
        if type(place) is not int or abs(place) > LARGEST_NUMBER:
            return
        count = len(self.step)
        self.step.append(place)
        for name, value in row.items():
            if name in NOT_COLUMNS or type(value) not in (float, int):
                continue
            if not -LARGEST_NUMBER < value < LARGEST_NUMBER:  # nan too
                continue
            column = self.columns.get(name)
            if column is None:
                if len(self.columns) >= MOST_COLUMNS:
                    continue
                column = self.columns[name] = array("d")
            fill(column, count)
            column.append(value)

    def rows(self, indices: range) -> dict[str, list[float | None]]:
        """The columns at these rows; None where a row has no number."""
        out = {}
        for name, column in self.columns.items():
            fill(column, len(self.step))
            out[name] = [number(column[index]) for index in indices]
        return {name: values for name, values in out.items() if any_number(values)}


def fill(column: array[float], count: int) -> None:
    """Append what is missing up to this number of rows."""
    column.extend([MISSING] * (count - len(column)))


def number(value: float) -> float | None:
    return value if value == value else None


def any_number(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)
