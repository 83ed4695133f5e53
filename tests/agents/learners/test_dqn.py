"""Q-learning as a whole: recurrent layers learn, every weight moves, resumed runs give the same bits."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support import single_seat_worlds, toys
from support.single_seat_worlds import little
from support.trainers import advance

from rematch import api
from rematch.agents.learners import q_targets
from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.q_policy import network_inputs
from rematch.agents.networks.layout import weight_views
from rematch.core import config as settings
from rematch.core.errors import ConfigError, LearnError
from rematch.rehearsal.compare import event_log
from rematch.rehearsal.trial import play
from rematch.training.trainer import Trainer
from rematch.worlds import registry

__all__ = ["little"]


def learner_of(trainer: Trainer) -> Dqn:
    (learner,) = trainer.agents.learners.values()
    assert isinstance(learner, Dqn)
    return learner


@pytest.mark.parametrize("ssm", ["real", "complex"])
def test_every_parameter_moves(little: None, ssm: str) -> None:
    """A known failure: recurrent cells made after the optimiser."""
    trainer = Trainer(single_seat_worlds.small(dqn__ssm=ssm, total_steps=4 * 8 * 30))
    learner = learner_of(trainer)
    before = learner.online.arrays()
    advance(trainer, 14)
    for name, view in weight_views(learner.online.weights, learner.online.layout).items():
        assert (view != before[name]).any(), name
    assert learner.adam.updates > 10


def test_stored_states_equal_unrolled_ones(little: None) -> None:
    """With constant weights, unrolling from the first step of a game gives each stored recurrent state."""
    trainer = Trainer(single_seat_worlds.small(dqn__lr=0.0, dqn__lr_final=0.0, world__limit=11))
    learner = learner_of(trainer)
    advance(trainer, 5)
    replay, policy = learner.replay, learner.online
    assert replay.head == 40
    packed = {name: np.swapaxes(replay.arrays[name], 0, 1) for name in policy.codec.packed}
    tensors = {name: torch.from_numpy(x) for name, x in policy.codec.unpack(packed).arrays().items()}
    frames, (numbers, visited) = network_inputs(tensors)
    ended = replay.arrays["ended"].T
    done = np.concatenate([np.ones((4, 1)), ended[:, :-1] != 0], 1).astype(np.float32)
    assert done[:, 1:].any()
    state = torch.zeros(4, policy.state_size)
    with torch.no_grad():
        for t in range(40):
            episode_start = torch.from_numpy(done[:, t : t + 1])
            if t % learner.config.stride == 0:
                stored = replay.arrays["memory"][t // learner.config.stride]
                expected = (state * (1 - episode_start)).numpy()[:, : policy.recurrent_size]
                assert np.allclose(stored, expected, atol=1e-5), t
            assert frames is not None and visited is not None
            cut = slice(t, t + 1)
            _, state, _ = policy.net(frames[:, cut], (numbers[:, cut], visited[:, cut]), state, episode_start)
    assert np.abs(replay.arrays["memory"]).max() > 0.1


def test_target_network_is_copied_at_its_interval(little: None) -> None:
    trainer = Trainer(single_seat_worlds.small(dqn__target_every=7, total_steps=4 * 8 * 30))
    learner, tensors = learner_of(trainer), set()
    advance(trainer, 2)
    starts = learner.replay.sequence_starts()
    while learner.adam.updates < 20:
        learner._update(starts, 1e-3)
        same = np.array_equal(learner.target.weights, learner.online.weights)
        assert same == (learner.adam.updates % 7 == 0)
        tensors.add(same)
    assert tensors == {True, False}


def test_reward_terms_have_columns_and_are_weighted_once(little: None) -> None:
    trainer = Trainer(single_seat_worlds.small(count_bonus__weight=0.5, rnd_images__weight=0.25))
    row = advance(trainer, 3)[-1]
    reward = {name: row[f"joypad/r_{name}"] for name in ("env", "rnd_images", "count_bonus", "total")}
    assert reward["rnd_images"] > 0 and reward["count_bonus"] > 0
    assert "joypad/r_milestones" not in row, "this world has none"
    total = reward["env"] + 0.25 * reward["rnd_images"] + 0.5 * reward["count_bonus"]
    assert reward["total"] == pytest.approx(total)
    assert {f"joypad/{name}" for name in ("td_error", "q_mean", "epsilon", "replay", "updates")} <= set(row)
    stored = learner_of(trainer).replay.arrays["reward.count_bonus"][:24]
    assert stored.max() == 1.0, "stored unweighted"


def test_updates_follow_the_replay_ratio(little: None) -> None:
    trainer = Trainer(single_seat_worlds.small(dqn__replay_ratio=1.0, dqn__warmup=64, total_steps=4 * 8 * 30))
    advance(trainer, 10)
    learner = learner_of(trainer)
    assert learner.adam.updates == int((320 - 64) / (learner.config.batch * learner.config.stride))


@pytest.mark.parametrize("memory", [True, False])
def test_sign_is_remembered_only_with_recurrent_layers(little: None, memory: bool, tmp_path: Path) -> None:
    off = {} if memory else {"dqn__gru": False, "dqn__lstm": False, "dqn__ssm": "off"}
    tensors = play(single_seat_worlds.errands(**off), tmp_path / "run")
    returns = tensors.evaluations[-1]["returns"]["walker"]
    assert returns["mean"] > 0.8 if memory else abs(returns["mean"]) < 0.3, returns


def test_ssm_alone_remembers(little: None, tmp_path: Path) -> None:
    tensors = play(single_seat_worlds.errands(dqn__gru=False, dqn__lstm=False), tmp_path / "run")
    assert tensors.evaluations[-1]["returns"]["walker"]["mean"] > 0.8


@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_state_and_restore_continue_identically(little: None, priority: float) -> None:
    config = single_seat_worlds.small(dqn__priority=priority, stagger=16)
    straight, halted, again = Trainer(config), Trainer(config), Trainer(config)
    advance(straight, 9)
    advance(halted, 5)
    again.load_state_dict(copy.deepcopy(halted.state_dict()))
    rows = advance(again, 4)
    one, two = learner_of(straight), learner_of(again)
    assert np.array_equal(one.online.weights, two.online.weights) and rows[-1]["joypad/updates"] > 0
    assert np.array_equal(one.training_player.recurrent_state, two.training_player.recurrent_state)
    names = [[chunk.name for chunk in learner.state_dict()["replay"]["chunks"]] for learner in (one, two)]
    assert names[0] == names[1] and names[0]


def test_priorities_prefer_large_td_errors(little: None) -> None:
    trainer = Trainer(single_seat_worlds.small(dqn__priority=1.0, dqn__replay_ratio=0.0))
    advance(trainer, 4)
    learner = learner_of(trainer)
    starts = learner.replay.sequence_starts()
    learner.priority[:] = 1e-9
    learner.priority[starts[1] // learner.config.stride, 2] = 5.0
    start, game, weight = learner._sample(starts, np.random.default_rng(0))
    assert set(start) == {starts[1]} and set(game) == {2} and (weight == 1).all()


def test_results_do_not_depend_on_threads(little: None) -> None:
    assert event_log(single_seat_worlds.small(threads=1)) == event_log(single_seat_worlds.small(threads=3))


@pytest.mark.slow
def test_killed_runs_end_with_the_same_bytes(tmp_path: Path) -> None:
    """Twenty SIGKILLs and more, by the clock and inside saves (tests/support/single_seat_worlds.py)."""
    path = os.pathsep.join(str(Path(__file__).parents[3] / name) for name in ("", "tests"))
    command = [sys.executable, single_seat_worlds.__file__, str(tmp_path), "20", "1"]
    result = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
                          timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout.split()[0]) >= 20


def test_unsupported_worlds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", lambda name, find=registry.find: toys.TOYS.get(name) or find(name))
    messages = {"pursuit": "has 2 seats, expected 1", "drift": "has continuous actions, expected discrete"}
    for game, message in messages.items():
        with pytest.raises(ConfigError, match=f"learner = dqn: {game} {message}"):
            settings.replace(api.default(game), {"learner": "dqn"})


def test_impossible_settings_are_refused(little: None) -> None:
    with pytest.raises(ConfigError, match=r"dqn.sequence = 3: expected more than burn_in 2 and n_step 1"):
        single_seat_worlds.small(dqn__sequence=3)
    with pytest.raises(ConfigError, match=r"dqn.replay_size = 80: expected at least \d+ with games = 4"):
        single_seat_worlds.small(dqn__replay_size=80)
    with pytest.raises(ConfigError, match=r"start_iteration = 1: the replay buffer starts empty"):
        # recurrent states are indexed by the step of the run, sequences by that of the replay buffer
        single_seat_worlds.small(start_iteration=1)
    with pytest.raises(ConfigError, match=r"network.hidden = .* has no effect: learner is 'dqn'"):
        api.configure("gymnasium", changes={"learner": "dqn", "network.hidden": [8]})
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"dqn.device = cuda: torch finds no CUDA device"):
            Trainer(single_seat_worlds.small(dqn__device="cuda"))


def test_non_finite_gradient_stops_the_run(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(single_seat_worlds.small())
    real = q_targets.gradient
    monkeypatch.setattr(q_targets, "gradient", lambda *args: (real(*args)[0] * np.nan, *real(*args)[1:]))
    with pytest.raises(LearnError, match="the gradient is not finite at update 0"):  # `status` tells of these
        advance(trainer, 8)
