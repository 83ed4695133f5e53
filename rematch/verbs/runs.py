"""List the runs of a folder (progress, state and newest verdict of each), or show the status of one run.

It reads small parts of a few files per run and builds no world; `rematch status RUN` shows more about one.
The folders may come from someone else: links are not followed, sizes are bounded, and a folder that cannot
be read is one line with the reason.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError
from rematch.evaluation.text import clean, human
from rematch.reporting import status as run_status
from rematch.reporting.result import Block, Lines, Printable, Result, Table
from rematch.reporting.untrusted_folder import Unreadable, first_bytes, last_lines, loads
from rematch.storage.run_lock import LOCK_FILE, lock_holder
from rematch.sweeps import status as sweep_status
from rematch.verbs.arguments import RUNS, Log, folder_of, silent
from rematch.worlds import registry

CONFIG, SWEEP = "config.yaml", "sweep.yaml"
HEAD, TAIL = 1 << 16, 1 << 18  # bytes at the start of config.yaml and at the end of a log that are read
DEPTH = 3  # levels of subfolders that are searched for runs
MOST_FOLDERS = 10_000  # folders that are searched
NUMBER = re.compile(r"[0-9]{1,15}")
CHECKPOINT = re.compile(r"iter_([0-9]{1,15})")
AGES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (0.0, "s"))


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One run or one sweep, as far as its files can be read."""

    name: str
    folder: str
    world: str = "-"
    step: int | None = None
    total_steps: int | None = None
    state: str = "-"  # running, stopped, killed, failed, finished; of a sweep: the number of runs of each
    verdict: str = ""
    age: float | None = None  # seconds since the last write to it
    problem: str = ""

    def cells(self) -> tuple[str, ...]:
        steps = f"{human(self.step)} of {human(self.total_steps)}" if self.total_steps else human(self.step)
        remark = self.problem or self.verdict.partition(":")[0]
        return (self.name, self.world, steps, self.state, age_text(self.age), remark)


@dataclass(frozen=True, repr=False)
class RunList(Printable):
    """The runs of a folder, the most recently written first."""

    folder: Path
    runs: tuple[RunInfo, ...]

    def __iter__(self) -> Iterator[RunInfo]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def blocks(self) -> Iterator[Block]:
        if not self.runs:
            yield f"No runs in {clean(self.folder)}. Start one: rematch train quick"
            return
        rows = [[clean(cell)[:80] for cell in run.cells()] for run in self.runs]
        yield Table([("run", "world", "steps", "state", "age", "verdict"), *rows], right=(4,))

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "runs": [asdict(run) for run in self.runs]}


def list_runs(folder: Path | str = RUNS) -> RunList:
    """The runs and sweeps in a folder, by default runs/."""
    root = Path(folder)
    if not root.is_dir() and root != RUNS:
        problem = "is a file" if root.exists() else "no such folder"
        raise ConfigError(f"{root}: {problem}; expected a folder that holds runs")
    infos = [info(root, path) for path in run_folders(root)]
    return RunList(root, tuple(sorted(infos, key=lambda run: (run.age is None, run.age, run.name))))


def run_folders(root: Path) -> list[Path]:
    """Folders that hold a run or a sweep. Their subfolders are not searched. Links in `root` itself are
    followed, but not to a folder that contains `root`; deeper ones are not.
    """
    out, own = list[Path](), Path(os.path.realpath(root))
    unread, count = [(root, 0)], 0
    while unread and count < MOST_FOLDERS:
        folder, depth = unread.pop()
        count += 1
        sweep = os.path.lexists(folder / SWEEP) and depth > 0  # the runs of a sweep are listed by its name
        if os.path.lexists(folder / CONFIG) or sweep:
            out.append(folder)
        elif depth < DEPTH:
            unread += [(path, depth + 1) for path in subfolders(folder, depth)
                       if not (path.is_symlink() and own.is_relative_to(os.path.realpath(path)))]
    return out


def subfolders(folder: Path, depth: int) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=depth == 0)]
    except OSError:
        return []


def info(root: Path, folder: Path) -> RunInfo:
    """The entry of one folder; where it cannot be read, `problem` is the reason."""
    name = str(folder.relative_to(root)) if folder != root else str(folder)
    try:
        if not os.path.lexists(folder / CONFIG):
            return sweep_info(name, folder)
        return run_info(name, folder)
    except Unreadable as error:
        return RunInfo(name=name, folder=str(folder), age=age(folder), problem=str(error))
    except (OSError, ValueError, RecursionError, OverflowError) as error:
        return RunInfo(name=name, folder=str(folder), problem=f"cannot be read ({type(error).__name__})")


# --- one run ----------------------------------------------------------------------------------------------


def run_info(name: str, folder: Path) -> RunInfo:
    text = first_bytes(folder / CONFIG, HEAD).decode("utf-8", "replace")
    settings = dict(re.findall(r"^(game|games|steps|total_steps): *(\S{1,400}) *$", text, re.M))
    games, steps, total = (parse_int(settings.get(key)) for key in ("games", "steps", "total_steps"))
    last_row = newest_row(folder / "metrics.jsonl")
    running = bool(lock_holder(folder))
    saved = newest_checkpoint(folder)
    step = saved * games * steps if games and steps else None
    if games and steps and total:
        total = -(-total // (games * steps)) * games * steps  # whole iterations, as `rematch status` says
    if running and isinstance(last_row.get("step"), int):
        step = last_row["step"]  # the log is ahead of the checkpoint
    missing = [key for key in ("game", "games", "steps", "total_steps") if key not in settings]
    problem = f"{CONFIG} is damaged or incomplete: it lacks {', '.join(missing)}" if missing else ""
    return RunInfo(name=name, folder=str(folder), world=registry.title(settings.get("game", "-")), step=step,
                   total_steps=total, state="running" if running else unlocked_state(folder),
                   verdict=newest_verdict(folder), age=age(folder), problem=problem)


def steps_per_iteration(folder: Path) -> int | None:
    """Steps of all games in one iteration, from config.yaml; None where they cannot be read."""
    text = first_bytes(folder / CONFIG, HEAD).decode("utf-8", "replace")
    sizes = dict(re.findall(r"^(games|steps): *(\S{1,400}) *$", text, re.M))
    games, steps = parse_int(sizes.get("games")), parse_int(sizes.get("steps"))
    return games * steps if games and steps else None


def unlocked_state(folder: Path) -> str:
    """The state of a run whose lock no process holds."""
    if newest_row(folder / "timing.jsonl", "event").get("event") == "failed":
        return "failed"
    if all(os.path.lexists(folder / product) for product in ("learning.png", "report.html")):
        return "finished"
    # a process that ends removes its lock
    return "killed" if os.path.lexists(folder / LOCK_FILE) else "stopped"


def newest_checkpoint(folder: Path) -> int:
    """The iteration of the newest checkpoint, by its name; 0 where there is none."""
    try:
        names = os.listdir(folder / "checkpoints")
    except OSError:
        return 0
    matches = filter(None, map(CHECKPOINT.fullmatch, names))
    return max((int(match[1]) for match in matches), default=0)


def newest_row(path: Path, key: str = "") -> dict[str, Any]:
    """The last JSON object of a log (with `key`, if not empty); an empty dict where there is none."""
    try:
        lines = last_lines(path, TAIL)
    except Unreadable:
        return {}
    for line in reversed(lines):
        try:
            row = loads(line.strip().rstrip(b","))
        except ValueError:
            continue
        if isinstance(row, dict) and (not key or key in row):
            return row
    return {}


def newest_verdict(folder: Path) -> str:
    """The verdict of the newest evaluation: history.json holds one row per line."""
    verdict = newest_row(folder / "history.json").get("verdict")
    return verdict if isinstance(verdict, str) else ""


def age(folder: Path) -> float | None:
    """Seconds since the last write to a file of the run."""
    times = []
    for name in (CONFIG, SWEEP, "metrics.jsonl", "timing.jsonl", "history.json"):
        try:
            times.append(os.lstat(folder / name).st_mtime)
        except OSError:
            continue
    return max(0.0, time.time() - max(times)) if times else None


def age_text(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    size, unit = next(each for each in AGES if seconds >= each[0])
    return f"{seconds / (size or 1.0):.0f} {unit}"


def parse_int(text: str | None) -> int | None:
    return int(text) if text and NUMBER.fullmatch(text) else None


# --- one sweep --------------------------------------------------------------------------------------------


def sweep_info(name: str, folder: Path) -> RunInfo:
    """A sweep as one line: the number of its runs in each state."""
    first_bytes(folder / SWEEP, HEAD)  # raises Unreadable where it is a link or a device
    runs = [info(folder, path) for path in run_folders(folder)]
    states = Counter(run.state for run in runs)
    steps = [run.step for run in runs if run.step is not None]
    totals = [run.total_steps for run in runs if run.total_steps is not None]
    ages = [run.age for run in runs if run.age is not None]
    return RunInfo(
        name=name, folder=str(folder), world=next((run.world for run in runs), "-"),
        step=sum(steps) if steps else None, total_steps=sum(totals) if totals else None,
        state=f"sweep: {', '.join(f'{count} {state}' for state, count in states.items()) or 'no runs'}",
        age=min(ages, default=age(folder)),
    )


class Status(Result):
    """The state of a run or a sweep. `exit_code`: 0 fine, 1 alarm, 3 stopped before its end."""

    @property
    def exit_code(self) -> int:
        return int(self["exit"])

    def blocks(self) -> Iterator[Block]:
        yield Lines(self["lines"])


def status(run: Path | str) -> Status:
    """Progress, newest evaluations and alarms of a run or a sweep; reads only."""
    folder = folder_of(run)
    sweep = sweep_status.is_sweep(folder)
    return Status(sweep_status.status(folder) if sweep else run_status.status(folder))


# --- messages about a run ---------------------------------------------------------------------------------

LAST_SECONDS = 60.0  # in which messages are still sent after the end of a run


def notify(
    run: Path | str, url: str, *, log: Log = silent, abandoned: Callable[[], bool] | None = None
) -> str:
    """Send messages about a run that trains to a web address, until it ends; returns a line with numbers.

    A command that starts a run passes `abandoned`: whether it has given up before the run began to train.
    """
    from rematch.reporting.exporters.notifications import RunWatcher, watch
    from rematch.reporting.exporters.webhook import Address, Sender

    folder = folder_of(run)
    sender = Sender(Address(url), log)
    watcher = RunWatcher(folder, attached=abandoned is None)
    if not watch(watcher, sender.put, abandoned or (lambda: True)):
        raise ConfigError(f"{folder} does not train: there is nothing to report")
    sender.close(LAST_SECONDS)
    log(sender.summary())
    return sender.summary()
