"""Rollouts that are played ahead of the learner: the same bytes with any timing, threads, stops and kills.

The slow reference plays each rollout to its end when it is submitted, one after the other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds, savestate_runs, single_seat_worlds
from support.kill_and_resume import kill_often
from support.trainers import advance, resume_run, start_run

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core.clock import Clock
from rematch.core.component import Component
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system.interrupts import StopRequested
from rematch.core.world import Next
from rematch.rehearsal.compare import differences, event_log
from rematch.rehearsal.trial import play
from rematch.rollout.collector import ThreadCollector
from rematch.storage.run_folder import Run
from rematch.training.memory_estimate import component_bytes
from rematch.training.recipes import configure
from rematch.training.trainer import Trainer
from rematch.worlds import registry

PER = 12 * 8
SMALL: dict[str, Any] = {
    "lag": 1, "threads": 2, "games": 12, "steps": 8, "total_steps": 7 * PER, "save_every": 1,
    "network.hidden": (8,), "ppo.minibatch_size": 32, "ppo.epochs": 2, "ppo.lr": 0.01,
    "evaluation.every": 3, "evaluation.games": 4, "evaluation.opponents": ("random",),
    "league.opponent_share": 0.6, "league.snapshot_every": 1, "league.slots": 2, "league.rotate": 1,
    "league.size": 3,
}  # fmt: skip
SHORT = {"world.max_steps": 9, "world.prep_steps": 0}
# Opponents of all kinds, rollbacks, a reward term, staggered games, averaged weights.
PURSUIT = SHORT | {
    "stagger": 16, "league.matchmaking": "pfsp", "league.bots": ("lion", "flee_straight"), "rnd.weight": 0.1,
    "rnd.hidden": 16, "ppo.average_fraction": 0.5, "ppo.magnet_weight": 0.1, "rollback.checkpoints_back": 2,
    "rollback.every": PER, "rollback.keep": 3, "rollback.episodes": 4, "rollback.min_win_rate": 0.4999,
    "rollback.max_win_rate": 0.5, "rollback.cooldown": 2 * PER, "schedule.dampen_threshold": 0.9,
}  # fmt: skip
LEVELS = {
    "curriculum.kind": "discrete", "curriculum.capture_rate": 0.0, "curriculum.min_escape_rate": 0.0,
    "curriculum.min_phases": 1, "curriculum.mixed_ratio": 0.3, "ewc.weight": 10.0, "ewc.fisher_samples": 20,
    "evaluation.every": 1, "random_starts.fraction": 0.5, "ppo.temperature": 1.5, "world.n": 4,
    "world.horizon": 5, "total_steps": 5 * PER,
}  # fmt: skip
SEARCH = {"learner": "expert", "expert.positions": 32, "expert.completions": 2, "expert.minibatch_size": 32,
          "expert.replay_size": 256, "league.bots": ("random", "noisy"), "threads": 1}
TOKENS = {"network.kind": "transformer", "network.width": 8, "network.heads": 2, "network.layers": 1,
          "network.embedding": 4, "network.dropout": 0.1, "total_steps": 4 * PER}
ADAPTIVE = {"league.matchmaking": "adaptive", "league.bots": ("random", "noisy"), "exploiters.every": 3,
            "exploiters.steps": PER, "exploiters.min_win_rate": 0.0, "stagger": 16}  # fmt: skip


def run(game: str, changes: dict[str, Any]) -> Config:
    return settings.replace(api.default(game), SMALL | changes)


def stroll(**changes: Any) -> Config:
    return single_seat_worlds.small(lag=1, save_every=1, dqn__priority=0.5, **changes)


CONFIGS: dict[str, Callable[[], Config]] = {
    "pursuit": lambda: run("pursuit", PURSUIT),
    "levels": lambda: run("lattice", LEVELS),
    "search": lambda: run("beasty", SEARCH),
    "adaptive": lambda: run("beasty", ADAPTIVE),
    "transformer": lambda: run("beasty", TOKENS),
    "dqn": stroll,
    "savestates": lambda: savestate_runs.config(**savestate_runs.SCOUTED, lag=1, save_every=2),
}
EVERY = [*list(CONFIGS)[:-1], pytest.param("savestates", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", single_seat_worlds.known(registry.find))
    monkeypatch.setattr(dqn, "SIZES", single_seat_worlds.SIZES)


def config_named(name: str) -> Config:
    if name == "savestates":
        gameboy_worlds.need_pyboy()
    return CONFIGS[name]()


def play_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on `submit` returns when the rollout has been played."""
    submit = ThreadCollector.submit

    def submit_and_wait(collector: ThreadCollector, iteration: int) -> None:
        submit(collector, iteration)
        for job in collector.jobs:
            job.result()

    monkeypatch.setattr(ThreadCollector, "submit", submit_and_wait)


def delay(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """From now on each step of a rollout that is played ahead takes a random time."""
    draw, submit = random.Random(seed), ThreadCollector.submit

    def slow_submit(collector: ThreadCollector, iteration: int) -> None:
        collector.before_step = lambda: time.sleep(draw.choice((0, 0, 0.002)))
        submit(collector, iteration)

    monkeypatch.setattr(ThreadCollector, "submit", slow_submit)


@pytest.mark.parametrize("name", EVERY)
def test_overlapped_rollouts_are_those_of_the_slow_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_named(name)
    play(config, tmp_path / "overlapped")
    with monkeypatch.context() as patch:
        delay(patch, 1)
        play(config, tmp_path / "delayed")
    play_one_after_the_other(monkeypatch)
    play(config, tmp_path / "reference")
    for other in ("overlapped", "delayed"):
        assert differences(tmp_path / "reference", tmp_path / other) == []


@pytest.mark.parametrize("name", ["pursuit", "search", "dqn"])
def test_number_of_threads_changes_nothing(name: str) -> None:
    config = config_named(name)
    assert len({event_log(settings.replace(config, {"threads": threads})) for threads in (1, 2, 3)}) == 1


@pytest.mark.parametrize("name", EVERY)
def test_resume_plays_the_pending_rollout_again(name: str, tmp_path: Path) -> None:
    """Stopped after every iteration, with a rollout pending each time."""
    config = config_named(name)
    play(config, tmp_path / "whole")
    start_run(tmp_path / "cut", config, lambda trainer: True)
    while not resume_run(tmp_path / "cut", lambda trainer: True).trainer.clock.done:
        pass
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pursuit", "dqn"])
def test_killed_runs_end_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    kill_often(config_named(name), tmp_path, 6, 3, 0.4)


def test_lag_is_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollout k is played with the weights that have learned from rollouts 0 .. k - 2."""
    trainer = Trainer(run("pursuit", SHORT))
    weights: list[np.ndarray[Any, Any]] = []
    packed: list[np.ndarray[Any, Any]] = []
    learner, seating = trainer.agents.learners["pursuer"], trainer.setup.seating["pursuer"]
    submit, learned = ThreadCollector.submit, []

    def recording(collector: ThreadCollector, iteration: int) -> None:
        if collector is trainer.setup.collector:
            packed.append(seating.packed[0].copy())
            assert iteration == len(packed) - 1
        submit(collector, iteration)

    monkeypatch.setattr(ThreadCollector, "submit", recording)
    for _ in range(5):
        weights.append(learner.policy.packed[0].copy())
        advance(trainer, 1)
        learned.append(trainer.setup.collector.rollout["pursuer"].obs.copy())
    assert len(packed) == 6 and len(weights) == 5
    assert np.array_equal(packed[0], weights[0])
    for k in range(1, 6):
        assert np.array_equal(packed[k], weights[k - 1]), k
    assert len({obs.tobytes() for obs in learned}) == 5
    trainer.setup.queue.drop()


def test_rollouts_continue_each_other() -> None:
    """The observation after a rollout's last step is the first one of the next rollout."""
    trainer = Trainer(run("pursuit", SHORT | {"ppo.lr": 0.0}))
    lengths = []
    for _ in range(4):
        advance(trainer, 1)
        rollout = trainer.setup.collector.rollout
        lengths.append((rollout.length[0].copy(), rollout.length[-1].copy(), rollout.ended[-1] != 0))
    for (_, last, ended), (first, _, _) in pairwise(lengths):
        assert np.array_equal(first, np.where(ended, 0, last) + 1)
    trainer.setup.queue.drop()


def test_results_count_for_the_opponent_that_was_seated() -> None:
    """A slot is refilled for the next rollout before the results of this one are recorded."""
    trainer = Trainer(run("pursuit", SHORT | {"league.opponent_share": 1.0, "league.size": 20}))
    changed = 0
    for _ in range(6):
        names = {role: seats.player_names() for role, seats in trainer.setup.seating.items()}
        advance(trainer, 1)
        rollout = trainer.setup.collector.rollout
        if trainer.clock.iteration > 1:
            assert rollout.players == names, "as they were seated when it was submitted"
        present = {role: seats.player_names() for role, seats in trainer.setup.seating.items()}
        changed += rollout.players != present
    assert changed
    trainer.setup.queue.drop()


class WorldReader(Component):
    """Asks for the world's state in the only hook in which it rests."""

    name = "world_reader"

    def before_rollout(self, clock: Clock, next: Next) -> None:
        assert not self.setup.collector.jobs, "no rollout is played"


def test_world_rests_while_rollouts_are_prepared() -> None:
    trainer = Trainer(run("pursuit", SHORT))
    trainer.parts.append(WorldReader(None, trainer.setup))
    advance(trainer, 3)
    trainer.setup.queue.drop()


def test_last_iteration_submits_nothing(tmp_path: Path) -> None:
    config = run("pursuit", SHORT)
    trainer = play(config, tmp_path / "run").trainer
    assert trainer.setup.queue.pending is None and not trainer.setup.collector.jobs
    with Run.open(tmp_path / "run", write=False) as folder:
        checkpoint = folder.load()
        assert checkpoint is not None and "pending_rollout" not in checkpoint.parts


def test_lag_0_stores_nothing_of_a_lag() -> None:
    trainer = Trainer(run("pursuit", SHORT | {"lag": 0}))
    advance(trainer, 1)
    state = trainer.state_dict()
    assert "pending_rollout" not in state and "acting" not in state["learners"]
    assert len(trainer.setup.collector.buffers) == 1


def test_stop_request_ends_the_pending_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout that would take minutes does not delay a stop."""
    submit = ThreadCollector.submit

    def slow_submit(collector: ThreadCollector, iteration: int) -> None:
        def wait_for_drop() -> None:
            deadline = time.monotonic() + 20
            while not collector.dropping and time.monotonic() < deadline:
                time.sleep(0.01)

        if iteration == 3:
            collector.before_step = wait_for_drop
        submit(collector, iteration)

    monkeypatch.setattr(ThreadCollector, "submit", slow_submit)
    began = time.monotonic()
    config = run("pursuit", SHORT | {"games": 12, "steps": 8, "total_steps": 400 * PER})
    start_run(tmp_path / "run", config, lambda trainer: trainer.clock.iteration == 3)
    assert time.monotonic() - began < 100  # eight steps of 20 s


def test_exception_of_a_thread_ends_the_iteration() -> None:
    trainer = Trainer(run("pursuit", SHORT))
    advance(trainer, 1)

    def stop() -> None:
        raise StopRequested("time")

    trainer.setup.collector.before_step = stop
    with pytest.raises(StopRequested):
        advance(trainer, 3)
    trainer.setup.queue.drop()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule.kind": "alternating", "schedule.warmup_steps": 0}, "schedule.kind = alternating"),
        ({"schedule.kind": "micro", "schedule.warmup_steps": 0}, "schedule.kind = micro"),
        ({"network.kind": "transformer", "network.device": "cuda"}, "network.device cuda"),
        ({"learner": "dqn", "dqn.device": "cuda"}, "dqn.device cuda"),
        ({"lag": 2}, "lag = 2"),
        ({"lag": -1}, "lag = -1"),
    ],
)
def test_settings_that_a_lag_cannot_have_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    game = {"network.kind": "beasty", "learner": "stroll"}.get(next(iter(changes)), "pursuit")
    with pytest.raises(ConfigError) as error:
        settings.validate(run(game, changes))
    assert "lag = " in str(error.value) and words in str(error.value) and "\n" not in str(error.value)


def test_lookahead_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lag = 1: the players of lookahead read its network"):
        settings.validate(settings.replace(configure("lattice"), {"learner": "lookahead", "lag": 1}))


def test_checkpoint_of_another_iteration_or_lag_is_refused() -> None:
    trainer = Trainer(run("pursuit", SHORT))
    advance(trainer, 2)
    state = trainer.state_dict()
    trainer.setup.queue.drop()
    for pending in ({"iteration": 1, "rate": 1.0}, {"iteration": 2, "rate": 7.0}, {"iteration": "x"}, {}):
        with pytest.raises((LookupError, ValueError)):
            Trainer(trainer.config).load_state_dict(state | {"pending_rollout": pending})


def test_memory_estimate_counts_two_buffers() -> None:
    plain, ahead = (component_bytes(run("pursuit", {"games": 4096, "steps": 32, "lag": lag}))["world_state"]
                    for lag in (0, 1))  # fmt: skip
    assert 1.5 * plain < ahead < 2.1 * plain
