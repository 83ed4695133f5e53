"""What the page of gameboy reads from a run folder beside its map: savestates, milestones with posteriors.

It opens no emulator. The folder may come from someone else: every number and name is checked.
"""

from __future__ import annotations

import csv
import io
import math
import os
import stat
from pathlib import Path
from typing import Any

from rematch.curriculum import archive_files
from rematch.evaluation.text import clean
from rematch.reporting import untrusted_folder
from rematch.reporting.html.stored_map import MOST_BYTES, StoredState
from rematch.reporting.untrusted_folder import Unreadable
from rematch.storage import atomic_files

Json = dict[str, Any]
PROGRESS = "progress.csv"
MOST_MILESTONES, CURVE_POINTS = 200, 200


def state_bytes(folder: Path, stored: StoredState) -> bytes:
    """The content of a savestate's file; its name comes from the checked index."""
    inner = folder / archive_files.FOLDER
    if not stat.S_ISDIR(os.lstat(inner).st_mode):
        raise Unreadable(f"{archive_files.FOLDER} is not a folder")
    return atomic_files.read_regular_file(inner / stored.file, MOST_BYTES)


def read_posteriors(folder: Path) -> dict[str, Json]:
    """By milestone: step, mean and 95 % interval of its success probability, at most CURVE_POINTS each."""
    try:
        if os.lstat(folder / PROGRESS).st_size > MOST_BYTES:
            return {}
        text = untrusted_folder.read(folder, PROGRESS).decode("utf-8", "replace")
    except (OSError, Unreadable):
        return {}
    names = ("mean", "low95", "high95")
    rows: dict[str, list[tuple[float, ...]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(text)):
            values = (int(row["step"]), *(round(float(row[name]), 4) for name in names))
            if all(math.isfinite(value) for value in values) and len(rows) <= MOST_MILESTONES:
                rows.setdefault(clean(row["milestone"])[:80], []).append(values)
    except (KeyError, TypeError, ValueError, csv.Error):  # the last line may be incomplete
        pass
    out = {}
    for name, points in rows.items():
        stride = -(-len(points) // CURVE_POINTS)
        columns = zip(*points[::-stride][::-1])
        out[name] = dict(zip(("step", "mean", "low", "high"), map(list, columns)))
    return out


def milestones(folder: Path) -> list[Json]:
    """The milestones in the order in which they were first reached, then the others."""
    posteriors, out = read_posteriors(folder), []
    for name, steps in list(archive_files.first_steps(folder).items())[:MOST_MILESTONES]:
        shown = clean(name)[:80]
        out.append({"name": shown, **steps, "curve": posteriors.get(shown)})
    return sorted(out, key=lambda row: (row["frontier"] is None, row["frontier"] or 0))
