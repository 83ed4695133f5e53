"""What a run says, as text: numbers, lines, tables. Functions of their arguments and nothing else.

The console, train.log, the report and the picture all take their words from here. The wall clock enters
only through `rate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

BALANCE = "The NE gap is a balance score: a small gap means an even match, not strong players."
LEVELS = ("above, below: the learnt player's interval lies clear of the best scripted player's; "
          "level: the two overlap.")
NO_ROLES = ("rollout", "league", "train", "recent", "spawn", "theta")  # metrics of all roles together


# --- numbers and names as text ----------------------------------------------------------------------


def clean(text: object) -> str:
    """`text` without control characters: a name in a YAML file must not move the cursor or forge a line."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def number(value: object, digits: int = 3) -> str:
    """A figure of fixed width for any size; "-" for what is missing or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    small = value != 0 and abs(value) < 10.0**-digits
    return f"{value:.1e}" if small or abs(value) >= 1e5 else f"{value:.{digits}f}"


def human(value: object) -> str:
    """512345 -> "512 K": three significant figures and a thousands letter."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    scaled, letter = float(value), ""
    for next_letter in ("K", "M", "G", "T"):
        if abs(scaled) < 999.5:  # 999.5 would round to 1000
            break
        scaled, letter = scaled / 1000, next_letter
    decimals = 0 if not letter or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{decimals}f} {letter}".strip()


def duration(seconds: float) -> str:
    """75 -> "1:15", 3700 -> "1:01:40"."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def interval(entry: Row, of: str = "") -> str:
    """The 95 % interval of an entry's score, or of its best scripted player's (`of="best_bot_"`)."""
    return f"[{number(entry.get(of + 'low'))}, {number(entry.get(of + 'high'))}]"


def standing(entry: Row) -> str:
    """The learnt player beside the best scripted one: "above" or "below" only where the intervals part."""
    ours = entry.get("low"), entry.get("high")
    theirs = entry.get("best_bot_low"), entry.get("best_bot_high")
    if any(number(bound) == "-" for bound in ours + theirs):
        return "-"
    return "above" if ours[0] > theirs[1] else "below" if ours[1] < theirs[0] else "level"  # type: ignore[operator]


def roles_in(metrics: Row) -> list[str]:
    """Roles that report learning numbers, in the order they are written."""
    heads = (key.rpartition("/") for key in metrics)
    return list(dict.fromkeys(head for head, _, leaf in heads if head not in ("", *NO_ROLES)))


# --- lines --------------------------------------------------------------------------------------------


def progress_line(step: int, total: int, metrics: Row, rate: float | None = None) -> str:
    words = [f"step {human(step)}" + (f" of {human(total)} ({100 * step / total:.0f} %)" if total else "")]
    if rate is not None:
        words.append(f"{human(rate)}/s")
        if total and rate > 0:
            words.append(f"left {duration(max(0, total - step) / rate)}")
    for role in roles_in(metrics):
        won = metrics.get(f"rollout/win_{role}")
        paid = metrics.get(f"rollout/reward_{role}")
        words.append(f"{role}" + (f" wins {number(won)}" if won is not None else "")
                     + (f" reward {number(paid)}" if paid is not None else "")
                     + f" entropy {number(metrics.get(f'{role}/entropy'))}"
                     + f" kl {number(metrics.get(f'{role}/kl'), 4)}")
    return clean("  ".join(words))


def dashboard(metrics: Row) -> str:
    """Where a long run of episodes stands, in a line: returns, epsilon, posteriors, where games began."""
    means = {key.removeprefix("recent/"): value for key, value in metrics.items()}
    epsilon = next((value for key, value in metrics.items() if key.endswith("/epsilon")), None)
    words = [f"R_env {number(means.get('return_env'), 1)}", f"R_total {number(means.get('return_total'), 1)}",
             f"length {number(means.get('length'), 0)}", f"episodes {human(means.get('episodes'))}",
             f"ε {number(epsilon, 2)}"]
    thetas = [f"{key.removeprefix('theta/').removeprefix('badge_')} {number(value, 2)}"
              for key, value in metrics.items() if key.startswith("theta/")]
    shares = [f"{key.removeprefix('spawn/')} {100 * value:.0f}%"
              for key, value in metrics.items() if key.startswith("spawn/")]
    words += [", ".join(thetas)] if thetas else []
    words += [f"spawn: {' | '.join(shares)}"] if shares else []
    return clean("  ".join(words))


def pair_words(row: Row) -> list[str]:
    """The learnt pair head to head: a rate with interval and games per role, then the gap."""
    rates: Mapping[str, Row] = row.get("rates") or {}
    words = [f"{role} {number(rate.get('rate'))} {interval(rate)} n {rate.get('games', '-')}"
             for role, rate in rates.items()]
    if row.get("gap") is not None:
        words.append(f"NE-GAP {number(row['gap'])} (at most {number(row.get('gap_high'))})")
    if (exact := row.get("exact") or {}).get("nash_conv") is not None:
        words.append(f"NashConv {number(exact['nash_conv'])} (exact)")
    return [clean(word) for word in words]


def exact_words(row: Row) -> list[str]:
    """What best responses make of the pair, worked out and not sampled; nothing where no world could tell."""
    exact: Row = row.get("exact") or {}
    if exact.get("nash_conv") is None:
        return [f"NashConv was not worked out: {clean(exact['refused'])}"] if "refused" in exact else []
    roles = [key.removeprefix("best_") for key in exact if key.startswith("best_")]
    figures = {key: number(value) for key, value in exact.items()}
    words = [f"NashConv {figures['nash_conv']} (exact): 0 is unbeatable play, whatever the NE gap says"]
    for role in roles:
        mean, worst, lost = (figures.get(f"{key}_{role}", "-") for key in ("regret", "worst", "lost"))
        words.append(f"{role}: a best response gains {mean} on average and {worst} at worst; {lost} of the "
                     "starts are lost by more than half")
    if roles:
        bounds = ", ".join(f"{figures[f'best_{role}']} by the best {role}" for role in roles)
        words.append(f"{roles[0]}'s score: {figures.get('played', '-')} as played, "
                     f"{figures.get('value', '-')} by exact play of both, {bounds}")
    return [clean(word) for word in words]


def solution_lines(row: Row) -> list[str]:
    """An exact solution: its value, what it took, and how well it stands against itself."""
    lines = [f"value {row['value']:.6f}: the chance of capture under exact play, averaged over "
             f"{row['starts']:,} starts",
             f"{row['states']:,} states with up to {row['horizon']:,} moves left, {row['seconds']:.2f} s"]
    if row.get("nash_conv") is None:
        return [*lines, "its own exploitability was not worked out: memory for that is lacking"]
    return [*lines, f"NashConv {row['nash_conv']:.1e} (exact): what best responses gain on this solution"]


def return_words(row: Row) -> list[str]:
    """The mean return of each role, with interval and games; how often a task was done, if it says so."""
    words = []
    for role, entry in (row.get("returns") or {}).items():
        word = f"{role} return {number(entry.get('mean'))} {interval(entry)} n {entry.get('games', '-')}"
        if "success" in entry:
            word += f" success {number(entry['success'])} {interval(entry, 'success_')}"
        words.append(clean(word))
    return words


def return_cells(row: Row) -> list[tuple[str, ...]]:
    """Mean returns beside the best scripted player's: a head, then a row of cells for every role."""
    cells: list[tuple[str, ...]] = [
        ("player", "games", "mean return", "95 % interval", "best scripted", "has", "interval", "")]
    for role, e in (row.get("returns") or {}).items():
        ours = (clean(e.get("player", role)), clean(e.get("games", "-")), number(e.get("mean")), interval(e))
        theirs = (clean(e.get("best_bot", "-")), number(e.get("best_bot_mean")), interval(e, "best_bot_"))
        cells.append((*ours, *theirs, standing(e)))
    return cells


def milestone_lines(row: Row) -> list[str]:
    """The cold start: how often games from the very beginning are finished, and reach each milestone."""
    lines = []
    for role, entry in (row.get("returns") or {}).items():
        found: Mapping[str, Row] = entry.get("milestones") or {}
        if not found:
            continue
        done = f"{number(entry.get('success'))} {interval(entry, 'success_')}"
        said = f"Cold start of {role}, from power-on, no savestates, n {entry.get('games', '-')}: "
        lines += ["", clean(f"{said}finished {done}")]
        order = sorted(found.items(), key=lambda item: -item[1]["rate"])
        lines += aligned([(clean(name), number(e["rate"]), interval(e)) for name, e in order], right=(1,))
    return lines


def evaluation_lines(row: Row) -> list[str]:
    """One line for the pair head to head, one per scripted rival. Greppable: Eval, SR_P, SR_E, NE-GAP."""
    head = [f"Eval  step {human(row.get('step'))}  Phase {row.get('phase', '-')}"]
    head += [f"{key} {number(row[key])}" for key in ("SR_P", "SR_E") if key in row]
    return [clean("  ".join(head + pair_words(row) + return_words(row)))] + [
        f"Eval    {player} against {rival}: {score} {bounds} n {games}; best scripted {bot} {its}: {level}"
        for player, rival, games, score, bounds, bot, its, _, level in table_cells(row)[1:]]


def table_cells(row: Row) -> list[tuple[str, ...]]:
    """The scoreboard against scripted rivals: a head, then a row of cells for every pairing."""
    cells: list[tuple[str, ...]] = [
        ("player", "against", "games", "score", "95 % interval", "best scripted", "has", "interval", "")]
    for e in row.get("table") or []:
        cells.append((clean(e.get("player", "-")), clean(e.get("rival", "-")), clean(e.get("games", "-")),
                      number(e.get("score")), interval(e), clean(e.get("best_bot", "-")),
                      number(e.get("best_bot_score")), interval(e, "best_bot_"), standing(e)))
    return cells


def weakest_first(row: Row) -> list[tuple[str, ...]]:
    """The same for 80 columns and few lines: where the learnt players stand worst comes first."""
    head, *cells = table_cells(row)
    cells.sort(key=lambda cell: (("below", "level", "above", "-").index(cell[-1]), cell[3]))
    return [(*cell[:5], cell[6], cell[8]) for cell in [(*head[:6], "bot", *head[7:]), *cells]]


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines with straight columns; the columns in `right` are flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return ["  ".join(cell.rjust(w) if i in right else cell.ljust(w)
                      for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows]


def scoreboard_lines(row: Row) -> list[str]:
    """The final scoreboard: every figure with its number of games and its 95 % interval."""
    after = f"Scoreboard after {human(row['step'])} steps" if row.get("step") is not None else "Scoreboard"
    title = f"Match in {row['world']}" if "world" in row else after
    title += f", on level {row['level_name']}" if row.get("level_name") else ""
    lines = [clean(title + (f", policies play {row['play']}" if row.get("play") else "")), ""]
    cells = table_cells(row)
    if not any("best_bot" in entry for entry in row.get("table") or []):
        cells = [cell[:5] for cell in cells]
    if len(cells) > 1:
        lines += [*aligned(cells, right=(2, 3)), *(["", LEVELS] if len(cells[0]) > 5 else [])]
    elif not row.get("returns"):
        lines.append("No games against scripted rivals were played.")
    if row.get("returns"):
        cells = return_cells(row)
        beside = any("best_bot" in entry for entry in row["returns"].values())
        lines += aligned([cell if beside else cell[:4] for cell in cells], right=(1, 2))
        lines += ["", LEVELS] if beside else []
        lines += milestone_lines(row)
    if row.get("rates"):
        lines += ["Head to head: " + ", ".join(pair_words(row)) + ".", BALANCE]
    lines += [f"{words}." for words in exact_words(row)]
    if row.get("verdict"):
        lines.append(clean(f"Verdict: {row['verdict']}"))
    return lines
