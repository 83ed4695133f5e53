"""Networks with an encoder: rows, slots, samples, learning and whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import toys
from support.networks import minibatch, policy
from support.networks import role as plain_role
from support.trainers import advance, first_difference

from rematch import api, evaluate, exploit
from rematch.agents.learners import ppo
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.learners.ppo_loss import loss
from rematch.agents.networks import fused, mlp
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.networks.torch_network import BLOCK, TorchNetwork
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.player import Seat
from rematch.core.run_config import Config
from rematch.core.spec import Actions, Field, Role
from rematch.core.stepping import concat_fields
from rematch.rehearsal.check import component_features
from rematch.rehearsal.compare import event_log
from rematch.rehearsal.trial import play
from rematch.selfplay.league import League
from rematch.storage.run_folder import Run
from rematch.training.best_response import ExploitRequest
from rematch.training.fingerprint import fingerprint
from rematch.training.trainer import Trainer
from rematch.worlds import registry

pytestmark = pytest.mark.usefixtures("blank_pictures")

ENCODERS = ["lstm", "bimdn"]


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys of tests/support/toys.py beside the real worlds."""
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


def role(discrete: bool = True) -> Role:
    """A history between numeric and categorical columns."""
    past = tuple(f"{step}_{n}" for step in range(4) for n in range(3))
    fields = (
        Field(name="before", columns=("a", "b")),
        Field(name="history", columns=past, shape=(4, 3)),
        Field(name="named", columns=("card",), categories=(5,)),
    )
    kind: Any = "discrete" if discrete else "continuous"
    privileged = (Field(name="hand", columns=("card",)), Field(name="other", columns=("x", "y")))
    actions = Actions(kind=kind, names=("one", "two", "three"))
    return Role(name="player", fields=fields, actions=actions, seats=(0,), privileged=privileged)


def made_of(encoder: str, discrete: bool = True, **more: Any) -> Policy:
    net: dict[str, Any] = {"hidden": (9,), "encoder_hidden": 6, "fourier": 1} | more
    return policy(role(discrete), encoder=encoder, **net)


def act(policy: Policy, packed: Any, slot: Any, batch: dict[str, Any], **more: Any) -> list[Any]:
    """Action, logp, value and heads; -7 in rows that were not computed."""
    n, size = len(slot), policy.role.actions.size
    discrete = policy.role.actions.kind == "discrete"
    action: Any = np.full(n, -7, np.int32) if discrete else np.full((n, size), -7, np.float32)
    logp, value, heads = (np.full(shape, -7, np.float32) for shape in (n, n, (n, size)))
    number = more.pop("number", np.arange(n, dtype=np.uint32))
    policy.network.act(packed, slot, batch["obs"], number, (3, 5), action, logp, value, heads=heads, **more)
    return [action, logp, value, heads]


# --- rows, slots and samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("net", [{}, {"shared": False}, {"critic": "centralized"}])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_output_is_that_of_the_reference_network(encoder: str, net: dict[str, Any]) -> None:
    made = made_of(encoder, **net)
    batch = minibatch(made, 2 * BLOCK + 3) | {"privileged": np.zeros((2 * BLOCK + 3, 3), np.float32) + 0.5}
    heads, value = made.forward(batch["obs"], privileged=batch["privileged"])
    flat = torch.from_numpy(made.weights.astype(np.float64))
    obs, privileged = (torch.from_numpy(batch[name].astype(np.float64)) for name in ("obs", "privileged"))
    output = mlp.forward(flat, made.role, made.config, obs, privileged=privileged)
    assert output.value is not None
    assert np.abs(heads - output.distribution.heads.numpy()).max() < 1e-5
    assert np.abs(value - output.value.numpy()).max() < 1e-5
    without_privileged = act(made, made.packed, np.zeros(len(obs), np.int32), batch)
    assert (without_privileged[2] == -7).all() == (made.config.critic == "centralized")
    assert without_privileged[3].tobytes() == heads.tobytes()


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_row_depends_on_itself_alone(encoder: str, discrete: bool) -> None:
    made, n = made_of(encoder, discrete), 3 * BLOCK // 2
    batch = minibatch(made, n, masked=discrete)
    legal, slot = batch.get("mask"), np.zeros(n, np.int32)
    whole = act(made, made.packed, slot, batch, mask=legal)
    order = np.random.default_rng(0).permutation(n)[: n - 5]
    some = act(made, made.packed, slot[order], {"obs": batch["obs"][order]},
               mask=None if legal is None else legal[order], number=order.astype(np.uint32))  # fmt: skip
    for a, b in zip(whole, some, strict=True):
        assert a[order].tobytes() == b.tobytes()
    for i in range(0, n, 17):
        one = slice(i, i + 1)
        alone = act(made, made.packed, slot[:1], {"obs": batch["obs"][one]},
                    mask=None if legal is None else legal[one], number=np.array([i], np.uint32))  # fmt: skip
        assert all(a[one].tobytes() == b.tobytes() for a, b in zip(whole, alone, strict=True))


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_opponents_in_slots_act_as_alone(encoder: str, discrete: bool) -> None:
    policies = [policy(role(discrete), s, encoder=encoder, hidden=(9,), encoder_hidden=6) for s in range(3)]
    packed = np.concatenate([each.packed for each in policies])
    n, rng = 100, np.random.default_rng(1)
    batch = minibatch(policies[0], n)
    slot, acting = rng.integers(-1, 4, n).astype(np.int32), (rng.random(n) < 0.8).astype(np.uint8)
    together = act(policies[0], packed, slot, batch, acting=acting)
    untouched = (slot < 0) | (slot > 2) | (acting == 0)
    for s, each in enumerate(policies):
        rows = (slot == s) & (acting == 1)
        alone = act(each, each.packed, np.zeros(n, np.int32), batch)
        assert rows.any() and all(a[rows].tobytes() == b[rows].tobytes() for a, b in zip(together, alone))
    assert all((array[untouched] == -7).all() for array in together)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("discrete", [True, False])
def test_samples_are_those_of_the_fused_network(discrete: bool, greedy: bool) -> None:
    made, n = policy(plain_role(discrete=discrete)), 200
    batch = minibatch(made, n, masked=discrete)
    action, logp, _, heads = act(
        made, made.packed, np.zeros(n, np.int32), batch, mask=batch.get("mask"), greedy=greedy
    )
    spread = weight_views(made.weights, made.layout).get("policy.log_std")
    drawn, likely = np.empty_like(action), np.empty(n, np.float32)
    number = np.arange(n, dtype=np.uint32)
    fused.sample(heads, spread, number, (3, 5), drawn, likely, batch.get("mask"), greedy)
    assert drawn.tobytes() == action.tobytes() and np.abs(likely - logp).max() < 1e-6
    for wrong in ((number[:3], likely), (number, likely[:3])):
        with pytest.raises(ValueError):
            fused.sample(heads, spread, wrong[0], (3, 5), drawn, wrong[1])
    with pytest.raises(ValueError):
        fused.sample(heads, spread, number, (3, 5), drawn, likely, np.ones((n, 2), np.uint8))


def test_arrays_that_do_not_fit_are_refused() -> None:
    made = made_of("lstm")
    batch, slot = minibatch(made, 4), np.zeros(4, np.int32)
    for packed, seen in ((made.packed[:, 1:], batch), (made.packed, {"obs": batch["obs"][:3]})):
        with pytest.raises(ValueError):
            act(made, packed, slot, seen)
    with pytest.raises(ValueError, match="size"):
        made.network.pack(made.weights[None, 1:], made.packed)


# --- errors -------------------------------------------------------------------------------------------------


def test_impossible_settings_are_refused() -> None:
    for encoder in ENCODERS:
        with pytest.raises(ConfigError, match=f"encoder = {encoder}: player observes no field `history`"):
            Policy(plain_role(), NetworkConfig(encoder=encoder), "p")
        with pytest.raises(ConfigError, match="`history` with a shape"):
            settings.replace(api.default("pursuit"), {"network.encoder": encoder})
        torch_too = {"network.encoder": encoder, "ppo.gradient": "torch"}
        with pytest.raises(ConfigError, match=r"ppo.gradient = torch: no effect with this network"):
            settings.replace(api.default("recall"), torch_too)
        ahead = {"network.encoder": encoder, "learner": "lookahead"}
        with pytest.raises(ConfigError, match=f"network.encoder = {encoder}: not with learner lookahead"):
            settings.replace(api.default("recall"), ahead)
    blind = Role(name="player", fields=role().fields, actions=role().actions, seats=(0,))
    assert Policy(blind, NetworkConfig(encoder="lstm"), "p").weights.size
    with pytest.raises(ConfigError, match=r"network.encoder = bimdn: player has no privileged field `other`"):
        Policy(blind, NetworkConfig(encoder="bimdn"), "p")
    for key, value in (("encoder_hidden", 8), ("belief_weight", 1.0)):
        with pytest.raises(ConfigError, match=f"network.{key} = .* has no effect: network.encoder is 'mlp'"):
            settings.refuse_inert(
                settings.replace(api.default("recall"), {f"network.{key}": value}), [f"network.{key}"], "test"
            )


# --- learning ---------------------------------------------------------------------------------------------


def small(encoder: str = "lstm", iterations: int = 15, **changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 128, "steps": 8, "network.hidden": (32,), "network.encoder": encoder,
        "network.encoder_hidden": 16, "ppo.minibatch_size": 512, "ppo.lr": 0.02, "ppo.gamma": 1.0,
        "league.opponent_share": 0.0, "evaluation.games": 20, "total_steps": iterations * 128 * 8,
    }
    tiny |= {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("recall"), tiny)


def last_steps(trainer: Trainer, n: int = 256) -> tuple[Any, Seat]:
    """Games before their last move, and the decision of seat 0."""
    world: Any = trainer.setup.make_world(n, 0, 77)
    for _ in range(toys.STEPS - 1):
        world.step({"player": np.zeros((n, 2), np.int32)})
    role_spec = world.spec.roles["player"]
    obs = np.ascontiguousarray(concat_fields(role_spec, world.view["player"])[:, 0])
    return world, Seat(role_spec, 0, world, np.arange(n, dtype=np.int32), obs)


def right(trainer: Trainer) -> float:
    """Fraction of games whose last action is the sign of the first step."""
    world, seat = last_steps(trainer)
    action_probs = trainer.agents.players["player"].action_probs(seat)
    right = (world.state["sign"][:, 0] > 0).astype(int)
    return float(action_probs[np.arange(len(action_probs)), right].mean())


def test_past_observations_are_used_only_with_a_history() -> None:
    learnt, blind = Trainer(small()), Trainer(small("mlp", world__remember=False))
    advance(learnt, 15)
    advance(blind, 15)
    assert right(learnt) > 0.95 and right(blind) < 0.6


def test_bimdn_learns_the_position_of_the_opponent() -> None:
    trainer = Trainer(small("bimdn"))
    rows = advance(trainer, 15)
    nll = [row["player/belief_nll"] for row in rows]
    assert nll[0] > 1.5 and nll[-1] < 0 and right(trainer) > 0.95
    world, seat = last_steps(trainer)
    network, learnt = trainer.agents.players["player"].network, trainer.agents.players["player"].weights
    assert isinstance(network, TorchNetwork)
    weight, mean, sd = network.belief(learnt, seat.obs)
    assert np.allclose(weight.sum(1), 1, atol=1e-5) and (sd > 0).all()
    likely = mean[np.arange(len(mean)), weight.argmax(1)]
    assert np.abs(likely - world.state["spot"][:, 1]).mean() < 0.1  # of a square from -1 to 1


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_parameter_learns(encoder: str) -> None:
    for discrete, net in ((True, {"critic": "centralized"}), (False, {"shared": False}), (True, {})):
        made = made_of(encoder, discrete, **net)
        batch = minibatch(made, 60, magnet=True)
        if made.config.reads_privileged:
            batch["privileged"] = np.random.default_rng(0).uniform(-1, 1, (60, 3)).astype(np.float32)
        learner = Ppo(made, PpoConfig(magnet_weight=0.2), 0, 1)
        assert not learner.native
        for name, slope in weight_views(learner.gradient(batch, np.arange(60), 0.05)[0], made.layout).items():
            assert (slope != 0).any(axis=-1).all(), name  # each unit, each bias


def test_belief_loss_has_a_weight() -> None:
    batch: dict[str, Any] = {}
    results = {}
    for weight in (0.0, 0.5, 1.0):
        made = made_of("bimdn", belief_weight=weight)
        batch = batch or minibatch(made, 30)
        flat = torch.from_numpy(made.weights)
        results[weight], means = loss(made, PpoConfig(), flat, batch, 0.0)
    assert float(means["belief_nll"]) > 0.1
    assert float(results[1.0] - results[0.0]) == pytest.approx(float(means["belief_nll"]), rel=1e-4)
    assert float(results[0.5] - results[0.0]) == pytest.approx(float(means["belief_nll"]) / 2, rel=1e-4)


# --- runs ---------------------------------------------------------------------------------------------------

BUSY: dict[str, Any] = {"league__opponent_share": 0.6, "league__snapshot_every": 1, "league__slots": 2}
BUSY |= {"league__rotate": 1, "games": 32}


@pytest.mark.parametrize("encoder", ENCODERS)
def test_restored_trainer_continues_identically(encoder: str) -> None:
    config = small(encoder, 5, **BUSY, ppo__magnet_weight=0.1)
    whole = Trainer(config)
    advance(whole, 5)
    first, second = Trainer(config), Trainer(config)
    advance(first, 3)
    second.load_state_dict(first.state_dict())
    advance(second, 2)
    league = whole.setup.get(League)
    assert league is not None and len(league.matchmaker.pools["player"].snapshots) > 1
    assert first_difference(whole.state_dict(), second.state_dict()) == ""
    assert fingerprint(config)["torch"] == torch.__version__


def test_threads_do_not_change_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "CHUNK", 40)
    ends = set()
    for threads in (1, 2, 3):
        trainer = Trainer(small("bimdn", 3, threads=threads, **BUSY))
        rows = advance(trainer, 3)
        data = trainer.setup.collector.rollout["player"]
        played = [a.tobytes() for a in (data.obs, data.action, data.logp, data.value, data.last_value)]
        ends.add((*played, trainer.agents.players["player"].weights.tobytes(), str(rows)))
    assert len(ends) == 1


@pytest.mark.parametrize("encoder", ENCODERS)
def test_chunks_add_up_to_the_gradient(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_of(encoder, discrete=False)
    batch = minibatch(made, 100, magnet=True)
    learner = Ppo(made, PpoConfig(magnet_weight=0.2, value_clip=0.1), 0, 2)
    whole, means = learner.gradient(batch, np.arange(97), 0.05)
    monkeypatch.setattr(ppo, "CHUNK", 30)
    parts, others = learner.gradient(batch, np.arange(97), 0.05)
    assert np.linalg.norm(whole - parts) < 2e-6 * np.linalg.norm(whole)
    assert all(others[name] == pytest.approx(value, abs=1e-6) for name, value in means.items())


def test_run_is_trained_evaluated_exploited_and_resumed(tmp_path: Path) -> None:
    config = small("bimdn", 3, network__critic="centralized", **BUSY)
    trained = api.train(config, folder=tmp_path / "run")
    row = evaluate(tmp_path / "run", games=20)
    assert row["table"][0]["rival"] == "random"
    results = exploit(tmp_path / "run", ExploitRequest(budget=32 * 8 * 2, seeds=1, games=20))
    assert results["roles"]["player"]["games"] == 20
    output = (tmp_path / "run" / "train.log").read_text()
    assert "privileged, for learning only: sign.theirs, other.x, other.y" in output
    (path,) = (tmp_path / "run" / "policies").glob("player*.safetensors")
    again = Policy(trained.policies["player"].role, config.network, "again")
    again.load_arrays(Run.read_policy(path)[0])
    assert again.weights.tobytes() == trained.policies["player"].weights.tobytes()
    assert event_log(config) == event_log(config)


def test_rehearsal_reports_belief_and_privileged_fields(tmp_path: Path) -> None:
    for net, fired in (({"network__critic": "centralized"}, True), ({"encoder": "lstm"}, False)):
        config = small(**({"encoder": "bimdn", "iterations": 2} | net))
        seen = play(config, tmp_path / str(fired))
        proofs = {f.name: ("" if f.off else f.proof()) for f in component_features(config, seen)}
        assert bool(proofs["belief of player"]) == bool(proofs["centralized critic"]) == fired, proofs
