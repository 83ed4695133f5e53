"""The report page about one run or several: one HTML file that works offline and without scripts.

It is made only from the facts of rematch/reporting/run_summary.py: the JSON of a report has every number of
its page. Every text is escaped, and the page's content security policy forbids it to load anything. A section
whose facts are missing shows the reason instead.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rematch.evaluation.text import human, number, verdict_text
from rematch.reporting import untrusted_folder
from rematch.reporting.html import map_section, past_policy_sections, strength_sections
from rematch.reporting.html.charts import STEPS, Axes, Line, chart, with_interval
from rematch.reporting.html.elements import STYLE, bullets, cell, folded, paragraph, sentence, table, text
from rematch.reporting.untrusted_folder import PICTURES, Absent, Unreadable

Row = Mapping[str, Any]
Pictures = Mapping[str, bytes | str]  # name -> its bytes, or the reason why it cannot be shown

GENERATOR = '<meta name="generator" content="rematch report">'  # only pages with this line are overwritten
MOST_COLUMNS = 200  # observation columns in a table
FILM_NAMES = "names of all films"  # key among the pictures
MOST_FILMS = 40  # linked films
MOST_PIXELS = 4_000_000  # of a film that is looked at
NEARLY_WHITE = 232  # of 255
QUICK = "Written with --quick: no games were played for this page."
MOST_NAMES = 8  # constant columns that a summary names
TITLES = {"learning.png": ("Learning in detail", "Curves of strength and of learning"),
          "match.gif": ("One game", "One game between the trained policies")}


def page(summary: Row, pictures: Sequence[Pictures]) -> str:
    """The whole page as text; `pictures` are shown for a single run."""
    runs = summary["runs"]
    single = len(runs) == 1
    title = " · ".join(dict.fromkeys(run["title"] for run in runs))[:200]
    title = _run_title(runs[0]) if single else f"{title}, {len(runs)} runs"
    shared = [("Verdict" if single else "Verdicts", verdicts), ("Learning curves", strength_sections.curves),
              ("NE gap beside exploitability", strength_sections.gap)]
    body = "".join(_section(name, build, summary)[0] for name, build in shared)
    for run, shown in zip(runs, pictures):
        content, left_out = _run_sections(run, shown if single else {})
        content += _left_out(left_out)
        heading = f"{run['label']}: seed {run['seed']}, {verdict_text(run['verdict'])}"
        body += content if single else folded(heading, content)
    note = paragraph(QUICK, "soft") if summary.get("quick") else ""
    count = "A training run" if single else f"{len(runs)} training runs"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n{GENERATOR}\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style></head>\n"
        f'<body>\n<header><h1>{text(title)}</h1><p class="soft">{count} of rematch '
        f'{text(summary["rematch"])}. All rates are shown with sample size and 95 % confidence interval.'
        f"</p>{note}</header>\n"
        f"<main>\n{body}</main></body></html>\n")


def _run_title(run: Row) -> str:
    """Folder, game and seed: "mine: pursuit, seed 3"; a run without a name has the last two only."""
    seed = "" if run["seed"] is None else f", seed {run['seed']}"
    return f"{run['label']}{': ' if run['label'] else ''}{run['title']}{seed}"


def pictures(run: Path, linked: bool = True) -> dict[str, bytes | str]:
    """The pictures in a run's folder, or the reason why one cannot be shown; linked: the page lies there."""
    out: dict[str, bytes | str] = {}
    for name in PICTURES:
        try:
            out[name] = untrusted_folder.picture(run, name)
        except Absent:
            continue
        except Unreadable as error:
            out[name] = str(error)
    try:
        names, film = untrusted_folder.newest_film(run)
        out[f"{untrusted_folder.FILMS}/{names[0]}"] = film
        if linked:
            out[FILM_NAMES] = "/".join(names)  # a name has no slash
    except Absent:
        pass
    except Unreadable as error:
        out[untrusted_folder.FILMS] = str(error)
    return out


def _section(name: str, build: Callable[[Row], str], facts: Row) -> tuple[str, str]:
    """The section as HTML, and empty text; where there is nothing to show, no HTML and the reason."""
    try:
        content = build(facts)
    except Absent as error:
        return "", f"{name}: {error}"
    except Unreadable as error:
        content = paragraph(f"Not shown: {error}.", "soft")
    except Exception as error:  # facts with the right name and wrong content; the other sections are shown
        message = f"Not shown: the file has unexpected content ({type(error).__name__})."
        content = paragraph(message, "soft")
    return f"<section><h2>{text(name)}</h2>\n{content}</section>\n", ""


def _left_out(reasons: Sequence[str]) -> str:
    return folded(f"Sections without content ({len(reasons)})", bullets(reasons)) if reasons else ""


def _run_sections(run: Row, shown: Pictures) -> tuple[str, list[str]]:
    """The sections about one run, and the reasons why others have no content."""
    films = {name: data for name, data in shown.items() if name.startswith(untrusted_folder.FILMS)}
    sections: list[tuple[str, Callable[[Row], str]]] = [
        ("Payoff matrix of past policies", past_policy_sections.payoff),
        ("Forgetting", past_policy_sections.forgetting),
        ("Curriculum", curriculum),
        ("Alarms and rollbacks", alarms),
        *([("Milestones", strength_sections.milestones)] if run["frontier"] else []),
        *([("World map", map_section.world_map)] if run.get("world_map") else []),
        ("Against scripted opponents", strength_sections.scoreboard),
        ("Head to head", strength_sections.head_to_head),
        *((TITLES[name][0], partial(_image, name, data)) for name, data in shown.items() if name in TITLES),
        *(("Newest film of an episode", partial(_film, name, data, str(shown.get(FILM_NAMES, ""))))
          for name, data in films.items()),
        *([("Components of your own", strength_sections.user_metrics)] if run.get("user_metrics") else []),
        ("Observations", observations),
        ("Settings", settings),
        ("Provenance", provenance),
    ]
    built = [_section(name, build, run) for name, build in sections]
    return "".join(html for html, _ in built), [reason for _, reason in built if reason]


# --- sections -----------------------------------------------------------------------------------------------


def verdicts(summary: Row) -> str:
    """The verdict with all findings; for several runs a table, and the summaries over seeds."""
    runs = summary["runs"]
    problems = "".join(paragraph(f"Problem{_in_run(run)}: {problem}.", "below")
                       for run in runs for problem in run["problems"])
    if len(runs) > 1:
        rows = [[text(run["label"]), cell(run["seed"]), cell(human(run["progress"]["step"])),
                 *map(cell, _newest(run)), sentence(verdict_text(run["verdict"]))] for run in runs]
        head = ("run", "seed", "steps", "mean score", "NE gap", "NashConv", "verdict")
        newest = table(head, rows, "Newest evaluation of every run")
        return newest + problems + "".join(_seed_summaries(summary))
    run = runs[0]
    out = paragraph(verdict_text(run["verdict"]), "verdict")
    if run["findings"][1:]:
        out += paragraph("Also:") + bullets([verdict_text(finding) for finding in run["findings"][1:]])
    if run.get("causes"):
        out += paragraph("Likely causes, by the numbers of this run:") + bullets(run["causes"])
    if not run["evaluations"]:
        return out + paragraph(f"{strength_sections.NO_EVALUATION.capitalize()}.") + problems
    last = run["evaluations"][-1]
    return out + paragraph(f"Evaluation after {human(last.get('step'))} steps of all games, iteration "
                           f"{last.get('iteration') or '-'}. docs/explanation/strength.md explains "
                           "the words of the verdict.",
                           "soft") + problems


def _in_run(run: Row) -> str:
    return f" in {run['label']}" if run["label"] else ""


def _newest(run: Row) -> list[str]:
    last: Row = run["evaluations"][-1] if run["evaluations"] else {}
    strength = last.get("strength") or {}
    return [with_interval(strength.get("score"), strength.get("low"), strength.get("high")),
            with_interval(last.get("gap"), last.get("gap_low"), last.get("gap_high")),
            number(last.get("nash_conv"))]


def _seed_summaries(summary: Row) -> list[str]:
    """A paragraph per group of seeds: the newest interquartile means."""
    names = {"strength": "mean score", "gap": "NE gap", "nash_conv": "NashConv"}
    out = []
    for group in summary["groups"]:
        values = [f"{label} {with_interval(c['middle'][-1], c['low'][-1], c['high'][-1])}"
                  for name, label in names.items()
                  if (c := group["curves"].get(name)) and c["steps"] and c["seeds"] > 1]
        if values:
            out.append(paragraph(f"{group['label']}, {len(group['runs'])} seeds, interquartile mean and its "
                                 f"95 % interval over seeds: {'; '.join(values)}."))
    return out


def curriculum(run: Row) -> str:
    """The level over steps, and the evidence for each change of level."""
    facts = run["curriculum"]
    levels = [row for row in facts["levels"] if number(row.get("step")) != "-"]
    if not levels and not facts["log"]:
        raise Absent("the run has no curriculum")
    x: list[float] = []
    y: list[float] = []
    for row in levels:  # a staircase: a level lasts until the next evaluation
        x += [row["step"]] * (2 if y else 1)
        y += ([y[-1]] if y else []) + [row["level"]]
    out = ""
    if x:
        line = Line(name="level", x=x, y=y, newest=str(y[-1]))
        out = chart([line], Axes(x=STEPS, y="level (number)", low=0.0))
    rows = [[cell(human(move["since"])), cell(human(move["step"])), cell(move["before"]),
             cell(move["level"]), text(move["name"] or "-"), sentence(_evidence(move["evidence"]))]
            for move in facts["promotions"]]
    head = ("between step", "and step", "from level", "to level", "name", "evidence")
    out += table(head, rows, "Every change of level") if rows else paragraph("The level has not changed.")
    return out + _log(facts["log"])


def _log(lines: Sequence[str]) -> str:
    content = f"<pre>{text(chr(10).join(lines))}</pre>"
    return folded(f"Lines of the log ({len(lines)})", content) if lines else ""


def _evidence(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number(x) if isinstance(x, float) else x}" for key, x in value.items())
    return "not recorded" if value is None else str(value)


def alarms(run: Row) -> str:
    """Each alarm with its first step, its evidence and its likely causes; then the rollbacks."""
    out = ""
    for alarm in run["alarms"]:
        message = f"Alarm ({alarm['kind']}), first at step {alarm['first']:,}: {alarm['text']}."
        out += paragraph(message, "below")
        if alarm["causes"]:
            out += paragraph("Likely causes, by the numbers of this run:") + bullets(alarm["causes"])
        else:
            out += paragraph("The numbers of this run show no cause.")
    out = out or paragraph("No alarm was raised.")
    rows = [[cell(human(event["since"])), cell(human(event["step"])), cell(event["count"])]
            for event in run["rollbacks"]["events"]]
    out += table(("between step", "and step", "rollbacks"), rows) if rows else paragraph("No rollbacks.")
    return out + _log(run["rollbacks"]["log"])


def _image(name: str, data: bytes | str, _run: Row) -> str:
    if isinstance(data, str):
        raise Unreadable(data)
    coded = base64.b64encode(data).decode("ascii")
    source = f"data:{PICTURES[name][1]};base64,{coded}"
    alt = text(TITLES[name][1])
    if name.endswith(".png"):  # curves: on a phone in their full size, to be scrolled
        return f'<div class="wide" tabindex="0"><img class="plot" alt="{alt}" src="{source}"></div>'
    kind = ' class="drawing"' if _is_drawing(data) else ""
    return f'<p style="max-width:none"><img{kind} alt="{alt}" src="{source}"></p>'


def _is_drawing(film: bytes) -> bool:
    """Whether most of the first picture is nearly white, as on boards and in arenas: dark mode inverts it."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(film), formats=["GIF"]) as first:
            if first.width * first.height > MOST_PIXELS:
                return False
            counts = first.convert("L").histogram()
    except (OSError, ValueError, SyntaxError, EOFError):
        return False
    return 2 * sum(counts[NEARLY_WHITE:]) > sum(counts)


def _film(name: str, data: bytes | str, names: str, _run: Row) -> str:
    """The newest film of an episode, and links to the others, which are files beside the report."""
    if isinstance(data, str):
        raise Unreadable(data)
    coded = base64.b64encode(data).decode("ascii")
    picture = f'<p style="max-width:none"><img alt="An episode" src="data:image/gif;base64,{coded}"></p>'
    others = [other for other in names.split("/") if other and f"{untrusted_folder.FILMS}/{other}" != name]
    links = ", ".join(f'<a href="{untrusted_folder.FILMS}/{text(other)}">{text(other)}</a>'
                      for other in others[:MOST_FILMS])
    more = f'<p class="soft">Earlier films in the folder of the run: {links}</p>' if links else ""
    return picture + f'<p class="soft"><code>{text(name)}</code></p>' + more


def observations(run: Row) -> str:
    """The observation columns of every role, with those that never changed."""
    if not run["observations"]:
        problem = next((problem for problem in run["problems"] if "observations.json" in problem), "")
        raise Unreadable(problem) if problem else Absent("observations.json is missing")
    parts = [paragraph("Measured on the first rollout. A constant column carries no information: either the "
                       "game has not varied it yet, or it is not connected.", "soft")]
    for role, columns in run["observations"].items():
        rows = [[text(c.get("column", "-")), *(cell(number(c.get(k))) for k in ("min", "max", "mean")),
                 '<td class="below">constant</td>' if c.get("constant") else "<td></td>"]
                for c in columns[:MOST_COLUMNS]]
        constant = [str(c.get("column", "-")) for c in columns if c.get("constant")]
        more = len(columns) - len(rows)
        note = paragraph(f"{more:,} more columns are in observations.json.", "soft") if more > 0 else ""
        parts.append(folded(f"{role}: {len(columns)} numbers, {_constant_names(constant)}",
                            table(("column", "min", "max", "mean", ""), rows) + note))
    return "".join(parts)


def _constant_names(names: Sequence[str]) -> str:
    if not names:
        return "none constant"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{len(names)} constant: {', '.join(names[:MOST_NAMES])}{more}"


def settings(run: Row) -> str:
    """Non-default settings, settings without effect, and the whole config.yaml."""
    rows = [[text(e["key"]), sentence(e["value"]), sentence(e["default"])] for e in run["changed"]]
    out = table(("name", "value", "default"), rows, "Non-default settings") if rows else ""
    idle = [[text(e["key"]), sentence(e["value"]), sentence(e["why"])] for e in run["unused"]]
    if idle:
        out += folded(f"{len(idle)} settings have no effect in this run",
                      table(("name", "value", "reason"), idle))
    if not run["settings"]:
        raise Unreadable(next((problem for problem in run["problems"] if "config" in problem),
                              "config.yaml is missing"))
    return out + folded("All settings (config.yaml)", f"<pre>{text(run['settings'])}</pre>")


def provenance(run: Row) -> str:
    """Iterations, stops and resumes, and the files that the page was made from."""
    progress = run["progress"]
    out = paragraph(f"{progress['rows']} iterations, {human(progress['step'])} steps of all games, "
                    f"{human(progress['games'])} finished games.")
    if run["lineage"]:
        own, *earlier = run["lineage"]
        out += paragraph(f"This run was {own}.")
        out += bullets([f"Its ancestor was {each}." for each in earlier]) if earlier else ""
    out += paragraph(f"{run['learning'].capitalize()}.") if run["learning"] else ""
    if run["events"]:
        rows = [[text(event["event"]), cell(event["iteration"]), text(event.get("why") or ""),
                 text(_utc(event["time"]))] for event in run["events"]]
        out += table(("event", "iteration", "reason", "time (UTC)"), rows, "Stops and resumes")
    elif run["label"]:
        out += paragraph("The run was never stopped and resumed.")
    cells = [[text(file["name"]), cell("-" if file["bytes"] is None else file["bytes"]),
              f"<code>{text(file['sha256'])}</code>" if file["bytes"] is not None else text(file["sha256"])]
             for file in run["files"]]
    return out + table(("file", "bytes", "SHA-256"), cells, "Files that this page was made from")


def _utc(moment: object) -> str:
    if not isinstance(moment, int | float) or not 0 <= moment < 4e9:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))
