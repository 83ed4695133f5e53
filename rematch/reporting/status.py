"""`rematch status`: progress, strength and problems of a run in one screen. It only reads.

It works while the run trains, and on damaged folders. `status` returns the same facts twice: `lines` for
people, the other keys for programs. Files may come from someone else: sizes are bounded, links are not
followed, and a file that cannot be read is one line.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rematch.core.errors import CodeNotAllowed, ConfigError
from rematch.core.run_config import Config
from rematch.core.system import user_code
from rematch.curriculum import archive_files
from rematch.evaluation.evaluation import Evaluation, read_history
from rematch.evaluation.text import clean, human, interval, number, standing, verdict_text, verdict_word
from rematch.evaluation.verdict import alarms
from rematch.reporting.text import aligned, duration, learning_sentence, milestone_lines, typical_speed
from rematch.storage import lineage
from rematch.storage.checkpoint import Checkpoint
from rematch.storage.run_folder import CODE_FAILED, FAILED_EVENT, Run
from rematch.storage.run_lock import lock_holder
from rematch.worlds import registry

FINE, ALARM, STOPPED = 0, 1, 3  # exit codes
TAIL = 1 << 18  # bytes at the end of a log that are read
SHOWN = 6  # evaluations in the table
COLUMNS = ("phase", "role", "gap", "gap_low", "gap_high", "rollbacks", "step", "level_name")


def status(folder: Path) -> dict[str, Any]:
    """The facts of a run as JSON values, with `exit` and `lines`. ConfigError if `folder` is not a run."""
    facts: dict[str, Any] = {"run": str(folder), "problems": []}
    problems: list[str] = facts["problems"]
    with Run.open(folder, write=False) as run:
        facts["holder"] = lock_holder(folder)
        try:
            outline = config = _attempt(problems, lambda: _config(run))
        except CodeNotAllowed:
            config, outline = None, _outline(run.config_text)
        checkpoint: Checkpoint | None = _attempt(problems, run.load)
        rows: list[dict[str, Any]] = _attempt(problems, lambda: run.history) or []
    source = _attempt(problems, lambda: lineage.read(folder))
    facts["lineage"] = source.sentences() if source else []
    facts |= _progress(folder, outline, checkpoint, problems)
    facts |= _strength(rows, config, problems)
    facts |= _speed(folder, facts)
    facts["learning"] = learning_sentence(list(_rows(folder / "metrics.jsonl")))
    facts["frontier"] = archive_files.summary_lines(folder)
    needs_code = outline is not None and config is None
    facts["next"] = _next(folder, facts, config)
    if needs_code and facts["next"].startswith("rematch "):
        facts["next"] += f" {user_code.FLAG}"
    alarmed = facts["alarms"] or facts["broken"] or verdict_word(facts["verdict"]) == "collapsed"
    facts["exit"] = ALARM if alarmed else STOPPED if facts["state"] == "stopped" else FINE
    facts["lines"] = [clean(line) for line in _lines(facts)]
    return facts


def _attempt(problems: list[str], read: Any) -> Any:
    """The value of `read`; None, and one line among the problems, where it fails."""
    try:
        return read()
    except CodeNotAllowed as error:
        problems.append(" ".join(clean(error).split())[:300])
        raise
    except ConfigError as error:
        problems.append(" ".join(clean(error).split())[:300])
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{type(error).__name__}: {clean(error)}"[:300])
    return None


def _config(run: Run) -> Config:
    from rematch.training.recipes import stored_config

    return stored_config(run)


# --- facts ------------------------------------------------------------------------------------------------


def _progress(
    folder: Path, config: Config | None, checkpoint: Checkpoint | None, problems: list[str]
) -> dict[str, Any]:
    """Iterations so far, the newest checkpoint, and whether a process trains the run."""
    saved = checkpoint.manifest.iteration if checkpoint else 0
    logged = [row["iteration"] for row in _rows(folder / "metrics.jsonl") if _whole(row, "iteration")]
    running = bool(lock_holder(folder))
    # While it trains, the log is ahead of the checkpoint; after a stop only the checkpoint counts.
    iteration = max([saved, *logged[-1:]]) if running else saved
    total = config.iterations if config else None
    per_iteration = config.games * config.steps if config else None
    outputs = all(os.path.lexists(folder / name) for name in ("policies", "report.html"))
    # why the run ended before its last iteration
    ended = checkpoint.parts.get("clock", {}).get("end_reason") if checkpoint else None
    done = total is not None and (saved >= total or ended) and outputs
    skipped = checkpoint.skipped if checkpoint else []
    problems += [f"{name} does not verify: {reason}" for name, reason in skipped]
    lost = checkpoint is None and any((folder / "checkpoints").glob("iter_*"))
    return {
        "game": config.game if config else None, "seed": config.seed if config else None,
        "ended": clean(ended) if ended else None,
        "state": "running" if running else "complete" if done else "stopped",
        "iteration": iteration, "iterations": total,
        "step": iteration * per_iteration if per_iteration is not None else None,
        "total_steps": total * per_iteration if total is not None and per_iteration is not None else None,
        "checkpoint": checkpoint.folder.name if checkpoint else None,
        "skipped": [name for name, _ in skipped], "broken": config is None or lost,
    }


def _strength(rows: list[dict[str, Any]], config: Config | None, problems: list[str]) -> dict[str, Any]:
    """The newest evaluations, the alarms and the newest verdict."""
    names = dict(registry.find(config.game).defaults.rate_names) if config else {}
    facts: dict[str, Any] = {"evaluations": len(rows), "alarms": [], "verdict": "", "recent": [],
                             "standings": {}, "rate_names": names, "cold_start": ""}
    try:
        history = read_history(rows)
        if config is not None:
            facts["alarms"] = [alarm.text for alarm in alarms(history, config.evaluation)]
        facts["recent"] = [_recent(evaluation, names) for evaluation in history[-SHOWN:]]
        if rows:
            facts["verdict"] = clean(history[-1].verdict or "")
            facts["cold_start"] = next(iter(milestone_lines(rows[-1])[1:]), "")
            standings = [standing(entry) for entry in rows[-1]["table"]]
            facts["standings"] = {word: standings.count(word) for word in ("above", "level", "below")}
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        problems.append(f"history.json has unexpected content ({type(error).__name__})")
    return facts


def _recent(evaluation: Evaluation, names: Mapping[str, str]) -> dict[str, Any]:
    """One evaluation as JSON; `names` are the world's names for the roles' rates."""
    row = {key: getattr(evaluation, key) for key in COLUMNS}
    row |= {name: evaluation.rates[role].rate for role, name in names.items()}
    row["nash_conv"] = evaluation.nash_conv
    row["rates"] = {role: {key: getattr(rate, key) for key in ("rate", "low", "high", "games")}
                    for role, rate in evaluation.rates.items()}
    row["returns"] = {role: {key: getattr(entry, key) for key in ("mean", "low", "high", "games")}
                      for role, entry in evaluation.returns.items()}
    row["strength"] = _strength_of(evaluation)
    return row


def _strength_of(evaluation: Evaluation) -> dict[str, Any]:
    """The mean score against the scripted opponents of an evaluation; empty where it played none."""
    if not evaluation.matches:
        return {}
    score, below, above = evaluation.strength(evaluation.match_ups)
    return {"score": score, "low": score - below, "high": score + above,
            "match_ups": len(evaluation.matches), "games": min(entry.games for entry in evaluation.matches)}


def _speed(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Steps of all games per second over the newest iterations, and the remaining time at that speed."""
    rows, rate, remaining = list(_rows(folder / "timing.jsonl")), None, None
    if facts["total_steps"]:
        rate = _steps_per_second(rows, facts["total_steps"] / facts["iterations"])
        if rate and facts["state"] != "complete":
            remaining = max(0, facts["total_steps"] - facts["step"]) / rate
    events = [row for row in rows if isinstance(row.get("event"), str)]
    last = clean(f"{events[-1]['event']} {events[-1].get('why', '')}").strip()[:60] if events else ""
    out: dict[str, Any] = {"steps_per_second": rate, "seconds_left": remaining, "last_event": last}
    if events and events[-1]["event"] == FAILED_EVENT:  # the newest event: the run was not resumed after it
        reason = clean(events[-1].get("why", ""))
        out |= {"alarms": [*facts["alarms"], reason], "last_event": FAILED_EVENT}
        if events[-1].get("cause") != CODE_FAILED:  # an exception in code says nothing about the agents
            out["verdict"] = f"collapsed: {reason}"
    return out


def _steps_per_second(rows: list[dict[str, Any]], per_iteration: float) -> float | None:
    seconds = [row["seconds"] for row in rows if _real(row, "seconds") and row["seconds"] > 0]
    return typical_speed([per_iteration / value for value in seconds])


def recent_speed(folder: Path, per_iteration: float) -> float | None:
    """Steps of all games per second over the newest iterations, from timing.jsonl; None where it has none."""
    return _steps_per_second(list(_rows(folder / "timing.jsonl")), per_iteration)


def _outline(text: str) -> Any:
    """Game, seed and sizes of a run whose settings name code that may not be imported; None where the text
    does not hold them."""
    lines = r"^(game|seed|games|steps|total_steps|start_iteration): *(\S{1,300}) *$"
    values = dict(re.findall(lines, text, re.M))
    try:
        games, steps, total = (int(values[key]) for key in ("games", "steps", "total_steps"))
        iterations = -(-total // (games * steps))
        first = int(values.get("start_iteration", 0))
        game, seed = values["game"], int(values["seed"])
    except (KeyError, ValueError, ZeroDivisionError):
        return None
    return SimpleNamespace(game=game, seed=seed, games=games, steps=steps, iterations=first + iterations)


def _next(folder: Path, facts: Mapping[str, Any], config: Config | None) -> str:
    if facts["broken"]:
        return "restore the files named above from a copy, or train again under another name"
    if facts["state"] == "running":
        return f"tail -f {folder / 'train.log'}"
    from rematch.training.recipes import code_flag

    flag = code_flag(config) if config is not None else ""
    return f"rematch {'eval' if facts['state'] == 'complete' else 'resume'} {folder}{flag}"


# --- reading the end of a log ---------------------------------------------------------------------------


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects at the end of a log; a line that is incomplete or not an object is skipped."""
    for line in _tail(path):
        try:
            row = json.loads(line, parse_constant=lambda word: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _tail(path: Path) -> list[bytes]:
    """The whole lines among the last TAIL bytes of a regular file; empty for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return []
        start = max(0, info.st_size - TAIL)
        lines = os.pread(fd, TAIL, start).split(b"\n")
        return lines[1 if start else 0 : -1]
    except OSError:
        return []
    finally:
        os.close(fd)


def _whole(row: Mapping[str, Any], key: str) -> bool:
    return type(row.get(key)) is int and 0 <= row[key] < 10**15


def _real(row: Mapping[str, Any], key: str) -> bool:
    return type(row.get(key)) in (int, float) and 0 <= row[key] < 1e18


# --- the screen -------------------------------------------------------------------------------------------


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    game = f": {facts['game']}, seed {facts['seed']}" if facts["game"] else ""
    yield f"{facts['run']}{game}"
    for sentence in facts["lineage"]:
        yield f"lineage: {sentence}"
    share = f" ({100 * facts['iteration'] / facts['iterations']:.0f} %)" if facts["iterations"] else ""
    yield (f"{_state(facts)} at iteration {facts['iteration']} of {facts['iterations'] or '?'}{share}, "
           f"step {human(facts['step'])} of {human(facts['total_steps'])}")
    rate, remaining = facts["steps_per_second"], facts["seconds_left"]
    speed = f"; {human(rate)} steps/s" if rate is not None else ""
    time_left = f", {duration(remaining)} left at this speed, without evaluations" if remaining else ""
    yield f"newest checkpoint: {facts['checkpoint'] or 'none yet'}{speed}{time_left}"
    if facts["learning"]:
        yield facts["learning"]
    for problem in facts["problems"]:
        yield f"PROBLEM: {problem}"
    yield ""
    yield from _table(facts)
    yield from facts["frontier"]
    if facts["cold_start"]:
        yield facts["cold_start"]
    for alarm in facts["alarms"]:
        yield f"ALARM: {alarm}"
    if facts["verdict"]:
        yield f"verdict: {verdict_text(facts['verdict'])}"
    yield f"next: {facts['next']}"


def _state(facts: Mapping[str, Any]) -> str:
    if facts["state"] == "running":
        return f"running (locked by {facts['holder'] or 'another process'})"
    if facts["state"] == "complete":
        return f"complete ({facts['ended']})" if facts["ended"] else "complete"
    if facts["last_event"] == FAILED_EVENT:
        return "failed"
    last = f" (last event: {facts['last_event']})" if facts["last_event"] else ""
    return f"stopped before its end{last}"


def _table(facts: Mapping[str, Any]) -> Iterator[str]:
    """The newest evaluations: win rates with their intervals and the number of games."""
    rows = facts["recent"]
    if not rows:
        yield "no evaluation yet"
        return
    if not rows[-1]["rates"] and rows[-1]["returns"]:
        yield from _return_table(rows)
        return
    if not rows[-1]["rates"]:
        yield from _score_table(facts)
        return
    roles, names = list(rows[-1]["rates"]), facts["rate_names"]
    exact = any(row["nash_conv"] is not None for row in rows)  # the world can be solved
    levels = any(row["level_name"] for row in rows)
    cells = [[_phase_title(rows), "learned last", *(names.get(role, role) for role in roles), "NE gap",
              *(["NashConv"] if exact else []), "games", "rollbacks", "steps",
              *(["level"] if levels else [])]]
    for row in rows:
        rates = [row["rates"].get(role, {}) for role in roles]
        games = str(rates[0].get("games", "-")) if rates else "-"
        cells.append([str(row["phase"]), str(row["role"]),
                      *(f"{number(rate.get('rate'))} {interval(rate)}" for rate in rates),
                      f"{number(row['gap'])} {interval(row, 'gap_')}",
                      *([number(row["nash_conv"])] if exact else []), games, str(row["rollbacks"]),
                      human(row["step"]), *([str(row["level_name"] or "-")] if levels else [])])
    yield from aligned([[clean(cell)[:40] for cell in row] for row in cells])
    yield from _after_table(facts)


def _score_table(facts: Mapping[str, Any]) -> Iterator[str]:
    """The newest evaluations of a world with one role and several seats: scores against scripted players."""
    rows = facts["recent"]
    exact = any(row["nash_conv"] is not None for row in rows)
    cells = [[_phase_title(rows), "mean score", "scripted opponents", *(["NashConv"] if exact else []),
              "games of each", "steps"]]
    for row in rows:
        score = row["strength"]
        mean = f"{number(score.get('score'))} {interval(score)}" if "score" in score else "-"
        cells.append([str(row["phase"]), mean,
                      str(score.get("match_ups", "-")), *([number(row["nash_conv"])] if exact else []),
                      str(score.get("games", "-")), human(row["step"])])
    yield from aligned([[clean(cell)[:40] for cell in row] for row in cells])
    yield from _after_table(facts)


def _after_table(facts: Mapping[str, Any]) -> Iterator[str]:
    """Evaluations that the table leaves out, and the match-ups by their standing."""
    if facts["evaluations"] > len(facts["recent"]):
        yield f"({facts['evaluations'] - len(facts['recent'])} earlier evaluations in history.json)"
    counts = facts["standings"]
    if any(counts.values()):
        yield ("match-ups relative to the best scripted player: "
               + ", ".join(f"{count} {word}" for word, count in counts.items()) + " (95 % intervals)")


def _phase_title(rows: list[dict[str, Any]]) -> str:
    """The title of the first column: iteration where all roles learn at the same time, else phase."""
    return "iteration" if all(isinstance(row["phase"], int) for row in rows) else "phase"


def _return_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The newest evaluations of a world with one seat: mean returns with their intervals."""
    cells = [["steps", *(f"{role}'s return" for role in rows[-1]["returns"]), "games"]]
    for row in rows:
        entries = list(row["returns"].values())
        returns = [f"{number(entry['mean'])} {interval(entry)}" for entry in entries]
        cells.append([human(row["step"]), *returns, str(entries[0]["games"]) if entries else "-"])
    yield from aligned([[clean(cell)[:40] for cell in row] for row in cells])
