"""Gymnasium's and PettingZoo's own checkers, and what they do not look at: ends, masks, turns, batches."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from support import conformance_subjects, networks, toys

from rematch.adapters.common import Opponents
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat
from rematch.worlds import registry

pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import gymnasium
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from rematch.adapters.gymnasium_env import GymEnv, GymVector, env_id
from rematch.adapters.pettingzoo_env import ZooParallel, ZooTurns

LACKING = [
    name for name, library in conformance_subjects.NEEDS.items() if not importlib.util.find_spec(library)
]
NAMES = [name for name in [*registry.names(), *toys.TOYS] if name not in LACKING]
TURNS = [name for name in NAMES if name in ("sticks", "openspiel", "beasty", "pettingzoo")]
AT_ONCE = [name for name in NAMES if name not in TURNS]


# --- the official checkers


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_accepts(name: str) -> None:
    module = toys.TOYS.get(name) or registry.find(name)
    for role in module.bots:
        with warnings.catch_warnings(record=True) as output:
            warnings.simplefilter("always")
            check_env(GymEnv(toys.TOYS.get(name, name), role=role))
        fine = ("not having a spec", *(("infinity",) if name == "gymnasium" else ()))  # CartPole's own bounds
        assert [str(w.message) for w in output if not any(word in str(w.message) for word in fine)] == []


@pytest.mark.parametrize("name", AT_ONCE)
def test_pettingzoo_accepts_worlds_in_which_all_move_at_once(name: str) -> None:
    world = toys.TOYS.get(name, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(ZooParallel(world), num_cycles=300)
        parallel_seed_test(lambda: ZooParallel(world), num_cycles=50)


@pytest.mark.parametrize("name", TURNS)
def test_pettingzoo_accepts_turns(name: str) -> None:
    world = toys.TOYS.get(name, name)
    with warnings.catch_warnings(record=True) as output:
        warnings.simplefilter("always")
        api_test(ZooTurns(world), num_cycles=300)
        seed_test(lambda: ZooTurns(world), num_cycles=50)
    # Its checker says these of every environment whose observation holds an action mask, its own ones too.
    masked = ("Observation space for each agent probably should be", "Observation is not a NumPy array")
    assert [str(w.message) for w in output if not str(w.message).startswith(masked)] == []


def test_a_world_of_several_fields_is_accepted() -> None:
    """All fields side by side: state, lidar, history and clock of a robot with sensors."""
    config = registry.find("pursuit").Config(full_obs=False, max_steps=60, safety_filter=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        for role in ("pursuer", "evader"):
            env = GymEnv("pursuit", config, role=role)
            check_env(env)
            assert env.observation_space.shape == (7 + 36 + 430 + 1,)
        parallel_api_test(ZooParallel("pursuit", config), num_cycles=150)
        parallel_seed_test(lambda: ZooParallel("pursuit", config), num_cycles=50)
    batch = GymVector("pursuit", config, role="evader", games=3)
    assert batch.reset(seed=1)[0] in batch.observation_space


# --- ends


def test_cut_off_game_ends_with_the_observation_at_the_cut() -> None:
    env = GymEnv(toys.drift, toys.DriftConfig(limit=4, wind=0.0))
    place = float(env.reset(seed=1)[0][0])
    for step in range(4):
        place += 0.05
        seen, reward, terminated, truncated, info = env.step(np.array([0.5], np.float32))
        assert seen == pytest.approx([place, 0.5], abs=1e-6) and reward == pytest.approx(0.05, abs=1e-6)
        assert (terminated, truncated) == (False, step == 3)
    assert info == {"outcome": 0.5, "length": 4}
    with pytest.raises(ConfigError, match="call reset first"):
        env.step(np.array([0.5], np.float32))
    assert abs(env.reset()[0][0]) <= 0.1  # the next game


def test_decided_game_ends_with_the_observation_before_the_final_move() -> None:
    env = GymEnv(toys.matching, toys.MatchingConfig(rounds=2), role="matcher", opponent="heads")
    env.reset(seed=0)
    first, reward, *_ = env.step(0)
    last, second, terminated, truncated, info = env.step(1)
    assert np.array_equal(first, last) and (reward, second) == (3.0, -1.0)
    assert (terminated, truncated, info["outcome"], info["length"]) == (True, False, 1.0, 2)


# --- turns


def test_rewards_between_turns_belong_to_the_last_decision() -> None:
    """Games of sticks: a step brings what the world pays the seat until it is to move again."""
    env = GymEnv(toys.sticks, opponent="careful")
    env.reset(seed=3)
    for _ in range(20):
        twin = toys.sticks.make(env.config, 1)
        twin.load(np.array([0]), env.world.save(np.array([0])))
        choice = int(np.flatnonzero(env.world.view.mask["player"][0, 0])[-1])
        rng_key = env.opponents.step
        _, reward, over, _, info = env.step(choice)
        paid, moves = 0.0, np.full((1, 3), choice)
        while True:
            view = twin.step({"player": moves})
            paid += float(view.reward[0, 0])
            if view.ended[0] or view.acting[0, 0]:
                break
            pile = int(twin.state["pile"][0])
            moves = np.full((1, 3), pile - 2 if 2 <= pile <= 4 else 0)  # what "careful" does
        assert reward == paid and over == bool(view.ended[0]) and env.opponents.step > rng_key
        if over:
            assert info == {"outcome": float(view.outcome[0, 0]), "length": int(view.length[0])}
            env.reset()


def test_illegal_action_is_one_clear_line_where_it_is_an_error() -> None:
    env = ZooTurns(toys.sticks, illegal="error")
    env.reset(seed=1)
    while env.observe(env.agent_selection)["action_mask"].all():
        env.step(0)
    with pytest.raises(ConfigError, match=r"player: action 2 is not legal now: .* is \[1, [01], 0\]"):
        env.step(2)


def test_illegal_action_ends_the_game_as_lost() -> None:
    env = GymEnv(toys.sticks)
    env.reset(seed=3)
    while env.action_masks().all():
        before, *_, terminated, _, _ = env.step(0)
        if terminated:
            before, _ = env.reset()
    last, reward, terminated, truncated, info = env.step(int(np.flatnonzero(~env.action_masks())[0]))
    assert (reward, terminated, truncated, info["outcome"]) == (-1.0, True, False, 0.0)
    assert np.array_equal(before, last) and "is not legal now" in info["illegal_action"]
    with pytest.raises(ConfigError, match="call reset first"):
        env.step(0)
    env.reset()
    assert not env.over and env.world.view.length[0] <= env.world.spec.seats  # a new game
    with pytest.raises(ConfigError, match="illegal = 'ignore': expected lose"):
        GymEnv(toys.sticks, illegal="ignore")


def test_illegal_action_of_an_agent_ends_the_game_for_all() -> None:
    env = ZooTurns(toys.sticks)
    env.reset(seed=1)
    while env.observe(env.agent_selection)["action_mask"].all():
        env.step(0)
    loser = env.agent_selection
    env.step(2)
    assert all(env.terminations.values()) and env.rewards == {a: -1.0 * (a == loser) for a in env.agents}
    assert all(info["outcome"] == (0.0 if agent == loser else 0.5) for agent, info in env.infos.items())
    while env.agents:
        env.step(None)
    env.reset()
    assert len(env.agents) == 3 and not any(env.terminations.values())


# --- copies


def play_on(env: Any, steps: int) -> list[Any]:
    """What an environment returns for a fixed series of legal actions."""
    out: list[Any] = []
    for step in range(steps):
        if env.over:
            out.append(env.reset())
        mask = env.action_masks()
        action = np.random.default_rng(step).uniform(-1, 1, mask.shape).astype(np.float32)
        discrete = env.role.actions.kind == "discrete"
        out.append(env.step(int(np.where(mask, action, -2).argmax()) if discrete else action))
    return out


@pytest.mark.parametrize("name", [name for name in NAMES if name not in toys.TOYS])
def test_copies_of_an_environment_continue_its_game(name: str) -> None:
    env = GymEnv(name)
    env.reset(seed=5)
    play_on(env, 7)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = play_on(env, 40)
    for made in copies:
        for one, other in zip(play_on(made, 40), expected, strict=True):
            assert np.array_equal(one[0], other[0]) and str(one[1:]) == str(other[1:])


@pytest.mark.parametrize("name", [name for name in ("pursuit", "lattice") if name in NAMES])
def test_copies_of_batches_and_of_agents_continue_their_games(name: str) -> None:
    batch = GymVector(name, games=3)
    batch.reset(seed=2)
    moves = [batch.action_space.sample() for _ in range(20)]
    for action in moves[:5]:
        batch.step(action)
    made = pickle.loads(pickle.dumps(batch))
    for action in moves[5:]:
        for one, other in zip(batch.step(action)[:4], made.step(action)[:4], strict=True):
            assert np.array_equal(one, other)
    env = ZooParallel(name)
    env.reset(seed=2)
    made = copy.deepcopy(env)
    while env.agents:
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        assert str(env.step(actions)) == str(made.step(actions))
    assert str(env.reset()) == str(made.reset())


def test_copies_have_the_opponent_with_its_recurrent_state() -> None:
    env = GymEnv(toys.matching, toys.MatchingConfig(rounds=4), role="matcher", opponent=Counting())
    env.reset(seed=0)
    env.step(0)
    made = copy.deepcopy(env)
    assert [made.step(0)[1] for _ in range(3)] == [-1.0, 3.0, -1.0]
    policy = networks.policy(toys.matching.spec(env.config).roles["hider"])
    policy.greedy = True
    env = GymEnv(toys.matching, role="matcher", opponent=policy)
    twin = copy.deepcopy(env)
    other = twin.opponents.opponent
    assert isinstance(other, type(policy)) and other is not policy and other.greedy
    assert np.array_equal(other.weights, policy.weights)
    env.reset(seed=3)
    twin.reset(seed=3)
    assert str(play_on(env, 12)) == str(play_on(twin, 12))


# --- registered ids


def test_worlds_are_registered_with_gymnasium() -> None:
    ids = {env_id(name) for name in registry.names() if name != "gymnasium"}
    assert {"rematch/Pursuit-v0", "rematch/Beasty-v0", "rematch/OpenSpiel-v0"} <= ids
    assert ids <= set(gymnasium.registry)
    env = gymnasium.make("rematch/Pursuit-v0", role="evader", config={"max_steps": 60})
    assert isinstance(env.unwrapped, GymEnv) and env.unwrapped.config.max_steps == 60
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    batch = gymnasium.make_vec("rematch/Pursuit-v0", num_envs=3)
    assert batch.reset(seed=1)[0].shape[0] == 3
    with pytest.raises(ConfigError, match=r"config: .*max_stepz.*nearest: .*max_steps"):
        gymnasium.make("rematch/Pursuit-v0", config={"max_stepz": 60})


def test_importing_the_adapters_registers_the_ids() -> None:
    made = "gymnasium.make('rematch/Lattice-v0')"
    script = f"import gymnasium, rematch.adapters; print({made}.unwrapped.role.name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in registry.find("lattice").bots


# --- batches


def test_a_batch_plays_what_its_games_play_alone() -> None:
    """GymVector against a loop over the world itself: sights, rewards, ends, last sights."""
    config, games = toys.DriftConfig(limit=7), 5
    env = GymVector(toys.drift, config, games=games)
    seen, info = env.reset(seed=4)
    assert seen in env.observation_space and info == {}
    twin = toys.drift.make(config, games, seed=env.opponents.seed)
    for step in range(30):
        moves = np.random.default_rng(step).uniform(-1, 1, (games, 1)).astype(np.float32)
        seen, reward, terminated, truncated, info = env.step(moves)
        view = twin.step({"rafter": moves[:, None]})
        expected = np.concatenate([view["rafter"]["raft"][:, 0], view["rafter"]["pole"][:, 0]], 1)
        assert np.array_equal(seen, expected) and np.array_equal(reward, view.reward[:, 0])
        assert np.array_equal(terminated, view.ended == 1) and np.array_equal(truncated, view.ended == 2)
        if view.ended.any():
            cut = view.ended == 2
            assert np.array_equal(info["final_obs"][cut, 0], view.final["rafter"]["raft"][cut, 0, 0])
            assert np.array_equal(info["_final_obs"], view.ended > 0)
            assert np.array_equal(info["outcome"], view.outcome[:, 0])
        else:
            assert info == {}


def test_batches_repeat_by_seed_and_hand_out_their_own_arrays() -> None:
    one, other = (
        RecordEpisodeStatistics(GymVector(toys.matching, role="matcher", games=8)) for _ in range(2)
    )
    first, _ = one.reset(seed=9)
    other.reset(seed=9)
    stored = first.copy()
    for step in range(12):
        moves = np.random.default_rng(step).integers(0, 2, 8)
        a, b = one.step(moves), other.step(moves)
        for x, y in zip(a[:4], b[:4], strict=True):
            assert np.array_equal(x, y)
    assert np.array_equal(first, stored)
    assert one.episode_count == 16


def test_turns_do_not_fit_into_batches_nor_parallel_play() -> None:
    with pytest.raises(ConfigError, match=r"sticks is turn-based: .*use GymEnv"):
        GymVector(toys.sticks, games=4)
    with pytest.raises(ConfigError, match=r"sticks is turn-based: use ZooTurns"):
        ZooParallel(toys.sticks)
    with pytest.raises(ConfigError, match="matching: 2 agents move at once: use ZooParallel"):
        ZooTurns(toys.matching)


# --- opponents


class Counting:
    """A player with memory: it plays the parity of the moves it has made in this game."""

    name = "counting"

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
        if recurrent_state is None:
            recurrent_state = np.zeros((len(seat.rows), 1), np.int64)
        return Decision(action=recurrent_state[:, 0] % 2, recurrent_state=recurrent_state + 1)


def test_any_player_can_be_the_opponent_and_forgets_between_games() -> None:
    env = GymEnv(toys.matching, toys.MatchingConfig(rounds=3), role="matcher", opponent=Counting())
    env.reset(seed=0)
    for _ in range(3):
        rewards = [env.step(0)[1] for _ in range(3)]
        assert rewards == [3.0, -1.0, 3.0]
        env.reset()


def test_unknown_names_give_one_clear_line() -> None:
    with pytest.raises(
        ConfigError, match="role = 'macher': expected one of matcher, hider; nearest: matcher"
    ):
        GymEnv(toys.matching, role="macher")
    with pytest.raises(ConfigError, match=r"opponent = 'head': expected a bot for hider: .*; nearest: heads"):
        GymEnv(toys.matching, role="matcher", opponent="head")
    with pytest.raises(ConfigError, match="unknown world"):
        GymEnv("pursuitt")
    assert Opponents(toys.drift, toys.drift.make(toys.DriftConfig(), 1).spec, 0, "nobody").players == {}


@pytest.mark.parametrize(
    ("library", "adapter"), [("gymnasium", "gymnasium_env"), ("pettingzoo", "pettingzoo_env")]
)
def test_a_missing_library_is_one_clear_line(library: str, adapter: str) -> None:
    script = (
        f"import sys; sys.modules['{library}'] = None\n"
        "import rematch.adapters\n"
        "from rematch.core.config import ConfigError\n"
        f"try: import rematch.adapters.{adapter}\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 'is not installed: .venv/bin/pip install -c constraints.txt' in done.stdout
