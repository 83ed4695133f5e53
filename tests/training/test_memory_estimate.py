"""The memory estimate covers all that a run allocates, and is not far above it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_run import SMALL, flags

from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.system import system_memory
from rematch.selfplay.league import League
from rematch.training import memory_estimate
from rematch.training.trainer import Trainer


def arrays(thing: Any, seen: dict[int, int]) -> None:
    """Records the bytes of every array that can be reached from `thing`; a view counts as its base."""
    for value in vars(thing).values() if hasattr(thing, "__dict__") else ():
        if isinstance(value, np.ndarray):
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            seen[id(owner)] = owner.nbytes
        elif type(value).__module__.startswith("rematch."):
            arrays(value, seen)
        elif isinstance(value, dict):
            for inner in value.values():
                arrays(inner, seen)


@pytest.mark.parametrize("changes", [
    {"games": 512, "steps": 16}, {"games": 4096, "steps": 2}, {"network.hidden": [256, 256]},
    {"network.hidden": [128], "league.size": 200},
])
def test_estimate_covers_allocated_arrays(changes: dict[str, Any]) -> None:
    config = api.configure("quick", changes=SMALL | changes)
    trainer, seen = Trainer(config), dict[int, int]()
    arrays(trainer, seen)
    league = trainer.setup.get(League)
    assert league is not None
    for columns in trainer.setup.seating, trainer.setup.collector.rollout.tracks, league.matchmaker.pools:
        for inner in columns.values():
            arrays(inner, seen)
    estimate, existing = sum(memory_estimate.component_bytes(config).values()), sum(seen.values())
    assert existing <= estimate <= 4 * existing, (existing, estimate)


def test_error_names_the_setting_that_needs_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_estimate.total_bytes() > 1 << 28
    memory_estimate.check(api.configure("quick", changes=SMALL))
    monkeypatch.setattr(memory_estimate, "total_bytes", lambda: 1 << 20)
    with pytest.raises(ConfigError, match=r"games = 4096, steps = 64: .*; expected fewer games or steps"):
        memory_estimate.check(api.configure("quick", changes=SMALL | {"games": 4096, "steps": 64}))
    with pytest.raises(ConfigError, match=r"hidden = \[512, 512\]: .*narrower layers, or league.size below"):
        memory_estimate.check(api.configure("quick", changes=SMALL | {"network.hidden": [512, 512]}))
    with pytest.raises(ConfigError, match=r"lookahead.replay_size = 9000000: .*; expected fewer steps"):
        memory_estimate.check(api.configure("lookahead", changes={"lookahead.replay_size": 9_000_000}))
    stored = SMALL | {"league.opponent_share": 0.0, "rollback.checkpoints_back": 1, "rollback.keep": 90}
    with pytest.raises(ConfigError, match=r"hidden = \[512\]: .*narrower layers, or rollback.keep below 90$"):
        memory_estimate.check(api.configure("quick", changes=stored | {"network.hidden": [512]}))


@pytest.mark.slow
def test_estimate_covers_a_whole_process(tmp_path: Path) -> None:
    """The peak of a run, pictures included, as the kernel reports it."""
    path = os.pathsep.join(
        filter(None, [str(Path(memory_estimate.__file__).parents[2]), os.environ.get("PYTHONPATH")])
    )
    child = subprocess.Popen([sys.executable, "-m", "rematch", "train", "quick", *flags()], cwd=tmp_path,
                             env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL)
    most = 0
    while child.poll() is None:
        most = max(most, system_memory.process_bytes(child.pid)[1])
        time.sleep(0.005)
    assert child.returncode == 0
    estimate = memory_estimate.process_bytes(api.configure("quick", changes=SMALL))
    assert not most or most <= estimate <= 2 * most
