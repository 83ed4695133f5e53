"""Versions of the checkpoint format, and the steps that bring an older checkpoint forward.

Every manifest holds the version of the state beside it; a manifest without one is version 0. `STEPS[v]` turns
the parts of a checkpoint of version v into those of version v + 1. A step gets the whole tree as it was read:
it renames keys, splits arrays or adds what is missing, and may change the tree in place. Arrays that live in
chunk files stand in the tree as `ArrayChunk`; a step that changes them reads the chunk and puts a new one
(`ArrayChunk.from_arrays`) in its place, which the next save writes.

A run's logs are never rewritten: the alias tables below give the present names of what they hold. In a table
`*` stands for any text, the same on both sides: {"*/r_way": "*/demo_progress"}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from rematch.core.arrays import Tree
from rematch.core.errors import Damaged, RunError

Parts = dict[str, Tree]
Step = Callable[[Parts], Parts]
Value = TypeVar("Value")

STEPS: tuple[Step, ...] = ()
VERSION = len(STEPS)  # the version that this code writes

METRIC_NAMES: dict[str, str] = {}  # metrics.jsonl: old name -> present name
HISTORY_NAMES: dict[str, str] = {}  # history.json and the other JSON files: keys, at any depth
EVENT_NAMES: dict[str, str] = {}  # events.jsonl: keys, at any depth
COLUMN_NAMES: dict[str, str] = {}  # episodes.csv and progress.csv: columns
WEIGHT_NAMES: dict[str, str] = {}  # arrays of an exported policy
FILE_NAMES: dict[str, str] = {}  # files of a run folder


def check_version(version: object, folder: Path) -> int:
    """The version in the manifest of `folder`, if this code can read it.

    Damaged where it is no version; RunError, which no other checkpoint makes good, where it is a newer one.
    """
    if type(version) is not int or version < 0:
        raise Damaged(f"version = {version!r:.40}: expected a whole number from 0")
    if version > len(STEPS):
        raise RunError(f"{folder} is a checkpoint of a newer version, {version}: this rematch reads versions "
                       f"up to {len(STEPS)}; update it to read this run")
    return version


def migrate(parts: Parts, version: int) -> Parts:
    """The parts of a checkpoint of `version` as the present version has them."""
    for number in range(version, len(STEPS)):
        try:
            parts = STEPS[number](parts)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Damaged(f"its state is not one of version {number}: {error}") from None
    return parts


def present_name(name: str, table: Mapping[str, str]) -> str:
    """What `name` is called now: by its own entry in `table`, else by the first pattern that fits."""
    if name in table:
        return table[name]
    for old, new in table.items():
        head, star, tail = old.partition("*")
        fits = star and len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail)
        if fits:
            return new.replace("*", name[len(head) : len(name) - len(tail)], 1)
    return name


def present_names(values: Mapping[str, Value], table: Mapping[str, str]) -> dict[str, Value]:
    """The same values under their present names."""
    return {present_name(name, table): value for name, value in values.items()}
