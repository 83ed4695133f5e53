"""Show the progress, evaluations and alarms of a run or a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rematch.reporting import status as run_status
from rematch.reporting.result import Block, Lines, Result
from rematch.sweeps import status as sweep_status
from rematch.verbs.arguments import folder_of


class Status(Result):
    """The state of a run or a sweep. `exit_code`: 0 fine, 1 alarm, 3 stopped before its end."""

    @property
    def exit_code(self) -> int:
        return int(self["exit"])

    def blocks(self) -> Iterator[Block]:
        yield Lines(self["lines"])


def status(run: Path | str) -> Status:
    """Progress, newest evaluations and alarms of a run or a sweep; reads only."""
    folder = folder_of(run)
    sweep = sweep_status.is_sweep(folder)
    return Status(sweep_status.status(folder) if sweep else run_status.status(folder))
