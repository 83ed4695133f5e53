"""The console output of a run: a live panel on a terminal, plain lines anywhere else.

No error of the output may stop a training run. When the reader has ended (`| head`) or the disk is full, the
output is switched off; after an error in the panel the output is plain lines.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TextIO

from rematch.evaluation.text import (
    clean,
    evaluation_lines,
    human,
    number,
    rate_phrases,
    return_phrases,
)
from rematch.reporting.terminal.live_area import LiveArea, can_draw, terminal_size
from rematch.reporting.terminal.progress_display import TimeLeft
from rematch.reporting.terminal.sparkline import Trend
from rematch.reporting.text import (
    RECENT,
    aligned,
    dashboard,
    duration,
    progress_line,
    roles_in,
    scoreboard_lines,
    typical_speed,
    weakest_first,
)

if TYPE_CHECKING:
    import rich.console

    from rematch.core.recording import EpisodeRecording

P = ParamSpec("P")

ROLE_METRICS = (("entropy", "entropy"), ("kl", "KL"), ("clip_fraction", "clipped"),
                ("value_loss", "value loss"), ("explained_variance", "expl. var"),
                ("grad_norm_pre_clip", "grad norm"))
EPISODES = "recent/episodes"  # a run with this metric has an episode log, which prints its own progress lines
STANDING_COLOURS = {"above": "green", "below": "red", "level": "yellow"}
REFRESH = 0.1  # seconds between two drawings of the live panel
LOG_LINES = 5  # newest lines that stay in the panel
MOST_TRENDS = 4
ACTIVITY_SECONDS = 10.0  # between two plain lines about a long operation


def _without_errors(
    method: Callable[Concatenate[Console, P], None],
) -> Callable[Concatenate[Console, P], None]:
    """The method without exceptions: no error of the output reaches the training loop."""

    @functools.wraps(method)
    def call(self: Console, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except OSError:  # BrokenPipeError, full disk, closed terminal
            self._switch_off()
        except Exception as error:
            with contextlib.suppress(Exception):
                self._end_live()
            with contextlib.suppress(Exception):
                self._write(f"(output failed: {type(error).__name__}: {error})")

    return call


class Console:
    """Prints a run. `live=None`: a panel if `stream` is a terminal that can draw, otherwise plain lines."""

    def __init__(self, stream: TextIO | None = None, live: bool | None = None, every: float = 2.0) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.live = can_draw(self.stream) if live is None else live
        self.every = every  # seconds between two progress lines; 0: every iteration has one
        self.off = False
        self.title = ""
        self.total, self.step = 0, 0
        self.rates: deque[float] = deque(maxlen=RECENT)  # steps of all games per second
        self.rate: float | None = None
        self.metrics: dict[str, Any] = {}
        self.row: dict[str, Any] = {}
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.missing_film = ""  # the newest message about a film that could not be made
        self._live: LiveArea | None = None
        self.trends: dict[str, Trend] = {}  # of the metrics in TRENDS, by name
        self.left = TimeLeft()  # of the long operation
        self.operation_share = 0.0
        self._previous_resize: Any = None  # the signal handler before this console's
        self._drawn = self._printed = -math.inf  # time.monotonic() of the newest panel, of the newest line
        self._active = time.monotonic()  # of the newest line about a long operation, or of other progress
        self.current = ""  # the long operation that runs at present
        self._size = 120, 40  # of the terminal

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @_without_errors
    def start(self, title: str, total: int, step: int = 0, row: Mapping[str, Any] | None = None) -> None:
        """Begin a run of `total` steps; a resumed one has `step` of them and `row`, its newest evaluation."""
        self.title, self.total, self.step = clean(title), total, step
        self.row = dict(row or {})
        if self.off:
            return
        if not self.live:
            before = f", {human(step)} of them done" if step else ""
            self._write(f"{self.title}: {human(total)} steps{before}")
            return
        self._live = LiveArea(self.stream)
        if threading.current_thread() is threading.main_thread():
            self._previous_resize = signal.signal(signal.SIGWINCH, self._resized)
        self._draw(now=True)

    def _resized(self, *_: object) -> None:
        """Draw again at once: the terminal has wrapped or cut the panel."""
        if self._live is not None and not self._live.drawing:
            self.notice("")

    @_without_errors
    def line(self, text: str) -> None:
        for part in str(text).splitlines() or [""]:
            if self._live is not None:
                self.lines.append(clean(part))
            else:
                self._write(part)
        self._draw()

    def line_from_thread(self, text: str) -> None:
        """Show a line of another thread: in the panel when it is drawn next, else at once on stderr."""
        if self._live is not None:
            self.lines.append(clean(text))
        elif not self.off:
            with contextlib.suppress(OSError):
                os.write(2, f"{clean(text)}\n".encode())

    @_without_errors
    def progress(self, step: int, rate: float, metrics: Mapping[str, Any]) -> None:
        """Steps of all games so far, steps per second, and the latest metrics row."""
        learned = tuple(f"{role}/" for role in roles_in(self.metrics))  # a role that rests shows its last row
        earlier = {key: value for key, value in self.metrics.items() if key.startswith(learned)}
        self.step, self.metrics = step, {**earlier, **metrics}
        self._end_operation()
        for name in trend_names(metrics):
            self.trends.setdefault(name, Trend()).add(metrics[name])
        if math.isfinite(rate):
            self.rates.append(rate)
            self.rate = typical_speed(list(self.rates))
        if self._live is not None:
            self._draw()
        elif EPISODES not in metrics and time.monotonic() - self._printed >= self.every:
            self._printed = time.monotonic()
            self._write(progress_line(step, self.total, self.metrics, self.rate))

    @_without_errors
    def activity(self, text: str) -> None:
        """Progress of a long operation: in the panel, or as a plain line every ACTIVITY_SECONDS."""
        if self.operation_share > 0:
            left = f", {self.left}" if str(self.left) else ""
            text = f"{text} ({100 * self.operation_share:.0f} % of all{left})"
        self.current = text
        if self._live is not None:
            self._draw()
        elif time.monotonic() - self._active >= ACTIVITY_SECONDS:
            self._active = time.monotonic()
            self._write(text)

    @_without_errors
    def share(self, share: float, text: str) -> None:
        """The share of a long operation that is done; `activity` shows it with the time left."""
        self.left.update(share)
        self.operation_share = share

    def _end_operation(self) -> None:
        self.current, self._active = "", time.monotonic()
        self.left, self.operation_share = TimeLeft(), 0.0

    @_without_errors
    def notice(self, text: str) -> None:
        """Show a line at once. A signal handler calls this, at any instant: also inside other output."""
        if self._live is not None:
            if text:
                self.lines.append(clean(text))
            if not self._live.drawing:
                self._draw(now=True)
        elif not self.off:
            os.write(2, f"{clean(text)}\n".encode())  # sys.stderr does not allow a call inside another one

    @_without_errors
    def evaluation(self, row: Mapping[str, Any]) -> None:
        self.row = dict(row)
        self._end_operation()
        if self._live is not None:
            self._draw(now=True)
        else:
            for text in evaluation_lines(row):
                self._write(text)

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        """The recording as GIF and, with an encoder, MP4. A failure is one line; the run continues."""
        from rematch.reporting import episode_film

        try:
            films, message = episode_film.films(recording)
        except Exception as error:
            films, message = {}, f"no film of {recording.name}: {type(error).__name__}: {error}"
        if message and message != self.missing_film:
            self.missing_film = message
            self.line(message)
        return films

    @_without_errors
    def stop(self) -> None:
        self._end_live()

    @_without_errors
    def scoreboard(self, row: Mapping[str, Any]) -> None:
        """The final table, plain in both modes; ends the live view."""
        self.stop()
        for text in ["", *scoreboard_lines(row)]:
            self._write(text)

    @_without_errors
    def list_files(self, paths: Mapping[str, object] | Sequence[object]) -> None:
        """The files of a run, one line each: {"picture": path, ...} or paths alone."""
        self.stop()
        cells = [(k, v) for k, v in paths.items()] if isinstance(paths, Mapping) else [(v,) for v in paths]
        for text in aligned([[clean(cell) for cell in row] for row in cells]):
            self._write(text)

    # --- output ---

    def _end_live(self) -> None:
        live = self._live
        if live is None:
            return
        try:
            self._draw(now=True)
        finally:
            self._live = None
            if self._previous_resize is not None:
                signal.signal(signal.SIGWINCH, self._previous_resize)
                self._previous_resize = None
            live.end()

    def _write(self, text: str) -> None:
        if self.off:
            return
        line = clean(text) + "\n"
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(line.encode(encoding, "replace").decode(encoding))
        self.stream.flush()

    def _draw(self, now: bool = False) -> None:
        if self._live is None or self.off or not (now or time.monotonic() - self._drawn >= REFRESH):
            return
        self._drawn = time.monotonic()
        self._live.draw(self.panel_rows(*terminal_size(self.stream)))

    def _switch_off(self) -> None:
        """The reader has ended: send further output to /dev/null. Otherwise Python's flush at exit would fail
        and the exit code would be 120 (docs.python.org, signal, "Note on SIGPIPE")."""
        self.off, self._live = True, None
        with contextlib.suppress(Exception):
            if self.stream.fileno() in (1, 2):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.stream.fileno())
                os.close(null)

    # --- the live panel ---

    def panel_rows(self, columns: int, lines: int) -> list[str]:
        """The live view as rows with colours, for a terminal of this size."""
        from rich.console import Console as Screen

        self._size = columns, lines
        screen = Screen(file=io.StringIO(), force_terminal=True, width=max(columns, 20), height=lines)
        with screen.capture() as capture:  # rich itself reads NO_COLOR
            screen.print(self.panel())
        rows = capture.get().splitlines()
        return rows if len(rows) <= lines else [*rows[: lines - 1], rows[-1]]

    def panel(self) -> rich.console.RenderableType:
        """The live view. Every text is a rich Text: a name like "[red]" is shown and not interpreted."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        parts: list[rich.console.RenderableType] = [self._progress_bar()]
        roles: list[str] = []
        log = self._log_lines()
        if EPISODES in self.metrics:
            parts.append(Text(dashboard(self.metrics), overflow="fold"))
        elif roles := roles_in(self.metrics):
            parts.append(_table([("role", "wins", *(title for _, title in ROLE_METRICS)),
                                 *(self._role_cells(role) for role in roles)]))
        trends = self._trend_lines()
        parts += [Text(line, "cyan", no_wrap=True, overflow="ellipsis") for line in trends]
        if self.row:
            head = f"evaluation at step {human(self.row.get('step'))}"
            parts.append(Text("; ".join([head, *rate_phrases(self.row), *return_phrases(self.row)])))
            used = len(roles) + sum(rows for _, rows in log) + len(trends) + bool(self.current)
            free_lines = max(3, self._size[1] - used - 10)
            if len(rows := weakest_first(self.row)) > 1:
                parts.append(_table(rows[: free_lines + 1]))
        parts += [Text(line, "dim", overflow="fold") for line, _ in log]
        if self.current:
            parts.append(Text(clean(self.current), "dim", no_wrap=True, overflow="ellipsis"))
        return Panel(Group(*parts), title=Text(self.title, "bold"), title_align="left")

    def _trend_lines(self) -> list[str]:
        """The trends of the main numbers since the start of this process, as small bars; a line per kind."""
        lines: dict[str, str] = {}
        for name, trend in list(self.trends.items())[:MOST_TRENDS]:
            kind, role = trend_label(name)
            if bars := (trend.bars(0.0, 1.0) if kind == "wins" else trend.bars()):
                lines[kind] = f"{lines.get(kind, f'{kind:7}')}  {role}{' ' if role else ''}{bars}"
        return [clean(line) for line in lines.values()]

    def _log_lines(self) -> list[tuple[str, int]]:
        """The newest log lines, whole, and the rows of each; as many as fit into half of the terminal."""
        from rich.console import Console as Screen
        from rich.text import Text

        screen = Screen(width=self._size[0], file=io.StringIO())
        log: list[tuple[str, int]] = []
        free = max(1, self._size[1] // 2)
        for line in reversed(self.lines):
            rows = len(Text(line).wrap(screen, max(1, screen.width - 4), overflow="fold"))  # 4: the frame
            if log and rows > free:
                break
            log.insert(0, (line, rows))
            free -= rows
        return log

    def _progress_bar(self) -> rich.console.RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        remaining = max(0, self.total - self.step) / self.rate if self.rate else math.nan
        bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
        bar.add_column(ratio=1)
        bar.add_row(ProgressBar(total=max(self.total, 1), completed=min(self.step, self.total)),
                    Text(f"{human(self.step)} of {human(self.total)} steps  {human(self.rate)} steps/s  "
                         f"{duration(remaining)} left", "bold", no_wrap=True))
        return bar

    def _role_cells(self, role: str) -> list[str]:
        metrics = [number(self.metrics.get(f"{role}/{key}")) for key, _ in ROLE_METRICS]
        return [role, number(self.metrics.get(f"rollout/win_{role}")), *metrics]


def trend_names(metrics: Mapping[str, Any]) -> list[str]:
    """The metrics whose trends are shown: win rates and entropies, or returns and milestones."""
    if EPISODES in metrics:
        return [name for name in ("recent/return_env", "recent/length") if name in metrics]
    wins = [name for name in metrics if name.startswith("rollout/win_")]
    return [*wins, *(f"{role}/entropy" for role in roles_in(metrics) if f"{role}/entropy" in metrics)]


def trend_label(name: str) -> tuple[str, str]:
    """What a trend shows, and of which role: "rollout/win_pursuer" -> ("wins", "pursuer")."""
    if name.startswith("rollout/win_"):
        return "wins", name.removeprefix("rollout/win_")
    if name.startswith("recent/"):
        return name.removeprefix("recent/"), ""
    role, _, kind = name.rpartition("/")
    return kind, role


def _table(rows: Sequence[Sequence[str]]) -> rich.console.RenderableType:
    """Rows as a grid, the first one dim; the words above, below and level are coloured."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for i, row in enumerate(rows):
        style = "" if i else "dim"
        grid.add_row(*(Text(clean(cell), STANDING_COLOURS.get(cell, style), no_wrap=True) for cell in row))
    return grid
