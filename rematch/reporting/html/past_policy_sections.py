"""The sections of a report about a run's past selves: who beats whom, what goes in circles, what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rematch.reporting.html.charts import STEPS, Axes, Line, chart, matrix, told
from rematch.reporting.html.elements import cell, missing, paragraph, table, text
from rematch.reporting.text import human, number
from rematch.reporting.untrusted_folder import Unreadable

Row = Mapping[str, Any]


def payoff(run: Row) -> str:
    """Who of the past selves beats whom, and how much of that goes in circles."""
    found = run["payoff"]
    if found is None:
        items = [item for item in run["missing"] if "matrix" in item["what"]]
        if not items:
            raise Unreadable("the world has one seat" if run["returns"] else "no past selves were kept")
        return missing(items)
    roles, n, steps = found["roles"], found["games"], found["steps"]
    first, second = (roles[0], roles[-1])
    hints = [[f"{first} of step {human(steps[i])} against {second} of step {human(steps[j])}: "
              f"{told(found['score'][i][j], found['low'][i][j], found['high'][i][j], n)}"
              for j in range(len(steps))] for i in range(len(steps))]
    names = (f"{first} after … {STEPS}", f"{second} after … {STEPS}")
    drawn = matrix(found["score"], steps, names, hints)
    return (drawn + paragraph(
        f"Figures: the row's score in percent (blue: the row wins). {len(steps)} past selves, n = {n} games "
        f"a cell; 95 % intervals reach at most {number(found['widest'])} to either side. Nobody was trained "
        "or chosen on these games.", "soft") + _circles(run["cyclic"]))


def _circles(found: Row) -> str:
    if found["share"] is None:
        return paragraph(f"Cyclic share: not to be told. {found['selves']} selves with {found['games']} "
                         "games a cell show nothing beyond sampling noise." if found["selves"] > 2 else
                         "Cyclic share: not to be told of fewer than three selves.")
    out = paragraph(
        f"Cyclic share {number(found['share'])} [{number(found['low'])}, {number(found['high'])}]: so much "
        "of what selves win from each other is explained by no rating of them. 0 is a ladder that is "
        "climbed, 1 rock, paper, scissors; a ladder on which everybody always beats all before reads up to a "
        f"third, because ratings are straight. With sampling noise left in it would read "
        f"{number(found['raw'])}. Typical sizes in score: ladder {number(found['transitive'])}, circles "
        f"{number(found['cyclic'])}, noise {number(found['noise'])} ({found['selves']} selves, "
        f"{found['games']} games a cell).")
    if found["circle"]:
        (a, b, c), (x, y, z) = found["circle"]["steps"], found["circle"]["scores"]
        out += paragraph(
            f"A circle, surely: the selves of step {human(a)} score {number(x)} against those of {human(b)}, "
            f"which score {number(y)} against those of {human(c)}, which score {number(z)} against the first "
            "(each in both roles in turn).")
    return out


def forgetting(run: Row) -> str:
    """The newest selves against every past one, beside what the selves of that time had."""
    found = run["forgetting"]
    if found is None:
        raise Unreadable("it needs the payoff matrix")
    parts = []
    for i, (role, rows) in enumerate(found["curves"].items()):
        x = [row["step"] for row in rows]
        last = rows[-1]
        newest = Line(name=f"the newest {role}", x=x, y=[row["score"] for row in rows],
                      low=[row["low"] for row in rows], high=[row["high"] for row in rows], colour=i,
                      told=told(last["score"], last["low"], last["high"], last["games"]))
        then = Line(name=f"the {role} of that time", x=x, y=[row["then"] for row in rows], style="dash",
                    colour=6, told=told(last["then"], last["then_low"], last["then_high"], last["games"]))
        best = Line(name="the best past self, chosen on these games", x=x, y=[row["best"] for row in rows],
                    style="thin", colour=3, told=told(last["best"], n=last["games"]))
        facing = "past opponents" if len(found["curves"]) > 1 else "past selves"
        parts.append(f"<h3>{text(role)} against {facing}</h3>" + chart(
            [newest, then, best], Axes(x=f"age of the opponent: {STEPS} it had learnt for",
                                       y="score (win 1, draw ½)", low=0.0, high=1.0)))
    cells = [[text(skill["role"]), cell(human(skill["step"])),
              cell("all, on average" if skill["rival_step"] is None else human(skill["rival_step"])),
              cell(number(skill["was"])), cell(number(skill["now"])), cell(number(skill["drop"])),
              cell(number(skill["at_least"]))] for skill in found["lost"][:20]]
    head = ("role", "self of step", "against opponent of step", "scored", "the newest scores", "lost",
            "at least")
    how = f"n = {found['games']} games a cell, all comparisons allowed for"
    if not cells:
        return "".join(parts) + paragraph(
            f"No skill against past selves was surely lost by more than 0.10 ({how}).")
    return "".join(parts) + table(
        head, cells, f"Skills that were surely lost ({how}): the largest of {len(found['lost'])}")
