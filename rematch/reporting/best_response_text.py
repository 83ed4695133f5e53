"""The result of `rematch exploit` as text: lower bounds with games, interval and budget; the exact gain where
it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rematch.evaluation.text import clean, human, interval, number
from rematch.reporting.text import aligned

Row = Mapping[str, Any]

BOUND = ("A response is a lower bound: a better one may exist. It was selected on other games than those "
         "reported. A score is the share of games won; a draw counts half.")


def lines(result: Row) -> list[str]:
    """The result of every role, then all responses that were trained."""
    question = result["question"]
    steps = result.get("steps", question["budget"])  # absent in older files
    level = f" on level {question['frozen']['level']}" if "level" in question["frozen"] else ""
    out = [f"Best responses to the policies of iteration {question['frozen']['iteration']}{level}: "
           f"at most {human(steps)} steps each, {question['games']} games per match", ""]
    for role, answer in result["roles"].items():
        out += answer_lines(role, answer, steps)
    if "nash_conv_at_least" in result:
        out.append(f"Both gains together (NashConv): at least {number(result['nash_conv_at_least'])}, the "
                   "sum of both lower bounds")
    out += ["", *aligned(list(_trials(result["roles"])), right=(2, 3, 5)), "", BOUND]
    return [clean(line) for line in out]


def answer_lines(role: str, answer: Row, budget: int) -> list[str]:
    """A role's best response: score, gain over the incumbent policy, share of the exact gain."""
    incumbent = answer["incumbent"]
    untrained = answer["start"] == "untrained"
    response = "the incumbent itself" if untrained else f"{answer['start']} {answer['seed']}"
    response += f", {answer['play']}"
    budget = answer.get("steps", budget)
    out = [f"{role}: a response scores at least {number(answer['score'])} {interval(answer)} in "
           f"{answer['games']} games, after {human(budget)} steps ({response})"]
    if answer.get("draws"):  # with draws the score differs from the share of games won
        out.append(f"  won {number(answer['win'])} {interval(answer, 'win_')}, drawn "
                   f"{number(answer['draws'] / answer['games'])}")
    comparison = f"the incumbent {role} scores {number(incumbent['score'])} {interval(incumbent)}"
    out.append(f"  {comparison}: a gain of {answer['gain']:+.3f} [{answer['gain_low']:+.3f}, "
               f"{answer['gain_high']:+.3f}]")
    if "fresh" in answer:  # absent in older files
        out.append(f"  {_strength(answer)}")
    elif answer["too_weak"]:
        out.append("  the responses were too weak to measure the exploitability of the others")
    if exact := answer.get("exact"):
        out.append(f"  exact: the best response scores {exact['best']:.4f}, this response "
                   f"{exact['found']:.4f}, the incumbent {exact['incumbent']:.4f}: {_share(exact)}")
    return out


def _strength(answer: Row) -> str:
    """Whether the search was strong enough: the share of the incumbent's score that fresh responses reach."""
    fresh = answer["fresh"]
    share = (f"the best fresh response scores {number(fresh['score'])} {interval(fresh)}, "
             f"{100 * fresh['share']:.0f} % of the incumbent's score")
    if fresh["reaches"]:
        return share
    if answer["too_weak"]:
        return f"the responses were too weak: {share}; the bound is uninformative"
    return f"the responses were too weak: {share}; the gain is real, but a larger one may be easy to find"


def _share(exact: Row) -> str:
    """The share of the exact gain that the response reaches."""
    share = exact["share_found"]
    if share is None:
        return "no gain is possible"
    if share <= 0:
        return f"none of the exact gain of {exact['best'] - exact['incumbent']:.4f}"
    return f"{100 * share:.0f} % of the exact gain"


def _trials(roles: Mapping[str, Row]) -> Iterator[Sequence[str]]:
    yield ("role", "start", "seed", "steps", "play", "score in selection")
    for role, answer in roles.items():
        for trial in answer["trials"]:
            steps = human(trial["steps"]) if "steps" in trial else "-"  # absent in older files
            yield (role, trial["start"], str(trial["seed"]), steps, trial["play"], number(trial["score"]))
