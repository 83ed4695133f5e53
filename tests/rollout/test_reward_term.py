"""Reward terms: each one works with each learner that learns from rewards, and resumes to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from support import single_seat_worlds
from support.single_seat_worlds import Stroll, StrollConfig, little
from support.stop_and_resume import stop_and_go_on
from support.toys import _any_legal, game
from support.trainers import advance, start_run

from rematch import api
from rematch.agents.learners import q_targets
from rematch.core import config as settings
from rematch.core.run_config import Config
from rematch.core.spec import MILESTONE, Field, Spec
from rematch.core.world import EventLog
from rematch.rehearsal.compare import differences
from rematch.training.trainer import Trainer
from rematch.worlds import registry

__all__ = ["little"]

WALLS = ("left", "right", "bottom")  # milestones: the walls that an episode has touched


class Walls(Stroll):
    """Stroll with milestones; the world is its own event log."""

    events: ClassVar[list[tuple[int, str]]] = []
    captured: ClassVar[Mapping[int, Any]] = {}  # savestates: none
    episode_infos: ClassVar[list[tuple[int, dict[str, Any]]]] = []
    headlines = WALLS

    @property
    def event_log(self) -> EventLog:
        return self

    def milestones(self, row: int) -> tuple[str, ...]:
        return tuple(wall for wall, touched in zip(WALLS, self.state["touched"][row]) if touched)

    def bands(self) -> list[str]:
        return ["early"] * self.games

    @classmethod
    def make_spec(cls, config: StrollConfig) -> Spec:
        spec = super().make_spec(config)
        role = spec.roles["joypad"]
        touched = Field(name="touched", columns=tuple(f"{MILESTONE}{wall}" for wall in WALLS), low=0.0)
        return replace(spec, world="walls", roles={"joypad": replace(role, fields=(*role.fields, touched))})

    def layout(self) -> list[Any]:
        return [*super().layout(), ("touched", "u1", (len(WALLS),))]

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        super().apply_actions(actions)
        state, (height, width) = self.state, self.tiles
        now = np.stack([state["x"] == 0, state["x"] == width - 1, state["y"] == height - 1], 1)
        new = now & (state["touched"] == 0)
        self.events = [(row, WALLS[i]) for row, i in np.argwhere(new).tolist()]  # type: ignore[misc]
        state["touched"] |= now

    def write_observations(self) -> None:
        super().write_observations()
        self.view.fields["joypad"]["touched"][:, 0] = self.state["touched"]


walls = game(Walls, StrollConfig, {"random": _any_legal}, ("joypad",))
walls.renderer = single_seat_worlds.stroll.renderer

TERMS = ("rnd", "rnd_images", "count_bonus", "milestones")
LEARNERS = ("ppo", "dqn")
both = pytest.mark.parametrize("learner", LEARNERS)
each = pytest.mark.parametrize("term", TERMS)


@pytest.fixture(autouse=True)
def known(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: walls if name == "walls" else find(name))


def config(learner: str, term: str = "", **changes: Any) -> Config:
    """A run with one reward term, whose games end in the middle of rollouts and with them."""
    basis = single_seat_worlds.SMALL | {
        "learner": learner, "network.hidden": (16,), "ppo.minibatch_size": 16, "ppo.epochs": 2, "stagger": 16,
        "count_bonus.weight": 0.0, "rnd_images.weight": 0.0, "milestones.budget": 5, "rnd.update_every": 8,
        "rnd.hidden": 8, "rnd.embed": 4,
    }  # fmt: skip
    weight = {f"{term}.weight": 0.5} if term else {}
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("walls"), basis | weight | more)


@both
@each
def test_term_changes_what_is_learned_and_not_the_games_before(learner: str, term: str) -> None:
    ends = []
    for some in (config(learner, term), config(learner)):
        trainer = Trainer(some)
        advance(trainer, 1)
        track = trainer.setup.collector.rollout["joypad"]
        played = [track.action.tobytes(), track.reward.tobytes()]
        rows = advance(trainer, 5)
        assert sum(row["joypad/updates"] for row in rows) > 0
        ends.append((played, trainer.agents.learners["joypad"].policy.weights.copy()))
    (paid_games, paid), (plain_games, plain) = ends
    assert paid_games == plain_games
    assert not np.array_equal(paid, plain)
    assert np.isfinite(paid).all()


@each
def test_both_learners_pay_the_same_steps(term: str) -> None:
    """But at a rollout's ends: PPO has no observation after the last row, and pays row 0 for being there."""
    trainer = Trainer(config("ppo", term))
    for _ in range(6):
        advance(trainer, 1)
        rollout = trainer.setup.collector.rollout
        track = rollout["joypad"]
        total = rollout.total_reward("joypad")[:, :, 0]
        one = track.reward_terms[term]
        reward = {"env": track.reward[:, :, 0].T, term: one.values[:, :, 0].T.astype(np.float32)}
        paid = q_targets.total_reward(reward, rollout.ended.T, {term: one.weight}).T
        assert one.credit == ("decision" if term == "rnd" else "arrival")
        if one.credit == "arrival":
            assert np.allclose(total[1:-1], paid[1:], atol=1e-6)
        assert paid.shape == (rollout.steps - 1, rollout.games) and one.weight == 0.5
    assert trainer.state_dict()[term]["joypad"], "and the term is part of the state"


@both
@each
def test_run_with_a_term_resumes_to_the_same_bytes(learner: str, term: str, tmp_path: Path) -> None:
    some = config(learner, term, total_steps=4 * 8 * 8)
    start_run(tmp_path / "whole", some)
    stop_and_go_on(some, tmp_path / "halted", 5)
    assert differences(tmp_path / "whole", tmp_path / "halted") == []


def test_term_without_metrics_of_its_own_logs_its_mean(tmp_path: Path) -> None:
    changes = {"games": 4, "steps": 16, "total_steps": 128, "count_bonus.weight": 0.5, "evaluation.games": 2,
               "count_bonus.columns": ["state.own_x"], "evaluation.opponents": ["random"]}
    rows = start_run(tmp_path / "run", api.configure("quick", changes=changes)).rows
    for role in ("pursuer", "evader"):
        values = [row[f"{role}/count_bonus_per_step"] for row in rows]
        assert all(0 < value <= 0.5 for value in values), "weight times a count bonus of at most 1"
