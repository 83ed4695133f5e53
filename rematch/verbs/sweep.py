"""Many runs, one table: every seed of every combination of settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rematch.reporting import sweep_text
from rematch.reporting.console import Console
from rematch.reporting.result import Block, Result, Table
from rematch.sweeps import plan


class SweepTable(Result):
    """Every run of a sweep, and the interquartile mean over the seeds of each combination."""

    def blocks(self) -> Iterator[Block]:
        yield sweep_text.title(self)
        for heading, rows in sweep_text.tables(self):
            yield ""
            if heading:
                yield heading
            yield Table(rows)
        yield ""
        yield from (*sweep_text.notes(self), *sweep_text.MEANING)


def sweep(
    recipe: str = "quick",
    *,
    seeds: str | Iterable[int],
    grid: Mapping[str, Sequence[Any]] | None = None,
    changes: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    console: Console | None = None,
    cluster: str | None = None,
) -> SweepTable:
    """Train every seed of every combination of the grid's values, `jobs` at a time.

    `seeds` is "0-9" or a list of numbers. Repeat the call to continue a sweep that was stopped. `cluster`
    (ray, or ray://HOST:PORT) trains the runs on the nodes of a Ray cluster.
    """
    return SweepTable(plan.sweep(recipe, seeds=seeds, grid=grid, changes=changes, folder=folder, jobs=jobs,
                                 minutes=minutes, console=console, cluster=cluster))
