"""Expert iteration: from noisy playouts the network comes to play what the search would."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trainers import first_rollout

from rematch import api
from rematch.agents.learners.expert_iteration import ExpertIteration
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.run_config import Config
from rematch.rehearsal.compare import event_log
from rematch.rehearsal.trial import play
from rematch.training.trainer import Trainer

TINY: dict[str, Any] = {
    "learner": "expert", "threads": 1, "games": 32, "steps": 24, "total_steps": 32 * 24 * 3,
    "network.hidden": (32,), "league.opponent_share": 0.0, "evaluation.games": 4,
    "evaluation.opponents": ("random",),
    "expert.completions": 2, "expert.positions": 128, "expert.replay_size": 256, "expert.minibatch_size": 64,
}


def config(**changes: Any) -> Config:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("beasty"), TINY | dotted)


def learner(trainer: Trainer) -> ExpertIteration:
    made = trainer.agents.learners["player"]
    assert isinstance(made, ExpertIteration)
    return made


def taught(**changes: Any) -> tuple[Trainer, ExpertIteration]:
    trainer = Trainer(config(**changes))
    made = learner(trainer)
    made.search_positions(first_rollout(trainer), 0)
    return trainer, made


def test_search_results_of_own_decisions_are_stored() -> None:
    trainer, made = taught()
    rollout_buffer = trainer.setup.collector.rollout
    assert rollout_buffer.states is not None and made.count == 128
    batch = made.batch(np.arange(128))
    result = {row.tobytes() for row in rollout_buffer["player"].obs[rollout_buffer["player"].acted != 0]}
    assert all(row.tobytes() in result for row in batch["obs"])
    assert (batch["mask"].sum(1) >= 1).all() and np.isfinite(batch["magnet"]).all()
    values = batch["magnet"] * made.config.tau
    assert (np.abs(values) <= 1.36 + 1e-6).all() and (np.abs(batch["target"]) <= 1).all()
    assert (values[batch["mask"] == 0] == 0).all() and values[batch["mask"] == 1].std() > 0.1


def test_replay_overwrites_its_oldest_positions() -> None:
    trainer, made = taught(expert__replay_size=200)
    old = made.states[:128].copy()
    made.search_positions(trainer.setup.collect(1), 1)
    assert made.count == 256 and min(made.count, 200) == 200
    assert (made.states[56:128] == old[56:]).all() and (made.states[:56] != old[:56]).any()


@pytest.mark.parametrize("critic", ["own", "centralized"])
def test_policy_learns_the_actions_of_the_search(critic: str) -> None:
    """Over one set of positions its expected value nears the best, and its value what it expects."""
    changes: Any = {"network__critic": critic, "network__hidden": (64,), "expert__positions": 256}
    _, made = taught(expert__completions=8, **changes)
    batch = made.batch(np.arange(256))
    values, legal = batch["magnet"] * made.config.tau, batch["mask"] != 0

    def expected() -> float:
        logits = np.where(legal, made.policy.forward(batch["obs"])[0], -np.inf)
        chance = np.exp(logits - logits.max(1, keepdims=True))
        return float(((chance / chance.sum(1, keepdims=True)) * values).sum(1).mean())

    best, before = float(np.where(legal, values, -np.inf).max(1).mean()), expected()
    errors = []
    for _ in range(150):
        grad, means = made.student.gradient(batch, np.arange(256), 0.0)
        made.student.step(grad, 0.003)
        errors.append(means["value_loss"])
    assert expected() > before + 0.6 * (best - before)
    assert errors[-1] < 0.3 * errors[0]


def test_native_and_torch_gradients_agree() -> None:
    _, made = taught()
    batch, rows = made.batch(np.arange(100)), np.arange(100)
    native, _ = made.student.gradient(batch, rows, 0.0)
    native = native.copy()
    torch, _ = made.student._autograd(batch, rows, 0.0)
    assert np.abs(native - torch).max() < 2e-5 * np.abs(torch).max()


def test_state_and_restore_continue_identically() -> None:
    first, made = taught()
    state = copy.deepcopy(made.state_dict())
    second = Trainer(config())
    learner(second).load_state_dict(state)
    rollout_buffer = first.setup.collector.rollout
    assert made.learn(rollout_buffer, 0.1, 1) == learner(second).learn(rollout_buffer, 0.1, 1)
    assert made.policy.weights.tobytes() == learner(second).policy.weights.tobytes()


@pytest.mark.parametrize("plies", [-1, 2])
def test_results_do_not_depend_on_threads(plies: int) -> None:
    some = {"expert__plies": plies, "expert__positions": 300}
    assert event_log(config(threads=1, **some)) == event_log(config(threads=3, **some))


def test_network_evaluates_the_end_of_a_playout() -> None:
    """With playouts longer than any game nothing is left to judge: the same values to the end."""
    values = [learner_values(plies) for plies in (-1, 99, 1)]
    assert np.allclose(values[0], values[1], equal_nan=True)
    assert not np.allclose(values[0], values[2], equal_nan=True)
    for changes in ({"network__critic": "centralized"}, {"world__players": 3}):
        with pytest.raises(ConfigError, match=r"expert.plies = 3: .*expected -1"):
            config(expert__plies=3, **changes)


def learner_values(plies: int) -> Any:
    trainer = Trainer(config(expert__plies=plies))
    made, rows = learner(trainer), np.arange(20, dtype=np.int32)
    return made.values(rows, RngKey(1, 2, 3), np.full((20, 2), -1, np.int32))


KNOBS = {"lr": 0.01, "lr_final": 0.01, "completions": 3, "plies": 2, "positions": 64, "replay_size": 100,
         "replay_ratio": 8.0, "minibatch_size": 32, "tau": 0.5, "value_weight": 0.1, "max_grad_norm": 0.01,
         "playouts": "policy"}


def test_every_setting_has_an_effect() -> None:
    """tests/architecture/test_settings_have_effect.py does the others: this learner needs a world with a
    search."""
    assert {f"expert.{key}" for key in KNOBS} == {
        key for key, _, _ in settings.leaves(config())
        if key.startswith("expert.") and key != "expert.bot_fraction"
    }  # fmt: skip
    before = event_log(config())
    for key, value in KNOBS.items():
        assert event_log(config(**{f"expert__{key}": value})) != before, key


def test_bots_play_the_playouts_of_the_first_fraction() -> None:
    rows = np.arange(20, dtype=np.int32)
    kinds = {}
    for playouts, fraction in (("bot", 0.0), ("policy", 0.0), ("policy", 0.5), ("seated", 0.0)):
        more = {"expert__bot_fraction": fraction} if fraction else {}
        trainer, made = taught(expert__playouts=playouts, **more)
        made.learn(first_rollout(trainer), 0.25, 0)
        assert made.playouts == ("bot" if fraction else playouts)
        kinds[playouts, fraction] = made.q_targets[128:].copy()  # after those of `taught`
        made.learn(first_rollout(trainer), 0.5, 1)
        assert made.playouts == playouts
        assert made.values(rows, RngKey(1, 2, 3), np.full((20, 2), -1, np.int32)).shape == (20, 33)
    assert np.array_equal(kinds["bot", 0.0], kinds["policy", 0.5])
    assert not np.array_equal(kinds["bot", 0.0], kinds["policy", 0.0])


def test_seated_scripted_players_play_the_playouts() -> None:
    opponents: Any = {"league__opponent_share": 1.0, "league__bots": ("heuristic", "distilled_outcome")}
    trainer = Trainer(config(expert__playouts="seated", **opponents))
    made, rollout = learner(trainer), first_rollout(trainer)
    made.playouts = "seated"
    decisions = np.argwhere((rollout["player"].slot == 0) & (rollout["player"].acted != 0))
    players = made._players(rollout, decisions)
    assert set(np.unique(players)) == {-1, 1, 9}  # numbers of these bots; the learner
    assert (players[np.arange(len(decisions)), decisions[:, 2]] == -1).all()


def test_opponents_are_seated(tmp_path: Path) -> None:
    opponents = {
        "league.opponent_share": 1.0, "league.bots": ("heuristic",), "league.matchmaking": "adaptive",
    }  # fmt: skip
    result = play(settings.replace(config(), opponents), tmp_path / "run")
    assert result.record.decisions["player"]["heuristic"] > 0
    assert all(row["player/updates"] > 0 for row in result.rows)
    assert "league/weight_heuristic" in result.rows[-1] and result.rows[-1]["train/grad_norm_pre_clip"] > 0


def test_world_without_search_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner = expert: lattice has no `search`; expected ppo"):
        api.configure("lattice", flags=["--learner", "expert"])
