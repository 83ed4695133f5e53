"""policies/: NAME.safetensors holds weights, NAME.json vouches for them; never silently overwritten."""

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
from rematch.storage.atomic_files import Mark, told
from rematch.storage.checkpoint import SCHEMA, dense

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,99}")


def names(run: Path, shelf: str = "policies") -> set[str]:
    """The policies of the run in this folder; `shelf`: of another of its folders."""
    folder = run / shelf
    found = os.listdir(folder) if os.path.isdir(folder) else []
    return {name.removesuffix(".json") for name in found if name.endswith(".json") and name[0] != "."}


def write(
    run: Path, name: str, arrays: Arrays, about: Mapping[str, Any], replace: bool, shelf: str = "policies"
) -> Path:
    """Into a folder of the run's, as `write_file`."""
    if not FILE_NAME.fullmatch(name):
        raise RunError(f"{run}: {name!r:.60} cannot be the name of a policy")
    with told(f"policy {name} was not written"):
        folder = atomic_files.subfolder(run, shelf)
    return write_file(folder / f"{name}.safetensors", arrays, about, replace)


def write_file(path: Path, arrays: Arrays, about: Mapping[str, Any], replace: bool) -> Path:
    """The weights first, then the card. Without `replace`, one that exists may only be written as it is."""
    name = path.stem
    raw: bytes = safetensors.numpy.save({key: dense(array, key) for key, array in arrays.items()})
    weights = {"size": len(raw), "sha256": atomic_files.digest(raw)}
    body = {
        "schema": SCHEMA,
        "about": json.loads(atomic_files.row_text(about, f"{name}.json")),
        "weights": weights,
    }
    card = atomic_files.seal(body)
    with told(f"policy {name} was not written"):
        if path.with_name(f"{name}.json").exists() and not replace:
            with suppress(Damaged):
                if (
                    atomic_files.read_plain(path.with_name(f"{name}.json"), atomic_files.LARGEST_TEXT) == card
                    and atomic_files.read_plain(path, len(raw)) == raw
                ):
                    return path
            raise RunError(f"{path} exists and differs: a policy is never silently overwritten")
        atomic_files.replace_file(path, raw)
        atomic_files.replace_file(path.with_name(f"{name}.json"), card)
    return path


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a policy and what its card says about it, verified."""
    path = Path(path)
    if not path.is_file():
        raise RunError(f"{path} is a folder" if path.is_dir() else f"{path}: there is no such file")
    try:
        card = atomic_files.unseal(
            atomic_files.read_plain(path.with_name(f"{path.stem}.json"), atomic_files.LARGEST_TEXT),
            f"{path.stem}.json",
        )
        try:
            schema, weights, about = card["schema"], Mark(**card["weights"]), card["about"]
        except (KeyError, TypeError):
            raise Damaged(f"{path.stem}.json is not the card of a policy") from None
        if schema != SCHEMA or type(weights.size) is not int or not isinstance(about, dict):
            raise Damaged(f"{path.stem}.json is not the card of a policy")
        raw = atomic_files.read_plain(path, weights.size)
        if Mark(len(raw), atomic_files.digest(raw)) != weights:
            raise Damaged(f"{path.name} does not match its SHA-256")
        return migrations.present_names(read_arrays(raw, path.name), migrations.WEIGHT_NAMES), about
    except Damaged as why:
        raise RunError(f"{path} does not verify: {why}") from None
