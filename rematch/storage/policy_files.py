"""Policies on disk: NAME.safetensors holds the weights, NAME.json their digest and the policy's metadata."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.numpy

from rematch.core.errors import Damaged, RunError
from rematch.storage import atomic_files, migrations
from rematch.storage.array_chunks import Arrays, read_arrays
from rematch.storage.atomic_files import MAX_TEXT_BYTES, FileDigest, os_errors_as_run_error
from rematch.storage.checkpoint import SCHEMA, contiguous

POLICY_FOLDER = "policies"
RESPONSE = "response-"  # prefix of the names of best responses (training/best_response.py)
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,99}")


def policy_names(run: Path, subfolder: str = POLICY_FOLDER) -> set[str]:
    """The names of the policies in a subfolder of this run."""
    folder = run / subfolder
    files = os.listdir(folder) if os.path.isdir(folder) else []
    return {name.removesuffix(".json") for name in files if name.endswith(".json") and name[0] != "."}


def write(
    run: Path, name: str, arrays: Arrays, metadata: Mapping[str, Any], replace: bool,
    subfolder: str = POLICY_FOLDER,
) -> Path:  # fmt: skip
    """Write a policy into a subfolder of the run; `replace` as of `write_file`."""
    if not FILE_NAME.fullmatch(name):
        raise RunError(f"{run}: {name!r:.60} cannot be the name of a policy")
    with os_errors_as_run_error(f"policy {name} was not written"):
        folder = atomic_files.subfolder(run, subfolder)
    return write_file(folder / f"{name}.safetensors", arrays, metadata, replace)


def write_file(path: Path, arrays: Arrays, metadata: Mapping[str, Any], replace: bool) -> Path:
    """Write the weights to `path`, then the metadata beside it.

    Without `replace`, an existing policy must be equal to the new one: it is never silently overwritten.
    """
    name = path.stem
    metadata_path = path.with_name(f"{name}.json")
    raw: bytes = safetensors.numpy.save({key: contiguous(array, key) for key, array in arrays.items()})
    digest = atomic_files.file_digest(raw)
    body = {
        "schema": SCHEMA,
        "about": json.loads(atomic_files.json_line(metadata, metadata_path.name)),
        "weights": {"size": digest.size, "sha256": digest.sha256},
    }
    encoded = atomic_files.encode_with_digest(body)
    with os_errors_as_run_error(f"policy {name} was not written"):
        if metadata_path.exists() and not replace:
            with suppress(Damaged):
                same_metadata = atomic_files.read_regular_file(metadata_path, MAX_TEXT_BYTES) == encoded
                if same_metadata and atomic_files.read_regular_file(path, len(raw)) == raw:
                    return path
            raise RunError(f"{path} exists and differs: a policy is never silently overwritten")
        atomic_files.replace_file(path, raw)
        atomic_files.replace_file(metadata_path, encoded)
    return path


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the metadata of a policy, verified."""
    path = Path(path)
    if not path.is_file():
        raise RunError(f"{path} is a folder" if path.is_dir() else f"{path}: no such file")
    try:
        digest, metadata = _read_metadata(path.with_name(f"{path.stem}.json"))
        raw = atomic_files.read_regular_file(path, digest.size)
        if atomic_files.file_digest(raw) != digest:
            raise Damaged(f"{path.name} does not match its SHA-256")
        return migrations.present_weights(read_arrays(raw, path.name)), metadata
    except Damaged as damage:
        raise RunError(f"{path} does not verify: {damage}") from None


def _read_metadata(path: Path) -> tuple[FileDigest, dict[str, Any]]:
    """The digest of a policy's weights, and its metadata."""
    body = atomic_files.decode_with_digest(atomic_files.read_regular_file(path, MAX_TEXT_BYTES), path.name)
    try:
        schema, digest, metadata = body["schema"], FileDigest(**body["weights"]), body["about"]
    except (KeyError, TypeError):
        raise Damaged(f"{path.name} is not the metadata of a policy") from None
    if schema != SCHEMA or type(digest.size) is not int or not isinstance(metadata, dict):
        raise Damaged(f"{path.name} is not the metadata of a policy")
    return digest, metadata
