"""Files of the savestate archive in the run folder, and how they are restored to a checkpoint after a kill.

    savestates/NAME_STEP.state   a start state: a bundle of the world
    pyboy_states/NAME_STEP.state the same state as PyBoy itself loads it; not for states between milestones
    savestates/index.json        one line per start: milestones, start group, parent, visits, successes
    frontier.inputs              inputs from power-on to the furthest state of any chain of savestates
    milestones.json              the step at which each milestone was first reached, by any chain ("frontier")
                                 and in an episode from power-on ("cold"); null: not within `steps` (censored)
                                 "scouted": steps of the explorers until then, in runs with explorers

The line of a start is written before its file: a file that the index does not name is not of this run.
Checkpoints hold the same data. A damaged file is written again from them, and no file is trusted.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from rematch.core.errors import Damaged
from rematch.curriculum.savestate_archive import Archive
from rematch.storage import atomic_files

PLAIN_FOLDER = "pyboy_states"
FOLDER, INDEX, FRONTIER, MILESTONES = "savestates", "index.json", "frontier.inputs", "milestones.json"
MOST_ROWS = 500  # savestates in a report
MAX_BYTES = 1 << 28  # of one of these files, when it is read


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return ("[" + ",".join("\n" + json.dumps(row) for row in rows) + "\n]\n").encode()


def frontier_file(archive: Archive) -> bytes | None:
    """Content of frontier.inputs: the inputs from power-on as [name, repetitions]."""
    if archive.frontier is None:
        return None
    body = asdict(archive.frontier)
    names = [archive.action_names[action] for action in body.pop("actions")]
    body["inputs"] = [[name, len(list(repeated))] for name, repeated in groupby(names)]
    head = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in body.items())
    return f"{{\n{head}\n}}\n".encode()


def milestones_file(archive: Archive, steps: int) -> bytes:
    """Content of milestones.json; steps: those of all games together so far."""
    unreached = {"frontier": None, "cold": None}
    entries = {name: unreached | archive.first_steps.get(name, {}) for name in archive.milestone_names}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    mode = json.dumps(archive.mode)
    return f'{{"swarm": {mode}, "steps": {steps}, "milestones": {{\n{lines}\n}}}}\n'.encode()


def write_files(archive: Archive, files: Any, steps: int, first_new: int) -> None:
    """Bring the files up to date; the starts from number `first_new` on have no file yet."""
    if archive.starts:
        rows = [start.to_dict() for start in (archive.power_on, *archive.starts)]
        files.write_file(f"{FOLDER}/{INDEX}", _json_lines(rows))
    for number in range(first_new, len(archive.starts)):
        bundle, file = archive.world.library[number], archive.starts[number].file
        files.write_file(f"{FOLDER}/{file}", bundle.pack())
        if not bundle.place:
            files.write_file(f"{PLAIN_FOLDER}/{file}", bundle.emulator())
    if frontier := frontier_file(archive):
        files.write_file(FRONTIER, frontier)
    files.write_file(MILESTONES, milestones_file(archive, steps))


def restore_files(archive: Archive, files: Any, steps: int) -> list[str]:
    """After a resume: restore the files to the checkpoint. Returns a note per file that differed."""
    folder, notes = files.folder / FOLDER, []
    if os.path.lexists(folder):
        atomic_files.subfolder(files.folder, FOLDER)  # refuses a link that leads out of the run folder
    expected = {start.file: archive.world.library[number].pack()
                for number, start in enumerate(archive.starts)}  # fmt: skip
    listed = _listed(folder)
    existing = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    for name in sorted(existing - {INDEX}):
        if name in expected:
            continue
        if name in listed:  # written after the checkpoint
            atomic_files.remove(folder / name)
            _remove_plain(files.folder, name)
        else:
            notes.append(f"{folder / name}: not a savestate of this run; not used and not changed")
    for name, data in expected.items():
        if _read(folder / name) != data:
            notes.append(f"{folder / name} was missing or damaged: written again from the checkpoint")
            files.write_file(f"{FOLDER}/{name}", data)
    for number, start in enumerate(archive.starts):  # a run of an older version has none of these
        bundle = archive.world.library[number]
        if not bundle.place and not os.path.lexists(files.folder / PLAIN_FOLDER / start.file):
            files.write_file(f"{PLAIN_FOLDER}/{start.file}", bundle.emulator())
    for path in (folder / INDEX, files.folder / FRONTIER, files.folder / MILESTONES):
        atomic_files.remove(path)
    if steps:
        write_files(archive, files, steps, len(archive.starts))
    return notes


def _read(path: Path) -> bytes | None:
    try:
        return atomic_files.read_regular_file(path, MAX_BYTES)
    except (Damaged, OSError):
        return None


def _remove_plain(run_folder: Path, name: str) -> None:
    if os.path.isdir(run_folder / PLAIN_FOLDER):
        atomic_files.subfolder(run_folder, PLAIN_FOLDER)  # refuses a link that leads out of the run folder
        atomic_files.remove(run_folder / PLAIN_FOLDER / name)


def _listed(folder: Path) -> set[str]:
    """File names in the index on disk; none if it cannot be read."""
    try:
        rows = atomic_files.read_json(_read(folder / INDEX) or b"[]", INDEX)
        return {row["file"] for row in rows if isinstance(row["file"], str)}
    except (Damaged, KeyError, TypeError, ValueError):
        return set()


def first_steps(folder: Path) -> dict[str, dict[str, int | None]]:
    """Milestone -> the steps at which a run reached it first: "frontier" from any savestate, "cold" from
    power-on; None: not yet. Empty for a run without milestones."""
    try:
        body = atomic_files.read_json(_read(folder / MILESTONES) or b"{}", MILESTONES)
        entries = body["milestones"].items()
        return {str(name): {key: entry[key] if type(entry[key]) is int else None
                            for key in ("frontier", "cold")} for name, entry in entries}
    except (Damaged, KeyError, TypeError, ValueError, AttributeError):
        return {}


def savestate_rows(folder: Path) -> list[dict[str, Any]]:
    """The first MOST_ROWS lines of savestates/index.json, power-on first; empty where one is damaged."""
    kinds = {"file": str, "milestone": str, "map": str, "band": str,
             "step": int, "parent": int, "visits": int, "successes": int}
    try:
        rows = atomic_files.read_json(_read(folder / FOLDER / INDEX) or b"[]", INDEX)[:MOST_ROWS]
        valid = all(type(row[key]) is kind for row in rows for key, kind in kinds.items())
        return [{key: row[key] for key in kinds} for row in rows] if valid else []
    except (Damaged, KeyError, TypeError, ValueError):
        return []


def summary_lines(folder: Path) -> list[str]:
    """Two lines about a run folder: milestones of the frontier, and those reached from power-on."""
    try:
        body = atomic_files.read_json(_read(folder / MILESTONES) or b"{}", MILESTONES)
        entries = body["milestones"].items()
        steps_by_name = {str(name): (entry["frontier"], entry["cold"]) for name, entry in entries}
        steps, finished = int(body["steps"]), False
        if frontier := _read(folder / FRONTIER):
            finished = bool(atomic_files.read_json(frontier, FRONTIER)["finished"])
    except (Damaged, KeyError, TypeError, ValueError, AttributeError):
        return []
    any_chain = [name for name, (step, _) in steps_by_name.items() if type(step) is int]
    from_power_on = [name for name, (_, step) in steps_by_name.items() if type(step) is int]
    end = "the end of the game, " if finished else ""
    return [
        f"frontier (any chain of savestates): {end}{len(any_chain)} of {len(steps_by_name)} milestones "
        f"within {steps:,} steps",
        f"from power-on in training (the best episodes): {len(from_power_on)} of {len(steps_by_name)} "
        "milestones; evaluations report how often the policy reaches them",
    ]
