"""Compares what two runs left behind: every leaf of state, every logged value, every policy, bit by bit.

A run becomes a flat dict, leaf path -> value:

    checkpoint/learners/evader/weights     the newest checkpoint, as the present reader migrates it
    metrics.jsonl/3/evader/kl              value "evader/kl" of row 3
    policies/evader.safetensors/trunk.0.w  arrays of an exported policy

Names pass through the alias tables of `rematch.storage.migrations`: both runs are compared under the present
names. Texts for people are compared only for being there.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rematch.core.errors import ConfigError
from rematch.storage import migrations, policy_files
from rematch.storage.array_chunks import ArrayChunk
from rematch.storage.run_folder import Run

Leaves = dict[str, Any]

# Files of a run folder that are not compared, and why.
NOT_COMPARED = {
    "config.yaml": "settings, under their own names",
    "lock": "of this process",
    "timing.jsonl": "clock times",
    "train.log": "text",
    "report.html": "text and pictures",
    "*.png": "picture",
    "*.gif": "picture",
    "*.mp4": "picture",
    "checkpoints/*": "read as a checkpoint",
    "chunks/*": "read as a part of a checkpoint",
    "policies/*.json": "settings and digests of the policy beside it",
    "past/*.json": "settings and digests of the policy beside it",
}
# Leaves that are texts for people, and which: both runs have some text there, or neither has.
TEXTS = {
    "checkpoint/clock/end_reason": "why a run ended early",
    "history.json/*/verdict": "a verdict in words",
    "history.json/*/evidence": "why a level was left, in words",
    "history.json/*level_name": "what a level is called",
    "history.json/*/player": "what a player is called",
}


@dataclass(frozen=True)
class Difference:
    """A leaf in which two runs differ, and how."""

    leaf: str
    what: str


@dataclass
class KnownDifference:
    """An exception: leaves and cases, the reason, and the command that shows that training still learns."""

    name: str
    cases: list[str]
    leaves: list[str]
    reason: str
    check: str
    used: set[str] = field(default_factory=set)  # cases in which it occurred

    def applies(self, case: str) -> bool:
        return any(fnmatchcase(case, pattern) for pattern in self.cases)

    def covers(self, case: str, leaf: str) -> bool:
        return self.applies(case) and any(fnmatchcase(leaf, pattern) for pattern in self.leaves)


# --- a run as leaves ----------------------------------------------------------------------------------------


def flatten(value: Any, path: str, out: Leaves) -> None:
    """Put every leaf of a tree into `out`; an empty dict or list is a leaf too."""
    if isinstance(value, ArrayChunk):
        value = {"number": value.number, "arrays": value.arrays()}
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            flatten(inner, f"{path}/{key}", out)
        return
    if isinstance(value, list | tuple) and len(value):
        for index, inner in enumerate(value):
            flatten(inner, f"{path}/{index}", out)
        return
    while path in out:  # "a/b" may be key "a/b", or "b" in "a"
        path += "'"
    out[path] = list(value) if isinstance(value, tuple) else value


def run_leaves(folder: Path) -> Leaves:
    """All that is compared of the run in this folder."""
    out: Leaves = {}
    with Run.open(folder, write=False) as run:
        checkpoint = run.load(verify_chunks=False)
    if checkpoint is None:
        raise ConfigError(f"{folder}: no checkpoint")
    flatten({"iteration": checkpoint.iteration} | checkpoint.parts, "checkpoint", out)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(fnmatchcase(name, pattern) for pattern in NOT_COMPARED):
            present = migrations.present_name(name, migrations.FILE_NAMES)
            flatten(file_values(path, present), present, out)
    return out


def file_values(path: Path, name: str) -> Any:
    """What a file of a run holds, as a tree under the present names; bytes where its format is not known."""
    if path.suffix == ".safetensors":
        return policy_files.read(path)[0]
    if path.suffix == ".jsonl":
        table = migrations.METRIC_NAMES if name == "metrics.jsonl" else migrations.EVENT_NAMES
        return [renamed(json.loads(line), table) for line in path.read_text().splitlines()]
    if path.suffix in (".json", ".inputs"):
        return renamed(json.loads(path.read_text()), migrations.HISTORY_NAMES)
    if path.suffix == ".csv":
        rows = csv.DictReader(io.StringIO(path.read_text()))
        return [{column: number(text) for column, text in present.items()}
                for present in (migrations.present_names(row, migrations.COLUMN_NAMES) for row in rows)]
    return np.frombuffer(path.read_bytes(), np.uint8)


def renamed(value: Any, table: Mapping[str, str]) -> Any:
    """Values of JSON under the present names; a whole number and the same float are one value there."""
    if isinstance(value, dict):
        values = {key: renamed(inner, table) for key, inner in migrations.present_names(value, table).items()}
        if isinstance(values.get("column"), str):  # of the summary of observations
            values["column"] = migrations.present_name(values["column"], migrations.FIELD_NAMES)
        return values
    if isinstance(value, list):
        return [renamed(inner, table) for inner in value]
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def number(text: str | None) -> float | str | None:
    try:
        return float(text or "")
    except ValueError:
        return text


# --- two runs ---------------------------------------------------------------------------------------------


def compare(old: Leaves, new: Leaves, texts: Sequence[str] = tuple(TEXTS)) -> list[Difference]:
    """Where two runs differ, in the order of the old leaves; those that only the new run has come last."""
    return list(_differences(old, new, texts))


def _differences(old: Leaves, new: Leaves, texts: Sequence[str]) -> Iterator[Difference]:
    for leaf, value in old.items():
        if leaf not in new:
            yield Difference(leaf, "only in the old run")
        elif isinstance(value, str) and any(fnmatchcase(leaf, pattern) for pattern in texts):
            if bool(value) != bool(new[leaf]):
                yield Difference(leaf, f"{value!r:.40}, now {new[leaf]!r:.40}")
        elif what := unlike(value, new[leaf]):
            yield Difference(leaf, what)
    for leaf in new:
        if leaf not in old:
            yield Difference(leaf, "only in the new run")


def unlike(old: Any, new: Any) -> str:
    """How two leaves differ; empty where they are equal to the bit."""
    kinds = [kind_of(value) for value in (old, new)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]}, now {kinds[1]}"
    if not isinstance(old, np.ndarray | np.generic):
        same = old == new or (isinstance(old, float) and math.isnan(old) and math.isnan(new))
        return "" if same else f"{old!r:.40}, now {new!r:.40}"
    if old.shape != new.shape:
        return f"shape {old.shape}, now {new.shape}"
    if old.tobytes() == new.tobytes():
        return ""
    rows = [np.ascontiguousarray(value).reshape(-1) for value in (old, new)]
    bits = [row.view(np.uint8).reshape(len(row), -1) for row in rows]
    apart = np.flatnonzero((bits[0] != bits[1]).any(1))
    first = apart[0]
    place = f" at {tuple(int(i) for i in np.unravel_index(first, old.shape))}" if old.shape else ""
    return f"{len(apart)} of {old.size} numbers, first{place}: {rows[0][first]}, now {rows[1][first]}"


def kind_of(value: Any) -> str:
    """dtype of an array or of a NumPy number, else the Python type."""
    if isinstance(value, np.ndarray):
        return f"array of {value.dtype}"
    return str(value.dtype) if isinstance(value, np.generic) else type(value).__name__


# --- known differences --------------------------------------------------------------------------------------


def read_exceptions(path: Path) -> list[KnownDifference]:
    """The known differences in a file; ConfigError names what is wrong with it in one line."""
    try:
        rows = yaml.safe_load(path.read_text()) or []
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: expected a list of exceptions")
    exceptions = [_exception(row, f"{path}, exception {index}") for index, row in enumerate(rows, 1)]
    names = [exception.name for exception in exceptions]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}: two exceptions are called {name!r}")
    return exceptions


def _exception(row: Any, source: str) -> KnownDifference:
    wanted = {"name": str, "cases": list, "leaves": list, "reason": str, "check": str}
    if not isinstance(row, dict) or set(row) != set(wanted):
        raise ConfigError(f"{source}: expected the keys {', '.join(wanted)}")
    for key, kind in wanted.items():
        texts = row[key] if kind is list else [row[key]]
        if not isinstance(row[key], kind) or not texts or not all(isinstance(t, str) and t for t in texts):
            raise ConfigError(f"{source}: {key}: expected {'a list of texts' if kind is list else 'a text'}")
    return KnownDifference(**row)


def unexplained(
    case: str, differences: Sequence[Difference], exceptions: Sequence[KnownDifference]
) -> tuple[list[Difference], list[str]]:
    """The differences that no exception covers, and the names of the exceptions that cover others."""
    rest, names = [], dict[str, None]()
    for difference in differences:
        known = [it for it in exceptions if it.covers(case, difference.leaf)]
        for exception in known:
            exception.used.add(case)
            names[exception.name] = None
        if not known:
            rest.append(difference)
    return rest, list(names)


def unused(exceptions: Sequence[KnownDifference], every: Sequence[str], compared: set[str]) -> list[str]:
    """Exceptions that did not occur, although all the cases that they name were compared."""
    out = []
    for exception in exceptions:
        named = {case for case in every if exception.applies(case)}
        if not exception.used and named <= compared:
            out.append(exception.name)
    return out
