"""Imitation of scripted players: teachers, players of its games, returns, gradient, steps, resumed runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.stop_and_resume import stop_and_go_on
from support.trainers import advance

from rematch import api
from rematch.agents.learners.ppo import Ppo
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.run_config import Config
from rematch.core.stepping import concat_fields, seat_at
from rematch.core.system.interrupts import StopRequested
from rematch.core.world import World
from rematch.curriculum.levels import Levels
from rematch.evaluation.match import Scoreboard
from rematch.rehearsal.compare import differences
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import play
from rematch.training.components import imitation
from rematch.training.components.imitation import (
    Cloning,
    Imitation,
    ImitationGames,
    Teaching,
    discounted_returns,
    teachings,
)
from rematch.training.trainer import Trainer

PURSUIT = ["--imitation.teachers", "lion,obstacle_orbit"]


def configured(recipe: str = "quick", steps: int = 4096, flags: list[str] = PURSUIT) -> Config:
    return api.configure(recipe, flags=["--imitation.steps", str(steps), *flags])


def small(recipe: str = "quick", flags: list[str] = PURSUIT) -> Config:
    return shrink(configured(recipe, flags=flags))


def games_of(trainer: Trainer, games: int = 14) -> ImitationGames:
    setup: Any = trainer.setup
    policies = {role: learner.policy for role, learner in setup.learners.items()}
    return ImitationGames(setup.make_world(games, 0, 1), policies, setup, 1)


# --- settings -----------------------------------------------------------------------------------------------


def test_teachers_by_role_and_by_opponent() -> None:
    flags = ["--imitation.teachers", "lion,obstacle_orbit,wall_runner:pure_pursuit"]
    config = configured(flags=flags)
    taught = teachings(config.imitation, Trainer(shrink(config)).setup)
    assert taught == {"pursuer": Teaching("lion", {}),
                      "evader": Teaching("obstacle_orbit", {"pure_pursuit": "wall_runner"})}
    assert taught["evader"].teacher("pure_pursuit") == "wall_runner"
    assert taught["evader"].teacher("lion") == taught["evader"].teacher("") == "obstacle_orbit"


@pytest.mark.parametrize(("flags", "reason"), [
    (["--imitation.teachers", "lion"], "a scripted evader"),
    (["--imitation.teachers", "lion,nobody"], "imitation.teachers = nobody"),
    (["--imitation.teachers", "lion,obstacle_orbit,wall_runner:lattice"], "wall_runner:lattice"),
    ([], "imitation.teachers = none"),
    ([*PURSUIT, "--imitation.log_std", "-4"], "network.log_std_low"),
    ([*PURSUIT, "--total_steps", "4096"], "total_steps"),
    ([*PURSUIT, "--games", "100", "--steps", "40", "--total_steps", "4200"], "by one iteration"),
    ([*PURSUIT, "--schedule.kind", "micro"], "schedule.kind"),
    ([*PURSUIT, "--imitation.anchored", "lion"], "imitation.anchored = lion: expected roles of pursuit"),
])  # fmt: skip
def test_settings_that_cannot_work_are_one_line(flags: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        configured(flags=flags)


def test_log_std_has_no_effect_on_discrete_actions() -> None:
    flags = ["--imitation.teachers", "chase,flee", "--imitation.log_std", "-1"]
    with pytest.raises(ConfigError, match="all actions are discrete"):
        configured("lattice", flags=flags)


# --- games --------------------------------------------------------------------------------------------------


def test_learners_meet_every_scripted_opponent_and_each_other() -> None:
    trainer = Trainer(small())
    games = games_of(trainer)
    assert games.learns.any(1).all()  # in every game somebody learns
    opponents = {name: set() for name in ("pursuer", "evader")}
    for players, rows in games.bots:
        ((seat, bot),) = players.players.items()
        assert not games.learns[rows, seat].any()
        opponents[trainer.setup.spec.role_of(seat).name].add(bot.name)
    assert {role: sorted(names) for role, names in opponents.items()} == {
        role: sorted(names) for role, names in trainer.setup.game.bots.items()}
    assert games.learns.all(1).any()


def test_opponents_are_those_of_the_league() -> None:
    games = games_of(Trainer(small(flags=[*PURSUIT, "--league.bots", "lion,wall_runner"])))
    assert {bot.name for players, _ in games.bots for bot in players.players.values()} == {
        "lion", "wall_runner"}


def test_labels_are_the_actions_of_the_teacher_in_the_learners_own_games() -> None:
    trainer = Trainer(small())
    games = games_of(trainer)
    games.play(5, by_teachers=False)
    rows = np.arange(games.world.games, dtype=np.int32)
    teacher = trainer.setup.game.bot("obstacle_orbit", "evader")  # it uses no random numbers
    expected = teacher.act(seat_at(games.world, 1, rows), RngKey(1, 2, 3)).action
    decisions = games.play(1, by_teachers=False)["evader"]
    learns = decisions.learns[0][:, 0]
    assert learns.any() and np.array_equal(decisions.label[0][learns, 0], expected[learns])


def test_discounted_returns_by_hand() -> None:
    reward = np.array([1.0, 2.0, 4.0, 8.0, 16.0], np.float32)[:, None, None]
    ended = np.array([False, False, True, False, False])[:, None]
    learns = np.array([True, False, True, True, True])[:, None, None]
    got = discounted_returns(reward, ended, learns, 0.5)[:, 0, 0]
    # the second step is no decision: it belongs to the one before it, and the discount is per decision
    assert (got[0], got[2]) == (1 + 2 + 0.5 * 4, 4)
    assert np.isnan(got[3:]).all()


# --- fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recipe", "teachers"), [
    ("quick", "lion,obstacle_orbit"), ("lattice", "chase,flee")])
def test_gradient_is_that_of_the_log_likelihood(recipe: str, teachers: str) -> None:
    trainer = Trainer(small(recipe, ["--imitation.teachers", teachers]))
    setup: Any = trainer.setup
    role = list(setup.spec.roles)[-1]
    clone = Cloning(setup.learners[role].policy, setup, 0)
    clone.add(games_of(trainer).play(8, by_teachers=True)[role])
    rows = np.arange(min(8, len(clone.rows["label"])))
    policy = clone.policy

    def log_likelihood(weights: Any) -> float:
        policy.set(weights.astype(np.float32))
        heads, _ = policy.forward(clone.rows["obs"][rows])
        mask = clone.rows["mask"][rows] if "mask" in clone.rows else None
        return float(clone._log_likelihood(heads, clone.rows["label"][rows], mask).astype(float).mean())

    start = policy.weights.copy()
    grads: list[Any] = []
    clone.learner.step = lambda grad, lr: grads.append(grad.copy())  # type: ignore[method-assign,assignment,func-returns-value]
    clone._step(rows, 0.1)
    (grad,) = grads
    direction = grad / np.linalg.norm(grad)
    size = 1e-2
    slope = (log_likelihood(start + size * direction) - log_likelihood(start - size * direction)) / (2 * size)
    assert slope == pytest.approx(-float(np.linalg.norm(grad)), rel=0.02)


def test_imitation_plays_nearly_as_well_as_its_teacher() -> None:
    """On an easy lesson: the pursuer of `quick` catches an evader that stands still."""
    config = api.configure("quick", flags=[
        "--imitation.steps", "65536", "--imitation.teachers", "pure_pursuit,obstacle_orbit",
        "--games", "128", "--steps", "32", "--stagger", "0", "--imitation.epochs", "4"])  # fmt: skip
    trainer = Trainer(config)
    trainer.start()
    setup: Any = trainer.setup
    board = Scoreboard(setup.make_world, 5, 1)
    evader = setup.game.bot("stand_still", "evader")
    learnt, scripted = (board.results([player, evader], 200, 1)[0].score
                        for player in (setup.learners["pursuer"].policy,
                                       setup.game.bot("pure_pursuit", "pursuer")))
    assert learnt > scripted - 0.1


# --- as a part of a run -------------------------------------------------------------------------------------


def test_steps_of_the_imitation_count_and_the_rate_rises() -> None:
    config = api.configure("quick", changes={
        "imitation.steps": 1000, "imitation.teachers": ("lion", "obstacle_orbit"), "imitation.rise": 3,
        "games": 16, "steps": 16, "stagger": 0, "imitation.epochs": 1})  # fmt: skip
    trainer = Trainer(config)
    trainer.start()
    assert trainer.clock.step == 1024 and trainer.clock.learner_steps > 512
    learner = trainer.setup.learners["pursuer"]
    assert isinstance(learner, Ppo) and np.array_equal(learner.magnet, learner.policy.weights)
    rates = [row["pursuer/lr"] for row in advance(trainer, 5)]
    full = [1.0 if i >= 3 else (i + 1) / 4 for i in range(5)]
    assert [rate / rates[-1] for rate in rates] == pytest.approx(full, rel=0.05)


def test_anchored_role_stays_nearer_to_what_it_imitated() -> None:
    changes: dict[str, Any] = {
        "imitation.steps": 512, "imitation.teachers": ("lion", "obstacle_orbit"), "imitation.rise": 0,
        "imitation.epochs": 1, "games": 16, "steps": 16, "stagger": 0, "ppo.magnet_weight": 0.01}
    anchor = {"imitation.anchored": ("pursuer",), "imitation.anchor_weight": 30.0}
    moved = []
    for anchored in ({}, anchor):
        trainer = Trainer(api.configure("quick", changes=changes | anchored))
        trainer.start()
        learners: Any = trainer.setup.learners
        start = {role: learner.policy.weights.copy() for role, learner in learners.items()}
        pursuer = learners["pursuer"].policy
        obs = np.array(concat_fields(pursuer.role, trainer.setup.world.view["pursuer"]))[:, 0]
        before = pursuer.forward(obs)[0].copy()
        advance(trainer, 8)
        moved.append(float(np.abs(pursuer.forward(obs)[0] - before).mean()))
        assert np.array_equal(learners["pursuer"].magnet, start["pursuer"]) == bool(anchored)
        assert not np.array_equal(learners["evader"].magnet, start["evader"])
    free, anchored_move = moved
    assert anchored_move < free / 2, moved


def test_games_start_on_the_level_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    config = api.configure("ra4", changes={"games": 16, "steps": 8, "stagger": 0, "imitation.steps": 128})
    trainer, started = Trainer(config), []

    def games(world: World, *rest: Any) -> ImitationGames:
        started.append(world.next.stage.copy())
        return ImitationGames(world, *rest)

    monkeypatch.setattr(imitation, "ImitationGames", games)
    trainer.start()
    levels = trainer.setup.get(Levels)
    assert levels is not None
    assert np.array_equal(started[0], np.tile(levels.progress.level_stage(0), (16, 1)))


def test_loaded_policies_are_not_replaced() -> None:
    trainer = Trainer(small())
    trainer.policies_loaded()
    before = trainer.setup.learners["evader"].policy.weights.copy()
    trainer.start()
    assert trainer.clock.iteration == 0
    assert np.array_equal(before, trainer.setup.learners["evader"].policy.weights)


@pytest.mark.parametrize("checks", [1, 12, 20])
def test_stop_request_during_the_imitation_is_honoured_at_once(checks: int) -> None:
    """Before a step of its games or before a gradient step."""
    trainer, asked = Trainer(small()), []

    def check() -> None:
        asked.append(True)
        if len(asked) == checks:
            raise StopRequested

    trainer.setup.stop = SimpleNamespace(check=check)  # type: ignore[assignment]
    with pytest.raises(StopRequested):
        trainer.start()
    assert len(asked) == checks and trainer.clock.iteration == 0


@pytest.mark.parametrize("at", [2, 3])
def test_run_with_imitation_resumes_to_the_same_bytes(at: int, tmp_path: Path) -> None:
    config = small()
    play(config, tmp_path / "whole")
    stop_and_go_on(config, tmp_path / "cut", at)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_observations_are_summarized_after_an_imitation_too(tmp_path: Path) -> None:
    play(small(), tmp_path / "run")
    summary = json.loads((tmp_path / "run/observations.json").read_text())
    assert summary.keys() == {"pursuer", "evader"} and all(summary.values())


@pytest.mark.parametrize(("recipe", "teachers"), [
    ("quick", "lion,obstacle_orbit"), ("lattice", "chase,flee"), ("beasty", "heuristic")])
def test_evidence_in_every_kind_of_world(recipe: str, teachers: str, tmp_path: Path) -> None:
    config = small(recipe, ["--imitation.teachers", teachers])
    trial = play(config, tmp_path / "run")
    part = trial.trainer.setup.get(Imitation)
    assert part is not None
    lines = list(part.evidence(trial.record))
    assert [line.name for line in lines] == [f"imitation by {role}" for role in part.setup.spec.roles]
    assert all("decisions, negative log-likelihood" in line.proof for line in lines)
