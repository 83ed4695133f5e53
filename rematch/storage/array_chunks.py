"""Array chunks: files of arrays that are written once and shared by the checkpoints that reference them.

Data that grows and never changes, such as a replay buffer, is not saved again with every checkpoint. An
`ArrayChunk` may stand anywhere in a state tree. Its file lies in chunks/ of the run, named by its number and
SHA-256. It is hashed once, written before the first checkpoint that references it (fsync, rename), compared
with its digest on load, and deleted when no checkpoint references it any more.
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
from rematch.storage.atomic_files import FileDigest

CHUNK_FOLDER = "chunks"
CHUNK_NAME = re.compile(r"[a-z]+-(\d{8,15})\.([0-9a-f]{16})\.safetensors")
DTYPES = frozenset(np.dtype(name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64"))

Arrays = dict[str, NDArray[Any]]


def read_arrays(raw: bytes, name: str) -> Arrays:
    """The arrays of a safetensors file, writable."""
    try:
        arrays: Arrays = safetensors.numpy.load(raw)
        if any(array.dtype not in DTYPES for array in arrays.values()):
            raise ValueError
    except Exception:  # safetensors' own error; KeyError, TypeError, OverflowError for hostile headers
        raise Damaged(f"{name} is not a safetensors file of plain arrays") from None
    return {key: np.require(array, requirements="W") for key, array in arrays.items()}


@dataclass
class ArrayChunk:
    """A file of arrays; `data` holds its bytes until they are on the disk, then `path` says where."""

    name: str
    digest: FileDigest
    data: bytes | None = None
    path: Path | None = None

    @staticmethod
    def from_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> ArrayChunk:
        """`name` is a kind and a number: "replay-00000003"."""
        raw: bytes = safetensors.numpy.save(dict(arrays))
        digest = atomic_files.file_digest(raw)
        return ArrayChunk(f"{name}.{digest.sha256[:16]}.safetensors", digest, raw)

    @property
    def number(self) -> int:
        """The chunk's number within its kind; Damaged where its name is none, and could be another path."""
        match = CHUNK_NAME.fullmatch(self.name)
        if not match:
            raise Damaged(f"{self.name[:60]!r} is not the name of an array chunk")
        return int(match[1])

    def read(self) -> bytes:
        """The chunk's bytes; Damaged where they differ from the saved ones."""
        if self.data is not None:
            return self.data
        assert self.path is not None, "an array chunk is in memory or on the disk"
        raw = atomic_files.read_regular_file(self.path, self.digest.size)
        if atomic_files.file_digest(raw) != self.digest:
            raise Damaged(f"{self.name} does not match its SHA-256")
        return raw

    def arrays(self) -> Arrays:
        return read_arrays(self.read(), self.name)


def write_chunks(run: Path, chunks: Iterable[ArrayChunk]) -> None:
    """Write the chunks that are not yet on the disk, durably, and read each back once."""
    new_chunks = [chunk for chunk in chunks if chunk.data is not None]
    if not new_chunks:
        return
    folder = atomic_files.subfolder(run, CHUNK_FOLDER)
    for chunk in new_chunks:
        assert chunk.data is not None and chunk.number >= 0
        data, path = chunk.data, folder / chunk.name
        atomic_files.replace_file(path, data)
        chunk.data, chunk.path = None, path
        try:
            chunk.read()
        except Damaged:
            chunk.data = data
            raise


def check_digests(run: Path, digests: Mapping[str, FileDigest]) -> None:
    """Damaged unless the bytes of these chunks match their digests."""
    for name, digest in digests.items():
        ArrayChunk(name, digest, path=run / CHUNK_FOLDER / name).read()


def check_sizes(run: Path, digests: Mapping[str, FileDigest]) -> None:
    """Damaged unless these chunks exist in full length; a commit checks chunks hashed before in this way."""
    for name, digest in digests.items():
        try:
            size = os.lstat(run / CHUNK_FOLDER / name).st_size
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror}") from None
        if size != digest.size:
            raise Damaged(f"{name} has {size} bytes of {digest.size}")


def delete_unreferenced(run: Path, referenced: set[str]) -> None:
    """Delete the chunk files that no checkpoint references."""
    folder = run / CHUNK_FOLDER
    if not os.path.isdir(folder) or os.path.islink(folder):
        return
    for name in sorted(os.listdir(folder)):
        if name not in referenced and (CHUNK_NAME.fullmatch(name) or name.startswith(".tmp-")):
            atomic_files.remove(folder / name)
