"""Whole iterations with `device cuda` and networks of torch, on an emulated GPU: league, bots, exploiters."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import numpy as np
import pytest
from support.emulated_worlds import emulated_gpu

from rematch import api
from rematch.agents.learners.cuda_expert import CudaExpert
from rematch.agents.learners.expert_iteration import ExpertIteration
from rematch.agents.learners.torch_ppo import TorchPpo
from rematch.training.loop import iterate
from rematch.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # attention of the CPU in tiles
]
__all__ = ["emulated_gpu"]
LEAGUE = {"league.opponent_share": 0.6, "league.snapshot_every": 1, "league.rotate": 1, "league.slots": 2}
SMALL: dict[str, Any] = {"device": "cuda", "threads": 1, "games": 24, "steps": 24}
SMALL_EXPERT: dict[str, Any] = {
    "network.hidden": [16, 8], "stagger": 24, "expert.completions": 2, "total_steps": 2304,
    "expert.positions": 64, "expert.replay_size": 100, "expert.minibatch_size": 32,
}  # fmt: skip
SUBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lattice": ("lattice", {"network.hidden": [16, 16], "world.n": 5, "world.block": 0}),
    "beasty": ("beasty", {"network.hidden": [16, 8], "stagger": 24}),
    "expert": ("beasty_expert", SMALL_EXPERT | {"expert.playouts": "seated", "expert.bot_fraction": 1e-4,
                                                "expert.plies": 2}),
    "transformer": ("iter600_to_1000", {"network.width": 16, "network.heads": 2, "network.layers": 1,
                                        "exploiters.every": 0}),
    "warm-up, EWC, RND": ("x", {"network.hidden": [16, 16], "world.lidar_rays": 4, "world.history_length": 2,
                                "schedule.warmup_steps": 2 * 24 * 24, "schedule.phase_steps": 24 * 24,
                                "schedule.short_phases": [], "rnd.update_every": 64}),
    "belief": ("pursuit", {"world.full_obs": False, "world.lidar_rays": 4, "world.history_length": 2,
                           "network.encoder": "bimdn", "network.encoder_hidden": 8, "network.hidden": [16]}),
}  # fmt: skip


def trainer_of(subject: str, **more: Any) -> Trainer:
    recipe, changes = SUBJECTS[subject]
    if recipe != "beasty_expert":
        more = {"ppo.minibatch_size": 128} | more
    return Trainer(api.configure(recipe, changes=SMALL | LEAGUE | changes | more))


def weights_of(run: Trainer) -> list[np.ndarray[Any, Any]]:
    return [learner.state_dict()["weights"] for learner in run.setup.learners.values()]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_resumed_run_has_the_same_bits(subject: str, emulated_gpu: None) -> None:
    whole, first, second = (trainer_of(subject) for _ in range(3))
    whole.start()
    with_opponents = []
    for _ in range(4):
        iterate(whole)
        tracks = whole.setup.collector.rollout.tracks.values()
        with_opponents += [(track.slot > 0).any() for track in tracks]
    assert all(isinstance(learner, TorchPpo | CudaExpert) for learner in whole.setup.learners.values())
    assert any(with_opponents)
    first.start()
    for _ in range(2):
        iterate(first)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for _ in range(2):
        iterate(second)
    for expected, found in zip(weights_of(whole), weights_of(second)):
        assert np.array_equal(expected, found)
    assert not np.array_equal(weights_of(whole)[0], weights_of(first)[0])


def test_bot_of_the_warm_up_plays_from_the_first_step(emulated_gpu: None) -> None:
    recipe, changes = SUBJECTS["warm-up, EWC, RND"]
    run = Trainer(api.configure(recipe, changes=SMALL | changes | {"world.max_steps": 20}))
    run.start()
    for phase in ("S0", "S0", "S1"):
        iterate(run)
        tracks = run.setup.collector.rollout.tracks
        assert run.clock.phase.name == phase and not tracks["evader"].slot.any()
        if phase == "S0":
            assert (tracks["pursuer"].slot == 1).all()
    assert not tracks["pursuer"].slot[-1].any()  # running games are played to their end


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


@pytest.mark.parametrize("playouts", ["bot", "seated"])
def test_expert_iteration_searches_what_the_cpu_searches(playouts: str, emulated_gpu: None) -> None:
    """The same positions, random numbers and minibatches; playouts of bots have the same bits."""
    learners: dict[str, ExpertIteration] = {}
    for device in ("cpu", "cuda"):
        changes = {**SMALL, **SMALL_EXPERT, "device": device, "expert.playouts": playouts}
        run = Trainer(api.configure("beasty_expert", changes=changes))
        run.start()
        iterate(run)
        learners[device] = run.setup.learners["player"]  # type: ignore[assignment]
        learners[device].state_dict()  # copies the replay buffer to the host
    cpu, gpu = learners["cpu"], learners["cuda"]
    assert isinstance(gpu, CudaExpert) and cpu.count == gpu.count == 64
    # networks act in another precision: a few games differ, in a draw that lies at the edge of an action
    same = (cpu.states[:64] == gpu.states[:64]).all(1)
    assert same.mean() > 0.9
    if playouts == "bot":
        assert np.array_equal(cpu.q_targets[:64][same], gpu.q_targets[:64][same])
    else:
        far = np.abs(cpu.q_targets[:64][same] - gpu.q_targets[:64][same]).max(1) > 0.02 / cpu.config.tau
        assert far.mean() < 0.2  # in a playout another action was drawn
    assert np.abs(cpu.q_targets[:64]).max() > 1
    np.testing.assert_allclose(cpu.policy.weights, gpu.policy.weights, atol=5e-3)
    assert not np.array_equal(gpu.policy.weights, gpu.student.magnet)
