"""A sweep as a table: every seed of every cell with failures, then the interquartile means of each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rematch.evaluation.text import clean, human, interval, number, verdict_word
from rematch.reporting.text import aligned

Row = Mapping[str, Any]

STATES = {"failed": "FAILED", "waiting": "not started"}  # stored word -> printed word
MEANING = (
    "Brackets: 95 % interval of a seed over the games of its last evaluation. IQM: interquartile mean over "
    "the seeds that finished (the lowest and the highest quarter, rounded down, are left out), with a 95 % "
    "interval from 10 000 bootstrap samples of the seeds.",
    "score: mean over the scripted opponents; every role has the same weight. below: match-ups in which a "
    "scripted baseline is better, beyond the intervals. The NE gap measures balance, not strength.",
)


def ranges(seeds: Sequence[int]) -> str:
    """0, 1, 2, 3, 7 -> "0-3,7"."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1][1:] = [seed]
        else:
            parts.append([seed])
    return ",".join("-".join(map(str, part)) for part in parts)


def title(sweep: Row) -> str:
    """Name, recipe, seeds and the number of runs in each state."""
    runs = sum(len(cell["runs"]) for cell in sweep["cells"])
    states = [f"{sweep['finished']} of {runs} runs finished"]
    states += [f"{sweep[state]} {state}" for state in ("failed", "unfinished") if sweep[state]]
    states += [f"{sweep['waiting']} not started"] if sweep["waiting"] else []
    return clean(f"Sweep {sweep['sweep']}: {sweep['recipe']} ({sweep['game']}), seeds {sweep['seeds']}: "
                 + ", ".join(states))


def measure_names(cells: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell["iqm"]))


def figure(entry: Row | None) -> str:
    """A value with its interval; without an interval for an exact value or a single seed."""
    if entry is None:
        return "-"
    value = number(entry["value"])
    return value if entry["low"] is None else f"{value} {interval(entry)}"


def cell_rows(cell: Row) -> list[list[str]]:
    """A header row, a row for every seed, and the interquartile means."""
    names = measure_names([cell])
    rows = [["seed", *names, "below", "games", "steps", "verdict"]]
    for run in cell["runs"]:
        if run["state"] != "finished":
            state = STATES.get(run["state"], run["state"])
            rows.append([str(run["seed"]), *("-" for _ in names), "-", "-", "-", state])
            continue
        below = f"{run['below']} of {run['pairings']}" if run["pairings"] else "-"
        rows.append([str(run["seed"]), *(figure(run["measures"].get(name)) for name in names), below,
                     str(run["games"]), human(run["step"]), verdict_word(run["verdict"])])
    rows.append([f"IQM of {finished(cell)}", *(figure(cell["iqm"][name]) for name in names), "", "", "",
                 verdict_counts(cell)])
    return [[clean(text) for text in row] for row in rows]


def finished(cell: Row) -> int:
    return sum(run["state"] == "finished" for run in cell["runs"])


def verdict_counts(cell: Row) -> str:
    """The number of seeds with each verdict or other end, the most frequent first."""
    counts = Counter(verdict_word(run.get("verdict", run["state"])) for run in cell["runs"])
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def all_rows(cells: Sequence[Row]) -> list[list[str]]:
    """The interquartile means of every cell, one row each."""
    names = measure_names(cells)
    rows = [["cell", "seeds", *names, "verdicts"]]
    rows += [[cell["cell"], f"{finished(cell)} of {len(cell['runs'])}",
              *(figure(cell["iqm"].get(name)) for name in names), verdict_counts(cell)] for cell in cells]
    return [[clean(text) for text in row] for row in rows]


def tables(sweep: Row) -> list[tuple[str, list[list[str]]]]:
    """(heading, rows) of each table; the heading is empty in a sweep without a grid."""
    out = [(clean(cell["cell"]), cell_rows(cell)) for cell in sweep["cells"]]
    if len(out) > 1:
        out.append(("IQM over seeds, every cell", all_rows(sweep["cells"])))
    return out


def notes(sweep: Row) -> list[str]:
    """Notes of the runs on their settings, failed runs, seeds added later, several versions of rematch."""
    failed = [run for cell in sweep["cells"] for run in cell["runs"] if run["state"] == "failed"]
    out = [f"Note on {cell['cell'] or 'every run'}: {note.removeprefix('note: ')}" for cell in sweep["cells"]
           for note in cell.get("notes", ())]
    out += [f"FAILED {run['run']}: {run['why']}" for run in failed]
    if failed:
        out.append(f"{len(failed)} failed and are not in the means, which are therefore too optimistic.")
    if sweep["added"]:
        out.append(f"Seeds {sweep['added']} were added later, when results of the others were known.")
    if "," in sweep["rematch"]:
        out.append(f"The runs were made with more than one version of rematch: {sweep['rematch']}.")
    return [clean(line) for line in out]


def lines(sweep: Row) -> list[str]:
    """The tables and notes for the console."""
    out = [title(sweep)]
    for heading, rows in tables(sweep):
        out += ["", *([heading] if heading else []), *aligned(rows)]
    return [*out, "", *notes(sweep), *MEANING]


def markdown(sweep: Row) -> list[str]:
    """The same as a Markdown page."""
    out = [f"# {_escaped(title(sweep))}"]
    for heading, rows in tables(sweep):
        out += ["", *([f"## {_escaped(heading)}", ""] if heading else [])]
        head, *body = [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
        out += [head, "|" + " --- |" * len(rows[0]), *body]
    return [*out, "", *(f"- {_escaped(line)}" for line in [*notes(sweep), *MEANING])]


def _escaped(text: str) -> str:
    """Text for a Markdown cell: no character in it ends the cell or starts a link or a tag."""
    for sign in "\\`*_|<[":
        text = text.replace(sign, "\\" + sign)
    return text
