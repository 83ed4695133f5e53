"""Games in other processes: the same bytes as on threads, whatever the number of parts and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds, savestate_runs
from support.local_players import LocalPlayers, local_place
from support.trainers import resume_run, start_run

from rematch.agents.learners.expert_iteration import ExpertIteration
from rematch.core import config as settings
from rematch.curriculum.savestates import Savestates
from rematch.rehearsal.compare import differences
from rematch.rollout import remote_collector
from rematch.rollout.remote_collector import SinceStates
from rematch.training.loop import iterate
from rematch.training.recipes import configure
from rematch.training.trainer import Trainer

SMALL: dict[str, Any] = {
    "games": 10, "steps": 12, "total_steps": 10 * 12 * 5, "save_every": 2, "threads": 1,
    "evaluation.games": 4, "evaluation.every": 3,
}  # fmt: skip
LEAGUE: dict[str, Any] = {
    "evaluation.opponents": ("random",), "league.opponent_share": 0.5, "league.snapshot_every": 1,
    "league.rotate": 1, "network.hidden": (8,), "stagger": 24,
}  # fmt: skip
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "pursuit": ("pursuit", LEAGUE | {"world.max_steps": 20, "world.prep_steps": 0}),
    "pursuit_lag": ("pursuit", LEAGUE | {"world.max_steps": 20, "lag": 1}),
    "lattice": ("lattice", LEAGUE | {"random_starts.fraction": 0.5, "world.n": 5}),
    "beasty_expert": ("beasty_expert", LEAGUE | {
        "expert.positions": 32, "expert.completions": 1, "expert.replay_size": 256,
        "expert.minibatch_size": 32, "league.bots": ("random", "queue")}),
    "beasty_seated": ("beasty_expert", LEAGUE | {
        "expert.positions": 40, "expert.completions": 1, "expert.replay_size": 256,
        "expert.playouts": "seated", "expert.minibatch_size": 32, "league.bots": ("random", "queue"),
        "league.bot_share": 0.5}),
    "beasty_plies_lag": ("beasty_expert", LEAGUE | {
        "expert.positions": 40, "expert.completions": 1, "expert.replay_size": 256, "expert.plies": 2,
        "expert.minibatch_size": 32, "lag": 1}),
    "lookahead": ("lookahead", {
        "network.hidden": (8,), "lookahead.replay_size": 512, "lookahead.minibatch_size": 32,
        "evaluation.opponents": ("random",), "evaluation.every": 5, "world.n": 5}),
    "gymnasium": ("gymnasium", {"network.hidden": (8,)}),
    "openspiel": ("openspiel", LEAGUE),
    "gameboy": ("tiny", {
        "games": 5, "steps": 16, "total_steps": 5 * 16 * 3, "stagger": 0, "world.workers": 0,
        "dqn.replay_size": 5 * 120, "dqn.sequence": 8, "dqn.warmup": 60, "dqn.batch": 2,
        "episode_log.interval": 80, "episode_video.interval": 0, "explorers.games": 2, "explorers.steps": 16,
        "world.max_steps": 24, "world.idle_steps": 12, "evaluation.max_steps": 64, "evaluation.games": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", [*list(RUNS)[:-1], pytest.param("gameboy", marks=pytest.mark.slow)])
def test_remote_collector_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """With three parts; each player is lost at a fifth of its messages, before it plays or afterwards."""
    recipe, changes = RUNS[name]
    if name == "openspiel":
        pytest.importorskip("pyspiel")
    config = settings.replace(configure(recipe), SMALL | changes)
    start_run(tmp_path / "threads", config)
    made: list[LocalPlayers] = []
    start_run(tmp_path / "remote", config, place=local_place(3, 0.2, made))
    assert len(made) == 1 and made[0].lost >= 2 and len(made[0].workers) == 3
    assert differences(tmp_path / "threads", tmp_path / "remote") == []


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("beasty")])
def test_players_search_the_positions_of_expert_iteration(
        name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner's own process searches nothing; each of three players searches in every iteration."""
    recipe, changes = RUNS[name]
    config = settings.replace(configure(recipe), SMALL | changes)
    made: list[LocalPlayers] = []
    learners: list[Any] = []
    real, rows = ExpertIteration.values, dict[int, list[int]]()

    def values(learner: Any, games: Any, *others: Any) -> Any:
        rows.setdefault(id(learner), []).append(len(games))
        return real(learner, games, *others)

    monkeypatch.setattr(ExpertIteration, "values", values)
    trainer = Trainer(config, place=local_place(3, 0.0, made))
    trainer.start()
    for _ in range(2):
        iterate(trainer)
    (here,) = trainer.setup.learners.values()
    learners = [actor.worker.setup.learners["player"] for actor in made[0].workers if actor.worker]
    assert id(here) not in rows and [len(rows[id(learner)]) for learner in learners] == [2, 2, 2]
    assert sum(map(sum, rows.values())) == 2 * config.expert.positions


def test_resume_with_another_number_of_parts_gives_the_same_bytes(tmp_path: Path) -> None:
    recipe, changes = RUNS["pursuit"]
    config = settings.replace(configure(recipe), SMALL | changes)
    start_run(tmp_path / "threads", config)
    folder = tmp_path / "remote"
    start_run(folder, config, lambda trainer: trainer.clock.iteration >= 2, place=local_place(4))
    resume_run(folder, lambda trainer: trainer.clock.iteration >= 3, place=local_place(1))
    resume_run(folder)  # in this process
    assert differences(tmp_path / "threads", folder) == []


def test_states_are_sent_once_where_no_player_is_lost(tmp_path: Path) -> None:
    """After the first rollout each player has its games already; they come back for a checkpoint only."""
    config = settings.replace(configure("pursuit"), SMALL | LEAGUE | {
        "stagger": 0, "save_every": 100, "evaluation.every": 100})
    made: list[LocalPlayers] = []
    start_run(tmp_path / "remote", config, place=local_place(2, 0.0, made))
    assert made[0].with_states == 2  # loaded once by each of the two players
    assert made[0].saved == 2 * 1  # for the checkpoint at the end
    assert made[0].calls == 2 * (5 + 1 + 1)


def test_states_are_wanted_after_rollouts_bytes_or_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_collector, "MOST_SECONDS", 1000.0)  # a busy machine may be slow
    since = SinceStates()
    for _ in range(remote_collector.MOST_ROLLOUTS - 1):
        since.add(b"x")
        assert not since.too_long
    since.add(b"x")
    assert since.too_long
    since = SinceStates()
    since.add(bytes(remote_collector.MOST_BYTES - 1))
    assert not since.too_long
    since.add(b"x")
    assert since.too_long
    since = SinceStates()
    since.add(b"x")
    since.began -= remote_collector.MOST_SECONDS
    assert since.too_long


def test_states_come_again_before_too_much_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages since the newest states stay in the memory of a cluster, so they must not add up."""
    monkeypatch.setattr(remote_collector, "MOST_BYTES", 1)
    config = settings.replace(configure("pursuit"), SMALL | LEAGUE | {
        "stagger": 0, "save_every": 100, "evaluation.every": 100})
    kept = []
    real = remote_collector.RemoteCollector._wait

    def wait(collector: Any) -> None:
        real(collector)
        kept.append(max(map(len, collector.past)))

    monkeypatch.setattr(remote_collector.RemoteCollector, "_wait", wait)
    start_run(tmp_path / "remote", config, place=local_place(2))
    assert len(kept) >= 5 and max(kept) == 1


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> int:
    """States come with every fourth rollout."""
    monkeypatch.setattr(remote_collector, "MOST_ROLLOUTS", 4)
    return 4


@pytest.mark.parametrize("recipe", ["pursuit", pytest.param("tiny", marks=pytest.mark.slow)])
def test_lost_player_plays_all_rollouts_since_the_newest_states_again(
        recipe: str, often: int, tmp_path: Path) -> None:
    """Without a checkpoint in between the newest states are several rollouts old."""
    name = "gameboy" if recipe == "tiny" else recipe
    rollouts = 2 * often + 3
    games, steps = (5, 16) if recipe == "tiny" else (10, 12)
    config = settings.replace(configure(recipe), SMALL | RUNS[name][1] | {
        "save_every": 100, "total_steps": games * steps * rollouts, "evaluation.every": 100})
    start_run(tmp_path / "threads", config)
    made: list[LocalPlayers] = []
    start_run(tmp_path / "remote", config, place=local_place(2, 0.1, made))
    assert made[0].lost >= 2 and made[0].calls > 2 * rollouts + 4 * made[0].lost
    assert differences(tmp_path / "threads", tmp_path / "remote") == []


@pytest.mark.slow
def test_lost_player_gets_the_savestates_that_its_games_started_from(often: int, tmp_path: Path) -> None:
    """A game that started from a savestate is valid only where the library has it."""
    gameboy_worlds.need_pyboy()
    world = gameboy_worlds.world()
    gameboy_worlds.follow(world, 12)
    (tmp_path / "twelve.state").write_bytes(world.capture(0).emulator())
    config = savestate_runs.config(games=2, steps=2, savestates__import_from=str(tmp_path),
                                   savestates__power_on=0.0)
    made: list[LocalPlayers] = []
    states = []
    for place in (None, local_place(1, 0.3, made)):
        trainer: Any = Trainer(config, place=place)
        trainer.start()
        for iteration in range(often):
            trainer.clock.iteration = iteration
            trainer.before_rollout()
            trainer.setup.collect(iteration)
        states.append(trainer.world.save(np.arange(config.games, dtype=np.int32)))
        started = trainer.setup.get(Savestates).archive.episode_start
        assert (started >= 0).any()
    assert made[0].lost >= 1
    assert np.array_equal(*states)
