"""Lines and tables for the console, `rematch status` and the report, as pure functions.

The texts of one evaluation are in rematch/evaluation/text.py. Only `rate` depends on the wall clock.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from rematch.evaluation.text import (
    clean,
    human,
    interval,
    match_cells,
    number,
    percent,
    rate_phrases,
    standing,
    verdict_line,
)

Row = Mapping[str, Any]

BALANCE = "The NE gap measures balance: a small gap means an even match, not strong players."
LEVELS = ("above, below: the player's interval does not overlap that of the best scripted player (the "
          "baseline); level: the two overlap.")
LEARNER_METRICS = ("updates", "entropy")  # each learner logs one of them for its role
RECENT = 20  # iterations of which the median is the speed
NEWEST_PHASES = 4  # phases that a sentence about learning names
STANDINGS = ("below", "level", "above", "-")  # the weakest first


def count_of(number: int, noun: str) -> str:
    """1, "line" -> "1 line"; 2, "line" -> "2 lines"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """75 -> "1:15", 3700 -> "1:01:40"."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines with straight columns; the columns in `right` are right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = list(map(str.ljust, row, widths))
        for column in right:
            if column < len(cells):
                cells[column] = row[column].rjust(widths[column])
        lines.append("  ".join(cells).rstrip())
    return lines


def fold_sentence(line: str, width: int) -> list[str]:
    """A sentence as lines of at most `width` characters, broken between words; a row of a table unchanged."""
    if len(line) <= width or "  " in line.strip():
        return [line]
    return textwrap.wrap(line, max(width, 20), break_on_hyphens=False) or [line]


def roles_in(metrics: Row) -> list[str]:
    """The roles that have metrics of a learner, in the order of the metrics; components have others."""
    names = [key.rpartition("/") for key in metrics]
    return list(dict.fromkeys(role for role, _, name in names if role and name in LEARNER_METRICS))


# --- progress ---------------------------------------------------------------------------------------------


def typical_speed(rates: Sequence[float]) -> float | None:
    """The speed that console and `rematch status` show: the median of the newest iterations.

    Each rate is the steps of all games in an iteration by its seconds; evaluations do not count.
    """
    return median(rates[-RECENT:]) if rates else None


def learning_sentence(rows: Sequence[Row]) -> str:
    """The share of iterations in which each role learned, and the newest phases; "" where all always learn.

    `rows` are those of metrics.jsonl; the newest rows of a longer log are enough.
    """
    roles = list(dict.fromkeys(key.removesuffix("/updates") for row in rows for key in row
                               if key.endswith("/updates")))
    learned = [tuple(role for role in roles if row.get(f"{role}/updates")) for row in rows]
    if len(roles) < 2 or all(len(entry) == len(roles) for entry in learned):
        return ""
    counts = {role: sum(role in entry for entry in learned) for role in roles}
    shares = ", ".join(f"{role} in {count} ({percent(count / len(rows))} %)"
                       for role, count in counts.items())
    phases = [(" and ".join(entry) or "no role", len(list(group))) for entry, group in groupby(learned)]
    newest = ", ".join(f"{role} {count}" for role, count in phases[-NEWEST_PHASES:])
    which = "the newest " if rows[0].get("iteration", 1) > 1 else ""  # only the end of a long log is read
    return clean(f"learning in {which}{len(rows)} iterations: {shares}; iterations of the newest phases: "
                 f"{newest}")


def progress_line(step: int, total: int, metrics: Row, rate: float | None = None) -> str:
    """Steps so far, speed, remaining time, the newest metrics of each role; `rate` in steps per second."""
    phrases = [f"step {human(step)}" + (f" of {human(total)} ({100 * step / total:.0f} %)" if total else "")]
    if rate is not None:
        phrases.append(f"{human(rate)} steps/s")
        if total and rate > 0:
            phrases.append(f"{duration(max(0, total - step) / rate)} left")
    for role in roles_in(metrics):
        win_rate = metrics.get(f"rollout/win_{role}")
        reward = metrics.get(f"rollout/reward_{role}")
        phrases.append(f"{role}:" + (f" wins {number(win_rate)}" if win_rate is not None else "")
                       + (f" reward {number(reward)}" if reward is not None else "")
                       + f" entropy {number(metrics.get(f'{role}/entropy'))}"
                       + f" KL {number(metrics.get(f'{role}/kl'), 4)}")
    return clean("  ".join(phrases))


def dashboard(metrics: Row) -> str:
    """A run of long episodes in one line: mean returns, epsilon, posteriors, start states."""
    means = {key.removeprefix("recent/"): value for key, value in metrics.items()}
    epsilon = next((value for key, value in metrics.items() if key.endswith("/epsilon")), None)
    phrases = [f"R_env {number(means.get('return_env'), 1)}",
               f"R_total {number(means.get('return_total'), 1)}",
               f"length {number(means.get('length'), 0)}", f"episodes {human(means.get('episodes'))}",
               f"ε {number(epsilon, 2)}"]
    thetas = [f"{key.removeprefix('theta/').removeprefix('badge_')} {number(value, 2)}"
              for key, value in metrics.items() if key.startswith("theta/")]
    shares = [f"{key.removeprefix('spawn/')} {100 * value:.0f}%"
              for key, value in metrics.items() if key.startswith("spawn/")]
    phrases += [", ".join(thetas)] if thetas else []
    phrases += [f"spawn: {' | '.join(shares)}"] if shares else []
    return clean("  ".join(phrases))


# --- exact values -----------------------------------------------------------------------------------------


def exact_sentences(row: Row) -> list[str]:
    """Exact exploitability of a pair in a world that can be solved; empty in other worlds."""
    exact: Row = row.get("exact") or {}
    if exact.get("nash_conv") is None:
        return [f"NashConv was not computed: {clean(exact['refused'])}"] if "refused" in exact else []
    roles = [key.removeprefix("best_") for key in exact if key.startswith("best_")]
    figures = {key: number(value) for key, value in exact.items()}
    sentences = [f"NashConv {figures['nash_conv']} (exact); 0 is unbeatable play, whatever the NE gap is"]
    for role in roles:
        mean, worst, lost = (figures.get(f"{key}_{role}", "-") for key in ("regret", "worst", "lost"))
        sentences.append(f"{role}: a best response gains {mean} on average and {worst} in the worst start; "
                         f"in {lost} of the starts it gains more than half")
    if roles:
        bounds = ", ".join(f"{figures[f'best_{role}']} if {role} plays a best response" for role in roles)
        sentences.append(f"Score of {roles[0]}: {figures.get('played', '-')} as played, "
                         f"{figures.get('value', '-')} if both play perfectly, {bounds}")
    return [clean(sentence) for sentence in sentences]


def solution_lines(row: Row) -> list[str]:
    """An exact solution: its value, size and time, and the exploitability of the solution."""
    lines = [f"value {row['value']:.6f}: probability of capture under perfect play, averaged over "
             f"{row['starts']:,} starts",
             f"{row['states']:,} states with up to {row['horizon']:,} moves left, solved in "
             f"{row['seconds']:.2f} s"]
    if row.get("nash_conv") is None:
        return [*lines, "NashConv of the solution was not computed: not enough memory"]
    return [*lines, f"NashConv {row['nash_conv']:.1e} (exact): gain of best responses to this solution"]


# --- the scoreboard ---------------------------------------------------------------------------------------


def return_cells(row: Row) -> list[tuple[str, ...]]:
    """Mean returns beside those of the best scripted player: a header row, then a row per role."""
    cells: list[tuple[str, ...]] = [
        ("player", "games", "mean return", "95 % interval", "baseline", "its return", "its interval",
         "player is")]
    for role, e in (row.get("returns") or {}).items():
        player = (clean(e.get("player", role)), clean(e.get("games", "-")))
        bot = (clean(e.get("best_bot", "-")), number(e.get("best_bot_mean")), interval(e, "best_bot_"))
        cells.append((*player, number(e.get("mean")), interval(e), *bot, standing(e)))
    return cells


def milestone_lines(row: Row) -> list[str]:
    """Games from the initial state: share that finishes, and share that reaches each milestone."""
    lines = []
    for role, entry in (row.get("returns") or {}).items():
        milestones: Mapping[str, Row] = entry.get("milestones") or {}
        if not milestones:
            continue
        finished = f"{number(entry.get('success'))} {interval(entry, 'success_')}"
        games = entry.get("games", "-")
        lines += ["", clean(f"{role} from power-on, without savestates: {finished} of {games} games "
                            "finished")]
        order = sorted(milestones.items(), key=lambda item: -item[1]["rate"])
        lines += aligned([(clean(name), number(e["rate"]), interval(e)) for name, e in order], right=(1,))
    return lines


def weakest_first(row: Row) -> list[tuple[str, ...]]:
    """The matches in few columns, weakest first; without columns of baselines where none was played."""
    head, *cells = match_cells(row)
    cells.sort(key=lambda cell: (STANDINGS.index(cell[8]), cell[3]))
    baselines = any(cell[5] != "-" for cell in cells)
    shown = (0, 1, 2, 3, 4, 6, 8) if baselines else (0, 1, 2, 3, 4)
    return [tuple(cell[column] for column in shown) for cell in [(*head[:6], "baseline", *head[7:]), *cells]]


def scoreboard_lines(row: Row) -> list[str]:
    """The final scoreboard: every number with its games and its 95 % interval."""
    lines = [_title(row), ""]
    matches = match_cells(row)
    baselines = any("best_bot" in entry for entry in row.get("table") or [])
    if len(matches) > 1:
        shown = len(matches[0]) if baselines else 5
        lines += aligned([cells[:shown] for cells in matches], right=(2, 3))
        lines += ["", LEVELS] if baselines else []
    elif not row.get("returns"):
        lines.append("No matches against scripted opponents were played.")
    if row.get("returns"):
        lines += _return_table(row)
    if row.get("rates"):
        lines += ["Head to head: " + ", ".join(rate_phrases(row)) + ".", BALANCE]
    lines += [f"{sentence}." for sentence in exact_sentences(row)]
    return [*lines, verdict_line(row)] if row.get("verdict") else lines


def _title(row: Row) -> str:
    title = f"Match in {row['world']}" if "world" in row else "Scoreboard"
    if "world" not in row and row.get("step") is not None:
        title = f"Scoreboard after {human(row['step'])} steps"
    title += f", on level {row['level_name']}" if row.get("level_name") else ""
    title += f", policies play {row['play']}" if row.get("play") else ""
    return clean(title)


def _return_table(row: Row) -> list[str]:
    baselines = any("best_bot" in entry for entry in row["returns"].values())
    cells = return_cells(row)
    shown = len(cells[0]) if baselines else 4
    lines = aligned([line[:shown] for line in cells], right=(1, 2))
    return [*lines, *(["", LEVELS] if baselines else []), *milestone_lines(row)]
