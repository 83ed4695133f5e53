"""The sections of a report about strength: curves, the NE gap beside exploitability, tables.

Every function takes facts of runs (rematch/reporting/run_summary.py) and returns HTML; every number has its
games and its 95 % interval, every axis a name and a unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rematch.evaluation.text import human, interval, number, standing
from rematch.reporting.html.charts import COLOURS, STEPS, Axes, Line, chart, with_interval
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
from rematch.reporting.seed_groups import VALUES
from rematch.reporting.text import BALANCE, LEVELS, return_cells
from rematch.reporting.untrusted_folder import Absent

Row = Mapping[str, Any]

MOST_ROWS = 2000  # evaluations in a table
AT_LEAST = ("A response is a lower bound: a better one may exist. Each was selected on other games than "
            "those of its score.")
NO_EVALUATION = "there is no evaluation yet, so the strength is unknown"


# --- curves -------------------------------------------------------------------------------------------------


def _entries(run: Row, name: str) -> tuple[list[Row], str]:
    """The entries of one curve of a run, each with its step, and the key of its value."""
    part, _, role = name.partition("/")
    key = VALUES[part]
    rows: list[Row] = []
    for row in run["evaluations"]:
        entry = (row.get(part) or {}).get(role) if role else row.get(part)
        if isinstance(entry, Mapping) and number(entry.get(key)) != "-" and number(row.get("step")) != "-":
            rows.append({**entry, "step": row["step"]})
    return rows, key


def _with_band(run: Row, name: str, label: str, colour: int) -> Line:
    """A curve of one run with the intervals over its games."""
    rows, key = _entries(run, name)
    y = [row[key] for row in rows]
    low, high = ([row[k] if number(row.get(k)) != "-" else v for row, v in zip(rows, y)]
                 for k in ("low", "high"))
    last = rows[-1] if rows else {}
    newest = with_interval(last.get(key), last.get("low"), last.get("high"), last.get("games"))
    x = [row["step"] for row in rows]
    return Line(name=label, x=x, y=y, low=low, high=high, colour=colour, newest=newest)


def _grouped(summary: Row, name: str, label: str, colour: int) -> Iterator[Line]:
    """A curve of every group of seeds: the interquartile mean with its band, and each run as a thin line."""
    for group_index, group in enumerate(summary["groups"]):
        curve = group["curves"].get(name)
        if curve is None or not curve["steps"]:
            continue
        c = (colour + 2 * group_index) % COLOURS
        for index in group["runs"]:
            x, y = points(summary["runs"][index], name)
            yield Line(name="", x=x, y=y, style="thin", colour=c)
        has_band = None not in curve["low"]
        newest = with_interval(curve["middle"][-1], curve["low"][-1], curve["high"][-1])
        prefix = f"{group['label']}: " if len(summary["groups"]) > 1 else ""
        yield Line(name=f"{prefix}{label}", x=curve["steps"], y=curve["middle"], colour=c,
                   low=curve["low"] if has_band else (), high=curve["high"] if has_band else (),
                   newest=f"{newest}, {curve['seeds']} seed{'s' * (curve['seeds'] > 1)}")


def points(run: Row, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of a curve, without intervals."""
    if name in ("gap", "nash_conv"):
        rows = [row for row in run["evaluations"]
                if number(row.get(name)) != "-" and number(row.get("step")) != "-"]
        return [row["step"] for row in rows], [row[name] for row in rows]
    rows, key = _entries(run, name)
    return [row["step"] for row in rows], [row[key] for row in rows]


def curves(summary: Row) -> str:
    """Scores against scripted opponents, head to head, or returns; over steps."""
    runs = summary["runs"]
    newest = [run["evaluations"][-1] for run in runs if run["evaluations"]]
    if not newest:
        raise Absent("there is no evaluation yet")

    def lines(name: str, label: str, colour: int) -> list[Line]:
        if len(runs) > 1:
            return list(_grouped(summary, name, label, colour))
        return [_with_band(runs[0], name, label, colour)]

    parts = []
    chart_html = chart(lines("strength", "mean score against scripted opponents", 0),
                  Axes(x=STEPS, y="score (win 1, draw ½)", low=0.0, high=1.0))
    if chart_html:
        strength = next(row["strength"] for row in newest if row["strength"])
        parts += ["<h3>Against scripted opponents</h3>", chart_html, paragraph(
            f"Mean over {strength.get('match_ups', '-')} match-ups that every evaluation played; every role "
            f"has the same weight; n = {strength.get('games', '-')} games per match-up.", "soft")]
    roles = dict.fromkeys(role for row in newest for role in row["rates"])
    rates = [line for i, role in enumerate(roles) for line in lines(f"rates/{role}", role, i)]
    chart_html = chart(rates, Axes(x=STEPS, y="win rate", low=0.0, high=1.0))
    parts += ["<h3>Trained policies head to head</h3>", chart_html] if chart_html else []
    one_seat = dict.fromkeys(role for row in newest if not row["rates"] for role in row["returns"])
    returns = [line for i, role in enumerate(one_seat) for line in lines(f"returns/{role}", role, i)]
    chart_html = chart(returns, Axes(x=STEPS, y="mean return of a game"))
    parts += ["<h3>Returns</h3>", chart_html] if chart_html else []
    note = "Bands: 95 % intervals over the games of each point."
    if len(runs) > 1:
        note = ("Thin lines: every seed. Thick line: interquartile mean over seeds (the mean of fewer than "
                "four). Band: its 95 % interval from 10 000 bootstrap samples of the seeds.")
    return "".join(parts) + paragraph(note, "soft")


def user_metrics(run: Row) -> str:
    """The metrics that components of the user logged, over steps; a line per role."""
    parts = []
    for component, metrics in run["user_metrics"].items():
        parts.append(f"<h3>{text(component)}</h3>")
        for metric, roles in metrics.items():
            lines = [Line(name=role or component, x=curve["steps"], y=curve["values"], colour=i % COLOURS,
                          newest=number(curve["values"][-1]) if curve["values"] else "-")
                     for i, (role, curve) in enumerate(roles.items())]
            parts.append(chart(lines, Axes(x=STEPS, y=metric)))
    return "".join(parts)


# --- gap beside exploitability ------------------------------------------------------------------------------


def gap(summary: Row) -> str:
    """The NE gap, exact NashConv and gains of best responses, over steps; then the gains by budget."""
    runs = summary["runs"]
    if len(runs) > 1:
        lines = [*_grouped(summary, "gap", "NE gap (balance)", 0),
                 *_grouped(summary, "nash_conv", "NashConv, exact (exploitability)", 1)]
    else:
        lines = list(_gap_lines(runs[0]))
    largest = max((y for line in lines for y in (*line.y, *line.high)), default=0.0)
    high = 1.0 if largest <= 1 else None  # a gap is a difference of rates
    chart_html = chart(lines, Axes(x=STEPS, y="score (gain of a response: at least)", low=0.0, high=high))
    if not chart_html:
        one_seat = any(run["returns"] for run in runs)
        raise Absent("the world has one seat" if one_seat else "a gap needs two roles")
    parts = [chart_html + paragraph(BALANCE)]
    solved = any(row["nash_conv"] is not None for run in runs for row in run["evaluations"])
    if solved:
        parts.append(paragraph("NashConv is exact in this world: the gain of perfect opponents of both roles "
                               "together. 0 is unbeatable play, whatever the NE gap is."))
    parts += [_budgets(run) for run in runs if run["exploit"]]
    if not solved and not any(run["exploit"] for run in runs):
        parts.append(paragraph("The exploitability of these policies has not been measured."))
    return "".join(parts) + missing([item for run in runs for item in run["missing"]
                                     if "exploit" in item["what"]])


def _gap_lines(run: Row) -> Iterator[Line]:
    rows = [row for row in run["evaluations"] if number(row.get("gap")) != "-"]
    if rows:
        last = rows[-1]
        games = min((rate.get("games") for rate in last["rates"].values()), default=None)
        low, high = ([row[k] if number(row.get(k)) != "-" else row["gap"] for row in rows]
                     for k in ("gap_low", "gap_high"))
        newest = with_interval(last["gap"], last.get("gap_low"), last.get("gap_high"), games)
        yield Line(name="NE gap (balance)", x=[row["step"] for row in rows], y=[row["gap"] for row in rows],
                   low=low, high=high, newest=newest)
    x, y = points(run, "nash_conv")
    if x:
        yield Line(name="NashConv (exact: no interval)", x=x, y=y, colour=1, newest=number(y[-1]))
    for i, role in enumerate(_responding_roles(run)):
        answers = [(row, row["roles"][role]) for row in run["exploit"] if role in row["roles"]]
        answers = [(row, e) for row, e in answers if number(e.get("gain")) != "-" and not e.get("too_weak")]
        if answers:
            row, entry = answers[-1]
            gain = with_interval(entry["gain"], entry["gain_low"], entry["gain_high"], entry["games"])
            yield Line(name=f"gain of a best response as {role}", x=[row["step"] for row, _ in answers],
                       y=[e["gain"] for _, e in answers], low=[e["gain_low"] for _, e in answers],
                       high=[e["gain_high"] for _, e in answers], style="dot", colour=2 + i,
                       newest=f"at least {gain}, budget {human(row['budget'])} steps")


def _responding_roles(run: Row) -> list[str]:
    return list(dict.fromkeys(role for row in run["exploit"] for role in row["roles"]))


def _budgets(run: Row) -> str:
    """The gains of best responses by their budget, as a chart and as a table."""
    lines, cells = [], []
    newest = max(row["iteration"] for row in run["exploit"])
    for i, role in enumerate(_responding_roles(run)):
        answers = [(row["budget"], row["roles"][role]) for row in run["exploit"]
                   if role in row["roles"] and row["iteration"] == newest]
        lines.append(Line(name=f"response as {role}", x=[budget for budget, _ in answers],
                          y=[e["gain"] for _, e in answers], low=[e["gain_low"] for _, e in answers],
                          high=[e["gain_high"] for _, e in answers], style="dot", colour=2 + i))
    for row in run["exploit"]:
        for role, e in row["roles"].items():
            cells.append([cell(human(row["step"])), cell(human(row["budget"])), text(role),
                          cell(number(e["score"])), cell(interval(e)), cell(e["games"]),
                          cell(number(e["gain"])), cell(interval(e, "gain_")),
                          text("too weak: no evidence" if e["too_weak"] else "")])
    head = ("policies of step", "budget (steps)", "response as", "score at least", "95 % interval", "games",
            "gain at least", "95 % interval", "")
    lows = [low for line in lines for low in line.low]
    axes = Axes(x="budget: training steps of each response", y="gain of a best response, at least",
                low=min([0.0, *lows]), powers=True)
    label = f" to {run['label']}" if run["label"] else ""
    heading = f"<h3>Best responses{text(label)}</h3>"
    return heading + chart(lines, axes) + table(head, cells) + paragraph(AT_LEAST, "soft")


# --- tables -------------------------------------------------------------------------------------------------


def scoreboard(run: Row) -> str:
    """The newest evaluation against scripted opponents, beside the best scripted player of each role."""
    entries = run["table"]
    if not entries and run["returns"]:
        return _returns(run)
    if not run["evaluations"]:
        raise Absent(NO_EVALUATION)
    if not entries:
        raise Absent("no matches against scripted opponents were played")
    rows = []
    for e in entries:
        level = standing(e)
        rows.append([text(e.get("player", "-")), text(e.get("rival", "-")), cell(e.get("games", "-")),
                     cell(number(e.get("score"))), cell(interval(e)), bars(e),
                     text(e.get("best_bot", "-")), cell(number(e.get("best_bot_score"))),
                     cell(interval(e, "best_bot_")), f'<td class="{level}">{text(level)}</td>'])
    head = ("player", "opponent", "games", "score", "95 % interval", "0 … 1", "baseline", "its score",
            "its interval", "player is")
    caption = ("Score: a win counts 1, a draw ½. Bar: interval of the player. Diamond: the best scripted "
               "player (the baseline).")
    return (table(head, rows, caption) + paragraph(LEVELS, "soft")
            + paragraph("These opponents are scripted. The table does not measure exploitability: the gain "
                        "of a player that is trained against these policies.", "soft"))


def _returns(run: Row) -> str:
    """A world with one seat: mean returns beside the best scripted player, then all evaluations."""
    head, *cells = return_cells(run)
    rows = [[text(row[0]), *map(cell, row[1:4]), text(row[4]), *map(cell, row[5:7]),
             f'<td class="{text(row[7])}">{text(row[7])}</td>'] for row in cells]
    history = [[cell(human(row.get("step"))), text(role), cell(number(e.get("mean"))), cell(interval(e)),
                cell(e.get("games", "-"))]
               for row in run["evaluations"][-MOST_ROWS:] for role, e in row["returns"].items()]
    every = table(("step", "role", "mean return", "95 % interval", "games"), history)
    return (table(head, rows, "Mean return of a game; the world has one seat.")
            + paragraph(LEVELS, "soft") + folded(f"All {len(run['evaluations'])} evaluations", every))


def head_to_head(run: Row) -> str:
    """The newest evaluation of the trained policies against each other, then all evaluations."""
    row: Row = run["evaluations"][-1] if run["evaluations"] else {}
    rates = row.get("rates") or {}
    if not rates:
        raise Absent("the world has one seat" if run["returns"] else "the trained policies have not met")
    cells = [[text(role), cell(r.get("games", "-")), cell(number(r.get("rate"))), cell(interval(r)),
              bars(r, "rate")] for role, r in rates.items()]
    gap_text = ""
    if row.get("gap") is not None:
        gap_text = f"NE gap {number(row['gap'])}, upper bound {number(row.get('gap_high'))} (95 %)."
    head = ("role", "games", "win rate", "95 % interval", "0 … 1")
    newest = table(head, cells, "The trained policies against each other, newest evaluation")
    exact = "".join(paragraph(f"{line}.") for line in run["exact"])
    return newest + paragraph(gap_text) + exact + _evaluations(run["evaluations"])


def _evaluations(history: Sequence[Row]) -> str:
    roles = list(dict.fromkeys(role for row in history for role in row["rates"]))
    exact = any(row["nash_conv"] is not None for row in history)
    rows = []
    for row in history[-MOST_ROWS:]:
        rates = row["rates"]
        games = min((rate.get("games") or 0 for rate in rates.values()), default=0)
        figures = [*(_rate(rates.get(role)) for role in roles), games, number(row.get("gap")),
                   number(row.get("gap_high")), *([number(row["nash_conv"])] if exact else []),
                   row.get("rollbacks", "-")]
        level = "-" if row.get("level") is None else f"{row['level']} {row.get('level_name') or ''}".strip()
        rows.append([cell(human(row.get("step"))), text(row.get("phase", "-")), text(row.get("role", "-")),
                     *map(cell, figures), sentence(level)])
    head = ("step", "phase", "role that learned", *roles, "games", "NE gap", "upper bound",
            *(["NashConv"] if exact else []), "rollbacks", "level")
    return folded(f"All {len(history)} evaluations", table(head, rows))


def _rate(rate: Row | None) -> str:
    return "-" if rate is None else f"{number(rate.get('rate'))} {interval(rate)}"


def _timeline(steps: Mapping[str, Mapping[str, int | None]]) -> str:
    """When each milestone was first reached: as a chart of their number over steps, and as a table."""
    names = {"frontier": "reached from any savestate", "cold": "reached from power-on, in training"}
    lines = []
    for colour, (kind, label) in enumerate(names.items()):
        reached = sorted(step for entry in steps.values() if (step := entry.get(kind)) is not None)
        if not reached:
            continue
        x = [0, *(step for step in reached for _ in (0, 1))]
        y = [0, *(count for i in range(len(reached)) for count in (i, i + 1))]
        newest = f"{len(reached)} of {len(steps)}"
        lines.append(Line(name=label, x=x, y=y, style="steps", colour=colour, newest=newest))
    order = sorted(steps.items(), key=lambda item: item[1].get("frontier") or float("inf"))
    rows = [[text(name), *(cell(human(entry.get(kind))) for kind in names)] for name, entry in order]
    head = ("milestone", "first from any savestate (step)", "first from power-on (step)")
    axes = Axes(x=STEPS, y="milestones reached", low=0.0, high=float(max(len(steps), 1)))
    return chart(lines, axes) + (table(head, rows, "Timeline of the milestones") if rows else "")


def _savestates(run: Row) -> str:
    """The savestates by the map that they lie on, then each with the one that it was reached from."""
    states = run.get("savestates") or []
    if not states:
        return ""
    maps: dict[str, list[Row]] = {}
    for state in states:
        maps.setdefault(str(state["map"] or "power-on"), []).append(state)
    by_map = [[text(name), cell(len(group)), cell(sum(state["visits"] for state in group)),
               cell(sum(state["successes"] for state in group))] for name, group in maps.items()]
    names = ["power-on", *(str(state["file"] or state["milestone"]) for state in states[1:])]
    rows = [[text(name), text(names[state["parent"] + 1] if number else "-"), text(state["band"]),
             cell(human(state["step"])), cell(state["visits"]), cell(state["successes"])]
            for number, (name, state) in enumerate(zip(names, states)) if state["parent"] + 1 < len(names)]
    head = ("savestate", "reached from", "band", "step", "episodes that start there", "that go further")
    return (table(("map", "savestates", "episodes that start there", "that go further"), by_map,
                  "Map of the savestates") + folded(f"All {len(states)} savestates", table(head, rows)))


def milestones(run: Row) -> str:
    """Milestones of any chain of savestates, and the share of games from power-on that reach each."""
    out = bullets(run["frontier"]) + _timeline(run.get("milestones") or {}) + _savestates(run)
    for role, entry in run["returns"].items():
        order = sorted((entry.get("milestones") or {}).items(), key=lambda item: -item[1]["rate"])
        rows = [[text(name), cell(number(e["rate"])), cell(interval(e)), cell(entry.get("games", "-"))]
                for name, e in order]
        finished = f"{number(entry.get('success'))} {interval(entry, 'success_')}"
        caption = f"{role} from power-on, without savestates: {finished} of the games finished"
        head = ("milestone", "share of games", "95 % interval", "games")
        out += table(head, rows, caption) if rows else ""
    return out
