"""The log of a run: text lines, metrics, events, tables and files, in its folder and on the console.

Without a run folder (benchmarks, trials) everything is dropped.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rematch.core.recording import EpisodeRecording
from rematch.storage.migrations import present_columns
from rematch.storage.run_folder import Run

SAVE_SHARE = 0.05  # largest share of the time that checkpoints by the clock may take


class Display(Protocol):
    """Shows a run while it trains (reporting/console.py)."""

    def line(self, text: str) -> None: ...

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...

    def activity(self, text: str) -> None:
        """A long operation that runs at present, such as a match of an evaluation."""

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        """The films that can be made of a recorded episode on this machine: file name -> bytes."""


class RunLog:
    """Writes into a run folder and onto a display, which `bind` sets."""

    column_names: ClassVar[Mapping[str, str]] = {}  # other names of columns in new tables (compat/)

    def __init__(self) -> None:
        self.run: Run | None = None
        self.display: Display | None = None
        self.columns: dict[str, list[str]] = {}  # table -> its columns, by their present names
        self.saved_at = math.inf  # time.monotonic() of the newest checkpoint, or of the start
        self.save_seconds = 0.0  # duration of the newest save
        self.saved_iteration: int | None = None  # of the newest checkpoint of this process
        self.whole_iteration: int | None = None  # the last one that this process has completed

    def bind(self, run: Run, display: Display) -> None:
        self.run, self.display, self.columns = run, display, {}
        self.saved_at = time.monotonic()

    @property
    def folder(self) -> Path:
        assert self.run is not None, "a run without a folder"
        return self.run.folder

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.run.history if self.run else []

    def line(self, text: str, console: bool = True) -> None:
        if self.run:
            self.run.log_line(text)
        if console:
            self.console(text)

    def console(self, text: str) -> None:
        if self.display:
            self.display.line(text)

    def metrics(self, row: Mapping[str, Any]) -> None:
        if self.run:
            self.run.log(row)

    def progress(self, step: int, rate: float, row: dict[str, Any]) -> None:
        if self.display:
            self.display.progress(step, rate, row)

    def activity(self, text: str) -> None:
        if self.display:
            self.display.activity(text)

    def timing(self, row: Mapping[str, Any]) -> None:
        if self.run:
            self.run.timing(row)

    def event(self, row: Mapping[str, Any]) -> None:
        if self.run:
            self.run.event(row)

    def table(self, name: str, cells: Mapping[str, Any]) -> None:
        """Append a row (column -> cell) to a table. The first row determines the columns of a table.

        A run of an older version keeps its columns, which are matched by their present names. A column
        without a cell, such as that of a reward term that is switched off, is 0.
        """
        if not self.run:
            return
        if name not in self.columns:
            header = self.run.table_header(name)
            self.columns[name] = present_columns(next(csv.reader([header]))) if header else list(cells)
        row = [cells.get(column, 0) for column in self.columns[name]]
        names = [self.column_names.get(column, column) for column in cells]
        self.run.table(name, csv_line(row), csv_line(names))

    def evaluation(self, row: dict[str, Any], lines: Sequence[str]) -> None:
        """A row of history.json; its lines go to train.log, the row itself to the display."""
        if self.run:
            self.run.append_history(row)
            for line in lines:
                self.run.log_line(line)
        if self.display:
            self.display.evaluation(row)

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        return self.display.film(recording) if self.display else {}

    def write_file(self, name: str, data: bytes) -> None:
        if self.run:
            self.run.write_file(name, data)

    def write_policy(self, name: str, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        if self.run:
            self.run.write_policy(name, dict(arrays), metadata)

    def write_past(
        self, iteration: int, arrays: Mapping[str, Any], metadata: Mapping[str, Any], stored: list[int]
    ) -> None:
        """Write the policies of this iteration into past/; only those of `stored` iterations stay there."""
        if self.run:
            self.run.write_past_policy(iteration, dict(arrays), metadata, stored)

    def write_replays(self, iteration: int, games: list[bytes], stored: list[int]) -> None:
        """Write the games of this iteration into replays/; only those of `stored` iterations stay there."""
        if self.run:
            self.run.write_replays(iteration, games, stored)

    def save(
        self, iteration: int, parts: Mapping[str, Any], fingerprint: Mapping[str, str], temporary: bool
    ) -> None:
        """Write a checkpoint; a temporary one is deleted when the next is saved."""
        started = time.monotonic()
        if self.run:
            self.run.save(iteration, parts, fingerprint, temporary=temporary)
        self.saved_at, self.saved_iteration = time.monotonic(), iteration
        self.save_seconds = self.saved_at - started

    @property
    def unsaved_iteration(self) -> int | None:
        """The last whole iteration, unless a checkpoint has it."""
        whole, saved = self.whole_iteration, self.saved_iteration
        return whole if whole is not None and (saved is None or saved < whole) else None

    def save_due(self, seconds: float) -> bool:
        """Whether the newest checkpoint is older than `seconds`; later where saving takes long. 0: never."""
        age = time.monotonic() - self.saved_at
        return 0 < seconds <= age and self.save_seconds <= SAVE_SHARE * age


def csv_line(cells: Iterable[Any]) -> str:
    """A row of a table, numbers to six digits."""
    buffer = io.StringIO()
    texts = [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in cells]
    csv.writer(buffer, lineterminator="").writerow(texts)
    return buffer.getvalue()
