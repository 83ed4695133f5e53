"""A match or a tournament as text: wins, draws, losses and margins with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    return [*_table_lines(row), *repeat_lines(row), *forfeit_lines(row)]


def repeat_lines(row: Row) -> list[str]:
    """A sentence about matches in which nothing was random."""
    entries = [entry for entry in row.get("table") or [] if entry.get("repeats")]
    if not entries:
        return []
    opponents = ", ".join(dict.fromkeys(clean(entry.get("rival", "-")) for entry in entries))
    return [f"Against {opponents} nothing is random: one game is played from each seat, because more games "
            "would repeat it. The score is that of these games alone."]


def _table_lines(row: Row) -> list[str]:
    table = row.get("table") or []
    mirrored = bool(table and table[0].get("deals"))
    if not mirrored or "world" not in row:  # the scoreboard of a run
        return [*scoreboard_lines(row), *(["", MIRRORED] if mirrored else [])]
    if is_tournament(table):
        return tournament_lines(row)
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
    return [*out, *(clean(f"Note: {text}.") for text in row.get("other_rules") or [])]


def is_tournament(table: Sequence[Row]) -> bool:
    """Whether at least three players met each other in pairs, so that a ranking makes sense."""
    pairs = {(entry["player"], entry["rival"]) for entry in table}
    players = {player for player, _ in pairs}
    return len(players) > 2 and all((rival, player) in pairs for player, rival in pairs)


def ranking(table: Sequence[Row]) -> list[tuple[str, float, float, float]]:
    """(player, mean score over its opponents, bounds of its 95 % interval), best first.

    The matches of a player are independent: the half-width of the mean of k scores is the root of the sum of
    the squared half-widths, divided by k.
    """
    out = []
    for player in dict.fromkeys(entry["player"] for entry in table):
        entries = [entry for entry in table if entry["player"] == player]
        mean = sum(entry["score"] for entry in entries) / len(entries)
        half = math.hypot(*[(entry["high"] - entry["low"]) / 2 for entry in entries]) / len(entries)
        out.append((player, mean, max(0.0, mean - half), min(1.0, mean + half)))
    return sorted(out, key=lambda entry: -entry[1])


def tournament_lines(row: Row) -> list[str]:
    """The ranking, then each pair once, from the side of the player that is ranked higher."""
    table, games = row["table"], row["table"][0]["games"]
    ranked = ranking(table)
    order = [player for player, *_ in ranked]
    play = f", policies play {row['play']}" if row.get("play") else ""
    standings = [("rank", "player", "mean score", "95 % interval")]
    standings += [(str(place), clean(player), number(mean), f"[{number(low)}, {number(high)}]")
                  for place, (player, mean, low, high) in enumerate(ranked, 1)]
    pairs = [("player", "opponent", "won %", "drawn %", "score", "95 % interval")]
    for entry in sorted(table, key=lambda e: (order.index(e["player"]), order.index(e["rival"]))):
        if order.index(entry["player"]) < order.index(entry["rival"]):
            drawn = percent(entry["draws"] / entry["games"])
            pairs.append((clean(entry["player"]), clean(entry["rival"]), percent(entry["win"]), drawn,
                          number(entry["score"]), interval(entry)))
    title = f"Tournament in {row['world']}: {len(order)} players, {games} games of each pair{play}"
    notes = [clean(f"Note: {text}.") for text in row.get("other_rules") or []]
    return [clean(title), "", *aligned(standings, right=(0, 2)), "", *aligned(pairs, right=(2, 3, 4)), "",
            "Every deal was played from every seat; intervals are over deals.",
            "A draw counts half in the score.", *notes]


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
