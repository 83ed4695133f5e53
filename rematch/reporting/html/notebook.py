"""Progress in a notebook: a bar that is updated in place, for a training and for other long functions.

It is switched on when Rematch is used inside an IPython kernel; elsewhere nothing changes.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import sys
import time
from collections.abc import Mapping
from typing import Any

from rematch.core.system.progress import PROGRESS
from rematch.evaluation.text import clean, human, verdict_text
from rematch.reporting.console import Console
from rematch.reporting.terminal.progress_display import TimeLeft
from rematch.reporting.text import duration

REFRESH = 0.5  # seconds between two updates
LINES = 5  # newest lines that are shown


def kernel() -> Any:
    """The shell of the IPython kernel that runs this process; None outside of a notebook."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None


class NotebookArea:
    """HTML in the output of the present cell that is updated in place; errors of the output are ignored."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.drawn = 0.0

    def show(self, text: str, now: bool = False) -> None:
        if not now and time.monotonic() - self.drawn < REFRESH:
            return
        self.drawn = time.monotonic()
        with contextlib.suppress(Exception):  # no error of the output stops a training
            ipython: Any = importlib.import_module("IPython.display")
            if self.handle is None:
                self.handle = ipython.display(ipython.HTML(text), display_id=True)
            else:
                self.handle.update(ipython.HTML(text))

    def end(self, text: str = "") -> None:
        """The text stays; the next `show` starts a new area."""
        if self.handle is not None:
            self.show(text, now=True)
        self.handle = None


def bar_html(share: float, text: str) -> str:
    value = min(max(share, 0.0), 1.0)
    return f'<progress max="1" value="{value:.4f}" style="width: 16em"></progress> {html.escape(clean(text))}'


class ProgressBar:
    """Shows the reports of PROGRESS while a cell runs, and removes the bar at its end."""

    def __init__(self) -> None:
        self.area, self.left = NotebookArea(), TimeLeft()

    def update(self, share: float, text: str = "") -> None:
        self.left.update(share)
        parts = [f"{100 * share:.0f} %", str(self.left), text.replace("\n", "; ")]
        self.area.show(bar_html(share, "  ".join(filter(None, parts))))

    def end(self, *_: Any) -> None:
        self.area.end()
        self.left = TimeLeft()


class NotebookConsole(Console):
    """Shows a run that trains in a notebook: progress, newest verdict, newest lines."""

    def __init__(self) -> None:
        super().__init__(live=False)
        self.area = NotebookArea()

    def start(self, title: str, total: int, step: int = 0, row: Mapping[str, Any] | None = None) -> None:
        self.title, self.total, self.step, self.row = clean(title), total, step, dict(row or {})
        self._redraw(now=True)

    def line(self, text: str) -> None:
        self.lines.extend(clean(part) for part in str(text).splitlines())
        self._redraw()

    def progress(self, step: int, rate: float, metrics: Mapping[str, Any]) -> None:
        self.step = step
        self.rates.append(rate)
        self.rate = sorted(self.rates)[len(self.rates) // 2]
        self.current = ""
        self._redraw()

    def evaluation(self, row: Mapping[str, Any]) -> None:
        self.row, self.current = dict(row), ""
        self._redraw()

    def activity(self, text: str) -> None:
        self.current = clean(text)
        self._redraw()

    def notice(self, text: str) -> None:
        self.line(text)

    def stop(self) -> None:
        self._redraw(now=True)

    def scoreboard(self, row: Mapping[str, Any]) -> None:
        """The returned run shows its scoreboard."""
        self.row = dict(row)
        self.area.end(self.page())

    def list_files(self, paths: Any) -> None:
        """The files are in the run folder."""

    def page(self) -> str:
        """The present state as HTML; texts are escaped."""
        seconds = max(0, self.total - self.step) / self.rate if self.rate else None
        left = f", {duration(seconds)} left" if seconds else ""
        speed = f", {human(self.rate)} steps/s" if self.rate else ""
        text = f"{self.title}: {human(self.step)} of {human(self.total)} steps{speed}{left}"
        parts = [f"<div>{bar_html(self.step / max(1, self.total), text)}</div>"]
        if self.row.get("verdict"):
            step = human(self.row.get("step"))
            parts.append(f"<div>after {step} steps: {html.escape(verdict_text(self.row['verdict']))}</div>")
        newest = [*list(self.lines)[-LINES:], *([self.current] if self.current else [])]
        parts += [f'<div style="opacity: 0.7">{html.escape(line)}</div>' for line in newest]
        return "".join(parts)

    def _redraw(self, now: bool = False) -> None:
        if not self.off and self.title:
            self.area.show(self.page(), now)


def enable() -> None:
    """Show progress in the notebook that runs this process, if it is one; called once."""
    shell = kernel()
    if shell is not None and PROGRESS.show is None:
        progress_bar = ProgressBar()
        PROGRESS.show = progress_bar.update
        shell.events.register("post_run_cell", progress_bar.end)
