"""A match or a tournament as text: wins, draws, losses and margins with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rematch.evaluation.text import clean, interval, number
from rematch.reporting.text import aligned, scoreboard_lines

Row = Mapping[str, Any]

HEAD = ("player", "opponent", "games", "won %", "95 % interval", "drawn %", "lost %",
        "score", "95 % interval", "margin", "best known against the opponent")
MARGIN_COLUMN, BEST_KNOWN_COLUMN = 9, 10
MIRRORED = (
    "Every deal was played from every seat with the same cards; intervals are over deals. A draw is not won; "
    "in the score it counts half."
)
MARGIN = "Margin: points ahead of the best other player at the end of a game, with its 95 % interval."
BEST_KNOWN = ("Best known: the highest result measured so far against that opponent. A better response may "
              "exist.")


def lines(row: Row) -> list[str]:
    """The table, its notes, then the forfeits."""
    table = row.get("table") or []
    mirrored = bool(table and table[0].get("deals"))
    if not mirrored or "world" not in row:  # the scoreboard of a run
        return [*scoreboard_lines(row), *(["", MIRRORED] if mirrored else []), *forfeit_lines(row)]
    title = f"Match in {row['world']}" + (f", policies play {row['play']}" if row.get("play") else "")
    margins = any(entry.get("margin") for entry in table)
    best_known = any("best_known" in entry for entry in table)
    shown_columns = {MARGIN_COLUMN: margins, BEST_KNOWN_COLUMN: best_known}
    hidden = {column for column, shown in shown_columns.items() if not shown}
    cells = [[cell for column, cell in enumerate(line) if column not in hidden]
             for line in [HEAD, *map(_cells, table)]]
    out = [clean(title), "", *aligned(cells, right=(2, 3, 5, 6, 7)), "", MIRRORED]
    out += [MARGIN] if margins else []
    out += [BEST_KNOWN] if best_known else []
    out += [clean(f"Note: {text}.") for text in row.get("other_rules") or []]
    return [*out, *forfeit_lines(row)]


def percent(value: float) -> str:
    """0.152 -> "15.2"."""
    return f"{100 * value:.1f}"


def percent_interval(entry: Row, prefix: str = "") -> str:
    return f"[{percent(entry[prefix + 'low'])}, {percent(entry[prefix + 'high'])}]"


def _cells(e: Row) -> tuple[str, ...]:
    lost = e["games"] - e["wins"] - e["draws"]
    won = (percent(e["win"]), percent_interval(e, "win_"))
    others = (percent(e["draws"] / e["games"]), percent(lost / e["games"]))
    return (clean(e["player"]), clean(e["rival"]), str(e["games"]), *won, *others,
            number(e["score"]), interval(e), _margin(e.get("margin")), _best_known(e.get("best_known")))


def _margin(margin: Row | None) -> str:
    if margin is None:
        return "-"
    bounds = f" [{margin['low']:+.2f}, {margin['high']:+.2f}]" if margin["low"] is not None else ""
    return f"{margin['mean']:+.2f}{bounds}"


def _best_known(best: Row | None) -> str:
    if best is None:
        return "-"
    return f"{clean(best['response'])} {percent(best['win'])} {percent_interval(best)}, {best['games']} games"


def forfeit_lines(row: Row) -> list[str]:
    """A line per player that lost games because it failed."""
    out = []
    for entry in row.get("forfeits") or []:
        games = f"{entry['games']} game{'s' if entry['games'] > 1 else ''}"
        out.append(clean(f"FORFEIT: {entry['player']} lost {games} because it {_reason(entry['first'])}"))
    return out


def _reason(text: str) -> str:
    """ "took longer ..." and "answered ..." unchanged; an exception after "failed"."""
    return text if text.split(" ")[0] in ("took", "answered") else f"failed: {text}"
