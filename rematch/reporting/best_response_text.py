"""What `rematch exploit` found, as text: "at least", with n, interval, budget, and the exact answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rematch.reporting.text import aligned, clean, human, interval, number

Row = Mapping[str, Any]

BOUND = ("A response is a lower bound: a better one may exist. It was chosen on other games than those that "
         "are reported; scores are shares of games won, draws counted half.")


def lines(result: Row) -> list[str]:
    """The answer for every role, then all that was tried."""
    asked = result["question"]
    steps = result.get("steps", asked["budget"])  # answers of before do not tell them
    level = f" on the level {asked['frozen']['level']}" if "level" in asked["frozen"] else ""
    out = [f"Best responses to the players of iteration {asked['frozen']['iteration']}{level}, "
           f"{human(steps)} steps each, {asked['games']} games a match", ""]
    for role, answer in result["roles"].items():
        out += answer_lines(role, answer, steps)
    if "nash_conv_at_least" in result:
        out.append(f"Both gains together (NashConv): at least {number(result['nash_conv_at_least'])}, by the "
                   "lower ends of both")
    out += ["", *aligned(list(_trials(result["roles"])), right=(2, 4)), "", BOUND]
    return [clean(line) for line in out]


def answer_lines(role: str, answer: Row, budget: int) -> list[str]:
    own = answer["incumbent"]
    which = f"{answer['start']} {answer['seed']}, {answer['play']}"
    out = [f"{role}: a response scores at least {number(answer['score'])} {interval(answer)} "
           f"n {answer['games']} with budget {human(budget)} ({which})"]
    if answer.get("draws"):  # then the score is not the share of games won
        out.append(f"  won {number(answer['win'])} {interval(answer, 'win_')}, drawn "
                   f"{number(answer['draws'] / answer['games'])}")
    has = f"the incumbent {role} has {number(own['score'])} {interval(own)}"
    if answer["too_weak"]:
        out.append(f"  {has}: the responses were too weak, which says nothing about how safe the others are")
    else:
        out.append(f"  {has}: a gain of {answer['gain']:+.3f} [{answer['gain_low']:+.3f}, "
                   f"{answer['gain_high']:+.3f}]")
    if exact := answer.get("exact"):
        share = exact["share_found"]
        gain = exact["best"] - exact["incumbent"]
        found = f"{100 * share:.0f} % of the exact gain" if share is not None else "there is nothing to gain"
        if share is not None and share <= 0:
            found = f"none of the exact gain of {gain:.4f}"
        out.append(f"  exactly: the best response has {exact['best']:.4f}, ours {exact['found']:.4f}, the "
                   f"incumbent {exact['incumbent']:.4f}: {found}")
    return out


def _trials(roles: Mapping[str, Row]) -> Iterator[Sequence[str]]:
    yield ("role", "start", "seed", "play", "score when chosen")
    for role, answer in roles.items():
        for trial in answer["trials"]:
            yield (role, trial["start"], str(trial["seed"]), trial["play"], number(trial["score"]))
