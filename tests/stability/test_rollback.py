"""Rollback: there is always a checkpoint; it happens at a collapse only, and restores every bit."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import toys

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.rehearsal.trial import play
from rematch.stability.rollback import CollapseGuard, Rollback, RollbackConfig
from rematch.training.trainer import Trainer
from rematch.worlds import registry


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


PER = 32 * 8  # steps of an iteration


def small(game: str = "matching", **changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 32, "steps": 8, "total_steps": 8 * PER, "network.hidden": (8,),
        "ppo.minibatch_size": 64, "ppo.magnet_weight": 0.1, "league.opponent_share": 0.0, "save_every": 1,
        "evaluation.every": 4, "evaluation.games": 4, "evaluation.opponents": ("random",),
    }
    return settings.replace(api.default(game), tiny | {k.replace("__", "."): v for k, v in changes.items()})


# --- rollouts and learners with only the fields that are checked ------------------------------------------


class Numbers:
    """A learner whose state is one number."""

    def __init__(self, kind: str = "discrete") -> None:
        self.weights = np.zeros(1)
        self.policy = SimpleNamespace(role=SimpleNamespace(actions=SimpleNamespace(kind=kind)))

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "updates": int(self.weights[0])}

    def load_state_dict(self, tree: dict[str, Any]) -> None:
        self.weights[:] = tree["weights"]
        assert tree["updates"] == self.weights[0]


def results(share: float, games: int = 100) -> Any:
    """A rollout in which `games` ended and role `a` won this share of them; slot 1 is an opponent."""
    won = np.repeat([1.0, 0.0], [round(share * games), games - round(share * games)]).astype(np.float32)
    ours = np.zeros(games, np.int32)
    slot, both = np.append(ours, np.ones(50, np.int32)), np.append(won, np.full(50, 0.5, np.float32))
    return SimpleNamespace(results=lambda role: (slot, both if role == "a" else 1 - both))


def guarded(kind: str = "discrete", **changes: Any) -> CollapseGuard:
    config = RollbackConfig(**({"checkpoints_back": 3, "every": 10, "episodes": 100,
                                "cooldown": 30} | changes))
    return CollapseGuard(config, {"a": Numbers(kind), "b": Numbers(kind)})  # type: ignore[dict-item]


def iterate(guard: CollapseGuard, steps: range | int, share: float = 0.5) -> list[str]:
    """Iterations of 10 steps, up to these, in which `a` learns; both roles become the step's number.

    The lines of the last of them.
    """
    lines: list[str] = []
    for step in [steps] if isinstance(steps, int) else steps:
        for learner in guard.learners.values():
            learner.load_state_dict({"weights": step, "updates": step})
        lines = guard.check(results(share), {}, step, ["a"], False)
    return lines


def weights(guard: CollapseGuard) -> list[float]:
    return [float(learner.state_dict()["weights"][0]) for learner in guard.learners.values()]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.98, 1.0])
def test_collapse_restores_the_third_last_checkpoint(share: float) -> None:
    guard = guarded()
    assert iterate(guard, range(10, 101, 10)) == []
    (line,) = iterate(guard, 110, share)
    bound = "<= 0.02" if share < 0.5 else ">= 0.98"
    won = f"a won {100 * share:g} of its last 100 training games ({share:.3f} {bound})"
    assert line == f"ROLLBACK 1 at step 110: {won}: a back to step 80"
    assert weights(guard) == [80, 110]  # the newest before it were 100, 90, 80


@pytest.mark.parametrize("share", [0.03, 0.5, 0.97])
def test_no_rollback_without_collapse(share: float) -> None:
    guard = guarded()
    assert iterate(guard, range(10, 301, 10), share) == [] and weights(guard) == [300, 300]
    assert [tree["step"] for tree in guard.rolling] == list(range(160, 301, 10))  # the newest 15


def test_bilateral_restores_all_roles() -> None:
    guard = guarded(bilateral=True)
    iterate(guard, range(10, 101, 10))
    (line,) = iterate(guard, 110, 1.0)
    assert line.endswith(": a and b back to step 80") and weights(guard) == [80, 80]


def test_cooldown_after_a_rollback() -> None:
    guard = guarded(keep=4)
    iterate(guard, range(10, 101, 10))
    assert len(iterate(guard, 110, 1.0)) == 1
    assert iterate(guard, 120, 1.0) == [] and iterate(guard, 130, 1.0) == []  # the cooldown
    (line,) = iterate(guard, 140, 1.0)
    assert line.startswith("ROLLBACK 2 at step 140") and line.endswith("a back to step 80")
    assert guard.unreported == 2 and guard.count == 2


def test_win_rate_needs_enough_recent_games() -> None:
    guard = guarded(episodes=250)
    assert iterate(guard, range(10, 21, 10), 1.0) == []  # 200 games
    assert len(iterate(guard, 30, 1.0)) == 1
    guard = guarded(episodes=250, cooldown=0)
    iterate(guard, range(10, 101, 10), 0.5)
    assert iterate(guard, 110, 1.0) == [] and iterate(guard, 120, 1.0) == []
    assert len(iterate(guard, 130, 1.0)) == 1  # the last three iterations are whole and enough


def test_games_of_other_phases_do_not_count() -> None:
    guard = guarded(episodes=150)
    assert guard.check(results(1.0), {}, 10, ["a"], False) == []
    assert guard.check(results(1.0), {}, 20, ["b"], False) == []
    assert guard.check(results(1.0), {}, 30, ["a"], False) == []
    assert len(guard.check(results(1.0), {}, 40, ["a"], False)) == 1


def test_warmup_checks_entropy_only() -> None:
    guard = guarded("continuous")
    for step in (10, 20, 30):
        assert guard.check(results(1.0), {"a/entropy": 0.0}, step, ["a"], True) == []
    lines = guard.check(results(1.0), {"a/entropy": -2.5}, 40, ["a"], True)
    assert lines[0].startswith("Entropy: a has entropy -2.5, below -2")
    assert lines[1].startswith("ROLLBACK 1 at step 40: a has entropy -2.5, below -2: a back to step")


def test_low_entropy_is_reported_once() -> None:
    guard = guarded("continuous", checkpoints_back=0)
    output = [
        len(guard.check(results(0.5), {"a/entropy": entropy}, 10, ["a"], False))
        for entropy in (-1.0, -2.1, -3.0, -1.9, -2.1)
    ]
    assert output == [0, 1, 0, 0, 1]
    assert guard.rolling == []
    discrete = guarded("discrete", checkpoints_back=0)
    assert discrete.check(results(0.5), {"a/entropy": -9.0}, 10, ["a"], False) == []


def test_no_rollback_into_the_warmup() -> None:
    guard = guarded(keep=3)
    iterate(guard, range(10, 31, 10))
    guard.start_over(30)
    assert [tree["step"] for tree in guard.rolling] == [30]
    iterate(guard, range(40, 201, 10))
    assert [tree["step"] for tree in guard.rolling] == [180, 190, 200]


def guard_of(trainer: Trainer) -> CollapseGuard:
    rollback = trainer.setup.get(Rollback)
    assert rollback is not None
    return rollback.guard


# --- in a run ----------------------------------------------------------------------------------------------

ALWAYS = {"rollback__checkpoints_back": 3, "rollback__episodes": 1, "rollback__min_win_rate": 0.4999,
          "rollback__max_win_rate": 0.5,
          "rollback__cooldown": 0}


@pytest.mark.parametrize("every", [1, 10**9])
@pytest.mark.parametrize("cold", [0, 2])
def test_first_phase_has_a_checkpoint(
    every: int, cold: int, tmp_path: Path
) -> None:
    """Runs of the earlier project had none of the evader: "0 rolling checkpoints available"."""
    trainer = play(small(
        schedule__kind="alternating", schedule__warmup_steps=cold * PER, schedule__phase_steps=2 * PER,
        total_steps=(cold + 2) * PER, rollback__every=every, rollback__bilateral=True, **ALWAYS,
    ), tmp_path / "run").trainer
    log = (tmp_path / "run" / "train.log").read_text().splitlines()
    undone = [line for line in log if line.startswith("ROLLBACK")]
    assert len(undone) >= 1 and guard_of(trainer).count == len(undone)
    assert all("matcher and hider back to step" in line for line in undone)
    # It never undoes the warm-up: S1 goes back to its end at most.
    assert all(int(line.split()[-1].replace(",", "")) >= cold * PER for line in undone)
    for tree in guard_of(trainer).rolling:
        assert set(tree["roles"]) == {"matcher", "hider"}
    milestones = {path.stem for path in (tmp_path / "run" / "policies").glob("*.safetensors")}
    assert milestones == {f"{role}@{name}" for role in ("matcher", "hider")
                          for name in (["S0"] if cold else []) + ["S1"]}
    counts = [row["rollbacks"] for row in json.loads((tmp_path / "run" / "history.json").read_text())]
    assert sum(counts) == len(undone)


@pytest.mark.parametrize("bilateral", [True, False])
def test_weights_optimiser_and_magnet_are_restored_exactly(bilateral: bool) -> None:
    changes = ALWAYS | {"rollback__checkpoints_back": 1, "rollback__min_win_rate": 0.0,
                        "rollback__max_win_rate": 1.0}
    trainer = Trainer(small(rollback__every=1, rollback__bilateral=bilateral, **changes))
    trainer.start()
    clock, guard = trainer.clock, guard_of(trainer)

    def iterate() -> dict[str, Any]:
        rollout = trainer.next_rollout()
        trainer.after_rollout(rollout)
        metrics = trainer.update(rollout)
        clock.iteration += 1
        return {"rollout": rollout, "metrics": metrics}

    def everything() -> dict[str, dict[str, Any]]:
        trees = {role: learner.state_dict() for role, learner in trainer.agents.learners.items()}
        return {role: {k: np.array(v) for k, v in tree.items()} for role, tree in trees.items()}

    for _ in range(2):
        iterate()
        guard.store_checkpoint(clock.step)
    stored = everything()
    iterate()
    later = everything()
    assert guard._roll_back({"hider": "because"}, clock.step).endswith(f"back to step {2 * PER}")
    now = everything()
    for role in ("matcher", "hider"):
        expected = stored if bilateral or role == "hider" else later
        assert set(now[role]) == {"weights", "magnet", "first", "second", "updates"}
        for name, value in now[role].items():
            assert np.array_equal(value, expected[role][name]), (role, name)
            assert not np.array_equal(stored[role][name], later[role][name]), (role, name)
    iterate()  # stored checkpoints do not change
    assert np.array_equal(guard.rolling[-1]["roles"]["hider"]["weights"], stored["hider"]["weights"])


def test_rollback_off_stores_nothing(tmp_path: Path) -> None:
    trainer = play(small(), tmp_path / "run").trainer
    assert guard_of(trainer).rolling == [] and not (tmp_path / "run" / "policies").exists()
    assert "ROLLBACK" not in (tmp_path / "run" / "train.log").read_text()


# --- refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "why"), [
    ({"schedule__kind": "micro"},
     "rollback.checkpoints_back = 3: micro phases are too short to compute a win rate"),
    ({"rollback__min_win_rate": 0.98},
     "rollback.min_win_rate = 0.98: expected less than max_win_rate = 0.98"),
    ({"rollback__keep": 2}, "rollback.checkpoints_back = 3: expected at most keep = 2"),
])  # fmt: skip
def test_impossible_settings_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        small("pursuit", rollback__checkpoints_back=3, **changes)


def test_rollback_needs_two_roles() -> None:
    with pytest.raises(ConfigError,
                       match=r"rollback\.checkpoints_back = 3: .* the world has one role; expected 0"):
        small("drift", rollback__checkpoints_back=3)


@pytest.mark.parametrize("damage", ["roles", "step", "weights", "judged", "too many"])
def test_stored_rolling_checkpoint_with_nonsense_is_refused(damage: str) -> None:
    config = small(rollback__checkpoints_back=1, rollback__keep=2)
    trainer = Trainer(config)
    guard = trainer.setup.get(Rollback).guard  # type: ignore[union-attr]
    before = {role: learner.policy.weights.copy() for role, learner in trainer.agents.learners.items()}
    tree = guard.state_dict()
    guard.load_state_dict(tree)  # loading the rolling checkpoints for a check leaves the learners unchanged
    for role, weights in before.items():
        assert np.array_equal(trainer.agents.learners[role].policy.weights, weights)
    checkpoint = tree["rolling"][0]
    role = next(iter(before))
    changed: dict[str, Any] = {
        "roles": {"rolling": [checkpoint | {"roles": {}}]}, "step": {"rolling": [checkpoint | {"step": "x"}]},
        "weights": {"rolling": [checkpoint | {"roles": checkpoint["roles"] | {role: {"weights": 1.5}}}]},
        "judged": {"judged": {role: [["x", 1.0]]}}, "too many": {"rolling": [checkpoint] * 3},
    }
    with pytest.raises((ValueError, KeyError, AttributeError)):
        guard.load_state_dict(tree | changed[damage])
