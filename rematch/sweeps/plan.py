"""Many runs, one table: every seed of every cell of a grid, each a run of its own, and what they come to.

    runs/NAME/
      settings.yaml    the settings in full; with a cell's values and a seed as flags they are a run
      sweep.yaml       recipe, seeds, grid, and the versions of rematch it was made with
      CELL/seed-3/     a run like any other; without a grid there is no CELL
      CELL/seed-3.log  what its processes printed
      sweep.md  sweep.json   the table

The same again goes on: finished runs are kept, unfinished ones resumed, the others begun (processes.py).
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rematch
from rematch import api
from rematch.core import config as settings
from rematch.core import strict_yaml, system_memory
from rematch.core.errors import ConfigError
from rematch.core.interrupts import StopRequest
from rematch.evaluation.spread import measures, spread, standing
from rematch.reporting import sweep_text as show
from rematch.reporting.console import Console
from rematch.storage import atomic_files
from rematch.storage.run_folder import CONFIG_FILE, Run
from rematch.storage.run_lock import LOCK_FILE, RunLock
from rematch.sweeps.processes import Children, Task, gib
from rematch.training import memory_estimate
from rematch.training.trainer import Config
from rematch.worlds import registry

FILE, SETTINGS, TABLE, RESULT = "sweep.yaml", "settings.yaml", "sweep.md", "sweep.json"
MOST_RUNS = 1000
MOST_NAME = 120  # characters of a cell's folder
SEEDS = "expected seeds like 0-9 or 1,4,7"
Configure = Callable[[Sequence[str]], Config]  # settings with some more flags


@dataclass(frozen=True)
class Cell:
    """One choice of the grid's values: its name, empty without a grid, and its settings."""

    name: str
    values: dict[str, str]
    config: Config


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep."""

    recipe: str
    folder: Path
    seeds: tuple[int, ...]
    grid: dict[str, tuple[str, ...]]
    cells: tuple[Cell, ...]

    def tasks(self) -> list[Task]:
        tasks = []
        for cell, seed in itertools.product(self.cells, self.seeds):
            name = f"{cell.name}/seed-{seed}".lstrip("/")
            flags = [f"--{key}={value}" for key, value in cell.values.items()]
            begin = ["train", str(self.folder / SETTINGS), *flags, f"--seed={seed}"]
            tasks.append(Task(name, self.folder / name, [*begin, f"--name={self.folder / name}"]))
        return tasks


# --- what is asked ----------------------------------------------------------------------------------------


def read_seeds(text: str) -> tuple[int, ...]:
    """ "0-3,7" -> 0, 1, 2, 3, 7."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", part)
        if not match:
            raise ConfigError(f"--seeds = {text!r}: {SEEDS}")
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise ConfigError(f"--seeds = {text!r}: {part.strip()} is empty; expected {high}-{low}")
        if high >= 2**32 or len(found) + high - low >= MOST_RUNS:
            raise ConfigError(f"--seeds = {text!r}: expected at most {MOST_RUNS}, each from 0 to {2**32 - 1}")
        found += range(low, high + 1)
    twice = next((seed for seed in found if found.count(seed) > 1), None)
    if twice is not None:
        raise ConfigError(f"--seeds = {text!r}: seed {twice} is given twice; expected it once")
    return tuple(found)


def read_grid(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """ "key=a,b" -> the key's values as texts; commas within brackets belong to a list."""
    grid: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        key = name.strip().removeprefix("--").replace("-", "_")
        values = tuple(value.strip() for value in re.split(r",(?![^\[]*\])", text))
        if not key or not all(values):
            raise ConfigError(f"--grid = {word!r}: expected KEY=VALUE,VALUE, a list in brackets")
        if key == "seed":
            raise ConfigError(f"--grid = {word!r}: expected the seeds as --seeds, another key here")
        if key in grid:
            raise ConfigError(f"--grid {key} is given twice; expected all its values in one")
        grid[key] = values
    return grid


def cell_name(values: Mapping[str, str]) -> str:
    """A folder's name that a person can read: ppo.lr=0.001_network.hidden=64-64."""
    text = "_".join(f"{key}={value}" for key, value in values.items())
    safe = re.sub(r"[^A-Za-z0-9._=+-]+", "-", text.replace("[", "").replace("]", ""))
    return (
        safe
        if len(safe) <= MOST_NAME
        else f"{safe[: MOST_NAME - 9]}-{atomic_files.sha256_hex(text.encode())[:8]}"
    )


def make_plan(folder: Path, recipe: str, seeds: tuple[int, ...], grid: dict[str, tuple[str, ...]],
              configure: Configure) -> Plan:
    """Every cell's settings, judged before anything begins."""
    count = len(seeds)
    for each in grid.values():
        count *= len(each)
    if count > MOST_RUNS:
        raise ConfigError(f"{count} runs: expected at most {MOST_RUNS}")
    cells: dict[str, Cell] = {}
    for chosen in itertools.product(*grid.values()):
        values = dict(zip(grid, chosen))
        config = replace(configure([f"--{key}={value}" for key, value in values.items()]), seed=seeds[0])
        same = next((cell for cell in cells.values() if cell.config == config), None)
        if same is not None:
            raise ConfigError(f"--grid: {same.name} and {cell_name(values)} are the same settings")
        name = cell_name(values)
        if name in cells:
            name += "-" + atomic_files.sha256_hex(repr(chosen).encode())[:8]
        memory_estimate.check(config)
        cells[name] = Cell(name, values, config)
    return Plan(recipe, folder, seeds, grid, tuple(cells.values()))


def choose_jobs(plan: Plan, asked: int | None) -> tuple[int, int, str]:
    """How many at a time, the bytes each needs, and a line about it; refuses more than memory holds."""
    need = max(memory_estimate.process(cell.config) for cell in plan.cells)
    free = system_memory.available_bytes()
    threads = max(cell.config.threads for cell in plan.cells)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    runs, holds = len(plan.cells) * len(plan.seeds), free // need
    jobs = min(runs, max(1, cores // threads) if asked is None else asked)
    size = f"a run needs about {gib(need)} GiB of memory, {gib(free)} are free"
    if not holds:
        raise ConfigError(f"{size}: expected smaller runs, or more memory")
    if asked is not None and jobs > holds:
        raise ConfigError(f"--jobs = {asked}: {size}, which hold {holds}; expected --jobs {holds} or fewer")
    jobs = min(jobs, holds)
    crowd = "; they will wait for each other" if jobs > 1 and jobs * threads > cores else ""
    each = f"{threads} thread{'s' if threads > 1 else ''} each, on {cores} cores"
    return jobs, need, f"{jobs} at a time, {each}{crowd}; {size}"


# --- the folder -------------------------------------------------------------------------------------------


def _grid_words(grid: Mapping[str, Sequence[str]]) -> str:
    return " ".join(f"--grid {key}={','.join(values)}" for key, values in grid.items()) or "no grid"


def _refuse_other(plan: Plan, about: Mapping[str, Any]) -> None:
    """One line that says how this sweep differs from the one in its folder."""
    begun = {key.removeprefix("grid."): value for key, value in about.items() if key.startswith("grid.")}
    stored, config = api.configure(str(plan.folder / SETTINGS)), plan.cells[0].config
    old = {key: value for key, _, value in settings.leaves(stored)}
    new = {key: value for key, _, value in settings.leaves(config)}
    differ = [f"{key} = {new.get(key)!r:.40} where it has {old.get(key)!r:.40}"
              for key in sorted(old.keys() | new.keys(), key=lambda key: (key != "game", key))
              if key != "seed" and (key not in old or key not in new or old[key] != new[key])]
    asked = {key: list(values) for key, values in plan.grid.items()}
    if list(asked.items()) != list(begun.items()):
        differ = [f"{_grid_words(asked)} where it has {_grid_words(begun)}"]
    gone = [seed for seed in read_seeds(about["seeds"]) if seed not in plan.seeds]
    if gone and not differ:
        differ = [f"seeds {show.ranges(plan.seeds)} where it has {about['seeds']}: none may be left out"]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise ConfigError(f"{plan.folder} holds another sweep: {', '.join(differ[:3])}{more}; "
                          "choose another --name, or ask for the same")


def look(plan: Plan) -> dict[str, Any]:
    """What the folder's own file says, nothing where there is none yet; refuses what is no such sweep."""
    folder = plan.folder
    if not os.path.lexists(folder):
        return {}
    if not os.path.lexists(folder / FILE):
        with atomic_files.os_errors_as_run_error(f"{folder} cannot be opened"):
            others = {name for name in os.listdir(folder) if not name.startswith(".tmp-")}
            others -= {LOCK_FILE, SETTINGS}
        if others:
            what = "holds a run" if CONFIG_FILE in others else "is not empty and not a sweep"
            raise ConfigError(f"{folder} {what}: choose another --name")
        return {}
    try:
        text = atomic_files.read_regular_file(folder / FILE, atomic_files.MAX_TEXT_BYTES).decode()
        about = settings.read_yaml(text, str(folder / FILE))
        if not all(isinstance(about[key], str) for key in ("rematch", "recipe", "seeds", "added")):
            raise KeyError
        _refuse_other(plan, about)
    except (KeyError, TypeError, UnicodeDecodeError):
        raise ConfigError(f"{folder / FILE} does not hold what it should: choose another --name") from None
    return about


def begin(plan: Plan, about: dict[str, Any]) -> dict[str, str]:
    """Write down what is asked; returns it. Seeds that came later, and every version, are remembered."""
    version = rematch.__version__
    versions = about.get("rematch", version)
    if version not in versions.split(", "):
        versions += f", {version}"
    first = read_seeds(about["seeds"]) if about else plan.seeds
    added = [] if not about or not about["added"] else list(read_seeds(about["added"]))
    added += [seed for seed in plan.seeds if seed not in (*first, *added)]
    new = {"rematch": versions, "recipe": plan.recipe, "seeds": show.ranges(plan.seeds),
           "added": show.ranges(added)}
    grid = {key: list(values) for key, values in plan.grid.items()}
    with atomic_files.os_errors_as_run_error(f"{plan.folder} cannot be written"):
        if not about:
            atomic_files.replace_file(plan.folder / SETTINGS, settings.to_yaml(plan.cells[0].config).encode())
        text = strict_yaml.dump({**new, "grid": grid})
        atomic_files.replace_file(plan.folder / FILE, text.encode())
    return new


def refuse_foreign(plan: Plan) -> None:
    """A run that lies where one of ours belongs but has other settings was not made by this sweep."""
    for (cell, seed), task in zip(itertools.product(plan.cells, plan.seeds), plan.tasks()):
        if not task.begun:
            continue
        try:
            with Run.open(task.folder, write=False) as run:
                stored = api.stored(run)
        except ConfigError:  # broken: its resume will say why
            continue
        if stored != replace(cell.config, seed=seed):
            raise ConfigError(f"{task.folder} holds a run with other settings: choose another --name, or "
                              "move it away")


# --- the table --------------------------------------------------------------------------------------------


def outcome(task: Task, seed: int, names: Mapping[str, str]) -> dict[str, Any]:
    """A seed's line: how its run ended and, where it finished, what its last evaluation says."""
    told: dict[str, Any] = {}
    if task.state == "finished":
        try:
            with Run.open(task.folder, write=False) as run:
                row = run.history[-1]
            told = standing(row) | {"measures": measures(row, names)}
        except (ConfigError, LookupError, TypeError, AttributeError):
            task.state, task.why = "failed", "its history.json does not hold what it should"
    if task.state == "failed":
        told = {"why": task.why}
    return {"seed": seed, "run": task.name, "state": task.state, **told}


def result(plan: Plan, about: Mapping[str, str], tasks: Sequence[Task]) -> dict[str, Any]:
    """The table as JSON values. No clock, no machine: equal sweeps give equal bytes."""
    game = plan.cells[0].config.game
    names = getattr(registry.find(game), "RATE_NAMES", {})
    left, cells = iter(tasks), []
    for cell in plan.cells:
        rows = [outcome(next(left), seed, names) for seed in plan.seeds]
        done = [row["measures"] for row in rows if row["state"] == "finished"]
        over = {name: spread([each[name]["value"] for each in done if name in each])
                for name in dict.fromkeys(name for each in done for name in each)}
        cells.append({"cell": cell.name, "values": cell.values, "runs": rows, "iqm": over})
    counts = {state: sum(task.state == state for task in tasks)
              for state in ("finished", "failed", "unfinished", "waiting")}
    return {"sweep": plan.folder.name, **about, "game": game,
            "grid": {key: list(values) for key, values in plan.grid.items()}, **counts, "cells": cells}


# --- all of it --------------------------------------------------------------------------------------------


def run(plan: Plan, asked: int | None, minutes: float | None, console: Console, again: str) -> dict[str, Any]:
    """Bring a plan to its end, or as far as it gets before it is stopped; returns the table.

    `again` says how to go on.
    """
    about = look(plan)
    refuse_foreign(plan)
    jobs, need, line = choose_jobs(plan, asked)
    with atomic_files.os_errors_as_run_error(f"{plan.folder} cannot be made"):
        plan.folder.mkdir(0o700, parents=True, exist_ok=True)
        lock = RunLock(plan.folder)
    try:
        written, tasks = begin(plan, look(plan)), plan.tasks()  # another may have been quicker: look again
        console.line(f"sweep {plan.folder}: {len(tasks)} runs; {line}")
        if added := written["added"] if written["added"] != about.get("added", "") else "":
            console.line(f"seeds {added} are new: the table will say that they came later")
        with StopRequest(minutes) as stop:
            children = Children(tasks, jobs, need, console.line)
            if kept := len(tasks) - len(children.todo):
                console.line(f"{kept} finished before and are kept")
            children.run(stop)
            found = result(plan, written, tasks)
            with atomic_files.os_errors_as_run_error(f"{plan.folder}: the table was not written"):
                atomic_files.replace_file(plan.folder / RESULT, (json.dumps(found, indent=1) + "\n").encode())
                atomic_files.replace_file(
                    plan.folder / TABLE, "\n".join([*show.markdown(found), ""]).encode()
                )
        for text in ["", *show.lines(found)]:
            console.line(text)
        if stop.reason and found["finished"] + found["failed"] < len(tasks):
            console.line(f"stopped ({stop.reason}); go on with: {again}")
        return found
    finally:
        lock.release()


def sweep(
    recipe: str = "quick",
    *,
    seeds: str | Iterable[int],
    grid: Mapping[str, Sequence[Any]] | None = None,
    changes: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Many runs, one table: every seed of every choice of the grid's values. The same call again goes on."""
    if "seed" in (changes or {}):
        raise ConfigError("changes: seed has no effect in a sweep; expected seeds")
    words = [f"{key}={','.join(_text(value) for value in values)}" for key, values in (grid or {}).items()]
    wanted = read_seeds(seeds if isinstance(seeds, str) else ",".join(map(str, seeds)))

    def configure(flags: Sequence[str]) -> Config:
        return api.configure(recipe, flags=flags, changes=changes)

    plan = make_plan(Path(folder or usual_folder(recipe)), recipe, wanted, read_grid(words), configure)
    if console is None:
        console = Console(live=False)
        console.off = True
    return run(plan, jobs, minutes, console, "the same call again")


def usual_folder(recipe: str) -> Path:
    """Always the same for a recipe, so that the same command finds its sweep again."""
    return Path("runs") / f"{Path(recipe).stem}-sweep"


def _text(value: Any) -> str:
    """A value as a flag would give it."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)
