"""Whole iterations with `device cuda` and networks of torch, on an emulated GPU: league, bots, exploiters."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import numpy as np
import pytest
from support.emulated_worlds import emulated_gpu

from rematch import api
from rematch.agents.learners.torch_ppo import TorchPpo
from rematch.training.loop import iterate
from rematch.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # attention of the CPU in tiles
]
__all__ = ["emulated_gpu"]
LEAGUE = {"league.opponent_share": 0.6, "league.snapshot_every": 1, "league.rotate": 1, "league.slots": 2}
SMALL: dict[str, Any] = {"device": "cuda", "threads": 1, "games": 24, "steps": 24, "ppo.minibatch_size": 128}
SUBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lattice": ("lattice", {"network.hidden": [16, 16], "world.n": 5, "world.block": 0}),
    "beasty": ("beasty", {"network.hidden": [16, 8], "stagger": 24}),
    "transformer": ("iter600_to_1000", {"network.width": 16, "network.heads": 2, "network.layers": 1,
                                        "exploiters.every": 0}),
}  # fmt: skip


def trainer_of(subject: str, **more: Any) -> Trainer:
    recipe, changes = SUBJECTS[subject]
    return Trainer(api.configure(recipe, changes=SMALL | LEAGUE | changes | more))


def weights_of(run: Trainer) -> list[np.ndarray[Any, Any]]:
    return [learner.state_dict()["weights"] for learner in run.setup.learners.values()]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_resumed_run_has_the_same_bits(subject: str, emulated_gpu: None) -> None:
    whole, first, second = (trainer_of(subject) for _ in range(3))
    whole.start()
    for _ in range(4):
        iterate(whole)
    assert all(isinstance(learner, TorchPpo) for learner in whole.setup.learners.values())
    assert any((track.slot == 1).any() for track in whole.setup.collector.rollout.tracks.values())
    first.start()
    for _ in range(2):
        iterate(first)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for _ in range(2):
        iterate(second)
    for expected, found in zip(weights_of(whole), weights_of(second)):
        assert np.array_equal(expected, found)
    assert not np.array_equal(weights_of(whole)[0], weights_of(first)[0])


def test_exploiter_trains_on_the_gpu(emulated_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    exploiters = {"exploiters.every": 1, "exploiters.steps": 2 * 24 * 24, "exploiters.min_win_rate": 0.0}
    run = trainer_of("beasty", **exploiters, **{"evaluation.games": 4, "stagger": 0})
    learned: list[TorchPpo] = []
    learn = TorchPpo.learn
    monkeypatch.setattr(TorchPpo, "learn", lambda self, *a: learned.append(self) or learn(self, *a))
    run.start()
    iterate(run)
    own = run.setup.learners["player"]
    exploiter = next(learner for learner in learned if learner is not own)
    assert [learner is own for learner in learned] == [True, False, False]
    assert exploiter.rollout is not None and {0, 1} == set(np.unique(exploiter.rollout["player"].slot))
    assert exploiter.adam.updates > 0
