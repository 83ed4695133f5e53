"""Copies the curves of a run to a log writer: all rows at once, or followed while the run trains."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.evaluation.text import clean
from rematch.reporting.exporters.log_writers import LogWriter
from rematch.reporting.exporters.run_tail import Row, RunTail, whole
from rematch.reporting.exporters.scalars import evaluation_scalars, metric_scalars
from rematch.storage.run_folder import Run

POLL_SECONDS = 2.0


@dataclass
class Counts:
    """Numbers of copied rows."""

    iterations: int = 0
    evaluations: int = 0


def stored_settings(folder: Path) -> Mapping[str, Any]:
    """The settings of a run by name; no code of the run is loaded."""
    with Run.open(folder, write=False) as run:
        return settings.read_yaml(run.config_text, str(folder / "config.yaml"))


def copy_rows(tail: RunTail, writer: LogWriter, counts: Counts) -> None:
    """Copy all new rows."""
    while rows := tail.metrics():
        for row in rows:
            writer.scalars(step_of(row), metric_scalars(row))
        counts.iterations += len(rows)
    for row in tail.evaluations():
        writer.scalars(step_of(row), evaluation_scalars(row))
        writer.text(step_of(row), "verdict", clean(row.get("verdict") or "no verdict"))
        counts.evaluations += 1
    writer.flush()


def step_of(row: Row) -> int:
    """The step of a row, or its iteration where it has none."""
    return max(whole(row, "step"), 0) or max(whole(row, "iteration"), 0)


def follow(tail: RunTail, writer: LogWriter, counts: Counts) -> None:
    """Copy rows until the run ends; a run that does not train is copied once."""
    running = True
    while running:
        running = tail.running  # before the rows: those written meanwhile are copied below
        copy_rows(tail, writer, counts)
        if running:
            time.sleep(POLL_SECONDS)
