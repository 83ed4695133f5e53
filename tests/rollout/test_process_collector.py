"""A collector in child processes: the same bytes as the one on threads, and no other part knows of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.process_collector import ProcessCollector
from support.trainers import start_run

from rematch.core import config as settings
from rematch.rehearsal.compare import differences
from rematch.training.recipes import configure
from rematch.training.setup import RunSetup

SMALL: dict[str, Any] = {
    "games": 14, "steps": 12, "total_steps": 14 * 12 * 6, "save_every": 2, "threads": 1,
    "evaluation.games": 4, "evaluation.every": 3, "evaluation.opponents": ("random",),
    "league.opponent_share": 0.5,
    "league.snapshot_every": 1, "league.rotate": 1, "network.hidden": (8,), "stagger": 24,
}  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("pursuit", {"world.max_steps": 20, "world.prep_steps": 0}),
        ("lattice", {"random_starts.fraction": 0.5}),
        ("beasty", {"evaluation.opponents": ("random",), "league.bots": ("random",)}),
    ],
)
def test_process_collector_gives_the_same_bytes(
    recipe: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings.replace(configure(recipe), SMALL | changes)
    start_run(tmp_path / "threads", config)
    made: list[ProcessCollector] = []

    def make_collector(setup: RunSetup, world: Any, seating: Any, steps: int, seed: int) -> Any:
        made.append(ProcessCollector(world, seating, steps, seed, setup.make_world))
        return made[-1]

    monkeypatch.setattr(RunSetup, "make_collector", make_collector)
    start_run(tmp_path / "processes", config)
    assert len(made) == 1 and len(made[0].pids) == 3
    made[0].close()
    assert differences(tmp_path / "threads", tmp_path / "processes") == []
