"""Where a run stands, in one screen. Reads only; works beside a writer, and on folders that are damaged.

`status` gives the same facts twice: `lines` for people, everything else for programs. Whatever a file says
is a stranger's word: sizes are bounded, links are not followed, and what cannot be read costs one line.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from rematch.core.errors import ConfigError
from rematch.curriculum import archive_files
from rematch.evaluation.verdict import alarms
from rematch.reporting.text import (
    aligned,
    clean,
    duration,
    human,
    interval,
    milestone_lines,
    number,
    standing,
)
from rematch.storage.checkpoint import Checkpoint
from rematch.storage.run_folder import FAILED_EVENT, Run
from rematch.storage.run_lock import lock_holder
from rematch.training.trainer import Config
from rematch.worlds import registry

FINE, ALARM, STOPPED = 0, 1, 3  # exit codes
TAIL = 1 << 18  # bytes at the end of a log that are looked at
SHOWN = 6  # evaluations in the table
COLUMNS = ("phase", "role", "gap", "gap_low", "gap_high", "rollbacks", "step", "level_name")
RECENT = 20  # iterations over which speed is taken


def status(folder: Path) -> dict[str, Any]:
    """The facts of a run as JSON values, with `exit` and `lines`. ConfigError if `folder` is no run."""
    facts: dict[str, Any] = {"run": str(folder), "problems": []}
    problems: list[str] = facts["problems"]
    with Run.open(folder, write=False) as run:
        facts["holder"] = lock_holder(folder)
        config = _noted(problems, lambda: _settings(run))
        checkpoint: Checkpoint | None = _noted(problems, run.load)
        history: list[dict[str, Any]] = _noted(problems, lambda: run.history) or []
    facts |= _place(folder, config, checkpoint, problems)
    facts |= _strength(history, config, problems)
    facts |= _speed(folder, facts)
    facts["frontier"] = archive_files.told(folder)
    facts["next"] = _next(folder, facts)
    alarmed = bool(facts["alarms"]) or bool(facts["broken"]) or facts["verdict"].startswith("collapsed")
    facts["exit"] = ALARM if alarmed else STOPPED if facts["state"] == "stopped" else FINE
    facts["lines"] = [clean(line) for line in _lines(facts)]
    return facts


def _noted(problems: list[str], read: Any) -> Any:
    """What `read` gives; None, and its one line among the problems, where it fails."""
    try:
        return read()
    except ConfigError as error:
        problems.append(" ".join(clean(error).split())[:300])
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{type(error).__name__}: {clean(error)}"[:300])
    return None


def _settings(run: Run) -> Config:
    from rematch.api import stored

    return stored(run)


# --- facts ------------------------------------------------------------------------------------------------


def _place(
    folder: Path, config: Config | None, checkpoint: Checkpoint | None, problems: list[str]
) -> dict[str, Any]:
    """How far it is, what it could go on from, and whether somebody is at it."""
    saved = checkpoint.manifest.iteration if checkpoint else 0
    logged = [row["iteration"] for row in _rows(folder / "metrics.jsonl") if _whole(row, "iteration")]
    held = lock_holder(folder)
    # Beside a writer the log is ahead of the checkpoint; after a stop only what was saved counts.
    iteration = max([saved, *logged[-1:]]) if held else saved
    total = config.iterations if config else None
    per = config.games * config.steps if config else None
    products = all(os.path.lexists(folder / name) for name in ("policies", "report.html"))
    ended = checkpoint.parts.get("session", {}).get("ended") if checkpoint else None  # before its last step
    done = total is not None and (saved >= total or ended) and products
    skipped = checkpoint.skipped if checkpoint else []
    problems += [f"{name} does not verify: {why}" for name, why in skipped]
    lost = checkpoint is None and any((folder / "checkpoints").glob("iter_*"))
    return {
        "game": config.game if config else None, "seed": config.seed if config else None,
        "ended": clean(ended) if ended else None,
        "state": "running" if held else "complete" if done else "stopped",
        "iteration": iteration, "iterations": total,
        "step": iteration * per if per is not None else None,
        "total_steps": total * per if total is not None and per is not None else None,
        "checkpoint": checkpoint.folder.name if checkpoint else None,
        "skipped": [name for name, _ in skipped], "broken": config is None or lost,
    }


def _strength(history: list[dict[str, Any]], config: Config | None, problems: list[str]) -> dict[str, Any]:
    """The evaluations so far, alarms and the newest verdict."""
    facts: dict[str, Any] = {"evaluations": len(history), "alarms": [], "verdict": "", "recent": []}
    names = getattr(registry.find(config.game), "RATE_NAMES", {}) if config else {}
    facts |= {"standings": {}, "rate_names": names, "cold_start": ""}
    try:
        if config is not None:
            facts["alarms"] = alarms(history, config.evaluation)
        for row in history[-SHOWN:]:
            rates = {role: {key: rate[key] for key in ("rate", "low", "high", "games")}
                     for role, rate in row["rates"].items()}
            entry = {key: row.get(key) for key in COLUMNS}
            entry |= {name: rates[role]["rate"] for role, name in names.items()}
            returns = {role: {key: told.get(key) for key in ("mean", "low", "high", "games")}
                       for role, told in (row.get("returns") or {}).items()}
            entry["nash_conv"] = (row.get("exact") or {}).get("nash_conv")
            facts["recent"].append(entry | {"rates": rates, "returns": returns})
        if history:
            facts["verdict"] = clean(history[-1].get("verdict", ""))
            facts["cold_start"] = next(iter(milestone_lines(history[-1])[1:]), "")
            levels = [standing(entry) for entry in history[-1]["table"]]
            facts["standings"] = {level: levels.count(level) for level in ("above", "level", "below")}
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        problems.append(f"history.json does not hold what it should ({type(error).__name__})")
    return facts


def _speed(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Speed over the newest iterations and what is left at that pace, from timing.jsonl."""
    rows = list(_rows(folder / "timing.jsonl"))
    laps = [row for row in rows if _real(row, "seconds") and _real(row, "learner_steps_per_second")][-RECENT:]
    rate = median(row["learner_steps_per_second"] for row in laps) if laps else None
    left = None
    if laps and facts["iterations"] is not None and facts["state"] != "complete":
        left = max(0, facts["iterations"] - facts["iteration"]) * median(row["seconds"] for row in laps)
    events = [row for row in rows if isinstance(row.get("event"), str)]
    last = clean(f"{events[-1]['event']} {events[-1].get('why', '')}").strip()[:60] if events else ""
    out: dict[str, Any] = {"learner_steps_per_second": rate, "seconds_left": left, "last_event": last}
    if events and events[-1]["event"] == FAILED_EVENT:  # and nobody has gone on since
        why = clean(events[-1].get("why", ""))
        out |= {"alarms": [*facts["alarms"], why], "verdict": f"collapsed: {why}"}
    return out


def _next(folder: Path, facts: Mapping[str, Any]) -> str:
    if facts["broken"]:
        return "put back the files named above from a copy, or train anew under another name"
    if facts["state"] == "running":
        return f"tail -f {folder / 'train.log'}"
    return f"rematch {'eval' if facts['state'] == 'complete' else 'resume'} {folder}"


# --- reading the end of a log ---------------------------------------------------------------------------


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects at the end of a log; a line that is half written, or is none, is passed over."""
    for line in _tail(path):
        try:
            row = json.loads(line, parse_constant=lambda word: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _tail(path: Path) -> list[bytes]:
    """The whole lines among the last TAIL bytes of a plain file; none of anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return []
        start = max(0, about.st_size - TAIL)
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
    what = f": {facts['game']}, seed {facts['seed']}" if facts["game"] else ""
    yield f"{facts['run']}{what}"
    share = f" ({100 * facts['iteration'] / facts['iterations']:.0f} %)" if facts["iterations"] else ""
    yield (f"{_state(facts)} at iteration {facts['iteration']} of {facts['iterations'] or '?'}{share}, "
           f"step {human(facts['step'])} of {human(facts['total_steps'])}")
    rate, left = facts["learner_steps_per_second"], facts["seconds_left"]
    speed = f"; {human(rate)} learner steps/s" if rate is not None else ""
    pace = f", {duration(left)} left at that pace" if left else ""
    yield f"newest checkpoint: {facts['checkpoint'] or 'none yet'}{speed}{pace}"
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
        yield f"verdict: {facts['verdict']}"
    yield f"next: {facts['next']}"


def _state(facts: Mapping[str, Any]) -> str:
    if facts["state"] == "running":
        return f"running (held by {facts['holder'] or 'another process'})"
    if facts["state"] == "complete":
        return f"complete ({facts['ended']})" if facts["ended"] else "complete"
    last = f" (last: {facts['last_event']})" if facts["last_event"] else ""
    return f"stopped before its end{last}"


def _table(facts: Mapping[str, Any]) -> Iterator[str]:
    """The newest evaluations; rates with their intervals, n is the games of each."""
    rows = facts["recent"]
    if not rows:
        yield "no evaluation yet"
        return
    if not rows[-1]["rates"] and rows[-1]["returns"]:
        yield from _returns(rows)
        return
    roles = list(rows[-1]["rates"])
    names = facts["rate_names"]
    exact = any(row["nash_conv"] is not None for row in rows)  # the world can be solved
    levels = any(row["level_name"] for row in rows)
    head = ["phase", "role", *(names.get(role, role) for role in roles), "gap",
            *(["NashConv"] if exact else []), "n", "rollbacks", "steps",
            *(["level"] if levels else [])]
    cells = [head]
    for row in rows:
        rates = [row["rates"].get(role, {}) for role in roles]
        games = str(rates[0].get("games", "-")) if rates else "-"
        shares = [f"{number(rate.get('rate'))} {interval(rate)}" for rate in rates]
        gap = f"{number(row['gap'])} {interval(row, 'gap_')}"
        cells.append([str(row["phase"]), str(row["role"]), *shares, gap,
                      *([number(row["nash_conv"])] if exact else []), games, str(row["rollbacks"]),
                      human(row["step"]), *([str(row["level_name"] or "-")] if levels else [])])
    yield from aligned([[clean(cell)[:40] for cell in row] for row in cells])
    if facts["evaluations"] > len(rows):
        yield f"({facts['evaluations'] - len(rows)} earlier evaluations in history.json)"
    counts = facts["standings"]
    if any(counts.values()):
        yield ("beside the best scripted player of each role: "
               + ", ".join(f"{count} {level}" for level, count in counts.items()) + " (95 % intervals)")


def _returns(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The newest evaluations of a task for one: mean returns with their intervals."""
    cells = [["steps", *(f"{role}'s return" for role in rows[-1]["returns"]), "n"]]
    for row in rows:
        told = list(row["returns"].values())
        cells.append([human(row["step"]), *(f"{number(entry['mean'])} {interval(entry)}" for entry in told),
                      str(told[0]["games"]) if told else "-"])
    yield from aligned([[clean(cell)[:40] for cell in row] for row in cells])
