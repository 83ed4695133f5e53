"""tools/experiments/training_time.py: parts add up to the total; timing does not change the training."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rematch import api
from rematch.core import config as settings
from rematch.rehearsal.shrink import shrink
from rematch.training.trainer import Trainer

TINY: dict[str, Any] = {
    "games": 32,
    "steps": 24,
    "stagger": 0,
    "network.hidden": (8,),
    "ppo.minibatch_size": 64,
    "expert.positions": 32,
    "expert.minibatch_size": 32,
    "expert.replay_size": 64,
    "total_steps": 32 * 24 * 9,
    "evaluation.games": 2,
    "evaluation.opponents": ("random",),
}


def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools/experiments/training_time.py"
    spec = importlib.util.spec_from_file_location("training_time", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", ["beasty", "beasty_expert"])
def test_parts_are_the_whole(recipe: str) -> None:
    report = tool().measure(recipe, 2, TINY)
    parts = {part["part"].split(":")[0]: part["seconds"] for part in report["parts"]}
    assert report["iterations"] == 2 and report["learner_steps_a_second"] > 0
    assert sum(part["share"] for part in report["parts"]) == pytest.approx(1, abs=0.01)
    expected = {"rules", "network", "rollout buffer", "bots", "update", "all else"}
    assert set(parts) == expected | ({"search of positions"} if recipe == "beasty_expert" else set())
    assert min(parts.values()) > 0


def test_the_learner_keeps_its_own_network() -> None:
    """A learner with a wrapped network would not use the compiled gradient."""
    trainer = Trainer(settings.replace(shrink(api.configure("beasty")), {"threads": 1}))
    kinds = {role: type(learner.policy.network) for role, learner in trainer.agents.learners.items()}
    tool().install_timers(trainer, tool().Clock())
    assert {role: type(learner.policy.network) for role, learner in trainer.agents.learners.items()} == kinds
