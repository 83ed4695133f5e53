"""report.html: one page about one run that opens anywhere, offline, without a script.

The files of a run folder are read as a stranger's: links are not followed, sizes are bounded, every text is
escaped, and the page forbids itself to load anything. A file that is missing or damaged costs its section,
which says so. Nothing here depends on the clock or on the folder's name: a resumed run's page equals that of
an undisturbed one byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from rematch import __version__
from rematch.config import ConfigError
from rematch.show.words import BALANCE, LEVELS, exact_words, human, interval, number, return_cells, standing

Row = Mapping[str, Any]

LARGEST = 256 << 20  # bytes of any one file that is read
MOST_ROWS = 2000  # evaluations or columns shown; a page must stay a page
PICTURES = {"learning.png": (b"\x89PNG\r\n\x1a\n", "image/png"), "match.gif": (b"GIF8", "image/gif")}
FILES = ("config.yaml", "sight.json", "history.json", "metrics.jsonl", *PICTURES)

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0; --page: #fdfdfc;
  --card: #f3f5f7; --blue: #0072b2; --good: #00664a; --bad: #a83c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a2abb5; --line: #3a424b;
  --page: #14171a; --card: #1f2429; --blue: #63b8ea; --good: #4fd0a4; --bad: #ff9e66; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; color: var(--ink);
  background: var(--page); font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
p { max-width: 46rem; margin: .5rem 0; } .soft { color: var(--soft); }
.verdict { font-size: 1.15rem; background: var(--card); border-left: 4px solid var(--blue);
  padding: .8rem 1rem; max-width: none; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .8rem 0; font-size: .92rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .32rem .9rem .32rem 0; border-bottom: 1px solid var(--line);
  vertical-align: middle; white-space: nowrap; } th { font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.above { color: var(--good); font-weight: 600; } .below { color: var(--bad); font-weight: 600; }
svg { display: block; } svg .axis { stroke: var(--line); } svg .ours { fill: var(--blue); opacity: .5; }
svg .score { stroke: var(--blue); stroke-width: 2; } svg .bot { stroke: var(--ink); fill: none; }
img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
pre { background: var(--card); padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: .85rem; }
code { overflow-wrap: anywhere; font-size: .85em; } summary { cursor: pointer; margin: .4rem 0; }
"""


class Unreadable(Exception):
    """Why a file cannot be shown, in words for the page."""


def report(folder: str | os.PathLike[str]) -> Path:
    """Write report.html into a run's folder from the files that lie there; its path comes back."""
    run = Path(folder)
    if not run.is_dir():
        raise ConfigError(f"report: {str(run)!r} is not a folder")
    target, part = run / "report.html", run / ".report.html.part"
    try:
        part.write_bytes(page(run).encode("utf-8", "replace"))
        part.replace(target)
    except OSError as error:
        raise ConfigError(f"report: cannot write {str(target)!r}: {error.strerror}") from None
    return target


def page(run: Path) -> str:
    """The whole page as text."""
    title = _title(run)
    sections: list[tuple[str, Callable[[Path], str]]] = [
        ("Verdict", _verdict), ("Against scripted rivals", _scoreboard), ("Head to head", _head_to_head),
        ("Learning", lambda run: _image(run, "learning.png", "Curves of strength and of learning")),
        ("One game", lambda run: _image(run, "match.gif", "One game between the learnt players")),
        ("What every seat sees", _sight), ("Settings", _settings), ("Provenance", _provenance)]
    body = "".join(f"<section><h2>{name}</h2>\n{_guarded(build, run)}</section>\n"
                   for name, build in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style></head>\n"
        f'<body>\n<header><h1>{_text(title)}</h1><p class="soft">A training run of rematch. '
        "Every rate stands with its number of games and its 95 % interval.</p></header>\n"
        f"{body}</body></html>\n")


def _guarded(build: Callable[[Path], str], run: Path) -> str:
    try:
        return build(run)
    except Unreadable as why:
        return _paragraph(f"Not shown: {why}.", "soft")
    except Exception as error:  # a file of the right name with a wrong inside; the other sections stand
        words = f"Not shown: the file does not hold what it should ({type(error).__name__})."
        return _paragraph(words, "soft")


# --- sections -----------------------------------------------------------------------------------------


def _verdict(run: Path) -> str:
    row = _last(run)
    words = row.get("verdict") or "No verdict was written with the last evaluation."
    return (_paragraph(words, "verdict")
            + _paragraph(f"Evaluated after {human(row.get('step'))} steps of all games, iteration "
                         f"{row.get('iteration', '-')}.", "soft"))


def _scoreboard(run: Path) -> str:
    entries = _last(run).get("table") or []
    if not entries and _last(run).get("returns"):
        return _returns(run)
    if not entries:
        raise Unreadable("no games against scripted rivals were played")
    rows = []
    for e in entries:
        level = standing(e)
        rows.append([_text(e.get("player", "-")), _text(e.get("rival", "-")), _number(e.get("games", "-")),
                     _number(number(e.get("score"))), _number(interval(e)), _bars(e),
                     _text(e.get("best_bot", "-")), _number(number(e.get("best_bot_score"))),
                     _number(interval(e, "best_bot_")), f'<td class="{level}">{_text(level)}</td>'])
    head = ("player", "against", "games", "score", "95 % interval", "0 … 1", "best scripted",
            "its score", "its interval", "ours is")
    caption = "Score: a win counts 1, a draw ½. Bar: our interval; diamond: the best scripted player."
    return (_table(head, rows, caption)
            + _paragraph(LEVELS, "soft")
            + _paragraph("These rivals are scripted. How much a player trained against this one could win "
                         "(its exploitability) is not measured by this table.", "soft"))


def _returns(run: Path) -> str:
    """A task for one: mean returns, the last beside the best scripted player's, then all of them."""
    head, *cells = return_cells(_last(run))
    rows = [[_text(cell[0]), *map(_number, cell[1:4]), _text(cell[4]), *map(_number, cell[5:7]),
             f'<td class="{_text(cell[7])}">{_text(cell[7])}</td>'] for cell in cells]
    history = _history(run)
    past = [[_number(human(row.get("step"))), _text(role), _number(number(e.get("mean"))),
             _number(interval(e)), _number(e.get("games", "-"))]
            for row in history[-MOST_ROWS:] for role, e in (row.get("returns") or {}).items()]
    table = _table(("step", "role", "mean return", "95 % interval", "games"), past)
    return (_table((*head[:-1], "ours is"), rows, "Points per game; nobody else sits at the table.")
            + _paragraph(LEVELS, "soft")
            + f"<details><summary>All {len(history)} evaluations</summary>{table}</details>")


def _head_to_head(run: Path) -> str:
    row = _last(run)
    rates = row.get("rates") or {}
    if not rates:
        alone = "returns" in row
        raise Unreadable("the world has one seat" if alone else "the learnt players have not met")
    cells = [[_text(role), _number(r.get("games", "-")), _number(number(r.get("rate"))), _number(interval(r)),
              _bars(r, "rate")] for role, r in rates.items()]
    gap = (f"NE gap {number(row.get('gap'))}, at most {number(row.get('gap_high'))} (95 %). "
           if row.get("gap") is not None else "")
    head = ("role", "games", "share won", "95 % interval", "0 … 1")
    return (_table(head, cells, "The learnt players against each other") + _paragraph(gap + BALANCE)
            + "".join(_paragraph(f"{words}.") for words in exact_words(row)) + _evaluations(_history(run)))


def _evaluations(history: Sequence[Row]) -> str:
    roles = list(dict.fromkeys(role for row in history for role in row.get("rates") or {}))
    exact = any((row.get("exact") or {}).get("nash_conv") is not None for row in history)
    rows = []
    for row in history[-MOST_ROWS:]:
        rates = row.get("rates") or {}
        shown = [f"{number(rates[r].get('rate'))} {interval(rates[r])}" if r in rates else "-" for r in roles]
        figures = [*shown, number(row.get("gap")), number(row.get("gap_high")),
                   *([number((row.get("exact") or {}).get("nash_conv"))] if exact else []),
                   row.get("rollbacks", "-")]
        rows.append([_number(human(row.get("step"))), _text(row.get("phase", "-")),
                     _text(row.get("role", "-")), *map(_number, figures)])
    head = ("step", "phase", "learning", *roles, "NE gap", "at most", *(["NashConv"] if exact else []),
            "rollbacks")
    return f"<details><summary>All {len(history)} evaluations</summary>{_table(head, rows)}</details>"


def _image(run: Path, name: str, words: str) -> str:
    data = _read(run, name)
    magic, kind = PICTURES[name]
    if not data.startswith(magic):
        raise Unreadable(f"{name} is damaged (not {kind})")
    coded = base64.b64encode(data).decode("ascii")
    return f'<p style="max-width:none"><img alt="{_text(words)}" src="data:{kind};base64,{coded}"></p>'


def _sight(run: Path) -> str:
    seats = _json(run, "sight.json")
    parts = [_paragraph("Measured on the first rollout. A column that stays constant tells a player nothing: "
                        "either the game did not vary it yet, or something is not connected.", "soft")]
    for role, columns in seats.items():
        still = [str(c.get("column", "-")) for c in columns if c.get("constant")]
        told = f"{len(still)} constant: {', '.join(still)}" if still else "none constant"
        rows = [[_text(c.get("column", "-")), *(_number(number(c.get(k))) for k in ("min", "max", "mean")),
                 '<td class="below">constant</td>' if c.get("constant") else "<td></td>"]
                for c in columns[:MOST_ROWS]]
        seen = _table(("column", "least", "most", "mean", ""), rows)
        parts.append(f"<details><summary><b>{_text(role)}</b> sees {len(columns)} numbers; {_text(told)}"
                     f"</summary>{seen}</details>")
    return "".join(parts)


def _settings(run: Path) -> str:
    return f"<pre>{_text(_read(run, 'config.yaml').decode('utf-8', 'replace'))}</pre>"


def _provenance(run: Path) -> str:
    lines = []
    try:
        rows, bad = _metrics(run)
        last = rows[-1] if rows else {}
        lines.append(_paragraph(f"rematch {__version__}; {len(rows)} iterations, {human(last.get('step'))} "
                                f"steps of all games, {human(last.get('games'))} games finished meanwhile."))
        if bad:
            lines.append(_paragraph(f"{bad} lines of metrics.jsonl could not be read.", "soft"))
    except Unreadable as why:
        lines.append(_paragraph(f"rematch {__version__}; {why}.", "soft"))
    cells = []
    for name in FILES:
        try:
            data = _read(run, name)
            digest = f"<code>{hashlib.sha256(data).hexdigest()}</code>"
            cells.append([_text(name), _number(len(data)), digest])
        except Unreadable as why:
            cells.append([_text(name), _number("-"), _text(str(why))])
    return "".join(lines) + _table(("file", "bytes", "SHA-256"), cells, "What this page was made from")


# --- pieces of HTML ---------------------------------------------------------------------------------------


def _text(text: object) -> str:
    """Text as text; control characters, which HTML forbids, become spaces."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else " " for c in str(text)), quote=True)


def _number(text: object) -> str:
    return f'<td class="n">{_text(text)}</td>'


def _paragraph(text: object, kind: str = "") -> str:
    start = f'<p class="{kind}">' if kind else "<p>"
    return f"{start}{_text(text)}</p>\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Cells are ready HTML: `<td…>` as it is, anything else put into one."""
    cells = "".join("<tr>" + "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in row) + "</tr>\n"
                    for row in rows)
    names = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    title = f"<caption>{_text(caption)}</caption>" if caption else ""
    body = f"{title}<thead><tr>{names}</tr></thead><tbody>\n{cells}</tbody>"
    return f'<div class="wide"><table>{body}</table></div>\n'


def _bars(entry: Row, key: str = "score") -> str:
    """Score and interval between 0 and 1 as a small drawing; the best scripted player as a diamond."""
    score, low, high, bot = (entry.get(k) for k in (key, "low", "high", "best_bot_score"))
    if any(number(v) == "-" for v in (score, low, high)):
        return "<td></td>"
    places = [math.nan if number(v) == "-" else 6 + 140 * min(1.0, max(0.0, float(v)))  # type: ignore[arg-type]
              for v in (score, low, high, bot)]
    at, left, right, rival = places
    marks = (f'<rect class="ours" x="{left:.1f}" y="4" width="{max(1.0, right - left):.1f}" height="10"/>'
             f'<path class="score" d="M{at:.1f} 2v14"/>')
    if math.isfinite(rival):
        marks += f'<path class="bot" d="M{rival - 4:.1f} 9l4-5 4 5-4 5z"/>'
    return ('<td><svg width="152" height="18" aria-hidden="true">'
            f'<path class="axis" d="M6 9h140M6 5v8M76 6v6M146 5v8"/>{marks}</svg></td>')


# --- reading a stranger's folder ---------------------------------------------------------------------------


def _read(run: Path, name: str) -> bytes:
    """The bytes of a plain file of the folder; links, devices and giants are refused."""
    try:
        descriptor = os.open(run / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Unreadable(f"{name} is not a plain file")
            if about.st_size > LARGEST:
                raise Unreadable(f"{name} is larger than {LARGEST >> 20} MiB")
            return file.read()
    except FileNotFoundError:
        raise Unreadable(f"{name} is missing") from None
    except OSError as error:
        raise Unreadable(f"{name} cannot be read ({error.strerror})") from None


def _json(run: Path, name: str) -> Any:
    try:
        return json.loads(_read(run, name))
    except (ValueError, RecursionError):
        raise Unreadable(f"{name} is damaged (not JSON)") from None


def _history(run: Path) -> list[Row]:
    rows = _json(run, "history.json")
    if not isinstance(rows, list):
        raise Unreadable("history.json is damaged (not a list)")
    return [row for row in rows if isinstance(row, dict)]


def _last(run: Path) -> Row:
    history = _history(run)
    if not history:
        raise Unreadable("no evaluation has been made yet, so nothing can be said about strength")
    return history[-1]


def _metrics(run: Path) -> tuple[list[Row], int]:
    """Iteration rows, and how many lines are no such row (a torn last line, for example)."""
    rows: list[Row] = []
    lines = _read(run, "metrics.jsonl").splitlines()
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, len(lines) - len(rows)


def _title(run: Path) -> str:
    """The run's name, recipe and game as its settings say (not the folder's name: a copy's page is equal).

    Only those lines are parsed: a whole file could be a bomb of aliases.
    """
    words = []
    try:
        for line in _read(run, "config.yaml").decode("utf-8", "replace").splitlines():
            if re.match(r"(name|recipe|game|world):.{,200}$", line):
                value = yaml.safe_load(line.partition(":")[2])
                words += [value] if isinstance(value, str) and value else []
    except (Unreadable, yaml.YAMLError, ValueError, RecursionError):
        pass
    return " · ".join(dict.fromkeys(words))[:200] or "A run"
