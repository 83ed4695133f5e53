"""Random network distillation: errors, gradient and deviation by definition; which decisions are rewarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import networks, toys
from support.trainers import first_rollout

from rematch import api
from rematch.agents.networks.layout import weight_views
from rematch.core import config as settings
from rematch.core.run_config import Config
from rematch.core.spec import Role
from rematch.exploration.rnd import MAGNET_TERM_ONLY, Distillation, Rnd, RndConfig, RunningStd
from rematch.rehearsal.compare import event_log
from rematch.rehearsal.trial import play
from rematch.training.trainer import Trainer
from rematch.worlds import registry


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


def small(game: str, **changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 32, "steps": 8, "total_steps": 4 * 32 * 8, "network.hidden": (8,),
        "ppo.minibatch_size": 64, "league.opponent_share": 0.0, "evaluation.every": 4, "evaluation.games": 4,
        "evaluation.opponents": ("random",), "rnd.weight": 0.1, "rnd.hidden": 16, "rnd.embed": 8,
    }
    return settings.replace(api.default(game), tiny | {k.replace("__", "."): v for k, v in changes.items()})


def collected(config: Config) -> tuple[Trainer, Any]:
    trainer = Trainer(config)
    return trainer, first_rollout(trainer)


def scorers_of(trainer: Trainer) -> dict[str, Distillation]:
    rnd = trainer.setup.get(Rnd)
    return {} if rnd is None else rnd.scorers  # type: ignore[return-value]


# --- by the definitions -------------------------------------------------------------------------------------


def slow_network(weights: Any, role_spec: Role, obs: Any) -> Any:
    """[n, E]: two layers of relu and a linear one; categorical columns as one-hot vectors."""
    hot = [np.eye(n)[obs[:, i].astype(int)] if n else None for i, n in enumerate(role_spec.categories)]
    numbers = obs[:, [i for i, n in enumerate(role_spec.categories) if not n]].astype(np.float64)
    x = numbers @ weights["trunk.0.weight"].T + weights["trunk.0.bias"]
    rows = [part for part in hot if part is not None]
    if rows:
        x = x + np.concatenate(rows, 1) @ weights["trunk.0.table"]
    x = np.maximum(x, 0) @ weights["trunk.1.weight"].T + weights["trunk.1.bias"]
    return np.maximum(x, 0) @ weights["policy.head.weight"].T + weights["policy.head.bias"]


@pytest.mark.parametrize("names", [(), (3, 4)])
def test_error_equals_reference_networks(names: tuple[int, ...]) -> None:
    role_spec = networks.role(obs=5, names=names)
    rnd = Distillation(RndConfig(weight=1.0, hidden=12, embed=6), role_spec, 3)
    obs = networks.minibatch(networks.policy(role_spec), 90)["obs"]
    outs = {}
    for name, network in (("target", rnd.target), ("predictor", rnd.predictor)):
        outs[name] = slow_network(weight_views(network.weights, network.layout), role_spec, obs)
        np.testing.assert_allclose(network.forward(obs)[0], outs[name], rtol=1e-4, atol=1e-5)
    assert 0.05 < ((outs["target"] - outs["predictor"]) ** 2).mean() < 50  # neither negligible nor huge


@pytest.mark.parametrize("names", [(), (3, 4)])
def test_predictor_gradient_is_that_of_half_the_squared_distance(names: tuple[int, ...]) -> None:
    import torch

    from rematch.agents.networks import mlp

    role_spec = networks.role(obs=5, names=names)
    rnd = Distillation(RndConfig(weight=1.0, hidden=12, embed=6), role_spec, 3)
    obs = networks.minibatch(networks.policy(role_spec), 90)["obs"]
    target = rnd.target.forward(obs)[0]
    none = np.zeros(90, np.float32)
    batch = {"obs": obs, "magnet": target, "magnet_log_std": np.zeros(6, np.float32),
             "action": np.zeros((90, 6), np.float32)}
    batch |= dict.fromkeys(("logp", "advantage", "target", "value"), none)
    packed = rnd.predictor.packed[0]
    rnd.predictor.network.gradient(packed, np.arange(90), batch, MAGNET_TERM_ONLY, 1, rnd.grad)
    flat = torch.from_numpy(rnd.predictor.weights.copy()).requires_grad_()
    play, _ = mlp.policy_and_value(flat, rnd.predictor.role, rnd.predictor.config, torch.from_numpy(obs))
    loss = 0.5 * ((play.heads - torch.from_numpy(target)) ** 2).sum(1).mean()
    (expected,) = torch.autograd.grad(loss, flat)
    np.testing.assert_allclose(rnd.grad, expected.numpy(), rtol=1e-3, atol=1e-5)
    assert not weight_views(rnd.grad, rnd.predictor.layout)["policy.log_std"].any()


def test_running_std_does_not_depend_on_batches() -> None:
    rng = np.random.default_rng(0)
    values, deviation = 1e3 + rng.standard_normal(1000), RunningStd()
    for part in np.split(values, [1, 2, 10, 500]):
        deviation.add(part)
    assert float(deviation) == pytest.approx(values.std(), rel=1e-9)
    assert deviation.mean == pytest.approx(values.mean()) and deviation.count == 1000


# --- rewarded decisions--------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["matching", "sticks", "drift", "pursuit", "lattice"])
def test_reward_of_each_decision(game: str) -> None:
    """Several fields (the toys), one field, categorical columns; only decisions of the learner."""
    trainer, buffer = collected(small(game))
    role = list(trainer.setup.spec.roles)[-1]
    role_rollout, rnd, scorers = buffer[role], trainer.setup.get(Rnd), scorers_of(trainer)
    assert rnd is not None and list(scorers) == [role]
    scorer = scorers[role]
    role_rollout.slot[:, ::3] = 1  # an opponent played there
    own = role_rollout.reward.copy()
    obs = role_rollout.obs.reshape(-1, role_rollout.role.size)
    error = ((scorer.predictor.forward(obs)[0] - scorer.target.forward(obs)[0]) ** 2).mean(1)
    error = error.reshape(role_rollout.reward.shape)
    learner = (role_rollout.slot == 0) & (role_rollout.acted != 0)
    trainer.after_rollout(buffer)
    term = role_rollout.reward_terms["rnd"]
    assert (term.weight, term.credit) == (0.1, "decision")
    np.testing.assert_allclose(term.values[learner], error[learner] / error[learner].std(), rtol=1e-3)
    assert not term.values[~learner].any() and (~learner).any() and learner.any()
    assert np.array_equal(role_rollout.reward, own)  # the reward of the world does not change
    learner, logged = role_rollout.slot == 0, rnd.metrics()
    bonus = (0.1 * term.values).astype(np.float32)
    assert logged[f"{role}/rnd_extrinsic"] == pytest.approx(own[learner].mean(), abs=1e-6)
    assert logged[f"{role}/rnd_intrinsic"] == pytest.approx(bonus[learner].mean(), rel=1e-5)
    assert logged[f"{role}/rnd_total"] == pytest.approx((own + bonus)[learner].mean(), rel=1e-4, abs=1e-6)


def test_only_advantages_contain_the_reward_term() -> None:
    trainer, buffer = collected(small("matching"))
    trainer.after_rollout(buffer)
    role_rollout = buffer["hider"]
    with_bonus = buffer.advantages("hider", 0.9, 0.8)
    term, own = role_rollout.reward_terms.pop("rnd"), role_rollout.reward.copy()
    without = buffer.advantages("hider", 0.9, 0.8)
    role_rollout.reward = own + (term.weight * term.values).astype(np.float32)
    for got, expected in zip(with_bonus, buffer.advantages("hider", 0.9, 0.8)):
        assert np.array_equal(got, expected)
    assert not np.array_equal(with_bonus[0], without[0])


def test_reward_term_does_not_leak_into_the_next_rollout(tmp_path: Path) -> None:
    """Returns and wins do not contain the term: without learning they are as without it."""
    still = {"ppo__lr": 0.0, "ppo__anneal": "none", "total_steps": 8 * 256}
    paid = play(small("drift", **still), tmp_path / "paid")
    plain = play(small("drift", rnd__weight=0.0, **still), tmp_path / "plain")
    names = [name for name in plain.rows[-1] if name.startswith("rollout/")]
    assert "rollout/reward_rafter" in names
    assert [[row.get(n) for n in names] for row in paid.rows] == [
        [row.get(n) for n in names] for row in plain.rows]
    assert paid.evaluations[-1]["returns"] == plain.evaluations[-1]["returns"]
    ended = [row for row in paid.rows if "rollout/length" in row]
    assert ended and all(row["rafter/rnd_intrinsic"] > 0 for row in ended)
    for row in ended:
        assert row["rafter/rnd_extrinsic"] == pytest.approx(row["rollout/reward_rafter"], abs=1e-6)


def test_frequent_observations_give_less_reward() -> None:
    trainer, buffer = collected(small("matching"))
    role_spec = trainer.setup.spec.roles["hider"]
    rnd = Distillation(RndConfig(weight=1.0, hidden=32, embed=16, update_every=16), role_spec, 0)
    role_rollout = buffer["hider"]
    rng = np.random.default_rng(0)
    old, new = (centre + 0.1 * rng.standard_normal(role_rollout.obs.shape) for centre in (-1, 1))
    for iteration in range(30):
        role_rollout.obs[:] = old
        rnd.score(buffer, iteration)
    frozen = rnd.target.weights.copy()
    role_rollout.obs[:, ::2] = new[:, ::2]
    values = rnd.score(buffer, 30)
    assert values[:, ::2].mean() > 20 * values[:, 1::2].mean() > 0
    assert np.array_equal(rnd.target.weights, frozen)


def test_predictor_updates_follow_update_every(tmp_path: Path) -> None:
    per = 256
    trainer = play(small("matching", rnd__update_every=100, rnd__roles="all"), tmp_path / "both").trainer
    updates = {role: scorer.adam.updates for role, scorer in scorers_of(trainer).items()}
    assert updates == {"matcher": 12, "hider": 12}
    turns = {"schedule__kind": "alternating", "schedule__phase_steps": per, "schedule__warmup_steps": 0}
    trainer = play(small("matching", rnd__update_every=100, **turns), tmp_path / "turns").trainer
    hider = scorers_of(trainer)["hider"]
    assert hider.adam.updates == 6 and hider.deviation.count == 2 * per


def test_state_dict_is_complete() -> None:
    trainer, buffer = collected(small("matching"))
    one, two = scorers_of(trainer)["hider"], scorers_of(Trainer(trainer.config))["hider"]
    one.score(buffer, 0)
    two.load_state_dict({name: value.copy() if isinstance(value, np.ndarray) else value
                         for name, value in one.state_dict().items()})
    for rnd in (one, two):
        rnd.score(buffer, 1)
    assert np.array_equal(one.predictor.weights, two.predictor.weights)
    assert vars(one.deviation) == vars(two.deviation) and one.adam.updates == two.adam.updates


def test_threads_do_not_change_the_reward() -> None:
    assert len({event_log(small("pursuit", threads=n, world__max_steps=9)) for n in (1, 2)}) == 1


def test_weight_zero_builds_nothing() -> None:
    trainer, buffer = collected(small("pursuit", rnd__weight=0.0))
    trainer.after_rollout(buffer)
    trainer.update(buffer)
    assert trainer.setup.get(Rnd) is None
    assert all(role_rollout.reward_terms == {} for role_rollout in buffer.tracks.values())
    assert not any(name.startswith("rnd") for name in trainer.state_dict())
