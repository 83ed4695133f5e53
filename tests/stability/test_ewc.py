"""Elastic weight consolidation: Fisher information and gradient by definition; its effect in training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import advancing_curriculum, networks, toys

from rematch import api
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core import rng as keys
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.rehearsal.trial import play
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.stability.ewc import Anchor, Ewc, EwcConfig, fisher
from rematch.training.trainer import Trainer
from rematch.worlds import registry

# Kinds of inputs and actions: numbers, categorical columns, continuous and masked actions.
KINDS: dict[str, dict[str, Any]] = {
    "discrete": {"discrete": True}, "continuous": {"discrete": False},
    "tables": {"discrete": True, "names": (3, 5)}, "masked": {"discrete": True},
}  # fmt: skip


def slow_fisher(policy: Policy, obs: Any, mask: Any, key: int) -> Any:
    """Sample by sample with torch's autograd, in float64; actions sampled as by the policy."""
    import torch

    from rematch.agents.networks import mlp

    n, actions = len(obs), policy.role.actions
    discrete = actions.kind == "discrete"
    action: Any = np.zeros(n, np.int32) if discrete else np.zeros((n, actions.size), np.float32)
    rest = np.zeros(n, np.float32), np.zeros(n, np.float32)
    inputs = np.zeros(n, np.int32), obs, np.arange(n, dtype=np.uint32)
    policy.network.act(policy.packed, *inputs, (key, 0), action, *rest, mask=mask)
    total = torch.zeros(policy.weights.size, dtype=torch.float64)
    for i in range(n):
        flat = torch.from_numpy(policy.weights.astype(np.float64)).requires_grad_()
        seen = torch.from_numpy(obs[i : i + 1].astype(np.float64))
        legal = None if mask is None else torch.from_numpy(mask[i : i + 1])
        play, _ = mlp.policy_and_value(flat, policy.role, policy.config, seen, legal)
        (slope,) = torch.autograd.grad(play.log_prob(torch.from_numpy(action[i : i + 1])).sum(), flat)
        total += slope**2
    return (total / n).numpy()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_fisher_is_the_mean_of_squared_gradients(kind: str, shared: bool) -> None:
    policy = networks.policy(networks.role(**KINDS[kind]), hidden=(7, 6), shared=shared)
    batch = networks.minibatch(policy, 70, masked=kind == "masked")
    ours = fisher(policy, batch["obs"], batch.get("mask"), 9)
    slow = slow_fisher(policy, batch["obs"], batch.get("mask"), 9)
    np.testing.assert_allclose(ours, slow, rtol=2e-4, atol=1e-7)
    views = weight_views(ours, policy.layout)
    assert views["policy.head.weight"].min() >= 0 and views["policy.head.weight"].max() > 0
    assert not views["value.head.weight"].any()  # the policy does not depend on it


def test_fisher_of_a_softmax_without_inputs() -> None:
    """Logits alone: F = p (1 - p) on the diagonal; a bias, with inputs that are 0."""
    policy = networks.policy(networks.role(obs=1, actions=3), hidden=(1,))
    weights = np.zeros_like(policy.weights)
    bias = weight_views(weights, policy.layout)["policy.head.bias"]
    bias[:] = np.log([0.2, 0.3, 0.5])
    policy.set(weights)
    fisher_views = weight_views(fisher(policy, np.zeros((20_000, 1), np.float32), None, 3), policy.layout)
    assert fisher_views["policy.head.bias"] == pytest.approx([0.16, 0.21, 0.25], abs=0.005)


def test_fisher_of_a_gaussian() -> None:
    """Of log sigma it is 2, whatever sigma; of a mean 1 / sigma^2."""
    policy = networks.policy(networks.role(obs=1, actions=1, discrete=False), hidden=(1,))
    weight_views(policy.weights, policy.layout)["policy.log_std"][:] = -0.7
    policy.set(policy.weights)
    fisher_views = weight_views(fisher(policy, np.zeros((10_000, 1), np.float32), None, 3), policy.layout)
    assert fisher_views["policy.log_std"] == pytest.approx(2.0, abs=0.3)
    assert fisher_views["policy.head.bias"] == pytest.approx(np.exp(1.4), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_penalty_gradient_equals_finite_differences(kind: str) -> None:
    import torch

    policy = networks.policy(networks.role(**KINDS[kind]), hidden=(5,))
    guard = Anchor(EwcConfig(weight=30.0), policy, 0)
    rng = np.random.default_rng(0)
    guard.anchor[:] = rng.standard_normal(policy.weights.size)
    guard.fisher[:] = rng.random(policy.weights.size)
    flat = torch.from_numpy(policy.weights.astype(np.float64)).requires_grad_()
    penalty = 30.0 / 2 * (torch.from_numpy(guard.fisher) * (flat - torch.from_numpy(guard.anchor)) ** 2).sum()
    (wanted,) = torch.autograd.grad(penalty, flat)
    value, slope = guard.penalty(policy)
    assert value == pytest.approx(float(penalty.detach()), rel=1e-5)
    np.testing.assert_allclose(slope, wanted.numpy(), rtol=1e-5, atol=1e-6)


# --- in a world with several fields ---------------------------------------------------------------------


@pytest.fixture
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))
    advancing_curriculum.stand_in(monkeypatch)


def small(game: str, **changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 32, "steps": 8, "total_steps": 6 * 32 * 8, "network.hidden": (8,),
        "ppo.minibatch_size": 64, "league.opponent_share": 0.0, "evaluation.every": 6, "evaluation.games": 4,
        "evaluation.opponents": ("random",), "ewc.weight": 1000.0, "ewc.fisher_samples": 50,
    }
    return settings.replace(api.default(game), tiny | {k.replace("__", "."): v for k, v in changes.items()})


def anchors(trainer: Trainer) -> dict[str, Anchor]:
    """role -> anchor; none where EWC is off."""
    ewc = trainer.setup.get(Ewc)
    return ewc.anchors if ewc else {}


@pytest.mark.parametrize("gradient", ["native", "torch"])
@pytest.mark.parametrize("game", ["matching", "sticks", "drift"])
@pytest.mark.usefixtures("toy_worlds")
def test_dictionary_observations(game: str, gradient: str, tmp_path: Path) -> None:
    """Several fields; seats that wait, masks, continuous actions. Runs of the earlier project failed here."""
    config = small(game, ppo__gradient=gradient)
    assert all(len(role.fields) > 1 for role in Trainer(config).setup.spec.roles.values())
    seen = play(config, tmp_path / "run")
    last = list(seen.trainer.setup.spec.roles)[-1]
    penalties = [row[f"{last}/ewc_penalty"] for row in seen.rows]
    assert penalties[0] == 0 and min(penalties[1:]) > 0
    held = {name.split("/")[0] for row in seen.rows for name in row if name.endswith("ewc_penalty")}
    assert held == {last} == set(anchors(seen.trainer))
    log = (tmp_path / "run" / "train.log").read_text()
    assert f"EWC: the weights of {last} at step 256 are anchored (50 decisions)" in log


@pytest.mark.usefixtures("toy_worlds")
def test_roles_without_decisions_keep_their_anchor() -> None:
    trainer = Trainer(small("matching", ewc__roles="all"))
    assert list(anchors(trainer)) == ["matcher", "hider"]
    rollout = trainer.next_rollout()
    rollout["matcher"].slot[:] = 1  # an opponent played all games
    ewc = trainer.setup.get(Ewc)
    assert ewc is not None
    ewc.after_evaluation(SimpleNamespace(row={"moved": 1}, lines=[]), rollout, trainer.clock)
    assert [anchor.marks for anchor in ewc.anchors.values()] == [0, 1]
    assert not ewc.anchors["matcher"].fisher.any() and ewc.anchors["hider"].fisher.any()


def test_anchor_uses_sampled_decisions_of_the_learner() -> None:
    trainer = Trainer(settings.replace(small("pursuit", ewc__weight=0.0), {"threads": 1}))
    buffer = trainer.next_rollout()
    role_rollout = buffer["evader"]
    role_rollout.slot[:, ::2] = 1
    role_rollout.obs[:, ::2] = np.nan  # a sample of these would give NaN
    guard = Anchor(EwcConfig(weight=1.0, fisher_samples=40), trainer.agents.learners["evader"].policy, 5)
    assert guard.update(buffer) == 40 and np.isfinite(guard.fisher).all()
    again = Anchor(guard.config, guard.policy, 5)
    again.update(buffer)
    assert np.array_equal(again.fisher, guard.fisher) and np.array_equal(again.anchor, guard.policy.weights)
    again.update(buffer)  # the next anchor samples other decisions
    assert not np.array_equal(again.fisher, guard.fisher)


# --- what it does -----------------------------------------------------------------------------------------


def drilled(weight: float) -> tuple[float, float]:
    """Mean KL and largest weight change after 40 iterations in one direction."""
    role_spec = networks.role(obs=5, actions=3)
    policy = networks.policy(role_spec, hidden=(16,))
    learner = Ppo(policy, PpoConfig(lr=3e-3, anneal="none", minibatch_size=64, entropy_weight=0.0), 0, 1)
    spec = toys.matching.make(toys.MatchingConfig(), 1, 0, 0).spec
    buffer = RolloutBuffer(spec, 1, 256)
    role_rollout = buffer.tracks["player"] = type(buffer["hider"])(
        type(spec)(world="test", roles={"player": role_spec}), "player", 1, 256, buffer.reads)  # fmt: skip
    if weight:
        guard = Anchor(EwcConfig(weight=weight), policy, 0)
        learner.regularizers.append(guard)
    rng = np.random.default_rng(1)
    role_rollout.obs[:] = rng.uniform(-1, 1, role_rollout.obs.shape)
    role_rollout.acted[:], buffer.ended[:] = 1, 1
    if weight:
        guard.update(buffer)
    obs, before = role_rollout.obs[0, :, 0], policy.weights.copy()
    old = policy.forward(obs)[0].astype(np.float64)
    inputs = np.zeros(256, np.int32), obs, np.arange(256, dtype=np.uint32)
    for iteration in range(40):
        action = role_rollout.action[0, :, 0].copy()
        logp, value = np.zeros(256, np.float32), np.zeros(256, np.float32)
        key = keys.key(0, keys.ACT, 0, iteration)
        policy.network.act(policy.packed, *inputs, (key, 0), action, logp, value)
        role_rollout.action[0, :, 0], role_rollout.logp[0, :, 0] = action, logp
        role_rollout.value[0, :, 0] = value
        role_rollout.reward[0, :, 0] = action == 0  # now the first action is always right
        learner.learn(buffer, 0.0, iteration)
    logp, logq = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (old, policy.forward(obs)[0]))
    return float((np.exp(logp) * (logp - logq)).sum(1).mean()), float(np.abs(policy.weights - before).max())


def test_huge_weight_keeps_the_policy() -> None:
    free, held = drilled(0.0), drilled(1e6)
    assert free[0] > 0.5 and held[0] < 0.02, (free, held)
    assert held[1] > 0.01  # other weights still learn
    assert held[0] < drilled(1.0)[0] < free[0]


def test_penalty_is_added_before_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """max_grad_norm bounds the whole step, and a penalty that is not finite is an error like any gradient."""
    policy = networks.policy(networks.role(), hidden=(8,))
    learner = Ppo(policy, PpoConfig(max_grad_norm=0.5, minibatch_size=64, epochs=1), 0, 1)
    guard = Anchor(EwcConfig(weight=1e9), policy, 0)
    learner.regularizers.append(guard)
    guard.fisher[:] = 1.0
    batch = networks.minibatch(policy, 64)
    monkeypatch.setattr(Ppo, "batch", lambda self, buffer: (batch, np.arange(64)))
    metrics = learner.learn(None, 0.0, 0)  # type: ignore[arg-type]
    assert metrics["ewc_penalty"] > 1e6 and metrics["grad_norm_pre_clip"] > 1e6
    assert metrics["grad_norm_post_clip"] == pytest.approx(0.5)


def test_weight_zero_builds_nothing() -> None:
    trainer = Trainer(small("pursuit", ewc__weight=0.0))
    assert anchors(trainer) == {}
    assert not any(learner.regularizers for learner in trainer.agents.learners.values())
    assert not any(name.startswith("ewc") for name in trainer.state_dict())


def test_ewc_without_curriculum_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ewc\.weight = 1000: .* there is no curriculum; expected 0"):
        small("pursuit")
    def check(config: EwcConfig, curriculum: str) -> None:
        run = SimpleNamespace(curriculum=SimpleNamespace(kind=curriculum))
        Ewc.check(config, SimpleNamespace(config=run))  # type: ignore[arg-type]

    check(EwcConfig(weight=1000.0), "discrete")
    check(EwcConfig(), "none")
