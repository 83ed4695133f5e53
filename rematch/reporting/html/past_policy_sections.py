"""The sections of a report about past policies: payoff matrix, cycles, forgetting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rematch.evaluation.text import human, number
from rematch.reporting.html.charts import STEPS, Axes, Line, chart, matrix, with_interval
from rematch.reporting.html.elements import cell, missing, paragraph, table, text
from rematch.reporting.untrusted_folder import Absent

Row = Mapping[str, Any]

MOST_SKILLS = 20  # lost skills in the table


def payoff(run: Row) -> str:
    """The scores of past policies against each other, and the share of cycles."""
    result = run["payoff"]
    if result is None:
        items = [item for item in run["missing"] if "matrix" in item["what"]]
        if not items:
            raise Absent("the world has one seat" if run["returns"] else "no past policies were stored")
        return missing(items)
    roles, n, steps = result["roles"], result["games"], result["steps"]
    first, second = (roles[0], roles[-1])
    hints = [[f"{first} of step {human(steps[i])} against {second} of step {human(steps[j])}: "
              f"{with_interval(result['score'][i][j], result['low'][i][j], result['high'][i][j], n)}"
              for j in range(len(steps))] for i in range(len(steps))]
    names = (f"{first} after … {STEPS}", f"{second} after … {STEPS}")
    return matrix(result["score"], steps, names, hints) + paragraph(
        f"Numbers: score of the row in percent (blue: the row wins). {len(steps)} past policies, n = {n} "
        f"games per match; the 95 % intervals reach at most {number(result['widest'])} to either side. No "
        "policy was trained or selected on these games.", "soft") + _cycles(run["cyclic"])


def _cycles(result: Row) -> str:
    if result["policies"] < 3:
        return paragraph("Share of cycles: unknown, because it needs three past policies or more.")
    if result["share"] is None:
        return paragraph(f"Share of cycles: unknown. {result['policies']} past policies with "
                         f"{result['games']} games per match show no difference beyond sampling noise.")
    out = paragraph(
        f"Share of cycles {number(result['share'])} [{number(result['low'])}, {number(result['high'])}]: the "
        "share of score differences between past policies that no rating explains. 0: each policy beats "
        "those before it. 1: rock, paper, scissors. If every policy always beats all before it, the share is "
        "up to one third, because ratings are linear. Without the correction for sampling noise "
        f"it is {number(result['raw'])}. Typical score difference: {number(result['transitive'])} from "
        f"transitive skill, {number(result['cyclic'])} from cycles, {number(result['noise'])} from noise "
        f"({result['policies']} policies, {result['games']} games per match).")
    if result["cycle"]:
        (a, b, c), (x, y, z) = result["cycle"]["steps"], result["cycle"]["scores"]
        out += paragraph(
            f"The clearest cycle: the policies of step {human(a)} score {number(x)} against those of step "
            f"{human(b)}, which score {number(y)} against those of step {human(c)}, which score {number(z)} "
            "against the first (each in both roles).")
    return out


def forgetting(run: Row) -> str:
    """The newest policies against every past opponent, beside the policies of the opponent's step."""
    result = run["forgetting"]
    if result is None:
        raise Absent("it needs the payoff matrix")
    opponents = "past opponents" if len(result["curves"]) > 1 else "past policies"
    charts = []
    for i, (role, rows) in enumerate(result["curves"].items()):
        axes = Axes(x=f"training of the opponent: {STEPS}", y="score (win 1, draw ½)", low=0.0, high=1.0)
        charts.append(f"<h3>{text(role)} against {opponents}</h3>" + chart(_curves(role, rows, i), axes))
    conditions = f"n = {result['games']} games per match; the bounds hold for all comparisons together"
    skills = [[text(skill["role"]), cell(human(skill["step"])),
               cell("all, on average" if skill["opponent_step"] is None else human(skill["opponent_step"])),
               *(cell(number(skill[key])) for key in ("old_score", "new_score", "drop", "at_least"))]
              for skill in result["lost"][:MOST_SKILLS]]
    if not skills:
        return "".join(charts) + paragraph(
            f"No score against a past opponent dropped by more than 0.10 ({conditions}).")
    head = ("role", "policy of step", "opponent of step", "its score", "newest score", "drop", "at least")
    return "".join(charts) + table(
        head, skills, f"Lost skills ({conditions}): the largest of {len(result['lost'])}")


def _curves(role: str, rows: list[Row], colour: int) -> list[Line]:
    """The newest policy, the policy of the opponent's step, and the best past policy."""
    x, last = [row["step"] for row in rows], rows[-1]
    newest = Line(name=f"the newest {role}", x=x, y=[row["score"] for row in rows],
                  low=[row["low"] for row in rows], high=[row["high"] for row in rows], colour=colour,
                  newest=with_interval(last["score"], last["low"], last["high"], last["games"]))
    then = Line(name=f"the {role} of that step", x=x, y=[row["then"] for row in rows], style="dash", colour=6,
                newest=with_interval(last["then"], last["then_low"], last["then_high"], last["games"]))
    best = Line(name="the best past policy, selected on these games", x=x, y=[row["best"] for row in rows],
                style="thin", colour=3, newest=with_interval(last["best"], n=last["games"]))
    return [newest, then, best]
