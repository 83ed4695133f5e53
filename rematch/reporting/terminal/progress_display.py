"""Shows how far a long command is: bar and time left on a terminal, else a plain line from time to time.

It writes to stderr, so that redirected results stay clean. No error of the output stops the command.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from typing import TextIO

from rematch.core.system.progress import PROGRESS
from rematch.evaluation.text import clean
from rematch.reporting.terminal.live_area import LiveArea, can_draw, terminal_size
from rematch.reporting.text import duration, fold_sentence

REFRESH = 0.1  # seconds between two drawings on a terminal
FIRST_LINE, LONGEST_PAUSE = 10.0, 60.0  # seconds before the first plain line; between two, at most
WARM_UP = 2.0  # seconds before the time left is estimated
BAR = 24  # columns
ECHO = 3  # columns that stay free: a line that wraps could not be erased


class TimeLeft:
    """The remaining time of an operation, by the speed since its first report."""

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None  # time and share of the first report
        self.seconds = math.nan

    def update(self, share: float) -> None:
        now = time.monotonic()
        if self.first is None or share < self.first[1]:
            self.first = now, share
        elapsed, done = now - self.first[0], share - self.first[1]
        if elapsed >= WARM_UP and done > 0:
            self.seconds = elapsed * (1 - share) / done

    def __str__(self) -> str:
        return f"{duration(self.seconds)} left" if math.isfinite(self.seconds) else ""


def bar(share: float, width: int = BAR) -> str:
    """A bar of `width` columns, filled to the share."""
    full = min(width, max(0, round(share * width)))
    return "━" * full + "─" * (width - full)


def one_row(text: str, columns: int) -> str:
    """The text in one row of a terminal, with room for the ^C that a terminal echoes; cut where too long."""
    from rich.cells import cell_len, set_cell_size

    room = max(columns - ECHO, 2)
    return text if cell_len(text) <= room else set_cell_size(text, room - 1) + "…"


class ProgressDisplay:
    """The progress of one command. While it is entered, it shows the reports of PROGRESS.

    `quiet`: print nothing, for a command that prints JSON.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet or self.stream is None
        self.area: LiveArea | None = None
        if not self.quiet and can_draw(self.stream):
            on_terminal = sys.stdout is not None and can_draw(sys.stdout)
            self.area = LiveArea(self.stream, sys.stdout if on_terminal else None)
        self.left = TimeLeft()
        self.started = self.printed = time.monotonic()
        self.drawn = -math.inf
        self.lock = threading.Lock()  # matches report from several threads

    def __enter__(self) -> ProgressDisplay:
        self.shown = PROGRESS.shown_by(None if self.quiet else self.update)
        self.shown.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.shown.__exit__(None, None, None)
        with contextlib.suppress(OSError, ValueError):
            if self.area is not None:
                self.area.erase()

    def line(self, text: str) -> None:
        """Print a line that stays; on stdout."""
        if self.quiet:
            return
        line = clean(text)
        if self.area is None or self.area.out is self.stream:
            if self.area is not None:
                self.area.erase()
            print(line, flush=True)
        else:
            with self.lock:
                for part in fold_sentence(line, terminal_size(self.stream)[0]):
                    self.area.write(part)

    def update(self, share: float, text: str = "") -> None:
        """The share that is done from 0 to 1, and what runs; further lines of the text are further rows."""
        now = time.monotonic()
        if self.quiet or not self.lock.acquire(blocking=False):
            return
        try:
            self.left.update(share)
            if self.area is not None:
                if now - self.drawn >= REFRESH or self.area.resized:
                    self.drawn = now
                    columns = terminal_size(self.stream)[0]
                    head, *details = text.split("\n")
                    rows = [self._row(share, head, columns), *details]
                    self.area.draw([one_row(clean(row), columns) for row in rows])
            elif now - self.printed >= min(LONGEST_PAUSE, max(FIRST_LINE, 0.2 * (now - self.started))):
                self.printed = now
                text = text.replace("\n", "; ")
                print(f"progress: {clean(plain(share, self.left, text))}", file=self.stream, flush=True)
        except (OSError, ValueError):  # the reader ended, or stderr is closed
            self.quiet = True
        finally:
            self.lock.release()

    def _row(self, share: float, text: str, columns: int) -> str:
        width = min(BAR, max(0, columns - 40))
        left = str(self.left) or f"{duration(time.monotonic() - self.started)} so far"
        return "  ".join(filter(None, [bar(share, width), f"{100 * share:3.0f} %", left, text]))


def plain(share: float, left: TimeLeft, text: str) -> str:
    """ "34 %, 0:42 left: evader against lion"."""
    numbers = ", ".join(filter(None, [f"{100 * share:.0f} %", str(left)]))
    return f"{numbers}: {text}" if text else numbers
