"""The speed probe measures what it says, at the size of a test."""

from __future__ import annotations

import json
import re

import pytest
from support import gameboy_worlds

from rematch.bench import rematch_subject, run
from rematch.worlds.gameboy import bench as probe


def test_it_measures_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    gameboy_worlds.need_pyboy()
    for name, value in (("GAMES", 2), ("EMULATORS", 2), ("TURNS", 1)):
        monkeypatch.setattr(probe, name, value)
    less = {"games": 2, "steps": 8, "world.workers": 0, "dqn.warmup": 80, "dqn.batch": 2, "threads": 1}
    monkeypatch.setattr(rematch_subject, "WITHOUT_EXPLORERS", rematch_subject.WITHOUT_EXPLORERS | less)
    role_spec = json.loads(json.dumps(run.benchmark("gameboy", 0.01).to_dict()))
    assert len(role_spec["steps_per_second"]) == 5 and all(
        result["median"] > 0 and len(result["all"]) == 1 for result in role_spec["steps_per_second"].values()
    )
    assert set(role_spec["ratio_to_bare"]) == {"one thread", "two cores"} and role_spec["megabytes"] < 100
    trained = role_spec["training"]
    assert trained["settings"]["replay_ratio"] == 4 and "epochs" not in trained["settings"]
    assert trained["n"] == 5 and min(trained["rates"]) > 0 and trained["met"] == (trained["median"] >= 1000)
    assert re.search(r"recipe small, 2 games.*: \d+ steps/s \(\d+ to \d+; target 1000: (met|missed)\)$",
                     run.training_line(trained))
    output = probe.lines(role_spec)
    assert len(output) == 1 + 5 + 2 + 1 and role_spec["steps_a_turn"] == 14
