"""A match or a tournament as text: who won, drew, lost how often, how surely, by how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rematch.reporting.text import aligned, clean, interval, number, scoreboard_lines

Row = Mapping[str, Any]

HEAD = (
    "player",
    "against",
    "games",
    "won",
    "95 % interval",
    "drawn",
    "lost",
    "score",
    "95 % interval",
    "margin",
    "best known against it",
)
MIRRORED = (
    "Every deal was played from every seat with the same cards; intervals go by deals. Draws are not won; "
    "the score counts them half."
)
MARGIN = "Margin: own points less the best other's at the end of a game, with its 95 % interval."
KNOWN = "Best known: the most that has been measured against that opponent. A better response may exist."


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def percents(entry: Row, of: str = "") -> str:
    return f"[{percent(entry[of + 'low'])}, {percent(entry[of + 'high'])}]"


def lines(row: Row) -> list[str]:
    """The table with what it needs to be read; forfeits last."""
    table = row.get("table") or []
    mirrored = bool(table and table[0].get("deals"))
    if not mirrored or "world" not in row:  # a run's own scoreboard
        return [*scoreboard_lines(row), *(["", MIRRORED] if mirrored else []), *forfeit_lines(row)]
    title = f"Match in {row['world']}" + (f", policies play {row['play']}" if row.get("play") else "")
    cells = [HEAD, *map(_cells, table)]
    margins, known = any(e.get("margin") for e in table), any("best_known" in e for e in table)
    shown = [
        tuple(cell for k, cell in enumerate(cells_) if (k != 9 or margins) and (k != 10 or known))
        for cells_ in cells
    ]
    out = [clean(title), "", *aligned(shown, right=(2, 3, 5, 6, 7)), "", MIRRORED]
    out += [MARGIN] if margins else []
    out += [KNOWN] if known else []
    return [*out, *forfeit_lines(row)]


def _cells(e: Row) -> tuple[str, ...]:
    lost, margin, best = e["games"] - e["wins"] - e["draws"], e.get("margin"), e.get("best_known")
    ahead = f"{margin['mean']:+.2f}" if margin else "-"
    if margin and margin["low"] is not None:
        ahead += f" [{margin['low']:+.2f}, {margin['high']:+.2f}]"
    beside = (
        "-"
        if best is None
        else (f"{clean(best['response'])} {percent(best['win'])} {percents(best)} n {best['games']}")
    )
    return (
        clean(e["player"]),
        clean(e["rival"]),
        str(e["games"]),
        percent(e["win"]),
        percents(e, "win_"),
        percent(e["draws"] / e["games"]),
        percent(lost / e["games"]),
        number(e["score"]),
        interval(e),
        ahead,
        beside,
    )


def forfeit_lines(row: Row) -> list[str]:
    return [
        clean(
            f"FORFEIT: {e['player']} lost {e['games']} game{'s' if e['games'] > 1 else ''} because it "
            f"{_did(e['first'])}"
        )
        for e in row.get("forfeits") or []
    ]


def _did(what: str) -> str:
    """ "took longer ..." and "answered ..." as they are; an exception is raised."""
    return what if what.split(" ")[0] in ("took", "answered") else f"failed: {what}"
