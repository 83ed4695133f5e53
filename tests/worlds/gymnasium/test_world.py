"""Gymnasium environments as worlds: conformance, replay, cut-offs, refusals; PPO against the papers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from support import ppo_reference

from rematch import api
from rematch.agents import policy_export
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy
from rematch.core import config
from rematch.core import rng as keys
from rematch.core.errors import ConfigError
from rematch.core.world import CUT_OFF, DECIDED
from rematch.evaluation.match import Scoreboard, play
from rematch.rehearsal.compare import event_log
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import RoleSeating
from rematch.worlds import conformance
from rematch.worlds.conformance import Trial
from rematch.worlds.gymnasium.world import episode_seed
from rematch.worlds.gymnasium_spaces import observation_encoder
from rematch.worlds.registry import find

pytestmark = pytest.mark.usefixtures("blank_pictures")

world = find("gymnasium")
ALL = np.arange(3, dtype=np.int32)


class FaultyEnv(gymnasium.Env[Any, Any]):
    """An environment with any spaces that counts its steps; `fault` makes it fail in a chosen way."""

    unseeded = np.random.default_rng()

    def __init__(self, obs_space: Any = None, action_space: Any = None, fault: str = "") -> None:
        self.observation_space = obs_space or spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.fault, self.time = fault, 0

    def show(self) -> Any:
        if isinstance(self.observation_space, spaces.Discrete):
            return int(self.observation_space.start) + self.time % int(self.observation_space.n)
        out = np.full(self.observation_space.shape, self.time / 100, np.float32)
        if self.fault == "dice":
            out -= self.unseeded.random()
        return out * (np.nan if self.fault == "nan" and self.time == 70 else 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        assert self.action_space.contains(action) or self.fault == "any", action
        if self.fault == "step" and self.time == 70:
            raise ValueError("two\nlines")
        process = {"is_success": self.time % 2 == 0} if self.fault == "success" else {}
        reward = np.inf if self.fault == "reward" and self.time == 70 else 0.5
        return self.show(), reward, self.fault == "success" and self.time == 3, False, process


def register(name: str, limit: int | None = 100, **settings: Any) -> str:
    gymnasium.register(f"{name}-v0", lambda **more: FaultyEnv(**settings | more), max_episode_steps=limit)
    return f"{name}-v0"


def steps(made: Any, count: int, first: int = 0) -> None:
    role = made.spec.roles["player"]
    for t in range(first, first + count):
        uniform = keys.units(9, keys.ACT, made.games * role.actions.size, t).reshape(made.games, 1, -1)
        discrete = role.actions.kind == "discrete"
        made.step({"player": uniform.argmax(-1).astype(np.int32) if discrete else 2 * uniform - 1})


# --- conformance --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("scale", ["bounds", "raw"])
def test_environments_pass_the_conformance_test(name: str, scale: str) -> None:
    report = conformance.check_game(world, world.Config(id=name, scale=scale))
    assert {"save and load", "invalid states", "parts", "determinism", "restart"} <= set(report.passed)


def test_discrete_observation_is_categorical() -> None:
    made = world.make(world.Config(id=register("Numbered", obs_space=spaces.Discrete(7, start=3))), 2)
    (field,) = made.spec.roles["player"].fields
    assert field.categories == (7,) and (field.low, field.high) == (0, 6)
    steps(made, 9)
    assert made.view["player"]["observation"].ravel().tolist() == [9 % 7] * 2
    conformance.check_game(world, made.config, trial=Trial(chance=False, bound=120))


def test_tuple_of_discrete_observations_is_one_category_per_column() -> None:
    """Blackjack: the player's sum, the dealer's card and whether an ace counts 11."""
    chosen = world.Config(id="Blackjack-v1", max_steps=40)
    made = world.make(chosen, 4)
    (field,) = made.spec.roles["player"].fields
    assert field.categories == (32, 11, 2) and field.columns == ("x0", "x1", "x2")
    steps(made, 3)
    env_numbers = [env.unwrapped._get_obs() for env in made.envs]
    assert made.view["player"]["observation"][:, 0].tolist() == [list(map(float, obs)) for obs in env_numbers]
    conformance.check_game(world, chosen, trial=Trial(bound=60))


def test_multi_discrete_observation_starts_at_its_first_values() -> None:
    encoder = observation_encoder(spaces.MultiDiscrete([3, 5], start=[1, -2]), "raw")
    assert encoder.field.categories == (3, 5) and encoder.starts.tolist() == [1, -2]
    inside = np.array([[2.0, 4.0], [3.0, 0.0], [0.0, -1.0]], np.float32)
    assert encoder.outside(inside).tolist() == [False, True, True]


def test_observation_outside_its_space_names_the_game() -> None:
    made = world.make(world.Config(id=register("Outside", obs_space=spaces.Discrete(7, start=3))), 2, first=5)
    made.envs[1].unwrapped.observation_space = spaces.Discrete(50, start=3)
    with pytest.raises(ConfigError, match="the observation of game 6 is outside its space"):
        steps(made, 8)


def test_actions_are_scaled_to_the_bounds() -> None:
    box = spaces.Box(np.array([[-3.0, 0.0]], np.float32), np.array([[1.0, 10.0]], np.float32))
    made = world.make(world.Config(id=register("Boxed", action_space=box)), 1)
    decoder = made.description.decoder
    action = decoder.decode(decoder.to_stored(np.array([[-9.0, 0.5]])))[0]
    assert action.shape == (1, 2) and action.dtype == np.float32 and action.tolist() == [[-3.0, 7.5]]


def test_bounded_columns_are_scaled_and_unbounded_ones_rooted() -> None:
    space = spaces.Box(
        np.array([-4, -np.inf, 0, -1e30], np.float32), np.array([4, np.inf, 10, 1e30], np.float32)
    )
    obs = np.array([[2, 8, 10, -99], [-4, -3, 0, 0]], np.float32)
    out = np.zeros_like(obs)
    observation_encoder(space, "bounds").encode(obs, out)
    assert out == pytest.approx(np.array([[0.5, 4, 1, -18], [-1, -2, -1, 0]]))
    observation_encoder(space, "raw").encode(obs, out)
    assert (out == obs).all()


def test_observations_are_raw_by_default_and_stored_runs_have_their_own_scale(tmp_path: Path) -> None:
    made = world.make(world.Config(id="Acrobot-v1"), 2)
    steps(made, 5)
    states = np.stack([env.unwrapped._get_ob() for env in made.envs])
    assert np.array_equal(made.view["player"]["observation"][:, 0], states.astype(np.float32))
    api.train(small(**{"world.scale": "bounds"}), folder=tmp_path / "run")
    assert api.load(tmp_path / "run").config.world.scale == "bounds"
    (file,) = (tmp_path / "run/policies").glob("*.safetensors")
    assert policy_export.read(file).world.scale == "bounds"


# --- states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_loaded_state_continues_bit_for_bit(name: str) -> None:
    made = world.make(world.Config(id=name), 3, seed=5)
    steps(made, 37)
    other = world.make(world.Config(id=name), 3, seed=6)
    other.next.seed[:] = made.next.seed
    other.load(ALL, made.save(ALL))
    for t in range(37, 240):
        steps(made, 1, t)
        steps(other, 1, t)
        assert made.view["player"]["observation"].tobytes() == other.view["player"]["observation"].tobytes()
        assert made.view.reward.tobytes() == other.view.reward.tobytes()
    assert made.save(ALL).tobytes() == other.save(ALL).tobytes()


def test_state_after_the_end_of_its_episode_is_refused() -> None:
    made = world.make(world.Config(), 3)
    steps(made, 8)
    good, obs = made.save(ALL), made.view["player"]["observation"].copy()
    bad = good.copy()
    rows = bad.view(made.state.dtype)[:, 0]
    rows["time"][2], rows["actions"][2] = 400, 1  # the pole falls long before
    with pytest.raises(ConfigError, match="state 2 is no state of this world: its episode ends before it"):
        made.load(ALL, bad)
    assert (made.save(ALL) == good).all() and (made.view["player"]["observation"] == obs).all()
    twin = world.make(world.Config(), 3)
    steps(twin, 8)
    steps(made, 30, 8)
    steps(twin, 30, 8)
    assert (made.view["player"]["observation"] == twin.view["player"]["observation"]).all()


def test_irreproducible_environment_restarts_its_episode() -> None:
    made = world.make(world.Config(id=register("Dice", fault="dice")), 3)
    assert made.spec.resume == "episode"
    steps(made, 5)
    states = made.save(ALL)
    steps(made, 5)
    made.load(ALL, states)
    assert made.view.length.tolist() == [0, 0, 0] and states.shape[1] < 50
    report = conformance.check_game(world, made.config, trial=Trial(bound=120))
    assert any(line.startswith("determinism (") for line in report.skipped)


def test_decided_and_cut_off_ends() -> None:
    made = world.make(world.Config(id=register("Done", fault="success", limit=5)), 2)
    steps(made, 3)
    assert made.view.ended.tolist() == [DECIDED] * 2 and made.view.outcome.tolist() == [[0.0]] * 2
    made = world.make(world.Config(id=register("Cut", limit=4), reward_scale=0.1), 2)
    steps(made, 4)
    assert made.view.ended.tolist() == [CUT_OFF] * 2 and made.view.outcome.tolist() == [[0.5]] * 2
    assert made.view.final["player"]["observation"][0, 0].tolist() == pytest.approx([0.04] * 2)
    assert made.view["player"]["observation"].max() == 0 and made.view.reward.ravel() == pytest.approx(
        [0.05] * 2
    )
    played = play(made, [world.bot("random", "player")], 1)
    assert played.returns.ravel() == pytest.approx([2.0, 2.0]), "returns do not contain reward_scale"


def test_cut_off_episode_bootstraps_from_its_last_observation() -> None:
    """Advantages by hand, in a world with reward 0.5 that is cut off after 4 steps."""
    made = world.make(world.Config(id=register("CutAgain", limit=4)), 1)
    policy = Policy(made.spec.roles["player"], NetworkConfig(hidden=(4,)), "p")
    policy.initialise(1)
    seating = RoleSeating(policy, 1)
    seating.place(0, policy.weights)
    rollout = ThreadCollector(made, {"player": seating}, 4, 1, 0).collect(0)
    advantage, _, counts = rollout.advantages("player", 0.9, 0.0)
    observations = np.array([[t / 100] * 2 for t in range(5)], np.float32)
    value = policy.forward(observations)[1]
    assert counts.all() and value[4] != 0
    assert advantage.ravel() == pytest.approx(0.5 + 0.9 * value[1:] - value[:4], abs=1e-6)


# --- PPO -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("native", ["native", "torch"])
def test_gradient_of_one_batch_equals_the_reference(name: str, shared: bool, native: str) -> None:
    """World, rollout buffer, advantages and gradient together, against tests/support/ppo_reference.py."""
    made = world.make(world.Config(id=name, max_steps=30, scale="raw", reward_scale=0.1), 4, seed=3)
    role = made.spec.roles["player"]
    policy = Policy(role, NetworkConfig(hidden=(12, 9), shared=shared), "p")
    policy.initialise(4)
    rng = np.random.default_rng(5)
    old = policy.weights + rng.normal(0, 0.2, policy.weights.size).astype(np.float32)
    new = old + rng.normal(0, 0.05, old.size).astype(np.float32)
    policy.set(old)
    seating = RoleSeating(policy, 1)
    seating.place(0, old)
    rollout = ThreadCollector(made, {"player": seating}, 70, 1, 0).collect(0)
    assert (rollout.ended == CUT_OFF).any() and (name == "Pendulum-v1" or (rollout.ended == DECIDED).any())
    settings = PpoConfig(gamma=0.97, gae_lambda=0.9, clip=0.1, value_weight=0.3, gradient=native)
    learner = Ppo(policy, settings, 0, 1)
    batch, index = learner.batch(rollout)
    policy.set(new)
    gradient_arrays = weight_views(learner.gradient(batch, index, 0.02)[0], policy.layout)

    def seeds(game: int) -> Iterator[int]:
        return (episode_seed(int(made.next.seed[game]), k) for k in range(10**6))

    def to_env_action(action: Any) -> Any:
        return int(action) if name == "CartPole-v1" else np.clip(action, -1, 1).astype(np.float32) * 2

    env, episodes = gymnasium.make(name, max_episode_steps=30), []
    for game in range(4):
        actions = rollout["player"].action[:, game, 0]
        episodes += ppo_reference.episodes(env, seeds(game), actions, to_env_action)
    for episode in episodes:
        episode["reward"] = [0.1 * reward for reward in episode["reward"]]
    weights = [
        {k: torch.tensor(v, dtype=torch.float64) for k, v in weight_views(w, policy.layout).items()}
        for w in (old, new)
    ]
    expected = ppo_reference.gradient(*weights, episodes, ppo_reference.Settings(0.97, 0.9, 0.1, 0.3, 0.02))
    assert set(gradient_arrays) == set(expected)
    largest = max(float(g.abs().max()) for g in expected.values())
    for key, expected_gradient in expected.items():
        assert np.abs(gradient_arrays[key] - expected_gradient.numpy()).max() < 2e-5 * largest, key


# --- a run -------------------------------------------------------------------------------------------


def small(**changes: Any) -> Any:
    tiny = {"games": 4, "steps": 16, "total_steps": 4 * 16 * 6, "evaluation.games": 5, "evaluation.every": 2}
    tiny |= {"save_every": 1, "network.hidden": (8,), "ppo.minibatch_size": 32, "threads": 1}
    return api.configure("gymnasium", changes=tiny | changes)


def test_run_is_evaluated_by_returns_and_threads_change_nothing(tmp_path: Path) -> None:
    runs = [api.train(small(threads=threads), folder=tmp_path / str(threads)) for threads in (1, 3)]
    assert runs[0].policies["player"].weights.tobytes() == runs[1].policies["player"].weights.tobytes()
    last = runs[0].history[-1]
    entry = last["returns"]["player"]
    assert entry["games"] == 5 and entry["best_bot"] == "random"
    assert entry["low"] <= entry["mean"] <= entry["high"]
    assert last["table"] == [] and last["verdict"].split(":")[0] in (
        "improving",
        "declining",
        "steady",
        "inconclusive",
    )
    log = (tmp_path / "1/train.log").read_text()
    assert "player mean return" in log and "general-sum" not in log and "wins" not in log
    assert "mean return" in (tmp_path / "1/report.html").read_text()


def test_stopped_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Pendulum-v1"):
        settings = small(**{"world.id": name, "total_steps": 4 * 16 * 4})
        whole = api.train(settings, folder=tmp_path / f"{name}-whole")
        stopped = api.train(settings, folder=tmp_path / f"{name}-parts", minutes=1e-9)
        rounds = 0
        while len(stopped.history) < len(whole.history):
            stopped = api.resume(tmp_path / f"{name}-parts", minutes=1e-9)
            rounds += 1
        assert rounds >= 3
        assert stopped.policies["player"].weights.tobytes() == whole.policies["player"].weights.tobytes()
        assert stopped.history == whole.history


def test_every_world_setting_has_an_effect() -> None:
    base = small()
    others = {"id": "Acrobot-v1", "options": ("sutton_barto_reward=true",), "max_steps": 7}
    others |= {"scale": "bounds", "reward_scale": 0.5}
    assert set(others) == {key for key, _, _ in config.leaves(base.world)}
    logs = [event_log(base)] + [
        event_log(config.replace(base, {f"world.{key}": other})) for key, other in others.items()
    ]
    assert len(set(logs)) == 1 + len(others)


def test_irreproducible_environment_is_reported_in_the_log(tmp_path: Path) -> None:
    name = register("DiceAgain", fault="dice")
    api.train(small(**{"world.id": name}), folder=tmp_path / "run")
    assert "ends with other bits" in (tmp_path / "run/train.log").read_text()


def test_mean_return_of_a_fixed_reward() -> None:
    chosen = world.Config(id=register("Paid", limit=6))
    board = Scoreboard(lambda n, first, key: world.make(chosen, n, first, key), 0, 1)
    result = board.results([world.bot("random", "player")], 7, 0)[0]
    assert result.returned is not None and (result.returned.mean, result.returned.low) == (3.0, 3.0)


# --- refusals ------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"id": "CartPole-v7"}, r"id = 'CartPole-v7': expected the id .*; nearest: CartPole-v1$"),
    "no package": ({"id": "no_such:Thing-v0"}, "no package 'no_such' is installed"),
    "no limit": (
        {"id": register("Endless", limit=None)},
        "it has no step limit; expected world.max_steps",
    ),
    "pixels": (
        {"id": register("Pixels", obs_space=spaces.Box(0, 255, (8, 8, 3), np.uint8))},
        "supported are observ",
    ),
    "dict": (
        {"id": register("Dict", obs_space=spaces.Dict({"a": spaces.Discrete(2)}))},
        "observation Dict.*supported",
    ),
    "tuple": (
        {"id": register("Tuple", obs_space=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]))},
        "observation Tuple.*supported",
    ),
    "many": (
        {"id": register("Many", action_space=spaces.MultiDiscrete([2, 3]))},
        r"action MultiDiscrete.*supported are",
    ),
    "unbounded": (
        {"id": register("Wide", action_space=spaces.Box(-np.inf, np.inf, (1,)))},
        "action Box.*finite bounds",
    ),
    "option": ({"options": ("nothing=1",)}, "Gymnasium cannot make it: TypeError"),
    "no option": ({"options": ("nothing",)}, "options = 'nothing': expected name=value"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_environment_is_refused_in_one_line(what: str) -> None:
    settings, line = REFUSED[what]
    with pytest.raises(ConfigError, match=line) as caught:
        config.validate(chosen := world.Config(**settings))
        world.make(chosen, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", ["step", "nan", "reward"])
def test_failure_in_a_step_names_the_game(fault: str) -> None:
    made = world.make(world.Config(id=register(f"Late{fault}", fault=fault)), 2, first=5)
    with pytest.raises(ConfigError, match="game 5") as caught:
        steps(made, 80)
    assert "\n" not in str(caught.value)


def test_options_reach_the_environment() -> None:
    made = world.make(world.Config(id="FrozenLake-v1", options=("is_slippery=false",)), 2)
    for _ in range(2):
        made.step({"player": np.full((2, 1), 1, np.int32)})  # down
    assert made.view["player"]["observation"].ravel().tolist() == [8.0, 8.0]
    with pytest.raises(ConfigError, match="the action of game 0 is not an action"):
        made.step({"player": np.full((2, 1), 9, np.int32)})


def test_missing_gymnasium_prints_the_install_command(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["gymnasium"] = None
from rematch.cli.main import main
assert main(["worlds"]) == 0
sys.exit(main(["train", "gymnasium"]))
"""
    root = Path(api.__file__).parents[1]
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    line = 'Gymnasium is not installed: .venv/bin/pip install -c constraints.txt gymnasium'
    assert process.returncode == 2 and process.stderr == f"rematch: {line}\n"
    assert line in process.stdout and "pursuit: " in process.stdout
