"""Progress of long operations: code on any layer reports it, and the command that runs shows it.

    for match in PROGRESS.each(matches):       # every match is an equal part of the whole
        with PROGRESS.part(0.0, 0.3): ...      # parts of parts
        PROGRESS.report(0.5, "half of the games")

Without a display (a Python call, a test) a report does nothing. Imports no other module of Rematch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Show = Callable[[float, str], None]  # (share of the whole from 0 to 1, what runs at present)


class ProgressReports:
    """Passes reports to the display of the command; within `part` a share counts for that part only."""

    def __init__(self) -> None:
        self.show: Show | None = None
        self.start, self.end = 0.0, 1.0  # the present part of the whole

    def report(self, share: float, text: str = "") -> None:
        """The share of the present part that is done, and what runs. Threads may call it."""
        if self.show is not None:
            within = min(max(share, 0.0), 1.0)
            self.show(self.start + (self.end - self.start) * within, text)

    @contextmanager
    def part(self, start: float, end: float) -> Iterator[None]:
        """Reports within the block are about this part of the present part, shares from 0 to 1."""
        before = self.start, self.end
        length = self.end - self.start
        self.start, self.end = before[0] + length * start, before[0] + length * end
        try:
            yield
        finally:
            self.start, self.end = before

    def each(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items; what happens until the next one is requested is an equal part each."""
        for index, item in enumerate(items):
            with self.part(index / len(items), (index + 1) / len(items)):
                yield item

    @contextmanager
    def shown_by(self, show: Show | None) -> Iterator[None]:
        """Show reports with this function within the block, the whole from 0 to 1."""
        before = self.show, self.start, self.end
        self.show, self.start, self.end = show, 0.0, 1.0
        try:
            yield
        finally:
            self.show, self.start, self.end = before


PROGRESS = ProgressReports()  # one for the process, as a terminal is
