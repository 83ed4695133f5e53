"""A summary of the first rollout's observations, as a file, and a warning of constant columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rematch.core.clock import Clock
from rematch.core.component import Component, Metrics
from rematch.rollout.rollout_buffer import RoleRollout, RolloutBuffer
from rematch.training.components.world_state import NoSettings

FILE = "sight.json"


def shortened(names: Sequence[str]) -> list[str]:
    """The names; the first and the last only if there are more than forty (the file has all)."""
    return [*names] if len(names) <= 40 else [names[0], "...", names[-1]]


def columns_of(part: RoleRollout) -> list[dict[str, Any]]:
    """Range and mean of each column of a role's observations."""
    rows = part.obs.reshape(-1, part.role.size)
    low, high, mean = rows.min(0), rows.max(0), rows.mean(0, dtype=np.float64)
    return [
        {
            "column": name,
            "min": float(low[i]),
            "max": float(high[i]),
            "mean": float(mean[i]),
            "constant": bool(low[i] == high[i]),
        }
        for i, name in enumerate(part.role.columns)
    ]


class ObservationSummary(Component):
    """Writes the summary after the first iteration of a run."""

    name = "observation_summary"
    Config = NoSettings

    @classmethod
    def configs(cls) -> Mapping[str, tuple[type, str]]:
        return {}

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        if clock.iteration != clock.first + 1:
            return
        log, summary = self.setup.log, {}
        for role, part in rollout.tracks.items():
            summary[role] = columns_of(part)
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
        lines = {role: ",\n".join(map(json.dumps, entries)) for role, entries in summary.items()}
        text = ",\n".join(f"{json.dumps(role)}: [\n{rows}\n]" for role, rows in lines.items())
        log.write_file(FILE, f"{{\n{text}\n}}\n".encode())
