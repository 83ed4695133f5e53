"""What `rematch exploit` keeps with a run: exploit.json, and every response among the run's policies."""

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


class Kept:
    """No response is trained twice, no result measured twice."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.content: dict[str, Any] = {"responses": [], "results": []}
        path = run.folder / FILE
        if path.exists():
            found = atomic_files.read_json(
                atomic_files.read_regular_file(path, atomic_files.MAX_TEXT_BYTES), str(path)
            )
            lists = [found.get(name) if isinstance(found, dict) else None for name in self.content]
            if not all(type(rows) is list and all(type(row) is dict for row in rows) for rows in lists):
                raise RunError(f"{path} does not hold what it should: move it away to begin anew")
            self.content = found

    def load(self, about: Mapping[str, Any], policy: Policy) -> bool:
        """Whether this response was trained to its end before; then `policy` has its weights."""
        if not any(record.get("about") == about for record in self.content["responses"]):
            return False
        try:
            arrays, card = Run.read_policy(self.run.folder / "policies" / f"{name_of(about)}.safetensors")
            policy.load_arrays(arrays)
        except ConfigError:
            return False  # lost or damaged: it is trained again
        return bool(card.get("response") == about)

    def keep(self, about: dict[str, Any], policy: Policy, config: Config, learner: str) -> None:
        """Like any policy's file: it can be played and begun from; what lookahead learnt is values alone."""
        made = policy_metadata(config, policy, 0) | {"learner": learner, "response": about}
        self.run.write_policy(name_of(about), policy.arrays(), made, replace=True)
        others = [record for record in self.content["responses"] if record.get("about") != about]
        self._write({"responses": [*others, {"name": name_of(about), "about": about}]})

    def result(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to the same question about the same players, where there is one."""
        same = [old for old in self.content["results"] if old.get("question") == question]
        return same[-1] if same else None

    def report(self, result: dict[str, Any]) -> None:
        others = [old for old in self.content["results"] if old.get("question") != result["question"]]
        self._write({"results": [*others, result]})

    def _write(self, changes: Mapping[str, Any]) -> None:
        self.content = {**self.content, **changes}
        self.run.write_file(FILE, json.dumps(self.content, indent=1).encode())


def name_of(about: Mapping[str, Any]) -> str:
    """The name of a response's policy: two that differ in anything have different names."""
    mark = atomic_files.sha256_hex(json.dumps(about, sort_keys=True).encode())[:10]
    return f"{policy_files.RESPONSE}{about['role']}-{about['start']}-{about['seed']}-{mark}"
