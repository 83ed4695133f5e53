"""A summary of the first rollout's observations, as a file, and a warning of constant columns."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Tree, stored_array
from rematch.core.clock import Clock
from rematch.core.component import Component, Metrics, Setup
from rematch.core.errors import Damaged
from rematch.core.spec import Role
from rematch.rollout.rollout_buffer import RoleRollout, RolloutBuffer
from rematch.storage.atomic_files import MAX_TEXT_BYTES, read_json, read_regular_file
from rematch.storage.migrations import FILE_NAMES
from rematch.training.components.world_state import NoSettings

FILE = "observations.json"


def shortened(names: Sequence[str]) -> list[str]:
    """The names; the first and the last only if there are more than forty (the file has all)."""
    return [*names] if len(names) <= 40 else [names[0], "...", names[-1]]


def measured(part: RoleRollout) -> dict[str, NDArray[Any]]:
    """Smallest and largest value and mean of each column of a role's observations."""
    rows = part.host("obs").reshape(-1, part.role.size)
    low, high = rows.min(0).astype(np.float32), rows.max(0).astype(np.float32)
    return {"min": low, "max": high, "mean": rows.mean(0, dtype=np.float64)}


def columns_of(role: Role, values: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Range and mean of each column, as the file holds them."""
    return [
        {
            "column": name,
            "min": float(values["min"][i]),
            "max": float(values["max"][i]),
            "mean": float(values["mean"][i]),
            "constant": bool(values["min"][i] == values["max"][i]),
        }
        for i, name in enumerate(role.columns)
    ]


def file_bytes(summary: Mapping[str, list[dict[str, Any]]]) -> bytes:
    """The file: one line per column."""
    lines = {role: ",\n".join(map(json.dumps, entries)) for role, entries in summary.items()}
    text = ",\n".join(f"{json.dumps(role)}: [\n{rows}\n]" for role, rows in lines.items())
    return f"{{\n{text}\n}}\n".encode()


class ObservationSummary(Component):
    """Writes the summary of the first rollout of a run; a resume writes a damaged file again."""

    name = "observation_summary"
    Config = NoSettings

    @classmethod
    def configs(cls) -> Mapping[str, tuple[type, str]]:
        return {}

    def __init__(self, config: NoSettings, setup: Setup) -> None:
        super().__init__(config, setup)
        self.values: dict[str, dict[str, NDArray[Any]]] = {}  # role -> `measured`

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        if self.values:  # imitation takes iterations before the first rollout: they cannot be counted
            return
        log, summary = self.setup.log, {}
        for role, part in rollout.tracks.items():
            self.values[role] = measured(part)
            summary[role] = columns_of(part.role, self.values[role])
            constant = [entry["column"] for entry in summary[role] if entry["constant"]]
            names: list[str] = []
            for f in part.role.fields:  # an array is one name with its shape; the file has its columns
                whole = [f"{f.name} [{' x '.join(map(str, f.shape))}]"]
                names += whole if f.shape else shortened([f"{f.name}.{column}" for column in f.columns])
            head = f"Observation of {role}"
            log.line(f"{head}: {len(summary[role])} numbers: {', '.join(names)}", console=False)
            if constant:
                columns = ", ".join(shortened(constant))
                log.line(f"{head}: warning: never changed in the first rollout: {columns}")
            if part.privileged is not None:
                names = [f"{f.name}.{c}" for f in part.role.privileged for c in f.columns]
                log.line(f"{head}: privileged, for learning only: {', '.join(names)}", console=False)
            if part.role.hidden:
                log.line(f"{head}: hidden: {', '.join(part.role.hidden)}", console=False)
        log.write_file(FILE, file_bytes(summary))

    def resumed(self, clock: Clock) -> None:
        self._rename_old_file()
        if not self.values and clock.iteration > clock.first:
            self.values = self._file_values()  # checkpoints of earlier versions do not have them
        if not self.values:
            return
        roles, log = self.setup.spec.roles, self.setup.log
        data = file_bytes({role: columns_of(roles[role], values) for role, values in self.values.items()})
        try:
            present = read_regular_file(log.folder / FILE, len(data))
        except Damaged:  # missing, longer, or not a file
            present = b""
        if present != data:
            log.write_file(FILE, data)
            log.console(f"{FILE} was damaged or missing: it was written again")

    def _rename_old_file(self) -> None:
        """Give the file of a run of an earlier version its present name."""
        folder = self.setup.log.folder
        for old, present in FILE_NAMES.items():
            if present == FILE and os.path.lexists(folder / old) and not os.path.lexists(folder / FILE):
                os.rename(folder / old, folder / FILE)

    def _file_values(self) -> dict[str, dict[str, NDArray[Any]]]:
        """The values in the file, which holds every bit of them; {} where it cannot be read."""
        try:
            stored = read_json(read_regular_file(self.setup.log.folder / FILE, MAX_TEXT_BYTES), FILE)
            return {role: {"min": np.array([row["min"] for row in rows], np.float32),
                           "max": np.array([row["max"] for row in rows], np.float32),
                           "mean": np.array([row["mean"] for row in rows], np.float64)}
                    for role, rows in stored.items()
                    if [row["column"] for row in rows] == list(self.setup.spec.roles[role].columns)}
        except (ValueError, TypeError, LookupError, AttributeError):  # ValueError: Damaged too
            return {}

    def state_dict(self) -> Tree:
        return {role: dict(values) for role, values in self.values.items()}

    def load_state_dict(self, tree: Tree) -> None:
        self.values = {}
        for role in tree:
            size = self.setup.spec.roles[role].size
            kinds = {"min": np.float32, "max": np.float32, "mean": np.float64}
            self.values[role] = {
                name: stored_array(tree[role], name, np.empty(size, kind)) for name, kind in kinds.items()
            }
