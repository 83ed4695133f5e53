"""The numbers of a growing log of JSON rows (metrics.jsonl) as columns, with a bounded number of rows.

A page that follows a long run asks for its curves after every iteration: every byte is read once, and lines
between the rows that are shown are not parsed. The file may come from someone else: links are not followed,
and sizes are bounded.
"""

from __future__ import annotations

import json
import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rematch.reporting.untrusted_folder import LARGEST, LARGEST_NUMBER, Unreadable

MOST_COLUMNS = 200
POINTS = 600  # rows, at most
LONGEST = 1 << 20  # bytes of a line
SKIMMED = 1 << 20  # bytes of a new file whose lines are counted before they are read
CHECKED = 256  # bytes before the present end that must be unchanged: a run that was resumed rewrites its log
NOT_COLUMNS = ("iteration", "step", "games")
MISSING = float("nan")


class EndlessLine(Exception):
    """A line is longer than LONGEST: it is not a row, and may never end."""


class MetricColumns:
    """Every `stride`-th row, a power of two, and the newest one; `update` reads what was appended."""

    def __init__(self, key: str = "step") -> None:
        self.key = key  # the whole number that orders the rows
        self._clear()

    def _clear(self) -> None:
        self.step = array("q")
        self.columns: dict[str, array[float]] = {}
        self.damaged = 0  # lines that are not a row
        self.stride = 1
        self._lines, self._numbers = 0, array("q")  # lines that were read, and the number of each row's line
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
        except EndlessLine:
            raise Unreadable(f"{path.name} has a line of more than {LONGEST >> 20} MiB") from None
        except OSError as error:
            raise Unreadable(f"{path.name} cannot be read ({error.strerror})") from None
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, size: int) -> None:
        if not self._lines and size > SKIMMED:
            count = sum(block.count(b"\n") for block in blocks(descriptor, 0, size))
            while count > self.stride * (POINTS - 1):
                self.stride *= 2
        rest = newest = b""
        for block in blocks(descriptor, self._end, size):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > LONGEST:
                self._clear()
                raise EndlessLine
            if lines and not newest:
                self._remove_newest()
            for line in lines:
                shown = self._lines % self.stride == 0
                row = as_row(line) if shown else None
                if row is not None:
                    self._add(row, self._lines)
                self.damaged += row is None if shown else not looks_like_a_row(line)
                self._lines += 1
            newest = lines[-1] if lines else newest
            self._end += sum(map(len, lines)) + len(lines)  # an incomplete last line is read again later
        begin = max(0, self._end - CHECKED)
        self._tail = os.pread(descriptor, self._end - begin, begin)
        if newest and (self._lines - 1) % self.stride and (row := as_row(newest)):
            self._add(row, self._lines - 1)

    def _remove_newest(self) -> None:
        """The newest row, unless it is one of those that stay."""
        if self._numbers and self._numbers[-1] % self.stride:
            for column in self.columns.values():
                del column[len(self.step) - 1 :]
            del self.step[-1], self._numbers[-1]

    def _thin(self) -> None:
        """Twice the stride, half the rows."""
        self.stride *= 2
        stay = [row for row, number in enumerate(self._numbers) if number % self.stride == 0]
        for column in self.columns.values():
            fill(column, len(self.step))
            column[:] = array("d", [column[row] for row in stay])
        self.step = array("q", [self.step[row] for row in stay])
        self._numbers = array("q", [self._numbers[row] for row in stay])

    def _add(self, row: dict[str, Any], number: int) -> None:
        """Add the row of line `number`, if it has a place among the others."""
        place = row.get(self.key)
        if type(place) is not int or abs(place) > LARGEST_NUMBER:
            return
        if len(self.step) >= POINTS - 1 and number % self.stride == 0:
            self._thin()
            if number % self.stride:
                return
        count = len(self.step)
        self.step.append(place)
        self._numbers.append(number)
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


def as_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def looks_like_a_row(line: bytes) -> bool:
    return line.startswith(b"{") and line.endswith(b"}")


def blocks(descriptor: int, begin: int, size: int) -> Iterator[bytes]:
    """The bytes of a file from `begin` to `size`."""
    while begin < size and (block := os.pread(descriptor, min(1 << 20, size - begin), begin)):
        yield block
        begin += len(block)


def fill(column: array[float], count: int) -> None:
    """Append what is missing up to this number of rows."""
    column.extend([MISSING] * (count - len(column)))


def number(value: float) -> float | None:
    return value if value == value else None


def any_number(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)
