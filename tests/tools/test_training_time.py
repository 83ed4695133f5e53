"""tools/experiments/training_time.py: every second belongs to one part, and what is timed is what trains."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rematch import api
from rematch.core import config as settings
from rematch.rehearsal.shrink import shrink
from rematch.training.trainer import Session

TINY: dict[str, Any] = {"games": 32, "steps": 24, "stagger": 0, "network.hidden": (8,), "ppo.minibatch": 64,
                        "expert.positions": 32, "expert.minibatch": 32, "expert.replay": 64,
                        "total_steps": 32 * 24 * 9, "evaluation.games": 2, "evaluation.rivals": ("random",)}


def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools/experiments/training_time.py"
    spec = importlib.util.spec_from_file_location("training_time", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", ["beasty", "beasty_expert"])
def test_parts_are_the_whole(recipe: str) -> None:
    found = tool().measure(recipe, 2, TINY)
    parts = {part["part"].split(":")[0]: part["seconds"] for part in found["parts"]}
    assert found["iterations"] == 2 and found["learner_steps_a_second"] > 0
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1, abs=0.01)
    wanted = {"rules", "network", "tape", "scripted rivals", "update", "all else"}
    assert set(parts) == wanted | ({"search of positions"} if recipe == "beasty_expert" else set())
    assert min(parts.values()) > 0


def test_the_learner_keeps_its_own_network() -> None:
    """A network that stands behind a clock is not the compiled one, and torch would do its gradient."""
    session = Session(settings.replace(shrink(api.configure("beasty")), {"threads": 1}))
    kinds = {role: type(learner.policy.network) for role, learner in session.learners.items()}
    tool().watch(session, tool().Clock())
    assert {role: type(learner.policy.network) for role, learner in session.learners.items()} == kinds
