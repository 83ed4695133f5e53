"""Savestates of the user: the `.state` files of a folder, and a manifest with their names.

The folder may hold `manifest.json`, a name for each file, with an optional start group and milestones that
the game's memory does not show:

    {"pallet_town_start": "pallet_town.state",
     "pewter_city_gym": {"file": "pewter.state", "start_group": "early", "milestones": ["PewterCity"]}}

A file that the manifest does not name has the name of the file. Files that the world refuses are reported and
left out; a mistake in the manifest is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError, Damaged
from rematch.core.settings.setting_names import nearest
from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.start_states import POWER_ON, START_GROUPS
from rematch.storage import atomic_files

MANIFEST, SUFFIX = "manifest.json", ".state"
MAX_BYTES = 64 << 20  # of one of these files
IMPORTED_GAME = -2  # `game` of a start that the user supplied
KEYS = ("file", "start_group", "milestones")


@dataclass(frozen=True)
class StateFile:
    """One file of the folder, and what the manifest says about it."""

    file: str
    name: str
    start_group: str = ""  # "": the world decides
    milestones: tuple[str, ...] = ()  # in addition to those that the world reads from the state


def import_folder(folder: str, archive: Archive) -> list[str]:
    """Add the states of a folder to the archive. Returns lines for the log, one per file."""
    place = Path(folder).expanduser()
    entries = state_files(place, archive.milestone_names)
    contents = [(entry.file, _read(place / entry.file)) for entry in entries]
    lines: list[str] = []
    for entry, result in zip(entries, archive.world.import_states(contents)):
        if isinstance(result, ConfigError):
            lines.append(f"Savestate refused: {result}")
            continue
        reached = {*result.milestones, *entry.milestones}
        milestones = tuple(name for name in archive.milestone_names if name in reached)
        bundle = replace(result, milestones=milestones, start_group=entry.start_group or result.start_group)
        origin = {"milestone": entry.name, "step": 0, "game": IMPORTED_GAME, "parent": POWER_ON}
        if archive.add_imported(bundle, origin):
            lines.append(f"Savestate {entry.name}: {bundle.start_group}, {bundle.map}, {len(milestones)} "
                         f"milestones, from {entry.file}")
        else:
            lines.append(f"Savestate refused: {entry.file}: the same state as another file")
    if not archive.starts:
        reasons = "; ".join(line.removeprefix("Savestate refused: ") for line in lines[:3])
        raise ConfigError(f"savestates.import_from = {folder!r}: no file is a usable savestate: {reasons}")
    return lines


def state_files(folder: Path, milestones: Sequence[str]) -> list[StateFile]:
    """The state files of a folder, by name of the file; ConfigError if there are none."""
    where = f"savestates.import_from = {str(folder)!r}"
    if not folder.is_dir():
        raise ConfigError(f"{where}: no such folder: expected one with {SUFFIX} files")
    files = sorted(path.name for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file())
    if not files:
        raise ConfigError(f"{where}: no {SUFFIX} file in it: expected at least one")
    entries = {entry.file: entry for entry in read_manifest(folder / MANIFEST, files, milestones)}
    return [entries.get(file, StateFile(file, file.removesuffix(SUFFIX))) for file in files]


def read_manifest(path: Path, files: Sequence[str], milestones: Sequence[str]) -> list[StateFile]:
    if not path.exists():
        return []
    try:
        body = atomic_files.read_json(atomic_files.read_regular_file(path, MAX_BYTES), MANIFEST)
    except Damaged as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(body, dict):
        raise ConfigError(f"{path}: expected an object: name -> file, or name -> {{{', '.join(KEYS)}}}")
    entries = [_entry(f"{path}: {name}", name, value) for name, value in body.items()]
    for index, entry in enumerate(entries):
        _expect(f"{path}: {entry.name}: file", entry.file, files)
        for milestone in entry.milestones:
            _expect(f"{path}: {entry.name}: milestone", milestone, milestones)
        if any(other.file == entry.file for other in entries[:index]):
            raise ConfigError(f"{path}: {entry.name}: {entry.file} has two names; expected one")
    return entries


def _entry(where: str, name: str, value: Any) -> StateFile:
    body = {"file": value} if isinstance(value, str) else value
    if not isinstance(body, dict) or not isinstance(body.get("file"), str):
        raise ConfigError(f"{where}: expected the name of a file, or an object with the key file")
    for key in body:
        _expect(f"{where}: key", key, KEYS)
    names = body.get("milestones", [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ConfigError(f"{where}: milestones: expected a list of names")
    if "start_group" in body:
        _expect(f"{where}: start_group", body["start_group"], START_GROUPS)
    return StateFile(body["file"], name, body.get("start_group", ""), tuple(names))


def _expect(where: str, word: Any, among: Sequence[str]) -> None:
    if word in among:
        return
    near = nearest(str(word), among)
    expected = f"nearest: {near}" if near else f"expected one of {', '.join(among[:8]) or 'none'}"
    raise ConfigError(f"{where} {word!r} is unknown; {expected}")


def _read(path: Path) -> bytes:
    """The content of a file; a link is followed. An unreadable file is empty: the world refuses it."""
    try:
        return atomic_files.read_regular_file(path.resolve(), MAX_BYTES)
    except (Damaged, OSError):
        return b""
