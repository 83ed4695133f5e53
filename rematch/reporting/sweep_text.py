"""A sweep as a table: every seed of every cell, failures too, then what the seeds of a cell come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rematch.reporting.text import aligned, clean, human, interval, number

Row = Mapping[str, Any]

MEANING = (
    "A seed's interval is of the games of its last evaluation, at 95 %. IQM: interquartile mean over the "
    "seeds that finished (the lowest and the highest quarter, rounded down, left out), with a 95 % interval "
    "from 10 000 bootstrap resamples of seeds.",
    "score: mean over the scripted rivals, each role weighing the same. below: pairings in which the best "
    "scripted player is surely better. The NE gap is a balance score, not strength.",
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


def title(found: Row) -> str:
    runs = sum(len(cell["runs"]) for cell in found["cells"])
    told = [f"{found[state]} {state}" for state in ("failed", "unfinished") if found[state]]
    told += [f"{found['waiting']} not begun"] if found["waiting"] else []
    return clean(f"Sweep {found['sweep']}: {found['recipe']} ({found['game']}), seeds {found['seeds']}: "
                 + ", ".join([f"{found['finished']} of {runs} runs finished", *told]))


def names(cells: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell["iqm"]))


def figure(entry: Row | None) -> str:
    """A value with its interval; alone where it is exact, or where one seed is all."""
    if entry is None:
        return "-"
    told = number(entry["value"])
    return told if entry["low"] is None else f"{told} {interval(entry)}"


def cell_rows(cell: Row) -> list[list[str]]:
    """A head, a line for every seed, and the interquartile means."""
    shown = names([cell])
    rows = [["seed", *shown, "below", "games", "steps", "verdict"]]
    for run in cell["runs"]:
        if run["state"] != "finished":
            word = {"failed": "FAILED", "waiting": "not begun"}.get(run["state"], run["state"])
            rows.append([str(run["seed"]), *("-" for _ in shown), "-", "-", "-", word])
            continue
        below = f"{run['below']} of {run['pairings']}" if run["pairings"] else "-"
        rows.append([str(run["seed"]), *(figure(run["measures"].get(name)) for name in shown), below,
                     str(run["games"]), human(run["step"]), run["verdict"].partition(":")[0]])
    rows.append([f"IQM of {finished(cell)}", *(figure(cell["iqm"][name]) for name in shown), "", "", "",
                 summary(cell)])
    return [[clean(text) for text in row] for row in rows]


def finished(cell: Row) -> int:
    return sum(run["state"] == "finished" for run in cell["runs"])


def summary(cell: Row) -> str:
    """How many seeds came to which verdict, the most frequent first; failures among them."""
    words = Counter(run["verdict"].partition(":")[0] if run["state"] == "finished" else run["state"]
                    for run in cell["runs"])
    return ", ".join(f"{count} {word}" for word, count in words.most_common())


def all_rows(cells: Sequence[Row]) -> list[list[str]]:
    """The interquartile means of every cell under one another."""
    shown = names(cells)
    rows = [["cell", "seeds", *shown, "verdicts"]]
    rows += [[cell["cell"], f"{finished(cell)} of {len(cell['runs'])}",
              *(figure(cell["iqm"].get(name)) for name in shown), summary(cell)] for cell in cells]
    return [[clean(text) for text in row] for row in rows]


def tables(found: Row) -> list[tuple[str, list[list[str]]]]:
    """(heading, rows) of each table; the heading of a sweep without a grid is empty."""
    out = [(clean(cell["cell"]), cell_rows(cell)) for cell in found["cells"]]
    if len(out) > 1:
        out.append(("IQM over seeds, every cell", all_rows(found["cells"])))
    return out


def notes(found: Row) -> list[str]:
    """What failed and why; what else a reader should know."""
    failed = [run for cell in found["cells"] for run in cell["runs"] if run["state"] == "failed"]
    said = [f"FAILED {run['run']}: {run['why']}" for run in failed]
    if failed:
        said.append(f"{len(failed)} failed: they are not in the means, which are that much too kind.")
    if found["added"]:
        said.append(f"Seeds {found['added']} were added later, after others had been seen.")
    if "," in found["rematch"]:
        said.append(f"Made with more than one version of rematch: {found['rematch']}.")
    return [clean(line) for line in said]


def lines(found: Row) -> list[str]:
    out = [title(found)]
    for heading, rows in tables(found):
        out += ["", *([heading] if heading else []), *aligned(rows)]
    return [*out, "", *notes(found), *MEANING]


def markdown(found: Row) -> list[str]:
    """The same as a page."""
    out = [f"# {_cell(title(found))}"]
    for heading, rows in tables(found):
        out += ["", *([f"## {_cell(heading)}", ""] if heading else [])]
        head, *body = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
        out += [head, "|" + " --- |" * len(rows[0]), *body]
    return [*out, "", *(f"- {_cell(line)}" for line in [*notes(found), *MEANING])]


def _cell(text: str) -> str:
    """As text: nothing in it is a table's edge, a link or a tag."""
    for sign in "\\`*_|<[":
        text = text.replace(sign, "\\" + sign)
    return text
