"""Best responses that train on the GPU, in the emulation: the phases of their training, exploiters."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from support.emulated_training import TINY, emulated_gpu, emulated_training

from rematch import api
from rematch.agents.learners.cuda_ppo import CudaPpo
from rematch.training.loop import iterate
from rematch.training.response_training import (
    Course,
    FrozenAgents,
    Response,
    search_config,
    self_play,
    self_play_config,
)
from rematch.training.trainer import Trainer

pytestmark = [
    pytest.mark.slow,  # the emulation of the kernels
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation"),
]
__all__ = ["emulated_gpu", "emulated_training"]
STEPS = 24 * 4  # of an iteration


def trainer_of(**changes: Any) -> Trainer:
    settings = TINY | {"ppo.average_fraction": 0.0} | changes
    return Trainer(api.configure("pursuit", flags=[f"--{key}={value}" for key, value in settings.items()]))


def frozen_of(run: Trainer) -> FrozenAgents:
    players = run.agents.players
    return FrozenAgents(config=run.config, players=players, iteration=1, past=[dict(players)])


def response_to(frozen: FrozenAgents, start: str, iterations: int) -> Response:
    config = search_config(frozen.config, iterations * STEPS, (start, 0), frozen.make(1, 0, 0).spec)
    course = Course.of(frozen, config, "evader") if start == "fresh" else None
    response = Response(frozen, config, "evader", 3, course)
    if start == "incumbent":
        response.policy.set(frozen.players["evader"].weights)  # type: ignore[attr-defined]
    return response


def test_response_from_the_incumbent_trains_its_value_function_first(emulated_training: None) -> None:
    response = response_to(frozen_of(trainer_of()), "incumbent", 8)
    parts: list[dict[str, Any]] = []

    def score(player: Any) -> float:
        parts.append({name: array.copy() for name, array in player.arrays().items()})
        return float(len(parts))  # always better

    assert response.search("incumbent", score) == 8
    assert isinstance(response.learner, CudaPpo)
    before, *after = parts
    policy_weights = [name for name in before if not name.startswith("value.")]
    assert policy_weights and all(np.array_equal(before[n], after[2][n]) for n in policy_weights)
    assert not np.array_equal(before["value.head.weight"], after[2]["value.head.weight"])
    assert any(not np.array_equal(before[n], after[3][n]) for n in policy_weights), "then the policy learns"


def test_fresh_response_plays_its_course_and_takes_its_best_checkpoint(emulated_training: None) -> None:
    response = response_to(frozen_of(trainer_of()), "fresh", 8)
    weights: list[Any] = []

    def score(player: Any) -> float:
        weights.append(player.weights.copy())
        return 1.0 if len(weights) == 3 else 0.0

    assert response.search("fresh", score) == 6, "the second round did not improve"
    assert np.array_equal(response.policy.weights, weights[2])
    assert not np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[1], weights[2])
    seats = response.collector.rollout.slot_tensor
    assert (seats[:, :, 1] == 0).all() and (seats[1:, :, 0] != 0).all()


def test_response_starts_from_self_play_on_the_gpu(emulated_training: None) -> None:
    frozen = frozen_of(trainer_of())
    config = self_play_config(frozen, 2 * STEPS, 0)
    assert config.device == "cuda" and config.iterations == 1, "as many as the run"
    weights = self_play(frozen, config)
    untrained = trainer_of(seed=config.seed).agents.networks
    assert weights.keys() == untrained.keys()
    for role, policy in untrained.items():
        assert np.isfinite(weights[role]).all() and not np.array_equal(weights[role], policy.weights)
    response = response_to(frozen, "selfplay", 4)
    response.policy.set(weights["evader"])
    assert response.search("selfplay", lambda player: 0.5) == 2, "the first round did not improve"
    assert np.array_equal(response.policy.weights, weights["evader"])


def test_exploiters_train_in_a_run_with_compiled_kernels(emulated_training: None) -> None:
    exploiters = {"exploiters.every": 1, "exploiters.steps": STEPS, "exploiters.min_win_rate": 0.0}
    run = trainer_of(**exploiters)
    run.start()
    iterate(run)
    run.end_iteration()
    league: Any = next(part for part in run.parts if part.name == "league")
    names = [snapshot.name for pool in league.matchmaker.pools.values() for snapshot in pool.snapshots]
    assert any("exploiter" in name for name in names), names
