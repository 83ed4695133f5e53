"""What a run says while it works: a live panel on a terminal, plain lines anywhere else.

Nothing that goes wrong here may stop a training. A reader that went away (`| head`) or a full disk
switches the output off; an error while drawing the panel falls back to plain lines.
The texts (`progress_line`, `evaluation_lines`, `scoreboard_lines`) are functions of their arguments, so
train.log can hold the same words; the wall clock enters only through `rate`.
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

if TYPE_CHECKING:
    import rich.console
    import rich.live

P = ParamSpec("P")
Row = Mapping[str, Any]

BALANCE = "The NE gap is a balance score: a small gap means an even match, not strong players."
LEVELS = ("above, below: the learnt player's interval lies clear of the best scripted player's; "
          "level: the two overlap.")
METERS = (("entropy", "entropy"), ("kl", "KL"), ("clip_fraction", "clipped"), ("value_loss", "value loss"),
          ("explained_variance", "expl. var"), ("grad_norm_pre_clip", "grad norm"))
STANDINGS = {"above": "green", "below": "red", "level": "yellow"}
REFRESH = 0.1  # seconds between two drawings of the live panel
LOG_LINES = 5  # of the newest lines stay in the panel


# --- numbers and names as text ----------------------------------------------------------------------


def clean(text: object) -> str:
    """`text` without control characters: a name in a YAML file must not move the cursor or forge a line."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def number(value: object, digits: int = 3) -> str:
    """A figure of fixed width for any size; "-" for what is missing or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    small = value != 0 and abs(value) < 10.0**-digits
    return f"{value:.1e}" if small or abs(value) >= 1e5 else f"{value:.{digits}f}"


def human(value: object) -> str:
    """512345 -> "512 K": three significant figures and a thousands letter."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    scaled, letter = float(value), ""
    for next_letter in ("K", "M", "G", "T"):
        if abs(scaled) < 999.5:  # 999.5 would round to 1000
            break
        scaled, letter = scaled / 1000, next_letter
    decimals = 0 if not letter or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{decimals}f} {letter}".strip()


def duration(seconds: float) -> str:
    """75 -> "1:15", 3700 -> "1:01:40"."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def interval(entry: Row, of: str = "") -> str:
    """The 95 % interval of an entry's score, or of its best scripted player's (`of="best_bot_"`)."""
    return f"[{number(entry.get(of + 'low'))}, {number(entry.get(of + 'high'))}]"


def standing(entry: Row) -> str:
    """The learnt player beside the best scripted one: "above" or "below" only where the intervals part."""
    ours = entry.get("low"), entry.get("high")
    theirs = entry.get("best_bot_low"), entry.get("best_bot_high")
    if any(number(bound) == "-" for bound in ours + theirs):
        return "-"
    return "above" if ours[0] > theirs[1] else "below" if ours[1] < theirs[0] else "level"  # type: ignore[operator]


def roles_in(metrics: Row) -> list[str]:
    """Roles that report learning numbers, in the order they are written."""
    heads = (key.rpartition("/") for key in metrics)
    return list(dict.fromkeys(head for head, _, leaf in heads if head and head != "rollout"))


# --- lines --------------------------------------------------------------------------------------------


def progress_line(step: int, total: int, metrics: Row, rate: float | None = None) -> str:
    words = [f"step {human(step)}" + (f" of {human(total)} ({100 * step / total:.0f} %)" if total else "")]
    if rate is not None:
        words.append(f"{human(rate)}/s")
        if total and rate > 0:
            words.append(f"left {duration(max(0, total - step) / rate)}")
    for role in roles_in(metrics):
        won = metrics.get(f"rollout/win_{role}")
        words.append(f"{role}" + (f" wins {number(won)}" if won is not None else "")
                     + f" entropy {number(metrics.get(f'{role}/entropy'))}"
                     + f" kl {number(metrics.get(f'{role}/kl'), 4)}")
    return clean("  ".join(words))


def pair_words(row: Row) -> list[str]:
    """The learnt pair head to head: a rate with interval and games per role, then the gap."""
    rates: Mapping[str, Row] = row.get("rates") or {}
    words = [f"{role} {number(rate.get('rate'))} {interval(rate)} n {rate.get('games', '-')}"
             for role, rate in rates.items()]
    if row.get("gap") is not None:
        words.append(f"NE-GAP {number(row['gap'])} (at most {number(row.get('gap_high'))})")
    return [clean(word) for word in words]


def evaluation_lines(row: Row) -> list[str]:
    """One line for the pair head to head, one per scripted rival. Greppable: Eval, SR_P, SR_E, NE-GAP."""
    head = [f"Eval  step {human(row.get('step'))}  Phase {row.get('phase', '-')}"]
    head += [f"{key} {number(row[key])}" for key in ("SR_P", "SR_E") if key in row]
    return [clean("  ".join(head + pair_words(row)))] + [
        f"Eval    {player} against {rival}: {score} {bounds} n {games}; best scripted {bot} {its}: {level}"
        for player, rival, games, score, bounds, bot, its, _, level in table_cells(row)[1:]]


def table_cells(row: Row) -> list[tuple[str, ...]]:
    """The scoreboard against scripted rivals: a head, then a row of cells for every pairing."""
    cells: list[tuple[str, ...]] = [
        ("player", "against", "games", "score", "95 % interval", "best scripted", "has", "interval", "")]
    for e in row.get("table") or []:
        cells.append((clean(e.get("player", "-")), clean(e.get("rival", "-")), clean(e.get("games", "-")),
                      number(e.get("score")), interval(e), clean(e.get("best_bot", "-")),
                      number(e.get("best_bot_score")), interval(e, "best_bot_"), standing(e)))
    return cells


def weakest_first(row: Row) -> list[tuple[str, ...]]:
    """The same for 80 columns and few lines: where the learnt players stand worst comes first."""
    head, *cells = table_cells(row)
    cells.sort(key=lambda cell: (("below", "level", "above", "-").index(cell[-1]), cell[3]))
    return [(*cell[:5], cell[6], cell[8]) for cell in [(*head[:6], "bot", *head[7:]), *cells]]


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines with straight columns; the columns in `right` are flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return ["  ".join(cell.rjust(w) if i in right else cell.ljust(w)
                      for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows]


def scoreboard_lines(row: Row) -> list[str]:
    """The final scoreboard: every figure with its number of games and its 95 % interval."""
    lines = [f"Scoreboard after {human(row.get('step'))} steps", ""]
    cells = table_cells(row)
    if len(cells) > 1:
        lines += [*aligned(cells, right=(2, 3)), "", LEVELS]
    else:
        lines.append("No games against scripted rivals were played.")
    if row.get("rates"):
        lines += ["Head to head: " + ", ".join(pair_words(row)) + ".", BALANCE]
    if row.get("verdict"):
        lines.append(clean(f"Verdict: {row['verdict']}"))
    return lines


# --- the console ----------------------------------------------------------------------------------------


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
        """Learner steps so far, learner steps per second, and the latest metrics row."""
        self.step, self.metrics = step, dict(metrics)
        if math.isfinite(rate):  # smoothed, so that one odd iteration does not swing the time left
            self.rate = rate if self.rate is None else 0.7 * self.rate + 0.3 * rate
        if self._live is not None:
            self._draw()
        elif time.monotonic() - self._said >= self.every:
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
        if roles:
            parts.append(table([("role", "wins", *(title for _, title in METERS))] + [
                (role, number(self.metrics.get(f"rollout/win_{role}")),
                 *(number(self.metrics.get(f"{role}/{key}")) for key, _ in METERS)) for role in roles]))
        if self.row:
            head = f"evaluated at {human(self.row.get('step'))}"
            parts.append(Text("; ".join([head, *pair_words(self.row)])))
            height = self._live.console.height if self._live else 40
            room = max(3, height - len(roles) - len(self.lines) - 10)
            parts.append(table(weakest_first(self.row)[:room + 1]))
        parts += [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in self.lines]
        return Panel(Group(*parts), title=Text(self.title, "bold"), title_align="left")
