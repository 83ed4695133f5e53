"""Evaluations as text: numbers with intervals, one line per match-up. Functions of their arguments alone.

train.log, the console, the report and the pictures all use these texts. Rows are JSON as in history.json, and
may come from a damaged file: a missing number is shown as "-".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rematch.evaluation.evaluation import MatchResults

Row = Mapping[str, Any]

MATCH_HEAD = ("player", "opponent", "games", "score", "95 % interval",
              "baseline", "its score", "its interval", "player is")


# --- numbers and names ------------------------------------------------------------------------------------


def clean(text: object) -> str:
    """`text` without control characters: a name in a YAML file must not move the cursor or forge a line."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def number(value: object, digits: int = 3) -> str:
    """A number with fixed decimals for any size; "-" for a value that is missing or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    small = value != 0 and abs(value) < 10.0**-digits
    return f"{value:.1e}" if small or abs(value) >= 1e5 else f"{value:.{digits}f}"


def human(value: object) -> str:
    """512345 -> "512 K": three significant digits and a letter for thousands."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    scaled, letter = float(value), ""
    for next_letter in ("K", "M", "G", "T"):
        if abs(scaled) < 999.5:  # 999.5 would round to 1000
            break
        scaled, letter = scaled / 1000, next_letter
    decimals = 0 if not letter or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{decimals}f} {letter}".strip()


def percent(share: float) -> str:
    """0.152 -> "15"; one decimal where a whole number would hide a difference from 0 or 100."""
    near_end = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.1f}" if near_end else f"{100 * share:.0f}"


def interval(entry: Row, prefix: str = "") -> str:
    """The 95 % interval of an entry: of its score, or of the best scripted player (prefix "best_bot_")."""
    return f"[{number(entry.get(prefix + 'low'))}, {number(entry.get(prefix + 'high'))}]"


def standing(entry: Row) -> str:
    """The trained player relative to the best scripted one: above or below if the intervals do not overlap.

    "level" if they overlap, "-" if one is missing.
    """
    low, high = entry.get("low"), entry.get("high")
    bot_low, bot_high = entry.get("best_bot_low"), entry.get("best_bot_high")
    if low is None or high is None or bot_low is None or bot_high is None:
        return "-"
    if any(number(bound) == "-" for bound in (low, high, bot_low, bot_high)):
        return "-"
    if low > bot_high:
        return "above"
    return "below" if high < bot_low else "level"


# --- one evaluation ---------------------------------------------------------------------------------------


def rate_phrases(row: Row) -> list[str]:
    """Head to head: the win rate of each role with its interval, then the NE gap and NashConv."""
    rates: Mapping[str, Row] = row.get("rates") or {}
    phrases = [f"{role} wins {number(rate.get('rate'))} {interval(rate)} of {games_phrase(rate)}"
               for role, rate in rates.items()]
    if row.get("gap") is not None:
        phrases.append(f"NE-GAP {number(row['gap'])} (upper bound {number(row.get('gap_high'))})")
    if (exact := row.get("exact") or {}).get("nash_conv") is not None:
        phrases.append(f"NashConv {number(exact['nash_conv'])} (exact)")
    return [clean(phrase) for phrase in phrases]


def games_phrase(entry: Row) -> str:
    """The number of games, and of those that were broken off."""
    unfinished = f" ({clean(entry['unfinished'])} unfinished)" if entry.get("unfinished") else ""
    return f"{entry.get('games', '-')} games{unfinished}"


def return_phrases(row: Row) -> list[str]:
    """The mean return of each role with its interval, and the share of games that reached the goal."""
    phrases = []
    for role, entry in (row.get("returns") or {}).items():
        mean = f"{number(entry.get('mean'))} {interval(entry)}"
        phrase = f"{role} mean return {mean} over {games_phrase(entry)}"
        if "success" in entry:
            phrase += f", success rate {number(entry['success'])} {interval(entry, 'success_')}"
        phrases.append(clean(phrase))
    return phrases


def match_cells(row: Row) -> list[tuple[str, ...]]:
    """The table of matches against scripted opponents: MATCH_HEAD, then the cells of every match-up."""
    cells: list[tuple[str, ...]] = [MATCH_HEAD]
    for e in row.get("table") or []:
        cells.append((clean(e.get("player", "-")), clean(e.get("rival", "-")), clean(e.get("games", "-")),
                      number(e.get("score")), interval(e), clean(e.get("best_bot", "-")),
                      number(e.get("best_bot_score")), interval(e, "best_bot_"), standing(e)))
    return cells


def level_phrase(row: Row) -> str:
    """The curriculum level of an evaluation, counted from 1, with its name; empty without a curriculum."""
    level = row.get("level")
    return f"level {level + 1} ({clean(row.get('level_name', '-'))})" if isinstance(level, int) else ""


def score_phrase(row: Row) -> str:
    """The mean score against scripted opponents with its interval: the result of a world with one role."""
    try:
        results = MatchResults.from_json(row)
    except ValueError:
        return "results have an unknown form"
    if not results.matches:
        return "no scripted opponents"
    score, below, above = results.strength(results.match_ups)
    return (f"mean score {number(score)} [{number(score - below)}, {number(score + above)}] against "
            f"{len(results.matches)} scripted opponent{'s' if len(results.matches) > 1 else ''}")


def evaluation_lines(row: Row) -> list[str]:
    """A line for the roles head to head, then a line per match-up; all contain the word Eval for grep.

    In a world with one role the first line has the mean score against scripted opponents.
    """
    rates = [f"{key} {number(row[key])}" for key in ("SR_P", "SR_E") if key in row]
    phrases = [*rates, *rate_phrases(row), *return_phrases(row)] or [score_phrase(row)]
    phase = row.get("phase", "-")  # the iteration where all roles learn together
    phase = f"iteration {phase}" if isinstance(phase, int) else f"Phase {phase}"
    head = [f"Eval at step {human(row.get('step'))}", phase, level_phrase(row)]
    lines = [clean(f"{', '.join(filter(None, head))}: {', '.join(phrases)}")]
    for player, opponent, games, score, bounds, bot, bot_score, _, level in match_cells(row)[1:]:
        baseline = f"; baseline {bot} {bot_score}: {level}" if bot != "-" else ""
        lines.append(f"Eval {player} against {opponent}: score {score} {bounds} over {games} games{baseline}")
    if limit := row.get("step_limit"):
        unfinished = max((e.get("unfinished") or 0 for e in row.get("table") or []), default=0)
        broken_off = f"; at most {clean(unfinished)} of its games unfinished, half a point each"
        lines.append(clean(f"Eval limit: {limit} steps of all games of a match (evaluation.max_steps)")
                     + (broken_off if unfinished else ""))
    return lines


# --- verdicts ---------------------------------------------------------------------------------------------


def verdict_word(verdict: str) -> str:
    """The word of a stored verdict: "weak" of "weak: loses to ..."."""
    return verdict.partition(":")[0].lower()


def verdict_text(verdict: str) -> str:
    """A stored verdict for people: its word in capital letters."""
    word, colon, evidence = verdict.partition(":")
    return clean(f"{word.upper()}{colon}{evidence}")


def verdict_line(row: Row) -> str:
    """The verdict of an evaluation as a line."""
    return f"Verdict: {verdict_text(str(row['verdict']))}"
