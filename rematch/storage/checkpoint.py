"""Checkpoint format: a state tree as two files, and a manifest with the digest of every byte of them.

A checkpoint is a folder `iter_00000123` that holds

    state.safetensors   every array of the state, under its path ("/learner/trunk.weight")
    state.json          the rest of the state; {"$array": path} stands in the place of an array
    manifest.json       schema, version (storage/migrations.py), iteration, log sizes, and the size and
                        SHA-256 of both files and of every array chunk (storage/array_chunks.py) in the state;
                        its last key is the SHA-256 of the manifest itself, so that every byte is covered by a
                        digest

Nothing in these files depends on time, process or host: equal states give equal bytes. Reading trusts
nothing: a file that fails any check raises `Damaged` with the reason, never another exception.
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
from rematch.storage.array_chunks import DTYPES, ArrayChunk, Arrays, read_arrays
from rematch.storage.atomic_files import (
    MAX_TEXT_BYTES,
    FileDigest,
    decode_with_digest,
    encode_with_digest,
    read_json,
    read_regular_file,
    sha256_hex,
)

SCHEMA = 1
ARRAYS_FILE, STATE_FILE, MANIFEST_FILE = "state.safetensors", "state.json", "manifest.json"
LOGS_OF_EVERY_RUN = {"train.log", "metrics.jsonl", "history.json"}
TABLE_FILES = frozenset({"episodes.csv", "progress.csv", "events.jsonl"})  # logs that some runs do not have
MAX_DEPTH = 100  # levels of nesting; far below the limit of Python's JSON reader
CHECKPOINT_NAME = re.compile(r"iter_(\d{8,15})")
RECENT, MILESTONE, TEMPORARY = "recent", "milestone", "passing"  # values of `keep` in a manifest


# --- a state tree as arrays and JSON --------------------------------------------------------------------


def pack(value: Any, path: str, arrays: Arrays, depth: int = 0) -> Any:
    """`value` as plain JSON; its arrays go into `arrays`. A key with "$" marks what JSON does not have."""
    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}  # all bits
    if kind is str:
        return _text(value, path)
    if isinstance(value, np.ndarray | np.generic):
        name = _text(path, path)
        while name in arrays:  # "/a/b" may be key "a/b" or "b" in "a"
            name += "'"
        arrays[name] = contiguous(np.asarray(value), path)
        return {"$array" if isinstance(value, np.ndarray) else "$scalar": name}
    if kind is ArrayChunk:
        return {"$chunk": value.name}
    if depth >= MAX_DEPTH:
        raise RunError(f"state{path[:60]}...: nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        packed = {}
        for key, inner in value.items():
            if type(key) is not str:
                raise RunError(f"state{path}: key {key!r}: expected text")
            escaped = "$" + key if key.startswith("$") else key
            packed[_text(escaped, path)] = pack(inner, f"{path}/{key}", arrays, depth + 1)
        return packed
    if kind in (list, tuple):
        items = [pack(inner, f"{path}/{i}", arrays, depth + 1) for i, inner in enumerate(value)]
        return items if kind is list else {"$tuple": items}
    raise RunError(f"state{path} is of type {kind.__name__}; expected arrays, numbers, text, lists "
                   "and dicts")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RunError(f"state{path!a}: text that is not Unicode: {value[:40]!a}") from None
    return value


def contiguous(array: NDArray[Any], path: str) -> NDArray[Any]:
    """The array in C order, as safetensors needs it; RunError where its dtype is not one of DTYPES."""
    if array.dtype not in DTYPES:
        raise RunError(f"{path}: arrays of {array.dtype} cannot be saved: expected bool, int, uint or float")
    return np.asarray(array, order="C")


def find_chunks(value: Any) -> Iterator[ArrayChunk]:
    """The array chunks in a state tree."""
    if isinstance(value, ArrayChunk):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from find_chunks(inner)


def unpack(value: Any, arrays: Arrays, chunks: Mapping[str, ArrayChunk]) -> Any:
    """The reverse of `pack`; removes each array from `arrays`. Raises KeyError, TypeError, ValueError."""
    if isinstance(value, list):
        return [unpack(inner, arrays, chunks) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, inner),) = value.items()
        if tag == "$array":
            return arrays.pop(inner)
        if tag == "$chunk":
            return chunks[inner]
        if tag == "$scalar":
            return arrays.pop(inner).reshape(())[()]
        if tag == "$float":
            return _non_finite_float(bytes.fromhex(inner))
        if tag == "$tuple" and isinstance(inner, list):
            return tuple(unpack(inner, arrays, chunks))
    mapping = {}
    for key, inner in value.items():
        if key.startswith("$") and not key.startswith("$$"):
            raise ValueError(f"unknown tag {key}")
        mapping[key[1:] if key.startswith("$") else key] = unpack(inner, arrays, chunks)
    return mapping


def _non_finite_float(raw: bytes) -> float:
    if len(raw) != 8 or math.isfinite(value := float(struct.unpack(">d", raw)[0])):
        raise ValueError
    return value


# --- the checkpoint folder ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of manifest.json; each field is a key of the file."""

    iteration: int
    keep: str  # RECENT, MILESTONE (never deleted) or TEMPORARY (deleted after the next save)
    config: str  # SHA-256 of config.yaml: a checkpoint belongs to one run
    fingerprint: dict[str, str]  # hardware and library versions that the bits depend on
    logs: dict[str, FileDigest]  # train.log, metrics.jsonl, history.json and any tables at this moment
    policies: list[str]  # names in policies/ at this moment
    files: dict[str, FileDigest] = field(default_factory=dict)
    chunks: dict[str, FileDigest] = field(default_factory=dict)  # names in chunks/
    version: int = migrations.VERSION  # of the state

    def encode(self) -> bytes:
        return encode_with_digest({"schema": SCHEMA, **asdict(self)})


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint, and the newer ones that do not verify as (name, reason)."""

    iteration: int
    parts: dict[str, Tree]
    fingerprint: dict[str, str]
    folder: Path
    manifest: Manifest
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def fallback(self) -> str:
        """One line about newer checkpoints that do not verify; empty where there are none."""
        if not self.skipped:
            return ""
        reasons = "; ".join(f"{name}: {why}" for name, why in self.skipped)
        return f"uses checkpoint {self.folder.name}, because newer ones do not verify: {reasons}"


def encode_state(parts: Mapping[str, Tree]) -> dict[str, bytes]:
    """The files of a checkpoint without its manifest: name -> bytes."""
    arrays: Arrays = {}
    try:
        text = json.dumps(pack(dict(parts), "", arrays), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"state: {error}") from None  # an integer of more than 4300 digits
    return {ARRAYS_FILE: safetensors.numpy.save(arrays), STATE_FILE: text.encode() + b"\n"}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint; every field is checked."""
    if not stat.S_ISDIR(_mode(folder)):
        raise Damaged("it is not a folder")
    body = decode_with_digest(read_regular_file(folder / MANIFEST_FILE, MAX_TEXT_BYTES), MANIFEST_FILE)
    if body.pop("schema", None) != SCHEMA:
        raise Damaged(f"{MANIFEST_FILE} has another schema: expected {SCHEMA}")
    version = migrations.check_version(body.pop("version", 0), folder)  # first: newer ones have other fields
    try:
        files, logs = _file_digests(body.pop("files")), _file_digests(body.pop("logs"))
        chunks = _file_digests(body.pop("chunks", {}))
        manifest = Manifest(files=files, logs=logs, chunks=chunks, version=version, **body)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Damaged(f"{MANIFEST_FILE} lacks a field or has an unknown one") from None
    texts = [manifest.config, manifest.keep]
    texts += [*_list_items(manifest.policies), *_dict_items(manifest.fingerprint)]
    well_typed = type(manifest.iteration) is int and all(type(text) is str for text in texts)
    known_files = set(files) == {ARRAYS_FILE, STATE_FILE} and set(logs) - TABLE_FILES == LOGS_OF_EVERY_RUN
    if not (well_typed and known_files and all(map(array_chunks.CHUNK_NAME.fullmatch, chunks))):
        raise Damaged(f"{MANIFEST_FILE} has a field of a wrong type")
    if folder.name.removeprefix(".old-") != f"iter_{manifest.iteration:08d}":
        raise Damaged(f"{MANIFEST_FILE} belongs to iteration {manifest.iteration}")
    return manifest


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None


def _file_digests(raw: dict[str, dict[str, Any]]) -> dict[str, FileDigest]:
    digests = {name: FileDigest(**entry) for name, entry in raw.items()}
    for digest in digests.values():
        if type(digest.size) is not int or digest.size < 0 or type(digest.sha256) is not str:
            raise ValueError
    return digests


def _list_items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _dict_items(value: Any) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else [None]


def verify(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Manifest and files of a checkpoint; Damaged where a byte differs from the saved one."""
    manifest = read_manifest(folder)
    files: dict[str, bytes] = {}
    for name in (ARRAYS_FILE, STATE_FILE):  # the only names in manifest.files: no path leads out
        digest = manifest.files[name]
        raw = read_regular_file(folder / name, digest.size)
        if len(raw) != digest.size:
            raise Damaged(f"{name} has {len(raw)} bytes of {digest.size}")
        if sha256_hex(raw) != digest.sha256:
            raise Damaged(f"{name} does not match its SHA-256")
        files[name] = raw
    return manifest, files


def read_checkpoint(folder: Path, verify_chunks: bool = True) -> Checkpoint:
    """The checkpoint in this folder, migrated to the present version; Damaged where it does not verify.

    Without `verify_chunks` only the sizes of its array chunks are checked here; reading a chunk later still
    compares it with its digest.
    """
    manifest, files = verify(folder)
    run = folder.parent.parent
    if verify_chunks:
        array_chunks.check_digests(run, manifest.chunks)
    else:
        array_chunks.check_sizes(run, manifest.chunks)
    chunk_folder = run / array_chunks.CHUNK_FOLDER
    chunks = {name: ArrayChunk(name, digest, path=chunk_folder / name)
              for name, digest in manifest.chunks.items()}
    arrays, state = read_arrays(files[ARRAYS_FILE], ARRAYS_FILE), read_json(files[STATE_FILE], STATE_FILE)
    try:
        parts = unpack(state, arrays, chunks)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Damaged(f"{STATE_FILE} and {ARRAYS_FILE} do not belong together") from None
    if arrays or not isinstance(parts, dict):
        raise Damaged(f"{STATE_FILE} and {ARRAYS_FILE} do not belong together")
    parts = migrations.migrate(parts, manifest.version)
    return Checkpoint(iteration=manifest.iteration, parts=parts, fingerprint=manifest.fingerprint,
                      folder=folder, manifest=manifest)
