"""Stored best responses of a run: results in exploit.json, weights among the run's policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rematch.agents.policy import Policy
from rematch.core.errors import ConfigError, RunError
from rematch.evaluation.past_policies import policy_metadata
from rematch.storage import atomic_files, policy_files
from rematch.storage.run_folder import Run

if TYPE_CHECKING:
    from rematch.core.run_config import Config

FILE = "exploit.json"


class ResponseStore:
    """Responses and results in a run's folder, so that none is computed twice."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.content: dict[str, Any] = {"responses": [], "results": []}
        path = run.folder / FILE
        if path.exists():
            content = atomic_files.read_json(
                atomic_files.read_regular_file(path, atomic_files.MAX_TEXT_BYTES), str(path)
            )
            tree = content if isinstance(content, dict) else {}
            lists = [tree.get(name) for name in self.content]
            if not all(type(rows) is list and all(type(row) is dict for row in rows) for rows in lists):
                raise RunError(f"{path}: expected the lists responses and results; move the file away")
            self.content = content

    def load(self, description: Mapping[str, Any], policy: Policy) -> int | None:
        """If this response is stored, `policy` gets its weights; its training steps, or None."""
        records = [record for record in self.content["responses"] if record.get("about") == description]
        if not records:
            return None
        try:
            file = self.run.folder / "policies" / f"{response_name(description)}.safetensors"
            arrays, metadata = Run.read_policy(file)
            policy.load_arrays(arrays)
        except ConfigError:
            return None  # missing or damaged: train it again
        return int(records[-1]["steps"]) if metadata.get("response") == description else None

    def add(
        self, description: dict[str, Any], policy: Policy, config: Config, training: Mapping[str, Any]
    ) -> None:
        """Store a response like any policy file; `training`: its learner and steps.

        A lookahead response is a value network.
        """
        metadata = policy_metadata(config, policy, 0) | {"response": description, **training}
        self.run.write_policy(response_name(description), policy.arrays(), metadata, replace=True)
        others = [record for record in self.content["responses"] if record.get("about") != description]
        record = {"name": response_name(description), "about": description, "steps": training["steps"]}
        self._write({"responses": [*others, record]})

    def result(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """The stored result of this request, by its identity; None if there is none."""
        same = [old for old in self.content["results"] if old.get("question") == question]
        return same[-1] if same else None

    def add_result(self, result: dict[str, Any]) -> None:
        others = [old for old in self.content["results"] if old.get("question") != result["question"]]
        self._write({"results": [*others, result]})

    def _write(self, changes: Mapping[str, Any]) -> None:
        self.content = {**self.content, **changes}
        self.run.write_file(FILE, json.dumps(self.content, indent=1).encode())


def response_name(description: Mapping[str, Any]) -> str:
    """The name of a response's policy file, which includes a digest of its description."""
    short_digest = atomic_files.sha256_hex(json.dumps(description, sort_keys=True).encode())[:10]
    role, start, seed = description["role"], description["start"], description["seed"]
    return f"{policy_files.RESPONSE}{role}-{start}-{seed}-{short_digest}"
