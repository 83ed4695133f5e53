"""Follows a run folder: rows of its logs that were added since the last call. It only reads.

A resumed run truncates its logs to the checkpoint and writes the same rows again; each iteration and each
evaluation is returned once. Files may come from someone else (reporting/untrusted_folder.py).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rematch.reporting import untrusted_folder
from rematch.storage.run_folder import CONFIG_FILE, HISTORY_FILE, TIMING_FILE
from rematch.storage.run_lock import lock_holder

Row = dict[str, Any]
METRICS_FILE = "metrics.jsonl"
CHUNK = 8 << 20  # bytes that one call reads of a log


class LineReader:
    """The new rows of one file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        self.damaged = 0  # lines that were no row

    def rows(self) -> list[Row]:
        """Whole rows since the last call, at most CHUNK bytes; a file that has shrunk is read again."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return []
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return []
            if info.st_size < self.offset:
                self.offset = 0
            data = os.pread(descriptor, CHUNK, self.offset)
        except OSError:
            return []
        finally:
            os.close(descriptor)
        whole, newline, _ = data.rpartition(b"\n")
        if not newline:
            self.offset += len(data) if len(data) == CHUNK else 0  # a line that long is no row
            return []
        self.offset += len(whole) + 1
        rows = []
        for line in whole.split(b"\n"):
            row: Any = None
            with suppress(ValueError):
                row = untrusted_folder.loads(line)
            if isinstance(row, dict):
                rows.append(row)
            else:
                self.damaged += 1
        return rows


class RunTail:
    """New metrics, evaluations and events of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._metrics, self._timing = LineReader(folder / METRICS_FILE), LineReader(folder / TIMING_FILE)
        self._iteration = self._evaluated = -1
        self._history_stamp: tuple[int, int] | None = None

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.folder / CONFIG_FILE)

    @property
    def running(self) -> bool:
        """Whether a process trains the run."""
        return bool(lock_holder(self.folder))

    @property
    def damaged(self) -> int:
        """Lines of metrics.jsonl that could not be read."""
        return self._metrics.damaged

    def metrics(self) -> list[Row]:
        """New rows of metrics.jsonl, each iteration once; empty at the end."""
        new: list[Row] = []
        while not new and (rows := self._metrics.rows()):
            for row in rows:
                if whole(row, "iteration") > self._iteration:
                    self._iteration = row["iteration"]
                    new.append(row)
        return new

    def evaluations(self) -> list[Row]:
        """New rows of history.json, each iteration once."""
        try:
            info = os.lstat(self.folder / HISTORY_FILE)
        except OSError:
            return []
        stamp = (info.st_mtime_ns, info.st_size)
        if stamp == self._history_stamp:
            return []
        try:
            rows = untrusted_folder.history(self.folder)
        except untrusted_folder.Unreadable:
            return []
        self._history_stamp = stamp
        new = [row for row in rows if whole(row, "iteration") > self._evaluated]
        self._evaluated = max([self._evaluated, *(row["iteration"] for row in new)])
        return new

    def events(self) -> list[Row]:
        """New rows of timing.jsonl that record a stop, a resume or a failure."""
        events: list[Row] = []
        while rows := self._timing.rows():
            events += [row for row in rows if isinstance(row.get("event"), str)]
        return events


def whole(row: Mapping[str, Any], key: str) -> int:
    """A whole number of a row; -1 where there is none."""
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
