"""The sections of a report that tell strength: curves, the gap beside exploitability, tables.

Every function takes the facts of runs (rematch/reporting/run_summary.py) and gives HTML; every figure stands
with its n and its 95 % interval, every axis with a name and a unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rematch.reporting.html.charts import COLOURS, STEPS, Axes, Line, chart, told
from rematch.reporting.html.elements import (
    bars,
    bullets,
    cell,
    folded,
    missing,
    paragraph,
    sentence,
    table,
    text,
)
from rematch.reporting.text import BALANCE, LEVELS, human, interval, number, return_cells, standing
from rematch.reporting.untrusted_folder import Unreadable

Row = Mapping[str, Any]

MOST_ROWS = 2000  # evaluations shown; a page must stay a page
AT_LEAST = ("Responses are lower bounds: a better one may exist. Each was chosen on other games than those "
            "it is scored on.")
NOTHING = "no evaluation has been made yet, so nothing can be said about strength"


# --- curves -------------------------------------------------------------------------------------------------


def _own(run: Row, name: str) -> tuple[list[Row], str]:
    """The entries of one curve of a run, each with its step, and the key of its value."""
    part, _, role = name.partition("/")
    key = {"strength": "score", "rates": "rate", "returns": "mean"}[part]
    rows: list[Row] = []
    for row in run["evaluations"]:
        entry = (row.get(part) or {}).get(role) if role else row.get(part)
        if isinstance(entry, Mapping) and number(entry.get(key)) != "-" and number(row.get("step")) != "-":
            rows.append({**entry, "step": row["step"]})
    return rows, key


def _banded(run: Row, name: str, label: str, colour: int) -> Line:
    """A curve of one run with the intervals of its own games."""
    rows, key = _own(run, name)
    y = [row[key] for row in rows]
    low, high = ([row[k] if number(row.get(k)) != "-" else v for row, v in zip(rows, y)]
                 for k in ("low", "high"))
    last = rows[-1] if rows else {}
    words = told(last.get(key), last.get("low"), last.get("high"), last.get("games")) if rows else ""
    x = [row["step"] for row in rows]
    return Line(name=label, x=x, y=y, low=low, high=high, colour=colour, told=words)


def _grouped(whole: Row, name: str, label: str, colour: int) -> Iterator[Line]:
    """A curve of every group of seeds: interquartile mean with its band, each run as a thin line."""
    for number_of, group in enumerate(whole["groups"]):
        curve = group["curves"].get(name)
        if curve is None or not curve["steps"]:
            continue
        c = (colour + 2 * number_of) % COLOURS
        for index in group["runs"]:
            x, y = simple(whole["runs"][index], name)
            yield Line(name="", x=x, y=y, style="thin", colour=c)
        known = None not in curve["low"]
        words = told(curve["middle"][-1], curve["low"][-1], curve["high"][-1])
        whom = f"{group['label']}: " if len(whole["groups"]) > 1 else ""
        yield Line(name=f"{whom}{label}", x=curve["steps"], y=curve["middle"], colour=c,
                   low=curve["low"] if known else (), high=curve["high"] if known else (),
                   told=f"{words}, {curve['seeds']} seed{'s' * (curve['seeds'] > 1)}")


def simple(run: Row, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of a curve, without intervals."""
    if name in ("gap", "nash_conv"):
        rows = [row for row in run["evaluations"]
                if number(row.get(name)) != "-" and number(row.get("step")) != "-"]
        return [row["step"] for row in rows], [row[name] for row in rows]
    rows, key = _own(run, name)
    return [row["step"] for row in rows], [row[key] for row in rows]


def curves(whole: Row) -> str:
    """Strength against scripted rivals, then head to head, or returns; over steps."""
    runs, parts = whole["runs"], []
    newest = [run["evaluations"][-1] for run in runs if run["evaluations"]]
    if not newest:
        raise Unreadable("no evaluation has been made yet")
    several = len(runs) > 1

    def lines(name: str, label: str, colour: int) -> list[Line]:
        own = _grouped(whole, name, label, colour) if several else [_banded(runs[0], name, label, colour)]
        return list(own)

    drawn = chart(lines("strength", "mean score against scripted rivals", 0),
                  Axes(x=STEPS, y="score (win 1, draw ½)", low=0.0, high=1.0))
    if drawn:
        told_by = next(row["strength"] for row in newest if row["strength"])
        parts += ["<h3>Against scripted rivals</h3>", drawn, paragraph(
            f"The mean over {told_by.get('pairings', '-')} pairings that every evaluation played, each role "
            f"weighing the same; n = {told_by.get('games', '-')} games a pairing.", "soft")]
    met = dict.fromkeys(role for row in newest for role in row["rates"])
    rates = [line for i, role in enumerate(met) for line in lines(f"rates/{role}", role, i)]
    drawn = chart(rates, Axes(x=STEPS, y="share of games won", low=0.0, high=1.0))
    if drawn:
        parts += ["<h3>The learnt players against each other</h3>", drawn]
    alone = dict.fromkeys(role for row in newest if not row["rates"] for role in row["returns"])
    rows = [line for i, role in enumerate(alone) for line in lines(f"returns/{role}", role, i)]
    drawn = chart(rows, Axes(x=STEPS, y="mean return of a game (points)"))
    parts += ["<h3>Returns</h3>", drawn] if drawn else []
    note = ("Thin lines: every seed. Thick line: interquartile mean over seeds (of fewer than four the "
            "mean); band: its 95 % interval by resampling the seeds 10 000 times.")
    return "".join(parts) + paragraph(
        note if several else "Bands: 95 % intervals of the games of each point.", "soft")


# --- gap beside exploitability ------------------------------------------------------------------------------


def gap(whole: Row) -> str:
    """The NE gap beside what it cannot tell: NashConv where it is known, responses at their budgets."""
    runs = whole["runs"]
    parts, lines = [], []
    if len(runs) > 1:
        lines = [*_grouped(whole, "gap", "NE gap (balance)", 0),
                 *_grouped(whole, "nash_conv", "NashConv, exact (exploitability)", 1)]
    else:
        lines = list(_gap_lines(runs[0]))
    drawn = chart(lines, Axes(x=STEPS, y="score (a response's gain: at least)", low=0.0))
    if not drawn:
        alone = any(run["returns"] for run in runs)
        raise Unreadable("the world has one seat" if alone else "there is no pair whose gap could be told")
    parts.append(drawn + paragraph(BALANCE))
    solved = any(row["nash_conv"] is not None for run in runs for row in run["evaluations"])
    if solved:
        parts.append(paragraph("NashConv is exact here: what perfect opponents of both roles would gain "
                               "together. 0 is unbeatable play, whatever the gap says."))
    for run in runs:
        if run["exploit"]:
            parts.append(_budgets(run))
    if not solved and not any(run["exploit"] for run in runs):
        parts.append(paragraph("How exploitable these players are has not been measured."))
    return "".join(parts) + missing([item for run in runs for item in run["missing"]
                                     if "exploit" in item["what"]])


def _gap_lines(run: Row) -> Iterator[Line]:
    rows = [row for row in run["evaluations"] if number(row.get("gap")) != "-"]
    if rows:
        last = rows[-1]
        games = min((rate.get("games") for rate in last["rates"].values()), default=None)
        low, high = ([row[k] if number(row.get(k)) != "-" else row["gap"] for row in rows]
                     for k in ("gap_low", "gap_high"))
        words = told(last["gap"], last.get("gap_low"), last.get("gap_high"), games)
        yield Line(name="NE gap (balance)", x=[row["step"] for row in rows], y=[row["gap"] for row in rows],
                   low=low, high=high, told=words)
    x, y = simple(run, "nash_conv")
    if x:
        yield Line(name="NashConv (exact: no interval)", x=x, y=y, colour=1, told=number(y[-1]))
    for i, role in enumerate(dict.fromkeys(role for row in run["exploit"] for role in row["roles"])):
        found = [(row, row["roles"][role]) for row in run["exploit"] if role in row["roles"]]
        found = [(row, e) for row, e in found if number(e.get("gain")) != "-" and not e.get("too_weak")]
        if found:
            row, entry = found[-1]
            words = f"at least {told(entry['gain'], entry['gain_low'], entry['gain_high'], entry['games'])}"
            yield Line(name=f"gain of a {role}'s response", x=[row["step"] for row, _ in found],
                       y=[e["gain"] for _, e in found], low=[e["gain_low"] for _, e in found],
                       high=[e["gain_high"] for _, e in found], style="dot", colour=2 + i,
                       told=f"{words}, budget {human(row['budget'])}")


def _budgets(run: Row) -> str:
    """Gains at their budgets, "at least" on the axis; then all figures."""
    lines, cells = [], []
    newest = max(row["iteration"] for row in run["exploit"])
    for i, role in enumerate(dict.fromkeys(role for row in run["exploit"] for role in row["roles"])):
        found = [(row["budget"], row["roles"][role]) for row in run["exploit"]
                 if role in row["roles"] and row["iteration"] == newest]
        lines.append(Line(name=f"{role}'s response", x=[b for b, _ in found], y=[e["gain"] for _, e in found],
                          low=[e["gain_low"] for _, e in found], high=[e["gain_high"] for _, e in found],
                          style="dot", colour=2 + i))
    for row in run["exploit"]:
        for role, e in row["roles"].items():
            cells.append([cell(human(row["step"])), cell(human(row["budget"])), text(role),
                          cell(number(e["score"])), cell(interval(e)), cell(e["games"]),
                          cell(number(e["gain"])), cell(interval(e, "gain_")),
                          text("too weak: says nothing" if e["too_weak"] else "")])
    head = ("agents of step", "budget (steps)", "responds", "scores at least", "95 % interval", "games",
            "gain at least", "95 % interval", "")
    lows = [low for line in lines for low in line.low]
    drawn = chart(lines, Axes(x="budget: steps for each response", y="gain of a best response, at least",
                              low=min([0.0, *lows]), powers=True))
    whose = f" of {run['label']}" if run["label"] else ""
    return (f"<h3>Best responses{text(whose)}</h3>{drawn}" + table(head, cells) + paragraph(AT_LEAST, "soft"))


# --- tables -------------------------------------------------------------------------------------------------


def scoreboard(run: Row) -> str:
    entries = run["table"]
    if not entries and run["returns"]:
        return _returns(run)
    if not run["evaluations"]:
        raise Unreadable(NOTHING)
    if not entries:
        raise Unreadable("no games against scripted rivals were played")
    rows = []
    for e in entries:
        level = standing(e)
        rows.append([text(e.get("player", "-")), text(e.get("rival", "-")), cell(e.get("games", "-")),
                     cell(number(e.get("score"))), cell(interval(e)), bars(e),
                     text(e.get("best_bot", "-")), cell(number(e.get("best_bot_score"))),
                     cell(interval(e, "best_bot_")), f'<td class="{level}">{text(level)}</td>'])
    head = ("player", "against", "games", "score", "95 % interval", "0 … 1", "best scripted",
            "its score", "its interval", "ours is")
    caption = "Score: a win counts 1, a draw ½. Bar: our interval; diamond: the best scripted player."
    return (table(head, rows, caption) + paragraph(LEVELS, "soft")
            + paragraph("These rivals are scripted. How much a player trained against this one could win "
                        "(its exploitability) is not measured by this table.", "soft"))


def _returns(run: Row) -> str:
    """A task for one: mean returns, the last beside the best scripted player's, then all of them."""
    head, *cells = return_cells(run)
    rows = [[text(row[0]), *map(cell, row[1:4]), text(row[4]), *map(cell, row[5:7]),
             f'<td class="{text(row[7])}">{text(row[7])}</td>'] for row in cells]
    past = [[cell(human(row.get("step"))), text(role), cell(number(e.get("mean"))), cell(interval(e)),
             cell(e.get("games", "-"))]
            for row in run["evaluations"][-MOST_ROWS:] for role, e in row["returns"].items()]
    every = table(("step", "role", "mean return", "95 % interval", "games"), past)
    return (table((*head[:-1], "ours is"), rows, "Points per game; nobody else sits at the table.")
            + paragraph(LEVELS, "soft") + folded(f"All {len(run['evaluations'])} evaluations", every))


def head_to_head(run: Row) -> str:
    row: Row = run["evaluations"][-1] if run["evaluations"] else {}
    rates = row.get("rates") or {}
    if not rates:
        raise Unreadable("the world has one seat" if run["returns"] else "the learnt players have not met")
    cells = [[text(role), cell(r.get("games", "-")), cell(number(r.get("rate"))), cell(interval(r)),
              bars(r, "rate")] for role, r in rates.items()]
    words = (f"NE gap {number(row.get('gap'))}, at most {number(row.get('gap_high'))} (95 %). "
             if row.get("gap") is not None else "")
    head = ("role", "games", "share won", "95 % interval", "0 … 1")
    return (table(head, cells, "The learnt players against each other, newest evaluation") + paragraph(words)
            + "".join(paragraph(f"{said}.") for said in run["exact"]) + _evaluations(run["evaluations"]))


def _evaluations(history: Sequence[Row]) -> str:
    roles = list(dict.fromkeys(role for row in history for role in row["rates"]))
    exact = any(row["nash_conv"] is not None for row in history)
    rows = []
    for row in history[-MOST_ROWS:]:
        rates = row["rates"]
        shown = [f"{number(rates[r].get('rate'))} {interval(rates[r])}" if r in rates else "-" for r in roles]
        games = min((rate.get("games") or 0 for rate in rates.values()), default=0)
        figures = [*shown, games, number(row.get("gap")), number(row.get("gap_high")),
                   *([number(row["nash_conv"])] if exact else []), row.get("rollbacks", "-")]
        level = "-" if row.get("level") is None else f"{row['level']} {row.get('level_name') or ''}".strip()
        rows.append([cell(human(row.get("step"))), text(row.get("phase", "-")), text(row.get("role", "-")),
                     *map(cell, figures), sentence(level)])
    head = ("step", "phase", "learning", *roles, "games", "NE gap", "at most",
            *(["NashConv"] if exact else []), "rollbacks", "level")
    return folded(f"All {len(history)} evaluations", table(head, rows))


def milestones(run: Row) -> str:
    """Of long games for one: what any chain of savestates reached, and how often games from the start do."""
    out = bullets(run["frontier"])
    for role, entry in run["returns"].items():
        found = sorted((entry.get("milestones") or {}).items(), key=lambda item: -item[1]["rate"])
        rows = [[text(name), cell(number(e["rate"])), cell(interval(e)), cell(entry.get("games", "-"))]
                for name, e in found]
        done = f"finished {number(entry.get('success'))} {interval(entry, 'success_')}"
        caption = f"Cold start of {role}, from power-on, no savestates: {done}"
        out += table(("milestone", "reached by", "95 % interval", "games"), rows, caption) if rows else ""
    return out
