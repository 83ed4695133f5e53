"""PettingZoo games as worlds: conformance, turns, masks, agents that leave, roles, refusals, training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from support.commands import Runner, refused
from support.stop_and_resume import stop_and_go_on
from support.trainers import start_run

import rematch
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import SeatedPlayers
from rematch.core.world import CUT_OFF, DECIDED
from rematch.rehearsal.compare import differences
from rematch.worlds import conformance
from rematch.worlds.conformance import Trial
from rematch.worlds.pettingzoo import factory
from rematch.worlds.pettingzoo.world import outcomes
from rematch.worlds.registry import find

__all__ = ["refused"]
pytestmark = pytest.mark.usefixtures("blank_pictures")

game = find("pettingzoo")


class Race(AECEnv):
    """Three runners move in turn; one that stumbles leaves, the others go on. Masks forbid two long steps."""

    metadata: ClassVar = {"name": "race"}

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.size = size
        self.possible_agents = [f"runner_{i}" for i in range(3)]

    def observation_space(self, agent: str) -> Any:
        board = spaces.Box(0.0, 20.0, (4,), np.float32)
        return spaces.Dict({"observation": board, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def observe(self, agent: str) -> Any:
        own = self.possible_agents.index(agent)
        places = np.array([*np.roll(self.place, -own), self.turns / 2], np.float32)
        mask = np.array([1, 1, not self.long[own]], np.int8)
        return {"observation": places, "action_mask": mask}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.place, self.long, self.turns = self.random.integers(0, 2, 3) * 1.0, [False] * 3, 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        own = self.possible_agents.index(agent)
        self.turns += 1
        self.long[own] = action == 2
        self.place[own] += float(action or 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards[agent] = float(action or 0)
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        if action == 2 and self.random.random() < 0.3:
            self.terminations[agent] = True
        if self.place[own] >= self.size:
            self.terminations = dict.fromkeys(self.agents, True)
        if self.turns >= 36:
            self.truncations = dict.fromkeys(self.agents, True)
        self.agent_selection = following
        self._deads_step_first()


class Tag(ParallelEnv):
    """One tagger and two others on a line; continuous moves for one role, discrete ones for the other."""

    metadata: ClassVar = {"name": "tag"}

    def __init__(self, fault: str = "", steps: int = 12) -> None:
        self.fault, self.steps = fault, steps
        self.possible_agents = ["tagger_0", "other_0", "other_1"]

    def observation_space(self, agent: str) -> Any:
        if self.fault == "image":
            return spaces.Box(0, 255, (8, 8, 3), np.uint8)
        return spaces.Box(-9.0, 9.0, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        if self.fault == "action":
            return spaces.MultiBinary(3)
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if agent == "tagger_0" else spaces.Discrete(3)

    def _observations(self) -> dict[str, Any]:
        place = self.place + (np.random.default_rng().random() if self.fault == "dice" else 0.0)
        return {agent: np.clip(np.roll(place, -i), -9, 9).astype(np.float32)
                for i, agent in enumerate(self.possible_agents)}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.time = list(self.possible_agents), 0
        self.place = np.random.default_rng(seed).uniform(-3, 3, 3)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        if self.fault == "step" and self.time == 5:
            raise ValueError("two\nlines")
        self.time += 1
        moves = [float(actions["tagger_0"][0]), actions["other_0"] - 1, actions["other_1"] - 1]
        self.place = self.place + 0.5 * np.array(moves)
        near = np.abs(self.place[1:] - self.place[0]) < 0.2
        rewards = {"tagger_0": float(near.sum()), "other_0": -float(near[0]), "other_1": -float(near[1])}
        ended = dict.fromkeys(self.agents, bool(near.all()))
        late = dict.fromkeys(self.agents, self.time >= self.steps)
        infos = {agent: {} for agent in self.agents}
        if any(ended.values()) or any(late.values()):
            self.agents = []
        return self._observations(), rewards, ended, late, infos


@pytest.fixture
def own_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of this file, found by name as those of an installed package are."""
    modules = {"race": SimpleNamespace(env=Race), "tag": SimpleNamespace(parallel_env=Tag)}
    find_module = factory.find
    monkeypatch.setattr(factory, "find", lambda name: modules.get(name) or find_module(name))
    factory.describe.cache_clear()


def config(name: str, *options: str, **changes: Any) -> Any:
    return game.Config(id=name, options=options, **changes)


# --- conformance ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_games")
@pytest.mark.parametrize(("name", "settings"), [("race", {}), ("race", {"scale": "bounds"}), ("tag", {})])
def test_own_games_pass_the_conformance_test(name: str, settings: dict[str, Any]) -> None:
    rules = config(name, max_steps=60, **settings)
    bots = {role: [game.bot("random", role)] for role in game.spec(rules).roles}
    report = conformance.check(game.make, rules, bots=bots, trial=Trial(bound=60))
    assert {"save and load", "invalid states", "parts", "determinism", "restart"} <= set(report.passed)


@pytest.mark.parametrize("name", ["classic.tictactoe_v3", "connect_four_v3", "classic.rps_v2"])
def test_classic_games_pass_the_conformance_test(name: str) -> None:
    pytest.importorskip("pygame")
    rules = config(name, max_steps=60)
    spec = game.spec(rules)
    assert list(spec.roles) == ["player"] and spec.seats == 2 and spec.zero_sum
    trial = Trial(games=3, steps=20, bound=60, chance=False)
    conformance.check(game.make, rules, bots={"player": [game.bot("random", "player")]}, trial=trial)


# --- roles, turns, ends -----------------------------------------------------------------------------------


def play(world: Any, steps: int) -> Any:
    """Random legal play; yields the view after each step."""
    seats = range(world.spec.seats)
    players = {seat: game.bot("random", world.spec.role_of(seat).name) for seat in seats}
    seated = SeatedPlayers(players, dict.fromkeys(seats, 3), 1)
    for step in range(steps):
        actions = {}
        for role in world.spec.roles.values():
            shape = (world.games, len(role.seats))
            discrete = role.actions.kind == "discrete"
            actions[role.name] = np.zeros(shape if discrete else (*shape, role.actions.size),
                                          np.int32 if discrete else np.float32)
        seated.act(world, actions, step, np.ones(world.games, bool))
        yield actions, world.step(actions)


@pytest.mark.usefixtures("own_games")
def test_agents_with_equal_spaces_share_a_role() -> None:
    race, tag = game.spec(config("race")), game.spec(config("tag"))
    assert {role.name: role.seats for role in race.roles.values()} == {"runner": (0, 1, 2)}
    assert race.roles["runner"].columns[:3] == ("seat.runner_0", "seat.runner_1", "seat.runner_2")
    assert {role.name: role.seats for role in tag.roles.values()} == {"tagger": (0,), "other": (1, 2)}
    assert tag.roles["tagger"].actions.kind == "continuous" and tag.roles["other"].actions.kind == "discrete"
    assert not race.zero_sum and tag.zero_sum and game.role_count(config("tag")) == 2


@pytest.mark.usefixtures("own_games")
def test_agents_that_left_wait_until_the_game_ends() -> None:
    world = game.make(config("race"), 8)
    left = False
    for _, view in play(world, 60):
        assert (view.acting.sum(1) == 1).all()
        for match, acting in zip(world.matches, view.acting):
            gone = [seat for seat in range(3) if f"runner_{seat}" not in match.env.agents]
            left |= bool(gone)
            assert not acting[gone].any()
    assert left


@pytest.mark.usefixtures("own_games")
def test_ends_and_outcomes_follow_the_game() -> None:
    world = game.make(config("tag", "steps=7"), 16)
    ends, returns = [], np.zeros((16, 3))
    for _, view in play(world, 60):
        returns += view.reward
        for row in np.flatnonzero(view.ended):
            ends.append((int(view.ended[row]), int(view.length[row])))
            assert np.allclose(view.outcome[row], outcomes(returns[row : row + 1])[0])
            returns[row] = 0
    assert {end for end, _ in ends} == {DECIDED, CUT_OFF}
    assert all(length == 7 for end, length in ends if end == CUT_OFF)
    short = game.make(config("tag", max_steps=3), 2)
    views = [(view.ended.copy(), view.length.copy()) for _, view in play(short, 3)]
    assert (views[2][0] == CUT_OFF).all() and (views[2][1] == 3).all()


def test_outcomes_are_shares_of_beaten_seats() -> None:
    assert outcomes(np.array([[1.0, -1.0], [0.0, 0.0]])).tolist() == [[1, 0], [0.5, 0.5]]
    assert outcomes(np.array([[3.0, 1.0, 1.0]])).tolist() == [[1.0, 0.25, 0.25]]
    assert outcomes(np.array([[7.0]])).tolist() == [[0.5]]


@pytest.mark.usefixtures("own_games")
def test_illegal_action_is_one_line() -> None:
    world = game.make(config("race"), 2)
    actions = {"runner": np.full((2, 3), 2, np.int32)}
    for _ in range(3):  # every runner makes a long step
        world.step(actions)
    with pytest.raises(ConfigError, match=r"race: runner_\d of game 0 chose action 2, which is not legal"):
        for _ in range(4):
            world.step(actions)
    with pytest.raises(ConfigError, match="chose action 9"):
        world.step({"runner": np.full((2, 3), 9, np.int32)})


def test_random_player_draws_legal_actions_evenly() -> None:
    pytest.importorskip("pygame")
    world = game.make(config("classic.tictactoe_v3"), 900)
    seats = SeatedPlayers({0: game.bot("random", "player"), 1: game.bot("random", "player")}, {0: 1, 1: 1}, 1)
    actions = {"player": np.zeros((900, 2), np.int32)}
    seats.act(world, actions, 0, np.ones(900, bool))
    counts = np.bincount(actions["player"][:, 0], minlength=9)
    assert counts.min() > 60 and counts.max() < 140  # 100 each, standard deviation 9.4
    assert RngKey(1, 1, 0).seed == 1


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_games")
@pytest.mark.parametrize(("options", "message"), [
    ("fault=image", "supported are observations Box"), ("fault=action", "and actions Discrete and Box"),
    ("fault=step", "failed in a trial game: ValueError: two lines"), ("nonsense=3", "PettingZoo cannot make"),
])
def test_games_that_cannot_be_worlds_are_one_line(options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        game.spec(config("tag", options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "message"), [
    ("classic.tictacto_v3", "nearest: classic.tictactoe_v3"), ("nothing", "expected the module of a Petting"),
    ("os.path", "expected the module"), ("json", "expected the module"), ("classic.", "expected the module"),
    ("numpy.linalg", "has neither env nor parallel_env"), ("../x", "expected the module of a game"),
])
def test_names_of_no_game_are_one_line(name: str, message: str, refused: Runner) -> None:
    assert message in refused("train", "pettingzoo", "--world.id", name)


def test_files_beside_the_run_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="expected the module"):
        factory.find("evil")
    with pytest.raises(ConfigError, match="expected the module"):
        factory.find("evil.game")


@pytest.mark.usefixtures("own_games")
def test_game_that_is_not_reproducible_resumes_by_episode() -> None:
    rules = config("tag", "fault=dice")
    assert game.spec(rules).resume == "episode"
    world = game.make(rules, 2)
    list(play(world, 3))
    world.load(np.arange(2, dtype=np.int32), world.save(np.arange(2, dtype=np.int32)).copy())
    assert (world.state["time"] == 0).all()


# --- training ---------------------------------------------------------------------------------------------


TINY = {"games": 4, "steps": 16, "total_steps": 256, "save_every": 1, "evaluation.games": 8,
        "network.hidden": [8], "ppo.minibatch_size": 32}


@pytest.mark.usefixtures("own_games")
def test_run_with_two_roles_resumes_to_the_same_bits(tmp_path: Path) -> None:
    settings = rematch.configure("pettingzoo", changes=TINY | {
        "world.id": "tag", "world.max_steps": 20, "threads": 2})
    start_run(tmp_path / "whole", settings)
    stop_and_go_on(settings, tmp_path / "stopped", 2)
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []


@pytest.mark.slow
def test_tic_tac_toe_is_learned(tmp_path: Path) -> None:
    """A tenth of the recipe beats random play; draws count half."""
    pytest.importorskip("pygame")
    run = rematch.train("pettingzoo", {"total_steps": 24_576, "evaluation.games": 200, "games": 32},
                        folder=tmp_path / "x")
    (row,) = run.scoreboard()
    assert row["rival"] == "random" and row["low"] > 0.6
