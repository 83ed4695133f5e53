"""The league of a run from its newest checkpoint: every opponent with the learner's score against it.

Only state.json is read: no weights, no digests. The folder may come from someone else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rematch.evaluation.text import clean
from rematch.reporting import untrusted_folder
from rematch.reporting.untrusted_folder import Unreadable
from rematch.storage.checkpoint import STATE_FILE
from rematch.verbs.runs import newest_checkpoint

Json = dict[str, Any]
MOST_BYTES = 32 << 20
MOST_OPPONENTS = 200  # of one role
KINDS = {"rivals": "snapshot", "scripted": "scripted"}  # key of a pool -> kind of its opponents


def league(folder: Path) -> Json:
    """{"iteration", "roles": {role: [opponent]}}; no roles where the run has no league or no checkpoint."""
    empty: Json = {"iteration": None, "roles": {}}
    iteration = newest_checkpoint(folder)
    checkpoint = folder / "checkpoints" / f"iter_{iteration:08d}"
    if not (untrusted_folder.is_folder(checkpoint.parent) and untrusted_folder.is_folder(checkpoint)):
        return empty
    try:
        if os.lstat(checkpoint / STATE_FILE).st_size > MOST_BYTES:
            return empty
        pools = untrusted_folder.read_json(checkpoint, STATE_FILE)["league"]["pools"]
        roles = {clean(str(role))[:60]: opponents(pool) for role, pool in pools.items()}
    except (OSError, Unreadable, KeyError, TypeError, AttributeError, ValueError):
        return empty
    return {"iteration": iteration, "roles": {role: rows for role, rows in roles.items() if rows}}


def opponents(pool: Json) -> list[Json]:
    """The opponents of a pool, those that beat the learner most often first."""
    rows = [row for key, kind in KINDS.items() for entry in pool[key] if (row := opponent(entry, kind))]
    known = [row for row in rows if row["score"] is not None]
    unknown = [row for row in rows if row["score"] is None]
    return [*sorted(known, key=lambda row: float(row["score"])), *unknown][:MOST_OPPONENTS]


def opponent(entry: Json, kind: str) -> Json:
    """Games and score are of recent training games: older ones count less."""
    games, score = float(entry["games"]), float(entry["score"])
    share = min(1.0, max(0.0, score / games)) if games >= 1 else None
    return {"name": clean(str(entry["name"]))[:100], "kind": kind, "games": round(games, 1), "score": share}
