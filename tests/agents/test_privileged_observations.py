"""Privileged fields: critics read them, players never do; from the spec of a world to the gradient."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support import toys
from support.networks import minibatch, policy, role
from support.trainers import advance, first_rollout

from rematch import api
from rematch.adapters.gymnasium_env import GymEnv
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError, LearnError
from rematch.core.player import RngKey, Seat
from rematch.core.run_config import Config
from rematch.core.spec import Field
from rematch.core.stepping import concat_fields
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import RoleSeating
from rematch.training.trainer import Trainer
from rematch.worlds import conformance, registry

WEIGHTS = (0.2, 0.2, 0.5, 0.01, 0.0)


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys of tests/support/toys.py beside the real worlds."""
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


# --- the spec and the contract ----------------------------------------------------------------------------


def test_role_separates_privileged_fields() -> None:
    role_spec = toys.recall.make(toys.RecallConfig(), 1).spec.roles["player"]
    assert role_spec.privileged_size == 3 and role_spec.privileged_categories == (0, 0, 0)
    assert role_spec.size == len(role_spec.columns) == len(role_spec.categories) == 1 + 3 + 12
    assert not any(name.startswith(("other.", "sign.")) for name in role_spec.columns)
    assert GymEnv(toys.recall, role="player").observation_space.shape == (16,)


def test_world_with_history_and_privileged_fields_conforms() -> None:
    def turn(states: Any) -> Any:
        rows = states.view(toys.recall.make(toys.RecallConfig(), 1).state.dtype)[:, 0]
        rows["sign"] *= -1
        return states

    hidden = conformance.Subject(name="the sign alone", role="player", field="", change=turn)
    report = conformance.check_game(toys.recall, moves=[hidden])
    assert report.skipped == [] and "resample" in report.passed


class Leaks(toys.Recall):
    def observe(self, rows: Any) -> Any:
        return {role: {name: a[rows] for name, a in f.items()} for role, f in self.view.fields.items()}


class ShowsIt(toys.Recall):
    def write_observations(self) -> None:
        super().write_observations()
        self.view["player"]["now"][:, :, 1] = self.view["player"]["sign"][:, :, 0]


class NotFinite(toys.Recall):
    def write_observations(self) -> None:
        super().write_observations()
        self.view["player"]["other"][self.state["time"] == 2] = np.nan


class NotThere(toys.Recall):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.view["player"]["extra"] = self.view["player"].pop("other")

    def write_observations(self) -> None:
        self.view["player"].setdefault("other", np.zeros((self.games, 2, 2), np.float32))
        super().write_observations()
        if "extra" in self.view["player"]:
            del self.view["player"]["other"]


def respecified(**changes: Any) -> type[toys.Recall]:
    class Respecified(toys.Recall):
        @classmethod
        def make_spec(cls, config: Any) -> Any:
            spec = super().make_spec(config)
            role_spec = spec.roles["player"]
            new = {name: change(role_spec) for name, change in changes.items()}
            return dataclasses.replace(spec, roles={"player": dataclasses.replace(role_spec, **new)})

    return Respecified


def bent(role_spec: Any) -> Any:
    return (*role_spec.fields[:2], dataclasses.replace(role_spec.fields[2], shape=(3, 3)))


NOW = Field(name="now", columns=("sign", "x", "y"))
TWICE = respecified(privileged=lambda role_spec: (*role_spec.privileged, NOW))


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Leaks, "observe: .*no privileged ones"),
        (ShowsIt, "resample: seat 0 .*can tell"),
        (NotFinite, "values: .*'other'.*nan, expected a number in"),
        (NotThere, r"shapes: .*'other'.* is missing"),
        (TWICE, "names a field or a column twice"),
        (respecified(fields=bent), "'history': shape .3, 3. is not that of its 12 columns"),
    ],
)
def test_conformance_notices(kind: Any, line: str) -> None:
    with pytest.raises(conformance.BrokenPromise, match=line):
        conformance.check(kind, toys.RecallConfig())


# --- the network --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discrete", [True, False])
def test_actor_does_not_depend_on_privileged_fields(discrete: bool) -> None:
    seen = role(discrete=discrete, names=(4,), privileged=(0, 5, 0))
    made = policy(seen, hidden=(17, 9), critic="centralized")
    batch = minibatch(made, 300)
    other = batch | {"privileged": batch["privileged"][::-1].copy()}
    grads = []
    for one in (batch, other):
        out = np.empty_like(made.weights)
        made.network.gradient(made.packed[0], np.arange(300), one, WEIGHTS, 1, out)  # type: ignore[union-attr]
        grads.append(weight_views(out, made.layout))
    for name in grads[0]:
        same = grads[0][name].tobytes() == grads[1][name].tobytes()
        assert same == name.startswith("policy."), name
    heads, value = made.forward(batch["obs"], privileged=batch["privileged"])
    unseen, silent = made.forward(batch["obs"])
    assert heads.tobytes() == unseen.tobytes() and (silent == 0).all() and (value != 0).all()
    assert (value != made.forward(batch["obs"], privileged=other["privileged"])[1]).any()


def test_threads_do_not_change_the_gradient() -> None:
    made = policy(role(names=(4,), privileged=(0, 5)), hidden=(17, 9), critic="centralized", fourier=1)
    batch, outs = minibatch(made, 1000), []
    for threads in (1, 2, 7):
        outs.append(np.empty_like(made.weights))
        made.network.gradient(made.packed[0], np.arange(1000), batch, WEIGHTS, threads, outs[-1])  # type: ignore[union-attr]
    assert outs[0].tobytes() == outs[1].tobytes() == outs[2].tobytes()


def test_arrays_that_do_not_fit_are_refused() -> None:
    made = policy(role(privileged=(0, 0)), critic="centralized")
    batch, out = minibatch(made, 8), np.empty_like(made.weights)
    right = batch["privileged"]
    for wrong in (right[:7], right[:, :1].copy(), right.astype(np.float64)):
        with pytest.raises(ValueError):
            made.network.gradient(  # type: ignore[union-attr]
                made.packed[0], np.arange(8), batch | {"privileged": wrong}, WEIGHTS, 1, out
            )
        with pytest.raises(ValueError):
            made.forward(batch["obs"], privileged=wrong)
    del batch["privileged"]
    with pytest.raises(KeyError):
        made.network.gradient(made.packed[0], np.arange(8), batch, WEIGHTS, 1, out)  # type: ignore[union-attr]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError,
                       match=r"network.critic = centralized: the world has no privileged fields for pursuer"):
        settings.replace(api.default("pursuit"), {"network.critic": "centralized"})
    with pytest.raises(ConfigError,
                       match=r"network.critic = centralized: not with learner lookahead; expected own"):
        settings.replace(api.default("recall"), {"network.critic": "centralized", "learner": "lookahead"})
    idle = settings.replace(api.default("recall"), {"network.critic": "centralized", "network.shared": False})
    with pytest.raises(ConfigError,
                       match=r"network.shared = .* has no effect: network.critic is 'centralized'"):
        settings.refuse_inert(idle, ["network.shared"], "test")


def test_error_names_a_non_finite_privileged_field() -> None:
    trainer = Trainer(small(network__critic="centralized"))
    rollout = first_rollout(trainer)
    role_rollout = rollout["player"]
    assert role_rollout.privileged is not None
    role_rollout.privileged[2, 3, 0, 1] = np.nan
    with pytest.raises(LearnError, match="player: a privileged field is not finite"):
        trainer.agents.learners["player"].learn(rollout, 0.0, 0)


# --- the rollout and the learner ----------------------------------------------------------------------------


def small(**changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 64, "steps": 8, "network.hidden": (16,), "ppo.minibatch_size": 256,
        "league.opponent_share": 0.5, "league.snapshot_every": 1, "league.slots": 2, "league.rotate": 1,
        "total_steps": 64 * 8 * 6, "evaluation.games": 4,
    }
    tiny |= {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("recall"), tiny)


def test_rollout_stores_privileged_fields_for_learners() -> None:
    net = NetworkConfig(hidden=(9,), critic="centralized")
    world = toys.recall.make(toys.RecallConfig(), 11, 0, 3)
    role_spec = world.spec.roles["player"]
    made = Policy(role_spec, net, "p")
    made.initialise(1)
    table = RoleSeating(made, 1)
    table.place(0, made.weights)
    rollout = ThreadCollector(world, {"player": table}, 6, 2, 3).collect(0)
    role_rollout = rollout["player"]
    assert role_rollout.privileged is not None and role_rollout.privileged.shape == (6, 11, 2, 3)
    twin = toys.recall.make(toys.RecallConfig(), 11, 0, 3)
    for t in range(6):
        privileged = concat_fields(role_spec, twin.view["player"], privileged=True)
        assert (role_rollout.privileged[t] == privileged).all()
        assert (privileged[..., 0] == twin.state["sign"][:, ::-1]).all()
        assert (role_rollout.obs[t] == concat_fields(role_spec, twin.view["player"])).all()
        for j in (0, 1):
            seen, more = role_rollout.obs[t, :, j].copy(), role_rollout.privileged[t, :, j].copy()
            assert made.forward(seen, privileged=more)[1].tobytes() == role_rollout.value[t, :, j].tobytes()
        twin.step({"player": role_rollout.action[t].copy()})
    privileged = concat_fields(role_spec, world.view["player"], privileged=True)[:, 0].copy()
    seen = concat_fields(role_spec, world.view["player"])[:, 0].copy()
    assert made.forward(seen, privileged=privileged)[1].tobytes() == role_rollout.last_value[:, 0].tobytes()
    own = RoleSeating(Policy(role_spec, NetworkConfig(hidden=(9,)), "own"), 1)
    assert ThreadCollector(twin, {"player": own}, 2, 1, 3).rollout["player"].privileged is None
    move = made.act(Seat(role_spec, 0, world, np.arange(11, dtype=np.int32), seen), RngKey(1, 2, 3))
    assert move.value is None and move.logp is not None and np.isfinite(move.logp).all()


def test_truncated_games_are_evaluated_with_final_privileged_fields() -> None:
    class PrivilegedGame(toys.Drift):
        @classmethod
        def make_spec(cls, config: Any) -> Any:
            spec = super().make_spec(config)
            role_spec = dataclasses.replace(
                spec.roles["rafter"], privileged=(Field(name="wind", columns=("strength",)),)
            )
            return dataclasses.replace(spec, roles={"rafter": role_spec})

        def write_observations(self) -> None:
            super().write_observations()
            self.view["rafter"]["wind"][:, 0, 0] = self.state["wind"]

    conformance.check(PrivilegedGame, toys.DriftConfig(), trial=conformance.Trial(stage=(0.5,)))
    world = PrivilegedGame(toys.DriftConfig(limit=3), 5, 0, 3)
    made = Policy(world.spec.roles["rafter"], NetworkConfig(hidden=(9,), critic="centralized"), "p")
    made.initialise(1)
    table = RoleSeating(made, 1)
    table.place(0, made.weights)
    wind = world.state["wind"][:, None].copy()
    role_rollout = ThreadCollector(world, {"rafter": table}, 3, 1, 3).collect(0)["rafter"]
    last = np.ascontiguousarray(concat_fields(role_rollout.role, world.view.final["rafter"])[:, 0])
    assert (world.view.ended == 2).all()
    assert made.forward(last, privileged=wind)[1].tobytes() == role_rollout.cut_value[2, :, 0].tobytes()


@pytest.mark.parametrize("gradient", ["native", "torch"])
def test_centralized_critic_explains_more(gradient: str) -> None:
    """The opponent plays plus: a privileged field tells whether that is right, and decides the reward."""
    spread = {}
    for critic in ("own", "centralized"):
        role_spec = role(obs=2, actions=2, privileged=(0,))
        made = Policy(role_spec, NetworkConfig(hidden=(16,), critic=critic), "p")
        made.initialise(3)
        learner = Ppo(made, PpoConfig(lr=0.01, anneal="none", gradient=gradient, magnet_weight=0.1), 0, 1)
        for i in range(60):
            batch = minibatch(made, 256, seed=i) | {"advantage": np.zeros(256, np.float32)}
            sign = np.random.default_rng(i).choice([-1.0, 1.0], (256, 1)).astype(np.float32)
            batch["target"] = sign[:, 0]
            if critic == "centralized":
                batch["privileged"] = sign
            grad, means = learner.gradient(batch, np.arange(256), 0.0)
            learner.adam.step(made, grad, 0.01)
        spread[critic] = means["value_loss"]
    assert spread["centralized"] < 0.1 and spread["own"] > 0.8


def test_restored_trainer_continues_identically() -> None:
    ends = []
    for threads in (1, 2):
        config = small(network__critic="centralized", threads=threads)
        whole, first, second = Trainer(config), Trainer(config), Trainer(config)
        advance(whole, 6)
        advance(first, 3)
        second.load_state_dict(first.state_dict())
        advance(second, 3)
        ends += [trainer.agents.players["player"].weights.tobytes() for trainer in (whole, second)]
    assert len(set(ends)) == 1


# --- openspiel ----------------------------------------------------------------------------------------------


def test_openspiel_has_the_other_observation_as_privileged() -> None:
    pytest.importorskip("pyspiel")
    module = registry.find("openspiel")
    hidden = module.make(module.Config(game="leduc_poker"), 64, 0, 1)
    role_spec = hidden.spec.roles["player"]
    for part in (hidden, *hidden.parts(3)):
        assert np.shares_memory(part.view["player"]["theirs"], part.view["player"]["observation"])
        assert (part.view["player"]["theirs"] == part.view["player"]["observation"][:, ::-1]).all()
    assert (hidden.view["player"]["theirs"] != hidden.view["player"]["observation"]).any()
    assert role_spec.privileged_size == role_spec.size - 1
    assert set(hidden.observe(np.arange(2, dtype=np.int32))["player"]) == {"seat", "observation"}
    shown = module.make(module.Config(game="tic_tac_toe"), 4).spec.roles["player"]
    assert shown.privileged == ()
    with pytest.raises(ConfigError,
                       match=r"network.critic = centralized: the world has no privileged fields for player"):
        settings.replace(
            api.default("openspiel"), {"world.game": "tic_tac_toe", "network.critic": "centralized"}
        )


def test_leduc_critic_of_both_hands_explains_more() -> None:
    pytest.importorskip("pyspiel")
    explained = {}
    for critic in ("own", "centralized"):
        config = settings.replace(api.default("openspiel"), {
            "world.game": "leduc_poker", "network.critic": critic, "threads": 1, "games": 256, "steps": 16,
            "ppo.minibatch_size": 1024, "ppo.lr": 3e-3, "ppo.gamma": 1.0, "league.opponent_share": 0.0,
            "total_steps": 30 * 256 * 16,
        })  # fmt: skip
        rows = advance(Trainer(config), 30)
        explained[critic] = np.mean([row["player/explained_variance"] for row in rows[-5:]])
    assert explained["centralized"] > explained["own"] + 0.1, explained
