"""PPO of the GPU by torch beside that of the CPU, on the same rollouts, without a GPU."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from support.emulated_worlds import emulated_gpu
from support.torch_rollouts import GAMES, SLOTS, SUBJECTS, collector_of

from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.learners.torch_ppo import TorchPpo
from rematch.agents.networks.layout import TABLE_FROZEN, weight_views
from rematch.agents.policy import Policy
from rematch.core.errors import LearnError
from rematch.rollout.cuda_collector import CudaCollector
from rematch.rollout.rollout_buffer import RewardTerm
from rematch.stability.ewc import Anchor, EwcConfig

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # attention of the CPU in tiles
]
__all__ = ["emulated_gpu"]
WHOLE = 1 << 20  # a minibatch with all rows: its order has no effect
SETTINGS: dict[str, dict[str, Any]] = {
    "categories": {"magnet_weight": 0.3, "value_clip": 0.1, "gamma": 0.9},
    "table": {"max_grad_norm": 0.0, "average_fraction": 1.0},
    "two towers, privileged": {"gae_lambda": 0.8, "temperature": 2.0, "temperature_final": 0.5},
    "transformer": {"value_clip": 0.2, "entropy_weight": 0.04},
    "Gaussian, three layers": {"magnet_weight": 0.1, "entropy_weight": 0.01},
    "Gaussian, few rows": {"value_clip": 0.3},
    "two towers, relu": {"magnet_weight": 0.2},
    "Gaussian, few rows, shared": {"max_grad_norm": 0.1, "clip": 0.01},
    "sensors, belief": {"magnet_weight": 0.1},
    "sensors, privileged": {"entropy_weight": 0.02},
}  # fmt: skip


def learner_of(collector: CudaCollector, role: str, kind: type[Ppo], **changes: Any) -> Ppo:
    """A learner whose policy is that of slot 0."""
    seating = collector.seating[role]
    policy = Policy(seating.policy.role, seating.policy.config, role, seating.placed[0])
    changes = {"epochs": 1, "minibatch_size": WHOLE, "lr": 0.01} | changes
    learner = kind(policy, PpoConfig(**changes), 3, 1)
    learner.magnet *= np.float32(0.9)  # as after some iterations
    if isinstance(learner, TorchPpo):
        learner.send()
    return learner


def rows_of(collector: CudaCollector, role: str, learner: Ppo) -> np.ndarray[Any, Any]:
    return learner.batch(collector.rollout)[1]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_update_equals_that_of_the_cpu(
    subject: str, emulated_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = collector_of(subject)
    monkeypatch.setattr(TorchPpo, "_dropout", lambda self, x: x)
    monkeypatch.setattr("rematch.agents.networks.transformer.KeyedDropout.__call__", lambda self, x: x)
    rollout = collector.collect(0)
    for role in collector.seating:
        pair = [learner_of(collector, role, kind, **SETTINGS[subject], epochs=2) for kind in (Ppo, TorchPpo)]
        for iteration in range(2):
            reference, metrics = (learner.learn(rollout, 0.3, iteration) for learner in pair)
            assert metrics.keys() == reference.keys() and metrics["updates"] == 2
            for name, number in reference.items():
                assert metrics[name] == pytest.approx(number, rel=2e-3, abs=2e-5), name
        host, gpu = pair
        np.testing.assert_allclose(gpu.policy.weights, host.policy.weights, atol=3e-4)
        assert gpu.state_dict().keys() == host.state_dict().keys()
        for name in ("first", "second", "magnet"):
            tree = (learner.state_dict()[name] for learner in (gpu, host))
            np.testing.assert_allclose(*tree, atol=3e-4, err_msg=name)
        assert gpu.adam.updates == host.adam.updates == 4


@pytest.mark.parametrize("subject", ["categories", "two towers, privileged"])
def test_advantages_are_those_of_the_cpu(subject: str, emulated_gpu: None) -> None:
    collector = collector_of(subject)
    for iteration in range(3):
        rollout = collector.collect(iteration)
        for role in collector.rollout.role_tracks:
            learner = learner_of(collector, role, TorchPpo, gamma=0.9, gae_lambda=0.7)
            assert isinstance(learner, TorchPpo)
            learner.learn(rollout, 0.0, iteration)
            advantage, target, counts = (x.reshape(-1) for x in rollout.advantages(role, 0.9, 0.7))
            np.testing.assert_array_equal(learner.counts, counts)
            assert counts.any()
            for expected, found in ((advantage, learner.raw_advantage), (target, learner.target)):
                np.testing.assert_allclose(found.numpy()[counts], expected[counts], atol=1e-6)


def test_minibatches_are_all_rows_in_another_order_each_time(emulated_gpu: None) -> None:
    collector = collector_of("two towers, privileged")
    rollout = collector.collect(0)
    learner = learner_of(collector, "player", TorchPpo, epochs=5, minibatch_size=16)
    assert isinstance(learner, TorchPpo)
    rows, orders = rows_of(collector, "player", learner), []
    for iteration in range(2):
        metrics = learner.learn(rollout, 0.0, iteration)
        orders += [order[: len(rows)] for order in learner.order.tolist()]
        assert metrics["updates"] == 5 * -(-len(rows) // 16) and metrics["decisions"] == len(rows) > 32
    assert all(sorted(order) == rows.tolist() for order in orders)
    assert len({tuple(order) for order in orders}) == len(orders) == 10


def test_penalty_of_ewc_is_that_of_the_cpu(emulated_gpu: None) -> None:
    collector = collector_of("sensors, privileged")
    rollout = collector.collect(0)
    pair = [learner_of(collector, "evader", kind, epochs=2) for kind in (Ppo, TorchPpo)]
    for iteration in range(3):
        for learner in pair:
            if iteration == 0:
                learner.regularizers.append(Anchor(EwcConfig(weight=50.0), learner.policy, 3))
            anchor = learner.regularizers[0]
            assert isinstance(anchor, Anchor)
            if iteration == 1:  # the anchor moves while the graphs stay
                anchor.update(rollout)
                assert anchor.fisher.any()
                anchor.anchor += np.float32(0.1)
        reference, metrics = (learner.learn(rollout, 0.3, iteration) for learner in pair)
        assert (metrics["ewc_penalty"] > 0.01) is (iteration > 0)
        for name, number in reference.items():
            assert metrics[name] == pytest.approx(number, rel=2e-3, abs=2e-5), name
    np.testing.assert_allclose(pair[1].policy.weights, pair[0].policy.weights, atol=3e-4)


def test_rows_behind_the_last_one_have_no_share(emulated_gpu: None) -> None:
    collector = collector_of("two towers, privileged")
    rollout = collector.collect(0)
    learner = learner_of(collector, "player", TorchPpo, minibatch_size=50)
    assert isinstance(learner, TorchPpo)
    learner.learn(rollout, 0.0, 0)
    count, rest = int(learner.count), int(learner.count) % 50
    assert rest
    learner.position.fill_(count // 50)
    learner.fill_batch()
    share = learner.kernels.share
    assert share.tolist() == pytest.approx([1 / rest] * rest + [0.0] * (50 - rest))
    learner.position.fill_(count // 50 + 1)
    before = learner.weights.clone()
    learner._minibatch()
    assert torch.equal(learner.weights, before)


def test_resumed_learner_has_the_same_bits(emulated_gpu: None) -> None:
    collector = collector_of("transformer")
    rollout = collector.collect(0)
    settings = {"epochs": 2, "minibatch_size": 32, "magnet_weight": 0.1, "average_fraction": 0.5}
    whole, first, second = (learner_of(collector, "player", TorchPpo, **settings) for _ in range(3))
    for iteration in range(4):
        whole.learn(rollout, iteration / 4, iteration)
    for iteration in range(2):
        first.learn(rollout, iteration / 4, iteration)
    second.load_state_dict(first.state_dict())
    for iteration in range(2, 4):
        second.learn(rollout, iteration / 4, iteration)
    for name, array in whole.state_dict().items():
        assert np.array_equal(array, second.state_dict()[name]), name
    assert "mean" in whole.finish()
    assert np.array_equal(whole.state_dict()["weights"], whole.mean)


def test_epochs_end_at_the_target_kl(emulated_gpu: None) -> None:
    collector = collector_of("categories")
    rollout = collector.collect(0)
    free, bound = (learner_of(collector, "pursuer", TorchPpo, epochs=8, minibatch_size=16, lr=0.02, **more)
                   for more in ({}, {"target_kl": 0.005}))  # fmt: skip
    assert bound.learn(rollout, 0.0, 0)["updates"] < free.learn(rollout, 0.0, 0)["updates"]
    host = learner_of(collector, "pursuer", Ppo, epochs=8, minibatch_size=16, lr=0.02, target_kl=0.005)
    assert host.learn(rollout, 0.0, 0)["updates"] < 8 * -(-GAMES * 6 // 16)


@pytest.mark.parametrize("value_only", [False, True])
def test_constant_weights_stay(value_only: bool, emulated_gpu: None) -> None:
    collector = collector_of("table")
    rollout = collector.collect(0)
    learner = learner_of(collector, "evader", TorchPpo)
    learner.value_only = value_only
    views = weight_views(learner.policy.weights, learner.policy.layout)
    before = {name: view.copy() for name, view in views.items()}
    learner.learn(rollout, 0.0, 0)
    changed = {name for name, view in views.items() if not np.array_equal(view, before[name])}
    assert "value.head.weight" in changed and not changed & set(TABLE_FROZEN)
    assert ("policy.0.table" in changed) is not value_only


def test_reward_terms_are_added(emulated_gpu: None) -> None:
    collector = collector_of("categories")
    rollout = collector.collect(0)
    values = np.random.default_rng(0).standard_normal(rollout["pursuer"].reward.shape).astype(np.float32)
    rollout["pursuer"].reward_terms["mine"] = RewardTerm(values, 0.5, "decision")
    host, gpu = (learner_of(collector, "pursuer", kind) for kind in (Ppo, TorchPpo))
    reference, metrics = (learner.learn(rollout, 0.0, 0) for learner in (host, gpu))
    assert metrics["value_loss"] == pytest.approx(reference["value_loss"], rel=1e-4)
    np.testing.assert_allclose(gpu.policy.weights, host.policy.weights, atol=1e-4)


def test_number_that_is_not_finite_is_named(emulated_gpu: None) -> None:
    collector = collector_of("categories")
    rollout = collector.collect(0)
    learner = learner_of(collector, "pursuer", TorchPpo)
    own = int(rows_of(collector, "pursuer", learner)[5])
    collector.rollout.role_tracks["pursuer"].logp_tensor.view(-1)[own] = -np.inf
    collector.rollout.role_tracks["pursuer"].forget_copies()
    before = learner.policy.weights.copy()
    with pytest.raises(LearnError, match="pursuer: a log-probability is not finite"):
        learner.learn(rollout, 0.0, 0)
    assert np.array_equal(learner.policy.weights, before)


def test_rollout_without_decisions_of_the_learner_changes_nothing(emulated_gpu: None) -> None:
    collector = collector_of("categories")
    collector.world.next.slot[:] = SLOTS
    collector.world.restart()
    rollout = collector.collect(0)
    learner = learner_of(collector, "pursuer", TorchPpo)
    before = learner.policy.weights.copy()
    assert learner.learn(rollout, 0.0, 0) == {"decisions": 0.0}
    assert np.array_equal(learner.state_dict()["weights"], before)
