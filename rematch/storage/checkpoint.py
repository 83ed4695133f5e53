"""Checkpoints: a tree of state as two files and a manifest that vouches for every byte of them.

A checkpoint is a folder `iter_00000123` that holds

    state.safetensors   every array of the state, under its path ("/learner/trunk.weight")
    state.json          the rest of the state; where an array belongs stands {"$array": its path}
    manifest.json       schema, version (storage/migrations.py), iteration, log offsets, and the size and
                        SHA-256 of both files and of every chunk (storage/array_chunks.py) that the state
                        names; its last key is a SHA-256 of the manifest itself, so that no single byte goes
                        unwatched

Nothing in these files depends on time, process or host: equal states give equal bytes. Reading trusts
nothing: each reason to doubt a file ends in `Damaged` with that reason, never in another exception.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from rematch.core.arrays import Tree
from rematch.core.errors import Damaged, RunError
from rematch.storage import array_chunks, migrations
from rematch.storage.array_chunks import DTYPES, Arrays, Chunk, read_arrays
from rematch.storage.atomic_files import LARGEST_TEXT, Mark, digest, read_json, read_plain, seal, unseal

SCHEMA = 1
ARRAYS, REST, MANIFEST = "state.safetensors", "state.json", "manifest.json"
TABLES = frozenset({"episodes.csv", "progress.csv", "events.jsonl"})  # logs that only some runs have
DEEPEST = 100  # levels of nesting; far below what Python's own readers can take
NAME = re.compile(r"iter_(\d{8,15})")


# --- a tree as arrays and JSON --------------------------------------------------------------------------


def pack(value: Any, path: str, arrays: Arrays, depth: int = 0) -> Any:
    """`value` as plain JSON; its arrays go into `arrays`. What JSON lacks is tagged by a key with "$"."""
    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}  # NaN to the bit
    if kind is str:
        return _text(value, path)
    if isinstance(value, np.ndarray | np.generic):
        name = _text(path, path)
        while name in arrays:  # "/a/b" may be key "a/b" or "b" in "a"
            name += "'"
        arrays[name] = dense(np.asarray(value), path)
        return {"$array" if isinstance(value, np.ndarray) else "$scalar": name}
    if kind is Chunk:
        return {"$chunk": value.name}
    if depth >= DEEPEST:
        raise RunError(f"state{path[:60]}...: nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        packed = {}
        for key, inner in value.items():
            if type(key) is not str:
                raise RunError(f"state{path}: key {key!r}: expected text")
            safe = "$" + key if key.startswith("$") else key
            packed[_text(safe, path)] = pack(inner, f"{path}/{key}", arrays, depth + 1)
        return packed
    if kind in (list, tuple):
        items = [pack(inner, f"{path}/{i}", arrays, depth + 1) for i, inner in enumerate(value)]
        return items if kind is list else {"$tuple": items}
    raise RunError(f"state{path} is a {kind.__name__}: expected arrays, numbers, text, lists and dicts")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RunError(f"state{path!a}: text that is no Unicode: {value[:40]!a}") from None
    return value


def dense(array: NDArray[Any], path: str) -> NDArray[Any]:
    """The array in C order (safetensors copies memory as it lies), if its numbers are of a kind we keep."""
    if array.dtype not in DTYPES:
        raise RunError(f"{path}: arrays of {array.dtype} cannot be kept: expected bool, int, uint or float")
    return np.asarray(array, order="C")


def shared(value: Any) -> Iterator[Chunk]:
    """The chunks in a tree."""
    if isinstance(value, Chunk):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from shared(inner)


def unpack(value: Any, arrays: Arrays, shelf: Mapping[str, Chunk]) -> Any:
    """The reverse of `pack`; takes each array out of `arrays`. Raises KeyError, TypeError, ValueError."""
    if isinstance(value, list):
        return [unpack(inner, arrays, shelf) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, inner),) = value.items()
        if tag == "$array":
            return arrays.pop(inner)
        if tag == "$chunk":
            return shelf[inner]
        if tag == "$scalar":
            return arrays.pop(inner).reshape(())[()]
        if tag == "$float":
            return _not_finite(bytes.fromhex(inner))
        if tag == "$tuple" and isinstance(inner, list):
            return tuple(unpack(inner, arrays, shelf))
    out = {}
    for key, inner in value.items():
        if key.startswith("$") and not key.startswith("$$"):
            raise ValueError(f"unknown tag {key}")
        out[key[1:] if key.startswith("$") else key] = unpack(inner, arrays, shelf)
    return out


def _not_finite(raw: bytes) -> float:
    if len(raw) != 8 or math.isfinite(value := float(struct.unpack(">d", raw)[0])):
        raise ValueError
    return value


# --- the folder -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What manifest.json says."""

    iteration: int
    keep: str  # recent | milestone | passing (goes as soon as another is saved)
    config: str  # SHA-256 of config.yaml: a checkpoint belongs to one run
    fingerprint: dict[str, str]
    logs: dict[str, Mark]  # of train.log, metrics.jsonl, history.json and any tables when this was saved
    policies: list[str]  # names under policies/ when this was saved
    files: dict[str, Mark] = field(default_factory=dict)
    chunks: dict[str, Mark] = field(default_factory=dict)  # names under chunks/
    version: int = migrations.VERSION  # of the state

    def sealed(self) -> bytes:
        return seal({"schema": SCHEMA, **asdict(self)})


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that verified, and the newer ones that did not: (name, why)."""

    iteration: int
    parts: dict[str, Tree]
    fingerprint: dict[str, str]
    folder: Path
    manifest: Manifest
    skipped: list[tuple[str, str]] = field(default_factory=list)


def encode(parts: Mapping[str, Tree]) -> dict[str, bytes]:
    """The files of a checkpoint, manifest aside: name -> bytes."""
    arrays: Arrays = {}
    try:
        rest = json.dumps(pack(dict(parts), "", arrays), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"state: {error}") from None  # an integer of more than 4300 digits
    return {ARRAYS: safetensors.numpy.save(arrays), REST: rest.encode() + b"\n"}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint, every field of it checked."""
    if not stat.S_ISDIR(_mode(folder)):
        raise Damaged("it is not a folder")
    body = unseal(read_plain(folder / MANIFEST, LARGEST_TEXT), MANIFEST)
    if body.pop("schema", None) != SCHEMA:
        raise Damaged(f"{MANIFEST} is of another schema: expected {SCHEMA}")
    version = migrations.check_version(body.pop("version", 0), folder)  # first: newer ones have other fields
    try:
        files, logs = _marks(body.pop("files")), _marks(body.pop("logs"))
        parts = _marks(body.pop("chunks", {}))
        manifest = Manifest(files=files, logs=logs, chunks=parts, version=version, **body)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Damaged(f"{MANIFEST} lacks fields, or has some that are unknown") from None
    texts = [*_listed(manifest.policies), manifest.config, manifest.keep, *_items(manifest.fingerprint)]
    if type(manifest.iteration) is not int or any(type(text) is not str for text in texts) \
            or set(files) != {ARRAYS, REST} or not all(map(array_chunks.NAME.fullmatch, parts)) \
            or set(logs) - TABLES != {"train.log", "metrics.jsonl", "history.json"}:
        raise Damaged(f"{MANIFEST} has fields of a wrong type")
    if folder.name.removeprefix(".old-") != f"iter_{manifest.iteration:08d}":
        raise Damaged(f"{MANIFEST} is that of iteration {manifest.iteration}")
    return manifest


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None


def _marks(raw: dict[str, dict[str, Any]]) -> dict[str, Mark]:
    marks = {name: Mark(**mark) for name, mark in raw.items()}
    if any(type(m.size) is not int or m.size < 0 or type(m.sha256) is not str for m in marks.values()):
        raise ValueError
    return marks


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _items(value: Any) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else [None]


def verify(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Manifest and files of a checkpoint, if each byte is the one that was saved; else Damaged."""
    manifest = read_manifest(folder)
    files: dict[str, bytes] = {}
    for name in (ARRAYS, REST):  # the manifest holds these two names exactly, so no path can stray
        mark = manifest.files[name]
        raw = read_plain(folder / name, mark.size)
        if len(raw) != mark.size:
            raise Damaged(f"{name} has {len(raw)} bytes of {mark.size}")
        if digest(raw) != mark.sha256:
            raise Damaged(f"{name} does not match its SHA-256")
        files[name] = raw
    return manifest, files


def read_checkpoint(folder: Path, whole: bool = True) -> Checkpoint:
    """The checkpoint in this folder, verified and brought to the present version; else Damaged.

    Not `whole`: its chunks are only looked for. Who reads one then still compares all its bytes.
    """
    manifest, files = verify(folder)
    run = folder.parent.parent
    (array_chunks.check if whole else array_chunks.there)(run, manifest.chunks)
    place = run / array_chunks.FOLDER
    shelf = {name: Chunk(name, mark, path=place / name) for name, mark in manifest.chunks.items()}
    arrays, rest = read_arrays(files[ARRAYS], ARRAYS), read_json(files[REST], REST)
    try:
        parts = unpack(rest, arrays, shelf)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Damaged(f"{REST} and {ARRAYS} do not belong together") from None
    if arrays or not isinstance(parts, dict):
        raise Damaged(f"{REST} and {ARRAYS} do not belong together")
    parts = migrations.migrate(parts, manifest.version)
    return Checkpoint(iteration=manifest.iteration, parts=parts, fingerprint=manifest.fingerprint,
                      folder=folder, manifest=manifest)
