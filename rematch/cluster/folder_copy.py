"""Copies a folder that grows, change by change, so that the copy can be resumed at any instant.

A run that trains on another machine has its folder there; the copy here gets the bytes that are new. A
checkpoint needs everything that was written before it. Therefore checkpoints are read first and written last,
each as a whole: a copy may have logs without the newest checkpoint, never the other way round.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rematch.core.arrays import Tree, stored_int, stored_list, stored_text
from rematch.core.errors import ConfigError
from rematch.storage import atomic_files
from rematch.storage.run_lock import LOCK_FILE

TEMPORARY = ".tmp-"  # start of the names of files that are being written
CHECKPOINTS = "checkpoints"
MOST_BYTES = 64 << 20  # of one message; the rest follows in the next


@dataclass(frozen=True)
class Sent:
    """A file as it was sent: its size, its time of change, and the SHA-256 of its bytes."""

    size: int
    changed: int
    digest: str


def _is_checkpoint(name: str) -> bool:
    return CHECKPOINTS in PurePosixPath(name).parts[:-1]


def _unit(name: str) -> str:
    """The checkpoint folder that a file belongs to; such files travel together."""
    return str(PurePosixPath(name).parent) if _is_checkpoint(name) else name


class FolderReader:
    """Reads what has changed in a folder since the last call."""

    def __init__(self, folder: Path, left_out: Collection[str] = ()) -> None:
        """left_out: files and folders that are not copied."""
        self.folder, self.left_out = folder, left_out
        self.sent: dict[str, Sent] = {}

    def changes(self) -> Tree:
        """Files as [name, offset, bytes] in the order in which they must be written, and removed names."""
        names = self._names()
        checkpoints = [name for name in names if _is_checkpoint(name)]
        others = [name for name in names if not _is_checkpoint(name)]
        late, complete = self._read(checkpoints, MOST_BYTES)
        early, complete_others = self._read(others, MOST_BYTES)
        if not complete_others:  # a checkpoint must not arrive before the files that it needs
            for name, _, _ in late:
                del self.sent[name]
            late, complete = [], False
        gone = sorted(self.sent.keys() - set(names)) if complete else []
        for name in gone:
            del self.sent[name]
        return {"files": early + late, "removed": gone, "complete": complete and complete_others}

    def _names(self) -> list[str]:
        """The files of the folder, without locks and unfinished ones."""
        names = []
        for path in sorted(self.folder.rglob("*")):
            parts = path.relative_to(self.folder).parts
            skipped = parts[0] in self.left_out or any(part.startswith(TEMPORARY) for part in parts)
            if not skipped and path.name != LOCK_FILE and path.is_file() and not path.is_symlink():
                names.append("/".join(parts))
        return names

    def _read(self, names: list[str], most: int) -> tuple[list[list[Any]], bool]:
        """The new bytes of these files, and whether that is all of them."""
        files: list[list[Any]] = []
        size, unit = 0, ""
        for name in names:
            if size > most and _unit(name) != unit:
                return files, False
            unit = _unit(name)
            with suppress(OSError):  # deleted since it was listed
                if (entry := self._new_bytes(name)) is not None:
                    files.append(entry)
                    size += len(entry[2])
        return files, True

    def _new_bytes(self, name: str) -> list[Any] | None:
        path, old = self.folder / name, self.sent.get(name)
        facts = path.stat()
        if old is not None and (old.size, old.changed) == (facts.st_size, facts.st_mtime_ns):
            return None
        data = path.read_bytes()
        self.sent[name] = Sent(len(data), facts.st_mtime_ns, _digest(data))
        grown = old is not None and len(data) > old.size and _digest(data[: old.size]) == old.digest
        offset = old.size if grown and old is not None else 0
        return [name, offset, np.frombuffer(data[offset:], np.uint8)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def apply(folder: Path, changes: Tree) -> None:
    """Write the changes into the copy; ConfigError where they name a file outside of it."""
    entries = [_entry(entry) for entry in stored_list(changes, "files")]
    removed = [_checked_name(name) for name in stored_list(changes, "removed")]
    units: dict[str, list[tuple[str, int, bytes]]] = {}
    for entry in entries:
        units.setdefault(_unit(entry[0]), []).append(entry)
    with atomic_files.os_errors_as_run_error(f"{folder}: the copy of the run cannot be written"):
        for unit, files in units.items():
            if _is_checkpoint(files[0][0]) and not (folder / unit).exists():
                _write_new_folder(folder / unit, files)
                continue
            for name, offset, data in files:
                _write(folder / name, offset, data)
        for name in removed:
            _remove(folder, name)


def _entry(entry: Any) -> tuple[str, int, bytes]:
    name, offset, data = stored_list({"file": entry}, "file", 3)
    place = stored_int({"offset": offset}, "offset")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
        raise ConfigError(f"{name}: expected bytes")
    return _checked_name(name), place, data.tobytes()


def _checked_name(name: Any) -> str:
    text = stored_text({"name": name}, "name")
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text:
        raise ConfigError(f"{text!r}: expected the name of a file inside the folder")
    return text


def _write(path: Path, offset: int, data: bytes) -> None:
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    if not offset:
        atomic_files.replace_file(path, data)
        return
    with path.open("r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(data)


def _write_new_folder(folder: Path, files: list[tuple[str, int, bytes]]) -> None:
    """A new checkpoint: under another name first, so that it is there as a whole or not at all."""
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    temporary = folder.with_name(f"{TEMPORARY}{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(0o700)
    for name, _, data in files:
        atomic_files.write_new(temporary / PurePosixPath(name).name, data)
    os.rename(temporary, folder)
    atomic_files.sync_folder(folder.parent)


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    with suppress(FileNotFoundError):
        path.unlink()
    parent = path.parent
    while parent != folder and parent.is_dir() and not any(parent.iterdir()):
        parent.rmdir()
        parent = parent.parent


def whole(folder: Path, left_out: Collection[str] = ()) -> Tree:
    """All files of a folder as changes of an empty one."""
    reader, changes = FolderReader(folder, left_out), {"files": [], "removed": [], "complete": False}
    while not changes["complete"]:
        more = reader.changes()
        changes["files"] += more["files"]
        changes["complete"] = more["complete"]
    return changes


def whole_files(folder: Path, names: list[str]) -> list[list[Any]]:
    """Some files of a folder, as entries of changes."""
    return [[name, 0, np.frombuffer((folder / name).read_bytes(), np.uint8)] for name in names]
