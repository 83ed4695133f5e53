"""A report: one page about one run or several that opens anywhere, offline, without a script.

Made of the facts that rematch/reporting/run_summary.py gathers, and of nothing else: the JSON of a report
holds every
figure of its page. Every text is escaped, and the page forbids itself to load anything. A section whose facts
are missing says so; the others stand.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rematch.reporting import untrusted_folder
from rematch.reporting.html import past_policy_sections, strength_sections
from rematch.reporting.html.charts import STEPS, Axes, Line, chart
from rematch.reporting.html.elements import STYLE, bullets, cell, folded, paragraph, sentence, table, text
from rematch.reporting.text import human, number
from rematch.reporting.untrusted_folder import PICTURES, Unreadable

Row = Mapping[str, Any]
Pictures = Mapping[str, bytes | str]  # name -> its bytes, or why they cannot be shown

MARK = '<meta name="generator" content="rematch report">'  # what tells our own pages from others
MOST_COLUMNS = 2000
WORDS = {"learning.png": ("Learning in detail", "Curves of strength and of learning"),
         "match.gif": ("One game", "One game between the learnt players")}


def page(whole: Row, pictures: Sequence[Pictures]) -> str:
    """The whole page as text; `pictures` are shown of a single run."""
    runs = whole["runs"]
    single = len(runs) == 1
    title = " · ".join(dict.fromkeys(run["title"] for run in runs))[:200]
    shared = [("Verdict" if single else "Verdicts", verdicts), ("Learning curves", strength_sections.curves),
              ("NE gap beside exploitability", strength_sections.gap)]
    body = "".join(_section(name, build, whole) for name, build in shared)
    for run, shown in zip(runs, pictures):
        inside = _of_run(run, shown if single else {})
        body += inside if single else folded(f"{run['label']}: seed {run['seed']}, {run['verdict']}", inside)
    many = "A training run" if single else f"{len(runs)} training runs"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n{MARK}\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style></head>\n"
        f'<body>\n<header><h1>{text(title)}</h1><p class="soft">{many} of rematch {text(whole["rematch"])}. '
        "Every rate stands with its number of games and its 95 % interval.</p></header>\n"
        f"{body}</body></html>\n")


def pictures(run: Path) -> dict[str, bytes | str]:
    """The pictures that lie in a run's folder, or why they cannot be shown."""
    found: dict[str, bytes | str] = {}
    for name in PICTURES:
        try:
            found[name] = untrusted_folder.picture(run, name)
        except Unreadable as why:
            found[name] = str(why)
    return found


def _section(name: str, build: Callable[[Row], str], facts: Row) -> str:
    try:
        inside = build(facts)
    except Unreadable as why:
        inside = paragraph(f"Not shown: {why}.", "soft")
    except Exception as error:  # facts of the right name with a wrong inside; the other sections stand
        words = f"Not shown: the file does not hold what it should ({type(error).__name__})."
        inside = paragraph(words, "soft")
    return f"<section><h2>{text(name)}</h2>\n{inside}</section>\n"


def _of_run(run: Row, shown: Pictures) -> str:
    sections: list[tuple[str, Callable[[Row], str]]] = [
        ("Payoff matrix of past selves", past_policy_sections.payoff),
        ("Forgetting", past_policy_sections.forgetting),
        ("Curriculum", curriculum),
        ("Alarms and rollbacks", alarms),
        *([("Milestones", strength_sections.milestones)] if run["frontier"] else []),
        ("Against scripted rivals", strength_sections.scoreboard),
        ("Head to head", strength_sections.head_to_head),
        *((WORDS[name][0], partial(_image, name, data)) for name, data in shown.items()),
        ("What every seat sees", sight),
        ("Settings", settings),
        ("Provenance", provenance),
    ]
    return "".join(_section(name, build, run) for name, build in sections)


# --- sections -----------------------------------------------------------------------------------------------


def verdicts(whole: Row) -> str:
    runs = whole["runs"]
    problems = "".join(paragraph(f"Problem{_whose(run)}: {problem}.", "below")
                       for run in runs for problem in run["problems"])
    if len(runs) > 1:
        rows = [[text(run["label"]), cell(run["seed"]), cell(human(run["progress"]["step"])),
                 *map(cell, _newest(run)), sentence(run["verdict"])] for run in runs]
        head = ("run", "seed", "steps", "strength", "NE gap", "NashConv", "verdict")
        return table(head, rows, "Newest evaluation of every run") + problems + "".join(_summary(whole))
    run = runs[0]
    out = paragraph(run["verdict"], "verdict")
    if run["findings"][1:]:
        out += paragraph("Also:") + bullets(run["findings"][1:])
    if not run["evaluations"]:
        return out + paragraph(strength_sections.NOTHING) + problems
    last = run["evaluations"][-1]
    return out + paragraph(f"Evaluated after {human(last.get('step'))} steps of all games, iteration "
                           f"{last.get('iteration') or '-'}. What the words mean: docs/strength.md.",
                           "soft") + problems


def _whose(run: Row) -> str:
    return f" in {run['label']}" if run["label"] else ""


def _newest(run: Row) -> list[str]:
    last: Row = run["evaluations"][-1] if run["evaluations"] else {}
    mean = last.get("strength") or {}
    figures = [mean.get("score"), last.get("gap"), last.get("nash_conv")]
    bounds = [(mean.get("low"), mean.get("high")), (last.get("gap_low"), last.get("gap_high")), (None, None)]
    return [f"{number(x)} [{number(low)}, {number(high)}]" if number(low) != "-" else number(x)
            for x, (low, high) in zip(figures, bounds)]


def _summary(whole: Row) -> list[str]:
    names = {"strength": "strength", "gap": "NE gap", "nash_conv": "NashConv"}
    out = []
    for group in whole["groups"]:
        told = [f"{words} {number(c['middle'][-1])} [{number(c['low'][-1])}, {number(c['high'][-1])}]"
                for name, words in names.items()
                if (c := group["curves"].get(name)) and c["steps"] and c["seeds"] > 1]
        if told:
            out.append(paragraph(f"{group['label']}, {len(group['runs'])} seeds, interquartile mean and its "
                                 f"95 % interval over seeds: {'; '.join(told)}."))
    return out


def curriculum(run: Row) -> str:
    """Levels over time, and the evidence for each promotion."""
    found = run["curriculum"]
    levels = [row for row in found["levels"] if number(row.get("step")) != "-"]
    if not levels and not found["log"]:
        raise Unreadable("the run has no curriculum")
    x: list[float] = []
    y: list[float] = []
    for row in levels:  # a staircase: a level holds until the next evaluation
        x += [row["step"]] * (2 if y else 1)
        y += ([y[-1]] if y else []) + [row["level"]]
    out = chart([Line(name="level", x=x, y=y, told=str(y[-1]))], Axes(x=STEPS, y="level (number)",
                                                                      low=0.0)) if x else ""
    rows = [[cell(human(move["since"])), cell(human(move["step"])), cell(move["before"]),
             cell(move["level"]), text(move["name"] or "-"), sentence(_evidence(move["evidence"]))]
            for move in found["promotions"]]
    head = ("between step", "and step", "from level", "to level", "called", "evidence")
    out += table(head, rows, "Every change of level") if rows else paragraph("The level has not changed.")
    return out + _log(found["log"])


def _log(lines: Sequence[str]) -> str:
    words = f"<pre>{text(chr(10).join(lines))}</pre>"
    return folded(f"The log, {len(lines)} lines", words) if lines else ""


def _evidence(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number(x) if isinstance(x, float) else x}" for key, x in value.items())
    return "not written down" if value is None else str(value)


def alarms(run: Row) -> str:
    """Each alarm with its first step, its evidence and what the numbers say of its cause; rollbacks."""
    out = ""
    for alarm in run["alarms"]:
        words = f"Alarm ({alarm['kind']}), first at step {alarm['first']:,}: {alarm['text']}."
        out += paragraph(words, "below")
        out += (paragraph("Likely causes, by this run's own numbers:") + bullets(alarm["causes"])
                if alarm["causes"] else paragraph("No cause is visible in this run's numbers."))
    out = out or paragraph("No alarm was raised.")
    events = run["rollbacks"]["events"]
    rows = [[cell(human(event["since"])), cell(human(event["step"])), cell(event["count"])]
            for event in events]
    out += table(("between step", "and step", "rollbacks"), rows) if rows else paragraph("No rollbacks.")
    return out + _log(run["rollbacks"]["log"])


def _image(name: str, data: bytes | str, _run: Row) -> str:
    if isinstance(data, str):
        raise Unreadable(data)
    coded = base64.b64encode(data).decode("ascii")
    source = f"data:{PICTURES[name][1]};base64,{coded}"
    return f'<p style="max-width:none"><img alt="{text(WORDS[name][1])}" src="{source}"></p>'


def sight(run: Row) -> str:
    if not run["sight"]:
        raise Unreadable(next((why for why in run["problems"] if "sight" in why), "sight.json is missing"))
    parts = [paragraph("Measured on the first rollout. A column that stays constant tells a player nothing: "
                       "either the game did not vary it yet, or something is not connected.", "soft")]
    for role, columns in run["sight"].items():
        still = [str(c.get("column", "-")) for c in columns if c.get("constant")]
        told = f"{len(still)} constant: {', '.join(still)}" if still else "none constant"
        rows = [[text(c.get("column", "-")), *(cell(number(c.get(k))) for k in ("min", "max", "mean")),
                 '<td class="below">constant</td>' if c.get("constant") else "<td></td>"]
                for c in columns[:MOST_COLUMNS]]
        parts.append(folded(f"{role} sees {len(columns)} numbers; {told}",
                            table(("column", "least", "most", "mean", ""), rows)))
    return "".join(parts)


def settings(run: Row) -> str:
    rows = [[text(e["key"]), sentence(e["value"]), sentence(e["default"])] for e in run["changed"]]
    caption = "Settings that differ from the code's own"
    out = table(("setting", "here", "usually"), rows, caption) if rows else ""
    idle = [[text(e["key"]), sentence(e["value"]), sentence(e["why"])] for e in run["unused"]]
    if idle:
        out += folded(f"{len(idle)} settings have no effect in this run",
                      table(("setting", "here", "why it has no effect"), idle))
    if not run["settings"]:
        raise Unreadable(next((why for why in run["problems"] if "config" in why), "config.yaml is missing"))
    return out + folded("All settings (config.yaml)", f"<pre>{text(run['settings'])}</pre>")


def provenance(run: Row) -> str:
    at = run["progress"]
    out = paragraph(f"{at['rows']} iterations, {human(at['step'])} steps of all games, "
                    f"{human(at['games'])} games finished meanwhile.")
    if run["events"]:
        rows = [[text(event["event"]), cell(event["iteration"]), text(event.get("why") or ""),
                 text(_when(event["time"]))] for event in run["events"]]
        out += table(("event", "iteration", "why", "when (UTC)"), rows, "Stops and resumes")
    elif run["label"]:
        out += paragraph("It was never stopped and resumed.")
    cells = [[text(file["name"]), cell("-" if file["bytes"] is None else file["bytes"]),
              f"<code>{text(file['sha256'])}</code>" if file["bytes"] is not None else text(file["sha256"])]
             for file in run["files"]]
    return out + table(("file", "bytes", "SHA-256"), cells, "What this page was made from")


def _when(moment: object) -> str:
    if not isinstance(moment, int | float) or not 0 <= moment < 4e9:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))
