"""What a swarm leaves in its run's folder, and how that is brought back to a checkpoint after a kill.

    savestates/NAME_STEP.state   a start: the world's own bundle
    savestates/index.json        a line for each: milestones, band, parent, visits, successes
    frontier.inputs              the furthest that any chain of savestates came, as inputs from power-on
    milestones.json              the step at which each milestone was first reached, by any chain ("frontier")
                                 and in an episode from power-on ("cold"); null: not within `steps` (censored)
                                 "scouted": how many steps scouts had made by then, where there are any

A line of the index is written before its file: whatever file the index does not name is not the run's own.
Checkpoints hold all of it themselves, so what is damaged here is written again, and nothing here is trusted.
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

FOLDER, INDEX, FRONTIER, MILESTONES = "savestates", "index.json", "frontier.inputs", "milestones.json"
LARGEST = 1 << 28  # bytes of one of these files that are read


def _rows(rows: list[dict[str, Any]]) -> bytes:
    return ("[" + ",".join("\n" + json.dumps(row) for row in rows) + "\n]\n").encode()


def frontier_of(swarm: Archive) -> bytes | None:
    """frontier.inputs: inputs as [name, how often], from power-on."""
    if swarm.frontier is None:
        return None
    body = asdict(swarm.frontier)
    names = [swarm.actions[action] for action in body.pop("actions")]
    body["inputs"] = [[name, len(list(again))] for name, again in groupby(names)]
    head = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in body.items())
    return f"{{\n{head}\n}}\n".encode()


def milestones_of(swarm: Archive, steps: int) -> bytes:
    """milestones.json; `steps` of all games together were made so far."""
    times = {name: {"frontier": None, "cold": None} | swarm.reached.get(name, {}) for name in swarm.names}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in times.items())
    swarmed = json.dumps(swarm.kind)
    return f'{{"swarm": {swarmed}, "steps": {steps}, "milestones": {{\n{lines}\n}}}}\n'.encode()


def write(swarm: Archive, files: Any, steps: int, since: int) -> None:
    """Bring the files up to date; starts from number `since` on have no file yet."""
    if swarm.starts:
        rows = [asdict(start) for start in (swarm.power_on, *swarm.starts)]
        files.write_file(f"{FOLDER}/{INDEX}", _rows(rows))
    for number in range(since, len(swarm.starts)):
        files.write_file(f"{FOLDER}/{swarm.starts[number].file}", swarm.world.library[number].pack())
    if frontier := frontier_of(swarm):
        files.write_file(FRONTIER, frontier)
    files.write_file(MILESTONES, milestones_of(swarm, steps))


def settle(swarm: Archive, files: Any, steps: int) -> list[str]:
    """After a resume: the files as they stood at the checkpoint; a line for each that was not so."""
    folder, notes = files.folder / FOLDER, []
    if os.path.lexists(folder):
        atomic_files.subfolder(files.folder, FOLDER)  # a link would lead out and is refused
    wanted = {start.file: swarm.world.library[number].pack() for number, start in enumerate(swarm.starts)}
    listed, there = _listed(folder), set(os.listdir(folder)) if os.path.isdir(folder) else set()
    for name in sorted(there - {INDEX}):
        if name in wanted:
            continue
        if name in listed:  # of a time that did not happen
            atomic_files.remove(folder / name)
        else:
            notes.append(f"{folder / name}: not a savestate of this run: left alone, and not used")
    for name, data in wanted.items():
        if _read(folder / name) != data:
            notes.append(f"{folder / name} was missing or damaged: written again from the checkpoint")
            files.write_file(f"{FOLDER}/{name}", data)
    for path in (folder / INDEX, files.folder / FRONTIER, files.folder / MILESTONES):
        atomic_files.remove(path)
    if steps:
        write(swarm, files, steps, len(swarm.starts))
    return notes


def _read(path: Path) -> bytes | None:
    try:
        return atomic_files.read_regular_file(path, LARGEST)
    except (Damaged, OSError):
        return None


def _listed(folder: Path) -> set[str]:
    """The names in the index as it lies there; none where it cannot be read."""
    try:
        rows = atomic_files.read_json(_read(folder / INDEX) or b"[]", INDEX)
        return {row["file"] for row in rows if isinstance(row["file"], str)}
    except (Damaged, KeyError, TypeError, ValueError):
        return set()


def summary_lines(folder: Path) -> list[str]:
    """Of a run's folder: the frontier and the cold start so far, a line each, never one number."""
    try:
        body = atomic_files.read_json(_read(folder / MILESTONES) or b"{}", MILESTONES)
        times = {str(name): (found["frontier"], found["cold"]) for name, found in body["milestones"].items()}
        steps, finished = int(body["steps"]), False
        if frontier := _read(folder / FRONTIER):
            finished = bool(atomic_files.read_json(frontier, FRONTIER)["finished"])
    except (Damaged, KeyError, TypeError, ValueError, AttributeError):
        return []
    any_chain = [name for name, (chain, _) in times.items() if type(chain) is int]
    cold = [name for name, (_, alone) in times.items() if type(alone) is int]
    end = "the end of the game, " if finished else ""
    return [
        f"frontier (any chain of savestates): {end}{len(any_chain)} of {len(times)} milestones "
        f"within {steps:,} steps",
        f"from power-on in training (the best episodes): {len(cold)} of {len(times)} milestones; how often "
        "the policy gets there, evaluations tell",
    ]
