"""A sweep's folder, looked at: its plan and its table as they stand now. Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.reporting import sweep_text as show
from rematch.reporting.status import ALARM, FINE, STOPPED
from rematch.storage import atomic_files
from rematch.storage.run_folder import CONFIG_FILE
from rematch.storage.run_lock import lock_holder
from rematch.sweeps import plan as sweeps

LARGEST_TABLE = 1 << 26  # bytes of sweep.json


def is_sweep(folder: Path) -> bool:
    return (folder / sweeps.FILE).is_file() and not (folder / CONFIG_FILE).exists()


def reopened(folder: Path) -> tuple[sweeps.Plan, dict[str, str]]:
    """The plan that a sweep's folder was made by, and what it remembers of it."""
    file, own = folder / sweeps.FILE, str(folder / sweeps.SETTINGS)
    try:
        about = settings.read_yaml(
            atomic_files.read_regular_file(file, atomic_files.MAX_TEXT_BYTES).decode(), str(file)
        )
        grid = {key.removeprefix("grid."): tuple(map(str, values)) for key, values in about.items()
                if key.startswith("grid.")}
        told = {key: str(about[key]) for key in ("rematch", "recipe", "seeds", "added")}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{file} does not hold what it should") from None
    return sweeps.make_plan(folder, told["recipe"], sweeps.read_seeds(told["seeds"]), grid,
                            lambda more: api.configure(own, flags=more)), told


def begun(folder: Path) -> list[Path]:
    """The folders of a sweep's runs that have begun, in the table's order."""
    plan, _ = reopened(folder)
    found = [task.folder for task in plan.tasks() if task.begun]
    if not found:
        raise ConfigError(f"{folder}: none of its runs has begun")
    return found


def status(folder: Path) -> dict[str, Any]:
    """The sweep's table as it would be now, with `exit` and `lines`, like a run's status."""
    plan, about = reopened(folder)
    tasks, failures = plan.tasks(), _failures(folder)
    for task in tasks:
        if task.finished() or not task.begun:
            continue
        task.state = "unfinished"
        if task.name in failures and not lock_holder(task.folder):
            task.state, task.why = "failed", failures[task.name]
    found = sweeps.result(plan, about, tasks)
    who, left = lock_holder(folder), len(tasks) - found["finished"]
    found["holder"] = who
    found["exit"] = ALARM if found["failed"] else STOPPED if left and not who else FINE
    lines = show.lines(found)
    if who:
        lines.append(f"running (held by {who})")
    elif left:
        lines.append("next: the same sweep command again goes on")
    return found | {"lines": lines}


def _failures(folder: Path) -> Mapping[str, str]:
    """Which runs the newest table calls failed, and why."""
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        table = json.loads(atomic_files.read_regular_file(folder / sweeps.RESULT, LARGEST_TABLE))
        return {row["run"]: str(row["why"]) for cell in table["cells"] for row in cell["runs"]
                if row["state"] == "failed"}
    return {}
