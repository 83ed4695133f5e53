"""How one best response learns: value function first, checkpoints, rounds, the course of past policies."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rematch import api
from rematch.core import config as settings
from rematch.evaluation.past_policies import load_past_policies
from rematch.rehearsal.trial import play
from rematch.training import response_training
from rematch.training.best_response import ExploitRequest, ResponseKey, train_response
from rematch.training.loop import iterate as plain
from rematch.training.response_training import (
    PAST,
    Course,
    FrozenAgents,
    Response,
    search_config,
    self_play,
    self_play_config,
)
from rematch.training.trained_run import world_builder
from rematch.worlds import registry


def trained_frozen(folder: Path) -> FrozenAgents:
    """The players of a short run of pursuit that learned something, with past policies."""
    config = settings.replace(api.configure("quick"), {
        "threads": 1, "games": 64, "steps": 16, "total_steps": 64 * 16 * 4, "network.hidden": (16,),
        "network.fourier": 0, "stagger": 40, "evaluation.games": 4, "evaluation.every": 100,
        "evaluation.opponents": ("random",)})
    play(config, folder)
    run = api.load(folder)
    past, problems = load_past_policies(folder, config, world_builder(config), run.iteration, PAST)
    assert not problems and len(past) == 4
    return FrozenAgents(config=config, players=run.policies, iteration=run.iteration,
                        past=[stored.players for stored in past])


def response_to(frozen: FrozenAgents, start: str, budget: int) -> Response:
    spec = frozen.make(1, 0, 0).spec
    config = search_config(frozen.config, budget, (start, 0), spec)
    course = Course.of(frozen, config, "evader") if start == "fresh" else None
    response = Response(frozen, config, "evader", 3, course)
    if start == "incumbent":
        response.policy.set(frozen.players["evader"].weights)  # type: ignore[attr-defined]
    return response


def test_response_from_the_incumbent_trains_its_value_function_first(tmp_path: Path) -> None:
    frozen = trained_frozen(tmp_path / "run")
    response = response_to(frozen, "incumbent", 64 * 16 * 8)
    parts: list[dict[str, Any]] = []

    def score(player: Any) -> float:
        parts.append(player.arrays())
        return float(len(parts))  # always better

    assert response.search("incumbent", score) == 8
    before, *after = parts
    policy_weights = [name for name in before if not name.startswith("value.")]
    assert policy_weights and all(np.array_equal(before[n], after[2][n]) for n in policy_weights)
    assert not np.array_equal(before["value.head.weight"], after[2]["value.head.weight"])
    assert any(not np.array_equal(before[n], after[3][n]) for n in policy_weights), "then the policy learns"


@pytest.mark.parametrize("best", [0, 2])
def test_response_takes_its_best_checkpoint_and_stops_without_improvement(best: int, tmp_path: Path) -> None:
    frozen = trained_frozen(tmp_path / "run")
    response = response_to(frozen, "incumbent", 64 * 16 * 20)
    parts: list[Any] = []

    def score(player: Any) -> float:
        parts.append(player.weights.copy())
        return 1.0 if len(parts) == best + 1 else 0.0

    iterations = response.search("incumbent", score)
    assert iterations == (10 if best == 0 else 15), "a round without improvement is the last"
    assert np.array_equal(response.policy.weights, parts[best])
    if best == 0:
        assert np.array_equal(response.policy.weights, frozen.players["evader"].weights)  # type: ignore[attr-defined]


def test_course_plays_past_policies_and_bots_before_the_frozen_agent(tmp_path: Path) -> None:
    frozen = trained_frozen(tmp_path / "run")
    response = response_to(frozen, "fresh", 64 * 16 * 20)
    names = {bot.name for bot in response.seating["pursuer"].others}
    assert "lion" in names and "wall_runner" not in names, "scripted opponents of the run's league"
    seen = []
    for course in (0.0, 0.5, 0.99, 1.0):
        response.seat(7, course)
        assert (response.world.next.slot[:, 1] == 0).all()
        seen.append(set(response.world.next.slot[:, 0].tolist()))
    bots = set(range(6, 6 + len(names)))
    assert seen[0] - bots == {2} and seen[1] - bots == {2, 3, 4} and seen[2] - bots == {1, 2, 3, 4, 5}
    assert seen[0] & bots and seen[3] == {1}


@pytest.mark.parametrize("game", ["pursuit", "lattice"])
@pytest.mark.parametrize("start", ["fresh", "incumbent"])
def test_every_third_response_has_the_settings_of_the_run(game: str, start: str) -> None:
    config = settings.replace(api.configure(game), {"ppo.lr": 0.002, "ppo.magnet_weight": 0.2,
                                                    "ppo.average_fraction": 0.5})  # fmt: skip
    spec = registry.find(game).spec(config.world)
    made = {number: search_config(config, 10**6, (start, number), spec) for number in range(6)}
    for number in (2, 5):
        assert made[number].ppo == settings.replace(config, {"ppo.average_fraction": 0.0}).ppo
        assert made[number].total_steps == 10**6
    assert made[0].ppo == made[3].ppo and made[1].ppo == made[4].ppo
    assert made[0].ppo.magnet_weight == made[1].ppo.magnet_weight == 0.0


def test_self_play_is_the_run_again_with_another_seed(tmp_path: Path) -> None:
    """It never meets the frozen agents: whatever their weights are, it ends with the same ones."""
    frozen = trained_frozen(tmp_path / "run")
    config = self_play_config(frozen, 10**9, 0)
    assert config.seed != frozen.config.seed and config.total_steps == 64 * 16 * 4
    assert config.ppo == frozen.config.ppo and config.league == frozen.config.league
    assert self_play_config(frozen, 2000, 0).total_steps == 2000
    assert self_play_config(frozen, 2000, 1).seed != config.seed
    weights = self_play(frozen, config)
    assert set(weights) == {"pursuer", "evader"}
    others = {role: copy(player) for role, player in frozen.players.items()}
    for player in others.values():
        player.set(player.weights + np.float32(1))  # type: ignore[attr-defined]
    again = self_play(replace(frozen, players=others, trained={}), config)
    for role, player in frozen.players.items():
        assert np.array_equal(weights[role], again[role])
        assert not np.array_equal(weights[role], player.weights)  # type: ignore[attr-defined]


def test_one_self_play_serves_the_responses_of_all_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = trained_frozen(tmp_path / "run")
    made: list[Any] = []
    plain = response_training.Trainer

    def noted(config: Any) -> Any:
        made.append(config)
        return plain(config)

    monkeypatch.setattr(response_training, "Trainer", noted)
    request = ExploitRequest(budget=1000, seeds=1, games=10)
    steps = 0
    for role in ("pursuer", "evader"):
        key = ResponseKey(role, "selfplay", 0)
        weights, count = train_response(frozen, request, key, lambda: None)
        (trained,) = frozen.trained.values()
        assert weights.shape == trained[role].shape and count > 64 * 16 * 4
        steps += count
    assert len(made) == 1 and steps == 2 * (64 * 16 * 4 + 64 * 16)


def test_self_play_is_on_the_level_of_the_frozen_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = trained_frozen(tmp_path / "run")
    stage = frozen.make(1, 0, 0).next.stage[0].copy()
    stage[0] += 0.5  # the smallest distance at the start
    seen: list[Any] = []
    monkeypatch.setattr(response_training, "iterate", lambda trainer: seen.append(trainer) or plain(trainer))
    on_level: Any = SimpleNamespace(present_stage=stage)
    self_play(replace(frozen, level=on_level), self_play_config(frozen, 1, 0))
    assert (seen[0].world.next.stage == stage).all()


def test_first_response_from_trained_weights_has_a_lower_rate() -> None:
    config = api.configure("pursuit")
    spec = registry.find("pursuit").spec(config.world)
    for start in ("incumbent", "selfplay"):
        first, second = (search_config(config, 10**6, (start, number), spec).ppo for number in (0, 1))
        assert first.lr == pytest.approx(config.ppo.lr / 3) and second.lr == config.ppo.lr
        assert first.entropy_weight < second.entropy_weight and first.target_kl == second.target_kl > 0


def test_fresh_responses_explore_widely_with_continuous_actions() -> None:
    for game, wide in (("pursuit", True), ("lattice", False)):
        config = api.default(game)
        spec = registry.find(game).spec(config.world)
        even, odd = (search_config(config, 10**6, ("fresh", number), spec).ppo for number in (0, 1))
        assert (even.entropy_weight == odd.entropy_weight) is wide and even.lr > odd.lr
