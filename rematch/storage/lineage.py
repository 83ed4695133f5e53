"""lineage.json: the run that a run was forked from, or the policies that it was started from.

It is written once, when the run is made. A run's lineage contains that of its parent, so the whole line of
ancestors can be read from one folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError, Damaged
from rematch.storage import atomic_files

LINEAGE_FILE = "lineage.json"
FORK, POLICIES = "fork", "policies"
MOST_ANCESTORS = 100


@dataclass(frozen=True, kw_only=True)
class Change:
    """A setting that differs from that of the parent."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key} {_text(self.after)} instead of {_text(self.before)}"


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Where a run comes from. `kind`: a fork of a run's whole state, or the weights of policies alone."""

    kind: str
    source: str  # name of the run's folder, or of the policy file
    iteration: int = 0  # of the source, at which this run starts
    step: int = 0
    config: str = ""  # SHA-256 of the source's config.yaml
    state: str = ""  # SHA-256 of the state (fork) or of the weights (policies)
    changes: tuple[Change, ...] = ()
    parent: Lineage | None = None

    def sentences(self) -> list[str]:
        """One sentence for each ancestor, the nearest first."""
        if self.kind == POLICIES:
            own = f"started from the weights of {self.source}"
        else:
            changes = ", ".join(map(str, self.changes)) or "no setting changed"
            own = f"forked from {self.source} at iteration {self.iteration} (step {self.step:,}): {changes}"
        return [own, *(self.parent.sentences() if self.parent else [])]

    def write(self, folder: Path) -> None:
        data = json.dumps(asdict(self), indent=1, allow_nan=False).encode() + b"\n"
        atomic_files.replace_file(folder / LINEAGE_FILE, data)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def read(folder: Path) -> Lineage | None:
    """The lineage of a run; None where it was started from nothing. ConfigError for a damaged file."""
    path = folder / LINEAGE_FILE
    if not path.exists():
        return None
    try:
        raw = atomic_files.read_regular_file(path, atomic_files.MAX_TEXT_BYTES)
        return _parse(atomic_files.read_json(raw, LINEAGE_FILE))
    except (Damaged, KeyError, TypeError, ValueError, RecursionError):
        raise ConfigError(f"{path} is damaged: expected the lineage of a run") from None


def _parse(tree: Any, depth: int = 0) -> Lineage:
    """A lineage from JSON; ValueError or KeyError where a field has another type."""
    texts = {key: tree[key] for key in ("kind", "source", "config", "state")}
    counts = {key: tree[key] for key in ("iteration", "step")}
    if not isinstance(tree, Mapping) or depth > MOST_ANCESTORS or tree["kind"] not in (FORK, POLICIES):
        raise ValueError
    if not all(type(text) is str for text in texts.values()):
        raise ValueError
    if not all(type(count) is int and 0 <= count < 10**18 for count in counts.values()):
        raise ValueError
    changes = tuple(Change(key=str(entry["key"]), before=entry["before"], after=entry["after"])
                    for entry in tree["changes"])
    parent = None if tree["parent"] is None else _parse(tree["parent"], depth + 1)
    return Lineage(**texts, **counts, changes=changes, parent=parent)


def sentences(folder: Path) -> list[str]:
    """Where the run of a folder comes from, a sentence for each ancestor."""
    source = read(folder)
    return source.sentences() if source else []
