"""A tournament as text: every number with its games and interval, and forfeits."""

from __future__ import annotations

from typing import Any

from rematch.evaluation.match import Result
from rematch.evaluation.statistics import Mean
from rematch.reporting.tournament_text import BEST_KNOWN, MARGIN, MIRRORED, lines


def row(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"deals": 100, "effective": 200.0, "effective_wins": 200.0} | changes
    return Result("me", "player", "you", 200, 150, 20, 22.5, **fields).row()


def test_line_has_all_figures() -> None:
    best_known = {
        "response": "search:100:you",
        "win": 0.9,
        "low": 0.85,
        "high": 0.93,
        "games": 500,
        "command": "x",
    }
    text = "\n".join(
        lines(
            {
                "world": "beasty",
                "table": [row(margin=Mean(3.25, 2.5, 4.0, 200)) | {"best_known": best_known}, row()],
                "play": "sampled",
            }
        )
    )
    first = text.splitlines()[3].split("  ")
    cells = [cell.strip() for cell in first if cell.strip()]
    assert cells == [
        "me",
        "you",
        "200",
        "75.0",
        "[68.6, 80.5]",
        "10.0",
        "15.0",
        "0.800",
        "[0.739, 0.850]",
        "+3.25 [+2.50, +4.00]",
        "search:100:you 90.0 [85.0, 93.0], 500 games",
    ]
    assert all(note in text for note in (MIRRORED, MARGIN, BEST_KNOWN)) and "policies play sampled" in text


def test_empty_columns_are_left_out() -> None:
    text = "\n".join(lines({"world": "beasty", "table": [row()]}))
    assert "margin" not in text and "best known" not in text and MARGIN not in text and BEST_KNOWN not in text


def test_games_that_are_not_mirrored_have_a_plain_table() -> None:
    text = "\n".join(lines({"world": "pursuit", "table": [row(deals=0)], "forfeits": []}))
    assert MIRRORED not in text and "Match in pursuit" in text


def test_forfeits_are_listed_and_forge_no_lines() -> None:
    forfeits = [
        {"player": "mine:A", "games": 1, "first": "ValueError: a\x1b[31m"},
        {"player": "mine:B", "games": 7, "first": "took longer than 1 s for a move"},
    ]
    text = lines({"world": "beasty", "table": [row()], "forfeits": forfeits})
    assert text[-2] == "FORFEIT: mine:A lost 1 game because it failed: ValueError: a [31m"
    assert text[-1] == "FORFEIT: mine:B lost 7 games because it took longer than 1 s for a move"
