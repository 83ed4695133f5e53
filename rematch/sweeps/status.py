"""`rematch status` of a sweep: its plan and its present table. It only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.reporting import sweep_text
from rematch.reporting.status import ALARM, FINE, STOPPED
from rematch.storage import atomic_files
from rematch.storage.run_folder import CONFIG_FILE
from rematch.storage.run_lock import lock_holder
from rematch.sweeps import plan as sweeps
from rematch.training import recipes

LARGEST_TABLE = 1 << 26  # bytes of sweep.json


def is_sweep(folder: Path) -> bool:
    return (folder / sweeps.FILE).is_file() and not (folder / CONFIG_FILE).exists()


def load_plan(folder: Path) -> tuple[sweeps.Plan, dict[str, str]]:
    """The plan of the sweep in a folder, and its metadata."""
    file, recipe = folder / sweeps.FILE, str(folder / sweeps.SETTINGS)
    try:
        text = atomic_files.read_regular_file(file, atomic_files.MAX_TEXT_BYTES).decode()
        stored = settings.read_yaml(text, str(file))
        grid = {key.removeprefix("grid."): tuple(map(str, values)) for key, values in stored.items()
                if key.startswith("grid.")}
        metadata = {key: str(stored[key]) for key in ("rematch", "recipe", "seeds", "added")}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{file} has unexpected content") from None
    plan = sweeps.make_plan(folder, metadata["recipe"], sweeps.read_seeds(metadata["seeds"]), grid,
                            lambda flags: recipes.configure(recipe, flags=flags))
    return plan, metadata


def started_runs(folder: Path) -> list[Path]:
    """The folders of a sweep's runs that have started, in the table's order."""
    plan, _ = load_plan(folder)
    folders = [task.folder for task in plan.tasks() if task.started]
    if not folders:
        raise ConfigError(f"{folder}: none of its runs has started")
    return folders


def status(folder: Path) -> dict[str, Any]:
    """The sweep's present table, with `exit` and `lines`, like a run's status."""
    plan, metadata = load_plan(folder)
    tasks, failures = plan.tasks(), _failures(folder)
    for task in tasks:
        if task.finished() or not task.started:
            continue
        task.state = "unfinished"
        if task.name in failures and not lock_holder(task.folder):
            task.state, task.why = "failed", failures[task.name]
    table = sweeps.result(plan, metadata, tasks)
    process, unfinished = lock_holder(folder), len(tasks) - table["finished"]
    table["holder"] = process
    table["exit"] = ALARM if table["failed"] else STOPPED if unfinished and not process else FINE
    lines = sweep_text.lines(table)
    if process:
        lines.append(f"running (locked by {process})")
    elif unfinished:
        lines.append("next: run the same sweep command again to continue")
    return table | {"lines": lines}


def _failures(folder: Path) -> Mapping[str, str]:
    """The runs that failed according to the newest table, with the reason: name -> last line."""
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        table = json.loads(atomic_files.read_regular_file(folder / sweeps.RESULT, LARGEST_TABLE))
        return {row["run"]: str(row["why"]) for cell in table["cells"] for row in cell["runs"]
                if row["state"] == "failed"}
    return {}
