"""A match or a tournament as text: wins, draws, losses and margins with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rematch.evaluation.round_robin import is_round_robin, opponent_of, standings
from rematch.evaluation.text import clean, interval, number
from rematch.reporting.text import aligned, scoreboard_lines

Row = Mapping[str, Any]

HEAD = ("player", "opponent", "games", "won %", "95 % interval", "drawn %", "lost %",
        "score", "95 % interval", "margin", "best known against the opponent")
MARGIN_COLUMN, BEST_KNOWN_COLUMN = 9, 10
WIDTH, NAME, CELL = 100, 28, 4  # columns of a tournament, of a name, of a score
ALWAYS_VALID = ("95 % intervals of the scores are always valid: they hold although the results decided when "
                "each match stopped.")
MIRRORED = (
    "Every start (in card games: every deal) was played from every seat; intervals are over starts. A draw "
    "is not won; in the score it counts half."
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
    if row.get("role_ranking"):
        return role_tournament_lines(row)
    mirrored = bool(table and table[0].get("deals"))
    if not mirrored or "world" not in row:  # the scoreboard of a run
        notes = ["", MIRRORED] if mirrored else []
        return [*scoreboard_lines(row), *notes, *stop_lines(row)]
    if is_round_robin(table):
        return [*tournament_lines(row), *stop_lines(row)]
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
    return [*out, *stop_lines(row)]


def tournament_lines(row: Row) -> list[str]:
    """The ranking with Elo ratings, the cross table, and what the intervals mean; at most WIDTH columns."""
    table = row["table"]
    ranked = row.get("ranking") or [asdict(entry) for entry in standings(table)]
    games = sorted({entry["games"] for entry in table})
    count = str(games[0]) if len(games) == 1 else f"{games[0]} to {games[-1]}"
    play = f", policies play {row['play']}" if row.get("play") else ""
    title = f"Tournament in {row['world']}: {len(ranked)} players, {count} games of each pair{play}"
    notes = [clean(f"Note: {text}.") for text in row.get("other_rules") or []]
    return [clean(title), "", *aligned(ranking_cells(ranked), right=(0, 2, 4)), "",
            *_cross_table(table, [entry["player"] for entry in ranked]), "", *_meaning(row, ranked), *notes]


def role_tournament_lines(row: Row) -> list[str]:
    """A ranking of each role, the score of each pair, the advantage of a role; at most WIDTH columns."""
    table, rankings = row["table"], row["role_ranking"]
    (first, upper), (second, lower) = rankings.items()
    play = f", policies play {row['play']}" if row.get("play") else ""
    head = (f"Tournament in {row['world']}: {len(upper)} players as {first}, {len(lower)} as {second}, "
            f"{table[0]['games']} games of each pair{play}")
    lines = [clean(head)]
    for role, ranked in rankings.items():
        lines += ["", clean(f"Ranking of {role}"), *aligned(ranking_cells(ranked), right=(0, 2, 4))]
    scores = {(entry["player"], entry["rival"]): entry["score"] for entry in table if entry["role"] == first}
    title = f"Score of {first} (row) in percent, against {second} of rank:"
    grid = Grid([entry["player"] for entry in upper], [entry["player"] for entry in lower], scores)
    lines += ["", clean(title), *grid.lines(), "", advantage_sentence(row["role_advantage"], second)]
    lines += ["A draw counts half in the score; intervals are over games.",
              "Elo: the model of Bradley and Terry with the advantage of a role; the mean of each role is 0,",
              "so ratings of different roles cannot be compared."]
    return [*lines, *(clean(f"Note: {text}.") for text in row.get("other_rules") or [])]


def advantage_sentence(advantage: Row, other: str) -> str:
    elo, low, high = (advantage[key] for key in ("elo", "elo_low", "elo_high"))
    score = 1 / (1 + 10 ** (-elo / 400))
    return clean(f"Advantage of {advantage['role']} over {other} among these players: {elo:+.0f} Elo "
                 f"[{low:+.0f}, {high:+.0f}], a score of {100 * score:.0f} %.")


def ranking_cells(ranked: Sequence[Row]) -> list[list[str]]:
    rated = ranked[0].get("elo") is not None
    cells = [["rank", "player", *(("Elo", "95 % interval") if rated else ()), "mean score", "95 % interval"]]
    for place, entry in enumerate(ranked, 1):
        elo = []
        if rated:
            elo = [f"{entry['elo']:+.0f}", f"[{entry['elo_low']:+.0f}, {entry['elo_high']:+.0f}]"]
        cells.append([str(place), _short(entry["player"]), *elo, number(entry["score"]), interval(entry)])
    return cells


def _cross_table(table: Sequence[Row], order: Sequence[str]) -> list[str]:
    """The score of each player against each."""
    scores = {(entry["player"], opponent_of(entry)): entry["score"] for entry in table}
    grid = Grid(order, order, scores, one_role=True)
    return ["Score of the row in percent, against the player of rank:", *grid.lines()]


@dataclass(frozen=True)
class Grid:
    """Scores (row, column) in percent; columns are numbered by rank and split into blocks that fit."""

    rows: Sequence[str]
    columns: Sequence[str]
    scores: Mapping[tuple[str, str], float]
    one_role: bool = False  # a player does not meet itself

    def lines(self) -> list[str]:
        digits = len(str(len(self.rows)))
        label = max(len(_short(name)) for name in self.rows) + digits + 4
        block = max(1, (WIDTH - label) // CELL)
        lines: list[str] = []
        for start in range(0, len(self.columns), block):
            columns = list(enumerate(self.columns))[start : start + block]
            lines += [""] if start else []
            lines.append(" " * label + "".join(f"{i + 1:>{CELL}}" for i, _ in columns))
            for place, player in enumerate(self.rows, 1):
                name = f"{place:>{digits}}  {_short(player)}".ljust(label)
                lines.append((name + "".join(self._cell(player, rival) for _, rival in columns)).rstrip())
        return lines

    def _cell(self, player: str, rival: str) -> str:
        score = self.scores.get((player, rival))
        own = self.one_role and player == rival
        return ("." if own else "-" if score is None else f"{100 * score:.0f}").rjust(CELL)


def _short(name: str) -> str:
    """A name in NAME columns: the end of a longer one, where paths differ."""
    name = clean(name)
    return name if len(name) <= NAME else "…" + name[1 - NAME :]


def _meaning(row: Row, ranked: Sequence[Row]) -> list[str]:
    lines = ["Every deal was played from every seat; intervals are over deals.",
             "A draw counts half in the score."]
    if ranked[0].get("elo") is not None:
        lines.append("Elo: the model of Bradley and Terry, with mean 0; +100 is a score of 64 %.")
    if row.get("elo_until") is not None:
        lines.append("Intervals are always valid: they hold although the results decided the stop.")
    return lines


def stop_lines(row: Row) -> list[str]:
    """What a stop rule decided, and what the intervals mean."""
    if row.get("until") is None and row.get("better_than") is None:
        return []
    lines = []
    if row.get("better_than") is not None:
        wanted = number(row["better_than"])
        groups: dict[str, list[str]] = {}
        for entry in [entry for entry in row["table"] if "better" in entry]:
            word = "better" if entry["better"] else "not better" if entry["decided"] else "undecided"
            groups.setdefault(word, []).append(f"{entry['player']} against {entry['rival']}")
        for word in ("better", "not better", "undecided"):
            if word in groups:
                head = f"{word.capitalize()} than {wanted}"
                head = head if word != "undecided" else "Undecided after all games"
                lines.append(clean(f"{head}: {', '.join(groups[word])}."))
    return ["", *lines, ALWAYS_VALID]


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
