"""What a run says while it works: a live panel on a terminal, plain lines anywhere else.

Nothing that goes wrong here may stop a training. A reader that went away (`| head`) or a full disk
switches the output off; an error while drawing the panel falls back to plain lines.
The texts are text.py's, so train.log can hold the same words.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TextIO

from rematch.reporting.text import (
    aligned,
    clean,
    dashboard,
    duration,
    evaluation_lines,
    human,
    number,
    pair_words,
    progress_line,
    return_words,
    roles_in,
    scoreboard_lines,
    weakest_first,
)

if TYPE_CHECKING:
    import rich.console
    import rich.live

    from rematch.core.recording import Take

P = ParamSpec("P")

METERS = (("entropy", "entropy"), ("kl", "KL"), ("clip_fraction", "clipped"), ("value_loss", "value loss"),
          ("explained_variance", "expl. var"), ("grad_norm_pre_clip", "grad norm"))
EPISODES = "recent/episodes"  # a run that has it tells its progress itself, in lines
STANDINGS = {"above": "green", "below": "red", "level": "yellow"}
REFRESH = 0.1  # seconds between two drawings of the live panel
LOG_LINES = 5  # of the newest lines stay in the panel


def _unharmed(method: Callable[Concatenate[Console, P], None]) -> Callable[Concatenate[Console, P], None]:
    """No error of showing reaches the training: see the module's first paragraph."""

    @functools.wraps(method)
    def call(self: Console, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except OSError:  # BrokenPipeError, no space, terminal gone
            self._switch_off()
        except Exception as error:
            with contextlib.suppress(Exception):
                self._end_live()
            with contextlib.suppress(Exception):
                self._write(f"(could not be shown: {type(error).__name__}: {error})")

    return call


class Console:
    """The run's voice. `live=None`: a panel if `stream` is a terminal that can draw, else plain lines."""

    def __init__(self, stream: TextIO | None = None, live: bool | None = None, every: float = 2.0) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.live = self._can_draw() if live is None else live
        self.every = every  # seconds between two progress lines; 0: all of them
        self.off = False
        self.title, self.total, self.step = "", 0, 0
        self.rate: float | None = None
        self.metrics: dict[str, Any] = {}
        self.row: dict[str, Any] = {}
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.lacking = ""  # why there is no MP4, as it was said
        self._live: rich.live.Live | None = None
        self._drawn = self._said = -math.inf

    def _can_draw(self) -> bool:
        try:
            return self.stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        except ValueError:  # closed
            return False

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @_unharmed
    def start(self, title: str, total: int) -> None:
        self.title, self.total = clean(title), total
        if self.off:
            return
        if not self.live:
            self._write(f"{self.title}: {human(total)} steps to go")
            return
        from rich.console import Console as Screen
        from rich.live import Live

        class Tough(Screen):
            def on_broken_pipe(self) -> None:  # rich would leave the process with SystemExit
                raise BrokenPipeError

        screen = Tough(file=self.stream, force_terminal=True)  # rich itself reads NO_COLOR and the size
        live = Live(console=screen, auto_refresh=False, get_renderable=self.panel)
        live.start(refresh=False)
        screen.show_cursor(True)  # a killed process must not leave a terminal without one
        self._live = live
        self._draw(now=True)

    @_unharmed
    def line(self, text: str) -> None:
        for part in str(text).splitlines() or [""]:
            if self._live is not None:
                self.lines.append(clean(part))
            else:
                self._write(part)
        self._draw()

    @_unharmed
    def progress(self, step: int, rate: float, metrics: Mapping[str, Any]) -> None:
        """Steps of all games so far, steps per second, and the latest metrics row."""
        self.step, self.metrics = step, dict(metrics)
        if math.isfinite(rate):  # smoothed, so that one odd iteration does not swing the time left
            self.rate = rate if self.rate is None else 0.7 * self.rate + 0.3 * rate
        if self._live is not None:
            self._draw()
        elif EPISODES not in metrics and time.monotonic() - self._said >= self.every:
            self._said = time.monotonic()
            self._write(progress_line(step, self.total, metrics, self.rate))

    @_unharmed
    def evaluation(self, row: Mapping[str, Any]) -> None:
        self.row = dict(row)
        if self._live is not None:
            self._draw(now=True)
        else:
            for text in evaluation_lines(row):
                self._write(text)

    def film(self, take: Take) -> dict[str, bytes]:
        """The take as GIF and, where it can be encoded, MP4. What fails is said, and the run goes on."""
        from rematch.reporting import episode_film

        try:
            films, why = episode_film.films(take)
        except Exception as error:
            films, why = {}, f"no film of {take.name}: {type(error).__name__}: {error}"
        if why and why != self.lacking:
            self.lacking = why
            self.line(why)
        return films

    @_unharmed
    def stop(self) -> None:
        self._end_live()

    @_unharmed
    def scoreboard(self, row: Mapping[str, Any]) -> None:
        """The final table, plain in both modes; ends the live view."""
        self.stop()
        for text in ["", *scoreboard_lines(row)]:
            self._write(text)

    @_unharmed
    def where(self, paths: Mapping[str, object] | Sequence[object]) -> None:
        """What lies where, one line each: {"picture": path, ...} or paths alone."""
        self.stop()
        cells = [(k, v) for k, v in paths.items()] if isinstance(paths, Mapping) else [(v,) for v in paths]
        for text in aligned([[clean(cell) for cell in row] for row in cells]):
            self._write(text)

    # --- inside ---

    def _end_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

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
        self._live.refresh()

    def _switch_off(self) -> None:
        """No reader any more. The descriptor goes to /dev/null, else Python's flush at exit would fail
        and turn the exit code into 120 (docs.python.org, signal, "Note on SIGPIPE")."""
        self.off = True
        with contextlib.suppress(Exception):
            self._end_live()
        with contextlib.suppress(Exception):
            if self.stream.fileno() in (1, 2):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.stream.fileno())
                os.close(null)

    def panel(self) -> rich.console.RenderableType:
        """The live view. Every text is a rich Text, so a name like "[red]" is shown, not obeyed."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        def table(rows: Sequence[Sequence[str]]) -> Table:
            grid = Table.grid(padding=(0, 2, 0, 0))
            for i, row in enumerate(rows):
                plain = "" if i else "dim"
                grid.add_row(*(Text(clean(cell), STANDINGS.get(cell, plain), no_wrap=True) for cell in row))
            return grid

        left = max(0, self.total - self.step) / self.rate if self.rate else math.nan
        bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
        bar.add_column(ratio=1)
        bar.add_row(ProgressBar(total=max(self.total, 1), completed=min(self.step, self.total)),
                    Text(f"{human(self.step)} of {human(self.total)} steps  {human(self.rate)}/s  "
                         f"left {duration(left)}", "bold", no_wrap=True))
        parts: list[rich.console.RenderableType] = [bar]
        roles = roles_in(self.metrics)
        if EPISODES in self.metrics:
            roles = []
            parts.append(Text(dashboard(self.metrics), no_wrap=True, overflow="ellipsis"))
        if roles:
            parts.append(table([("role", "wins", *(title for _, title in METERS))] + [
                (role, number(self.metrics.get(f"rollout/win_{role}")),
                 *(number(self.metrics.get(f"{role}/{key}")) for key, _ in METERS)) for role in roles]))
        if self.row:
            head = f"evaluated at {human(self.row.get('step'))}"
            parts.append(Text("; ".join([head, *pair_words(self.row), *return_words(self.row)])))
            height = self._live.console.height if self._live else 40
            room = max(3, height - len(roles) - len(self.lines) - 10)
            if len(rows := weakest_first(self.row)) > 1:
                parts.append(table(rows[: room + 1]))
        parts += [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in self.lines]
        return Panel(Group(*parts), title=Text(self.title, "bold"), title_align="left")
