"""Chunks: arrays that are written once and shared by the checkpoints that name them.

What grows step by step and never changes (a replay) need not be saved again and again. A `Chunk` may
stand anywhere in a state tree; its file lies in chunks/ of the run, named by its number and SHA-256. It is
hashed once, written before the checkpoint that first names it (fsync, rename), read and compared on load,
and removed when no checkpoint names it any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from rematch.core.errors import Damaged
from rematch.storage import atomic_files
from rematch.storage.atomic_files import Mark

FOLDER = "chunks"
NAME = re.compile(r"[a-z]+-(\d{8,15})\.([0-9a-f]{16})\.safetensors")
DTYPES = frozenset(np.dtype(name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64"))

Arrays = dict[str, NDArray[Any]]


def read_arrays(raw: bytes, name: str) -> Arrays:
    """The arrays of a safetensors file, writable."""
    try:
        found: Arrays = safetensors.numpy.load(raw)
        if any(array.dtype not in DTYPES for array in found.values()):
            raise ValueError
    except Exception:  # its own error type, and KeyError, TypeError, OverflowError for hostile headers
        raise Damaged(f"{name} is not a safetensors file of plain arrays") from None
    return {key: np.require(array, requirements="W") for key, array in found.items()}


@dataclass
class Chunk:
    """A file of arrays; `data` is what is not yet on the disk, `path` where it lies once it is."""

    name: str
    mark: Mark
    data: bytes | None = None
    path: Path | None = None

    @staticmethod
    def of(name: str, arrays: Mapping[str, NDArray[Any]]) -> Chunk:
        """name: kind and number, "replay-00000003"."""
        raw: bytes = safetensors.numpy.save(dict(arrays))
        digest = atomic_files.digest(raw)
        return Chunk(f"{name}.{digest[:16]}.safetensors", Mark(len(raw), digest), raw)

    @property
    def number(self) -> int:
        """Which of its kind it is; also the check that its name is one, and leads nowhere else."""
        found = NAME.fullmatch(self.name)
        if not found:
            raise Damaged(f"{self.name[:60]!r} is not the name of a chunk")
        return int(found[1])

    def read(self) -> bytes:
        """Its bytes, if they are the ones that were saved."""
        if self.data is not None:
            return self.data
        assert self.path is not None, "a chunk is in memory or on the disk"
        raw = atomic_files.read_plain(self.path, self.mark.size)
        if Mark(len(raw), atomic_files.digest(raw)) != self.mark:
            raise Damaged(f"{self.name} does not match its SHA-256")
        return raw

    def arrays(self) -> Arrays:
        return read_arrays(self.read(), self.name)


def store(run: Path, chunks: Iterable[Chunk]) -> None:
    """Put those on the disk that are not, durably, before a manifest names them; read each back once."""
    new = [chunk for chunk in chunks if chunk.data is not None]
    if not new:
        return
    folder = atomic_files.subfolder(run, FOLDER)
    for chunk in new:
        assert chunk.data is not None and chunk.number >= 0
        data, path = chunk.data, folder / chunk.name
        atomic_files.replace_file(path, data)
        chunk.data, chunk.path = None, path
        try:
            chunk.read()
        except Damaged:
            chunk.data = data
            raise


def check(run: Path, marks: Mapping[str, Mark]) -> None:
    """Damaged unless every byte of these chunks is the one that was saved."""
    for name, mark in marks.items():
        Chunk(name, mark, path=run / FOLDER / name).read()


def there(run: Path, marks: Mapping[str, Mark]) -> None:
    """Damaged unless these chunks lie there in full length: what a commit asks of those hashed before."""
    for name, mark in marks.items():
        try:
            size = os.lstat(run / FOLDER / name).st_size
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror}") from None
        if size != mark.size:
            raise Damaged(f"{name} has {size} bytes of {mark.size}")


def thin(run: Path, named: set[str]) -> None:
    """Remove what no checkpoint names."""
    folder = run / FOLDER
    if not os.path.isdir(folder) or os.path.islink(folder):
        return
    for name in sorted(os.listdir(folder)):
        if name not in named and (NAME.fullmatch(name) or name.startswith(".tmp-")):
            atomic_files.remove(folder / name)
