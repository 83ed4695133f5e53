"""A sweep: one run for every seed of every cell of a grid, and a table of all of them.

    runs/NAME/
      settings.yaml    all settings; a run adds the values of its cell and its seed as flags
      sweep.yaml       recipe, seeds, grid, and the versions of rematch that ran it
      CELL/seed-3/     a run like any other; without a grid there is no CELL
      CELL/seed-3.log  the output of its processes
      sweep.md  sweep.json   the table

The same command again continues the sweep: finished runs are kept, unfinished ones are resumed, the others
are started (processes.py).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rematch
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.settings import strict_yaml
from rematch.core.system.interrupts import StopRequest
from rematch.reporting import sweep_text
from rematch.storage import atomic_files
from rematch.storage.run_folder import CONFIG_FILE, Run
from rematch.storage.run_lock import LOCK_FILE, RunLock
from rematch.sweeps.processes import WARNING, Task
from rematch.sweeps.results import seed_means, seed_result
from rematch.sweeps.run_place import Limits, RunPlace, Sizes, run_place
from rematch.training import memory_estimate, recipes
from rematch.training.config import start_notes
from rematch.training.setup import RunSetup
from rematch.worlds import conformance, registry

FILE, SETTINGS, TABLE, RESULT = "sweep.yaml", "settings.yaml", "sweep.md", "sweep.json"
MOST_RUNS = 1000
MOST_NAME = 120  # characters in the name of a cell's folder
SEEDS = "expected seeds like 0-9 or 1,4,7"
Configure = Callable[[Sequence[str]], Config]  # the settings of a run with additional flags


@dataclass(frozen=True)
class Cell:
    """One combination of the grid's values; its name is empty without a grid."""

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

    @property
    def configs(self) -> list[Config]:
        return [cell.config for cell in self.cells]

    def tasks(self) -> list[Task]:
        tasks = []
        for cell, seed in itertools.product(self.cells, self.seeds):
            name = f"{cell.name}/seed-{seed}".lstrip("/")
            flags = [f"--{key}={value}" for key, value in cell.values.items()]
            games = cell.config.evaluation.games  # its default follows from other settings
            if "evaluation.games" not in cell.values and games != self.cells[0].config.evaluation.games:
                flags.append(f"--evaluation.games={games}")
            command = ["train", str(self.folder / SETTINGS), *flags, f"--seed={seed}"]
            tasks.append(Task(name, self.folder / name, [*command, f"--name={self.folder / name}"],
                              total=cell.config.total_steps))
        return tasks


# --- the request ---------------------------------------------------------------------------------------


def read_seeds(text: str) -> tuple[int, ...]:
    """ "0-3,7" -> 0, 1, 2, 3, 7."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", part)
        if not match:
            raise ConfigError(f"--seeds = {text!r}: {SEEDS}")
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise ConfigError(f"--seeds = {text!r}: {part.strip()} is empty; expected {high}-{low}")
        if high >= 2**32 or len(seeds) + high - low >= MOST_RUNS:
            raise ConfigError(f"--seeds = {text!r}: expected at most {MOST_RUNS}, each from 0 to {2**32 - 1}")
        seeds += range(low, high + 1)
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise ConfigError(f"--seeds = {text!r}: seed {twice} is given twice; expected it once")
    return tuple(seeds)


def read_grid(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """ "key=a,b" -> the values of each key as texts; commas within brackets belong to a list."""
    grid: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, value_list = text.partition("=")
        key = name.strip().removeprefix("--").replace("-", "_")
        values = tuple(value.strip() for value in re.split(r",(?![^\[]*\])", value_list))
        if not key or not all(values):
            raise ConfigError(f"--grid = {text!r}: expected KEY=VALUE,VALUE, a list in brackets")
        if key == "seed":
            raise ConfigError(f"--grid = {text!r}: expected the seeds as --seeds, and another key in --grid")
        if key in grid:
            raise ConfigError(f"--grid {key} is given twice; expected all its values in one")
        grid[key] = values
    return grid


def cell_name(values: Mapping[str, str]) -> str:
    """A readable name for a cell's folder: ppo.lr=0.001_network.hidden=64-64."""
    text = "_".join(f"{key}={value}" for key, value in values.items())
    safe = re.sub(r"[^A-Za-z0-9._=+-]+", "-", text.replace("[", "").replace("]", ""))
    if len(safe) <= MOST_NAME:
        return safe
    return f"{safe[: MOST_NAME - 9]}-{atomic_files.sha256_hex(text.encode())[:8]}"


def make_plan(folder: Path, recipe: str, seeds: tuple[int, ...], grid: dict[str, tuple[str, ...]],
              configure: Configure) -> Plan:
    """The plan of a sweep, with the settings of every cell checked before any run starts."""
    count = len(seeds) * math.prod(len(values) for values in grid.values())
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
        conformance.check_user_game(config.game, config.world)
        memory_estimate.check(config)
        cells[name] = Cell(name, values, config)
    return Plan(recipe, folder, seeds, grid, tuple(cells.values()))


# --- the folder -------------------------------------------------------------------------------------------


def _grid_flags(grid: Mapping[str, Sequence[str]]) -> str:
    return " ".join(f"--grid {key}={','.join(values)}" for key, values in grid.items()) or "no grid"


def _refuse_other(plan: Plan, metadata: Mapping[str, Any]) -> None:
    """Refuse a sweep that differs from the one in its folder, with the differences in one line."""
    old_grid = {key.removeprefix("grid."): value for key, value in metadata.items()
                if key.startswith("grid.")}
    stored, config = recipes.configure(str(plan.folder / SETTINGS)), plan.cells[0].config
    old = {key: value for key, _, value in settings.leaves(stored)}
    new = {key: value for key, _, value in settings.leaves(config)}
    differ = [f"{key} = {new.get(key)!r:.40} instead of {old.get(key)!r:.40}"
              for key in sorted(old.keys() | new.keys(), key=lambda key: (key != "game", key))
              if key != "seed" and (key not in old or key not in new or old[key] != new[key])]
    new_grid = {key: list(values) for key, values in plan.grid.items()}
    if list(new_grid.items()) != list(old_grid.items()):
        differ = [f"{_grid_flags(new_grid)} instead of {_grid_flags(old_grid)}"]
    left_out = [seed for seed in read_seeds(metadata["seeds"]) if seed not in plan.seeds]
    if left_out and not differ:
        differ = [f"seeds {sweep_text.ranges(plan.seeds)} instead of {metadata['seeds']}: no seed may be "
                  "left out"]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise ConfigError(f"{plan.folder} holds another sweep: {', '.join(differ[:3])}{more}; "
                          "choose another --name, or give the same settings")


def read_metadata(plan: Plan) -> dict[str, Any]:
    """The content of the folder's sweep.yaml, empty where there is none yet; refuses another sweep."""
    folder = plan.folder
    if not os.path.lexists(folder):
        return {}
    if not os.path.lexists(folder / FILE):
        with atomic_files.os_errors_as_run_error(f"{folder} cannot be opened"):
            others = {name for name in os.listdir(folder) if not name.startswith(".tmp-")}
            others -= {LOCK_FILE, SETTINGS}
        if others:
            content = "holds a run" if CONFIG_FILE in others else "is not empty and not a sweep"
            raise ConfigError(f"{folder} {content}: choose another --name")
        return {}
    try:
        text = atomic_files.read_regular_file(folder / FILE, atomic_files.MAX_TEXT_BYTES).decode()
        metadata = settings.read_yaml(text, str(folder / FILE))
        if not all(isinstance(metadata[key], str) for key in ("rematch", "recipe", "seeds", "added")):
            raise KeyError
        _refuse_other(plan, metadata)
    except (KeyError, TypeError, UnicodeDecodeError):
        raise ConfigError(f"{folder / FILE} has unexpected content: choose another --name") from None
    return metadata


def write_metadata(plan: Plan, old: dict[str, Any]) -> dict[str, str]:
    """Write sweep.yaml, and settings.yaml for a new sweep; returns the metadata.

    Seeds that were added later, and every version of rematch, are recorded.
    """
    version = rematch.__version__
    versions = old.get("rematch", version)
    if version not in versions.split(", "):
        versions += f", {version}"
    first = read_seeds(old["seeds"]) if old else plan.seeds
    added = [] if not old or not old["added"] else list(read_seeds(old["added"]))
    added += [seed for seed in plan.seeds if seed not in (*first, *added)]
    new = {"rematch": versions, "recipe": plan.recipe, "seeds": sweep_text.ranges(plan.seeds),
           "added": sweep_text.ranges(added)}
    grid = {key: list(values) for key, values in plan.grid.items()}
    with atomic_files.os_errors_as_run_error(f"{plan.folder} cannot be written"):
        if not old:
            atomic_files.replace_file(plan.folder / SETTINGS, settings.to_yaml(plan.cells[0].config).encode())
        text = strict_yaml.dump({**new, "grid": grid})
        atomic_files.replace_file(plan.folder / FILE, text.encode())
    return new


def refuse_foreign(plan: Plan) -> None:
    """Refuse a folder in which a run of this sweep would be, but which holds a run with other settings."""
    for (cell, seed), task in zip(itertools.product(plan.cells, plan.seeds), plan.tasks()):
        if not task.started:
            continue
        try:
            with Run.open(task.folder, write=False) as run:
                stored = recipes.stored_config(run)
        except ConfigError:  # damaged: its resume reports the reason
            continue
        if stored != replace(cell.config, seed=seed):
            raise ConfigError(f"{task.folder} holds a run with other settings: choose another --name, or "
                              "move that run")


# --- the table --------------------------------------------------------------------------------------------


def result(plan: Plan, metadata: Mapping[str, str], tasks: Sequence[Task]) -> dict[str, Any]:
    """The table as JSON values. Without clock and machine: equal sweeps give equal bytes."""
    game = plan.cells[0].config.game
    names = registry.find(game).defaults.rate_names
    remaining, cells = iter(tasks), []
    for cell in plan.cells:
        rows = [seed_result(next(remaining), seed, names) for seed in plan.seeds]
        cells.append({"cell": cell.name, "values": cell.values, "runs": rows, "iqm": seed_means(rows),
                      "notes": start_notes(cell.config, RunSetup(cell.config).spec)})
    counts = {state: sum(task.state == state for task in tasks)
              for state in ("finished", "failed", "unfinished", "waiting")}
    return {"sweep": plan.folder.name, **metadata, "game": game,
            "grid": {key: list(values) for key, values in plan.grid.items()}, **counts, "cells": cells}


def write_tables(plan: Plan, table: Mapping[str, Any]) -> None:
    with atomic_files.os_errors_as_run_error(f"{plan.folder}: the table was not written"):
        atomic_files.replace_file(plan.folder / RESULT, (json.dumps(table, indent=1) + "\n").encode())
        markdown = "\n".join([*sweep_text.markdown(table), ""])
        atomic_files.replace_file(plan.folder / TABLE, markdown.encode())


# --- running ----------------------------------------------------------------------------------------------


def run(plan: Plan, limits: Limits, log: Callable[[str], None], command: str) -> dict[str, Any]:
    """Train all runs of a plan, or as many as finish before a stop; returns the table.

    `log` receives the lines of the sweep, `command` continues it.
    """
    read_metadata(plan)  # refuses another sweep before anything is started
    refuse_foreign(plan)
    with run_place(limits.cluster) as place:
        sizes = place.sizes(plan.configs, len(plan.cells) * len(plan.seeds), limits.jobs)
        return _run(plan, place, sizes, limits.minutes, (log, command))


def _run(
    plan: Plan, place: RunPlace, sizes: Sizes, minutes: float | None,
    words: tuple[Callable[[str], None], str],
) -> dict[str, Any]:  # fmt: skip
    """Train all runs; words: log and command."""
    line, (log, command) = sizes[2], words
    old = read_metadata(plan)
    with atomic_files.os_errors_as_run_error(f"{plan.folder} cannot be made"):
        plan.folder.mkdir(0o700, parents=True, exist_ok=True)
        lock = RunLock(plan.folder)
    try:
        metadata = write_metadata(plan, read_metadata(plan))  # again: another process may have been faster
        tasks = plan.tasks()
        log(f"sweep {plan.folder}: {len(tasks)} runs; {line}")
        if metadata["added"] and metadata["added"] != old.get("added", ""):
            log(f"seeds {metadata['added']} are new: the table will mark them as added later")
        for cell in plan.cells:
            for note in start_notes(cell.config, RunSetup(cell.config).spec):
                log(f"note on {cell.name or 'every run'}: {note.removeprefix('note: ')}")
        with StopRequest(minutes) as stop:
            children = place.children(plan.configs, tasks, sizes, log)
            if finished := len(tasks) - len(children.todo):
                log(f"{finished} of them finished earlier")
            children.run(stop)
            table = result(plan, metadata, tasks)
            write_tables(plan, table)
        warnings = sorted(warning.removeprefix(WARNING) for warning in children.warnings)
        for text in ["", *(f"WARNING of a run: {warning}" for warning in warnings), *sweep_text.lines(table)]:
            log(text)
        if stop.reason and table["finished"] + table["failed"] < len(tasks):
            log(f"stopped ({stop.reason}); continue with: {command}")
        return table
    finally:
        lock.release()


def usual_folder(recipe: str) -> Path:
    """The default folder of a recipe's sweep; it never changes, so the same command continues it."""
    return Path("runs") / f"{Path(recipe).stem}-sweep"


def flag_text(value: Any) -> str:
    """A value in the form of a flag."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)
