"""The episode log: every episode once, with what it was paid, in lines and in tables."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import single_seat_worlds
from support.single_seat_worlds import little
from support.trainers import start_run

from rematch.agents.learners.dqn import Dqn
from rematch.core import config as settings
from rematch.core.beta_posterior import BetaPosteriors
from rematch.core.clock import interval_passed
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING
from rematch.rehearsal.compare import differences
from rematch.rehearsal.trial import Recorder, play
from rematch.rollout.rollout_buffer import FORCED, RewardTerm, RolloutBuffer
from rematch.storage.run_folder import Run
from rematch.training.components.episode_log import EPISODES, Episode, EpisodeLog
from rematch.training.config import default
from rematch.training.loop import iterate, train
from rematch.training.trainer import Trainer

__all__ = ["little"]

# The replay holds the whole run.
WHOLE: dict[str, Any] = {"dqn__replay_size": 4 * 200, "episode_video__interval": 0}
TERMS = ("env", "rnd_images", "count_bonus")  # that single_seat_worlds.small pays


def log_of(trainer: Trainer) -> EpisodeLog:
    log = trainer.setup.get(EpisodeLog)
    assert log is not None
    return log


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_what_the_replay_holds(little: None, tmp_path: Path) -> None:
    """Each episode again from the replay: r_env of its steps, bonuses of its sights but the first."""
    trainer = play(single_seat_worlds.small(**WHOLE), tmp_path / "run").trainer
    (learner,) = trainer.agents.learners.values()
    assert isinstance(learner, Dqn) and learner.replay.head == 96
    arrays, weights = learner.replay.arrays, np.array([1.0, 0.1, 0.1])
    reward = np.stack([arrays[f"reward.{name}"][:96] for name in TERMS], axis=-1)
    ended = arrays["ended"][:96]
    expected = []
    for game in range(4):
        ends = np.flatnonzero(ended[:, game] != RUNNING)
        for begin, end in zip([0, *(ends[:-1] + 1)], ends):
            part = reward[begin : end + 1, game].astype(np.float64)
            returns = np.array([part[:, 0].sum(), *part[1:, 1:].sum(0)])
            expected.append((4 * (end + 1), game, 4 * begin, end + 1 - begin, returns))
    expected.sort(key=lambda row: row[:2])
    rows = table(tmp_path / "run" / "episodes.csv")
    assert len(rows) == len(expected) > 20 and trainer.clock.finished_games == len(rows)
    for number, (row, (end, game, begin, length, returns)) in enumerate(zip(rows, expected), 1):
        columns = ("episode_id", "env_id", "length_steps", "start_step", "end_step")
        numbers = [int(row[name]) for name in columns]
        assert numbers == [number, game, length, begin, end]
        info = [float(row[f"return_{name}"]) for name in TERMS]
        assert info == pytest.approx(returns, rel=1e-4, abs=1e-5)
        assert float(row["return_total"]) == pytest.approx(returns @ weights, rel=1e-4, abs=1e-5)


def test_total_reward_is_weighed_as_in_version_0(little: None, tmp_path: Path) -> None:
    """By weights of 32 bits, as a resumed run has logged it before."""
    weights = np.array([1.0, 0.1, 0.1], np.float32)
    rows = play(single_seat_worlds.small(**WHOLE), tmp_path / "run").rows
    for row in rows:
        terms = np.array([row[f"joypad/r_{name}"] for name in TERMS])
        assert row["joypad/r_total"] == float(terms @ weights)


def test_columns_are_those_of_the_specification(little: None, tmp_path: Path) -> None:
    """Of the reward terms only those that are switched on, by the names of their components."""
    trainer = play(single_seat_worlds.small(**WHOLE), tmp_path / "run").trainer
    first = "episode_id,env_id,length_steps,return_env,return_total,return_rnd_images,return_count_bonus,"
    rest = "milestones_reached,alarm_triggered,start_step,end_step,led_steps\n"
    assert (tmp_path / "run" / "episodes.csv").read_text().startswith(first + rest)
    log = log_of(trainer)
    believing(log)
    episode = Episode(1, 0, 5, (1.0, 2.0, 3.0), 1.5, (0, 20), {}, 0)
    columns = list(log.cells(episode, log.posterior_cells()))
    assert columns[7:14] == [
        "milestones_reached", "alpha_badge_Boulder", "beta_badge_Boulder", "mean_badge_Boulder",
        "low95_badge_Boulder", "high95_badge_Boulder", "alpha_badge_Cascade",
    ]  # fmt: skip


OLD_COLUMNS = ("episode_id,env_id,length_steps,return_env,return_total,return_rnd,return_novel,return_bayes,"
               "return_way,milestones_reached,alarm_triggered,start_step,end_step,led_steps")  # fmt: skip


def test_table_of_an_older_version_goes_on_under_its_own_header(little: None, tmp_path: Path) -> None:
    """Version 0 had a column for every reward term there was, by other names, and put 0 where one was off."""
    trainer, folder = Trainer(single_seat_worlds.small(**WHOLE)), tmp_path / "run"
    with Run.create(folder, "") as run:
        run.table(EPISODES, "1,0,12,12,12,0,0,0,0,,,0,24,0", OLD_COLUMNS)
        run.save(1, {}, {})
    log = log_of(trainer)
    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        trainer.bind(run, Recorder(trainer))
        log.ended = [Episode(2, 3, 5, (1.0, 2.0, 3.0), 1.5, (24, 44), {"milestones": ["TOWN", "GATE"]}, 4)]
        log.write()
        log.write()
    lines = (folder / "episodes.csv").read_text().splitlines()
    new = "2,3,5,1,1.5,2,3,0,0,TOWN;GATE,,24,44,4"
    assert lines == [OLD_COLUMNS, "1,0,12,12,12,0,0,0,0,,,0,24,0", new, new]


def test_table_is_one_with_its_columns_after_a_resume(little: None, tmp_path: Path) -> None:
    """return_rnd names a term of its own now: only beside the others of version 0 it is rnd_images."""
    trainer, folder = Trainer(single_seat_worlds.small(**WHOLE)), tmp_path / "run"
    with Run.create(folder, "") as run:
        trainer.bind(run, Recorder(trainer))
        trainer.log.table(EPISODES, {"episode_id": 1, "return_rnd": 0.5, "return_rnd_images": 1.5})
        run.save(1, {}, {})
    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        trainer.bind(run, Recorder(trainer))
        trainer.log.table(EPISODES, {"episode_id": 2, "return_rnd": 2.5, "return_rnd_images": 3.5})
    lines = (folder / "episodes.csv").read_text().splitlines()
    assert lines == ["episode_id,return_rnd,return_rnd_images", "1,0.5,1.5", "2,2.5,3.5"]


class Believing:
    """Stands for exploration/milestone_bonus.py."""

    names = ("badge_Boulder", "badge_Cascade", "badge_Thunder")

    def __init__(self) -> None:
        self.beliefs = BetaPosteriors(3, (1.0, 1.0), 0.98)
        self.beliefs.alpha[:], self.beliefs.beta[:] = [81, 3, 1], [19, 9, 9]
        self.alarmed = np.array([False, True, False])


class Telling:
    """Stands for a world with a story."""

    headlines = Believing.names

    start_groups = ("early", "mid", "mid", "late")


def believing(log: EpisodeLog) -> None:
    stand_ins: Any = (Believing(), Telling())
    log.posteriors, log.event_log = stand_ins
    log.start_groups = list(Telling.start_groups)


def test_lines_say_what_the_document_asks(little: None, tmp_path: Path) -> None:
    log = log_of(play(single_seat_worlds.small(**WHOLE), tmp_path / "run").trainer)
    text = (tmp_path / "run" / "train.log").read_text()
    episodes = re.findall(r"^\[EP \d+ env=\d\] len=\d+  R_env=-?\d+\.\d  R_total=-?\d+\.\d$", text, re.M)
    assert len(episodes) > 20
    assert len(re.findall(r"^step=\d+/384  epsilon=", text, re.M)) == 384 // 48
    assert "sps" not in text, "clock times stay out of what is compared"
    believing(log)
    words = log.log_line(384, 5000, 1012.3)
    assert re.fullmatch(
        r"step=384/5000  sps=1012  epsilon=0\.\d+  len=\d\.\d  R_env=\S+  R_total=\S+  r_env=\S+  "
        r"r_rnd_images=\S+  r_count_bonus=\S+  r_total=\S+  episodes=\d+  envs=4  "
        r"spawn: early 25% \| mid 50% \| late 25%",
        words,
    ), words
    log._close(1, 384, {"badges": 2, "map": "PewterCity", "savestate_tag": "gym", "milestones": ("a", "b")})
    line = log.episode_line(log.ended[-1])
    info = "badges=2  map=PewterCity  savestate_tag=gym"
    assert line.endswith(f"{info}  theta_Boulder=0.81  theta_Cascade=0.25")
    assert list(log.next_milestones(1)) == ["badge_Boulder"]


def test_posteriors_and_alarms_are_stored(little: None, tmp_path: Path) -> None:
    trainer = Trainer(single_seat_worlds.small(**WHOLE))
    log = log_of(trainer)
    believing(log)
    with Run.create(tmp_path / "run", "") as run:
        trainer.bind(run, Recorder(trainer))
        log.write_progress(100)
        log.write_progress(200)
    rows = table(tmp_path / "run" / "progress.csv")
    assert [(row["step"], row["milestone"]) for row in rows] == [
        (step, name) for step in ("100", "200") for name in Believing.names
    ]
    first = {name: float(value) for name, value in rows[0].items() if name not in ("step", "milestone")}
    assert first["mean"] == 0.81 and first["alpha"] == 81 and first["alarm_triggered"] == 0
    # Beta(81, 19): the normal approximation is good to a hundredth here.
    assert (first["low95"], first["high95"]) == pytest.approx((0.81 - 0.077, 0.81 + 0.077), abs=0.01)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events == [{"event": "alarm", "step": 100, "milestone": "badge_Cascade", "theta": 0.25}]


def test_a_run_that_was_cut_short_tells_each_episode_once(little: None, tmp_path: Path) -> None:
    """Two iterations are played past the last checkpoint and lost; the tables are as if they had not been."""
    config = single_seat_worlds.small(save_every=4)
    play(config, tmp_path / "straight")
    class Killed(Exception):
        pass

    def stop(trainer: Trainer) -> bool:
        if trainer.clock.iteration == 6:
            raise Killed
        return False

    with pytest.raises(Killed):
        start_run(tmp_path / "cut", config, stop)
    before = len(table(tmp_path / "cut" / "episodes.csv"))
    with Run.open(tmp_path / "cut", write=True) as run:
        again, checkpoint = Trainer(config), run.load()
        assert checkpoint is not None and checkpoint.iteration == 4
        again.load_state_dict(checkpoint.parts)
        run.rewind(checkpoint)
        assert 0 < len(table(tmp_path / "cut" / "episodes.csv")) < before
        again.bind(run, Recorder(again))
        again.start(resumed=True)
        train(again, lambda: False)
    assert differences(tmp_path / "straight", tmp_path / "cut") == []
    rows = table(tmp_path / "cut" / "episodes.csv")
    assert [int(row["episode_id"]) for row in rows] == list(range(1, len(rows) + 1))


def test_log_of_a_run_that_had_none_begins_with_the_resume(little: None, tmp_path: Path) -> None:
    """Version 0 logged episodes of Q-learning alone."""
    changes = {"learner": "ppo", "games": 4, "steps": 8, "total_steps": 4 * 8 * 6, "threads": 1,
               "save_every": 2, "network.hidden": (8,), "ppo.minibatch_size": 16, "evaluation.games": 2,
               "world.height": 12, "world.width": 16, "world.side": 8, "world.limit": 7,
               "episode_log.interval": 48}
    config = settings.replace(default("stroll"), changes)
    start_run(tmp_path / "run", config, lambda trainer: trainer.clock.iteration >= 4)
    with Run.open(tmp_path / "run", write=False) as run:
        checkpoint = run.load()
    assert checkpoint is not None
    parts = {name: part for name, part in checkpoint.parts.items() if name != "episode_log"}
    trainer = Trainer(config)
    trainer.load_state_dict(parts)
    log = log_of(trainer)
    iterate(trainer)
    first = log.ended[0]
    assert first.number == 1 and first.length <= 7
    assert first.steps == (4 * 8 * 4, 4 * 8 * 4 + 4 * first.length)


def test_intervals_are_passed_once(little: None) -> None:
    for per, interval in ((32, 48), (32, 96), (100, 7), (3, 10)):
        due = [step for step in range(per, 40 * per, per) if interval_passed(step, per, interval)]
        crossed = {step // interval for step in range(per, 40 * per, per)} - {0}
        assert len(due) == len(crossed)
    assert not interval_passed(100, 10, 0)


def test_films_of_a_world_without_pictures_are_refused(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_seat_worlds.stroll, "renderer", None)
    with pytest.raises(ConfigError, match=r"episode_video.interval = 96: this world draws no pictures"):
        single_seat_worlds.small()


def test_forced_milestones_do_not_count_as_reached(little: None) -> None:
    """Over two tapes: led for five steps to one milestone, it reaches the next; then it plays by itself."""
    trainer = Trainer(single_seat_worlds.small(**WHOLE))
    log, games = log_of(trainer), trainer.config.games

    def follow(forced: bool, ends: bool, names: tuple[str, ...], forced_names: tuple[str, ...] = ()) -> None:
        rollout = RolloutBuffer(trainer.setup.spec, 2, games)
        rollout.forced = np.zeros((2, games), np.uint8)
        rollout.forced[:, 1] = FORCED if forced else 0
        rollout.forced_events += [(0, 1, name) for name in forced_names]
        if ends:
            rollout.ended[1, 1] = 1
            rollout.episode_infos.append((1, 1, {"milestones": list(names)}))
        for term in TERMS[1:]:
            rollout["joypad"].reward_terms[term] = RewardTerm(np.ones((2, games, 1), np.float32), 0.1)
        log.after_rollout(rollout, trainer.clock)

    follow(True, False, (), ("TOWN",))
    again = log_of(Trainer(trainer.config))
    again.load_state_dict(log.state_dict())
    assert (again.forced == log.forced).all() and again.forced_milestones == log.forced_milestones
    assert again.forced_milestones[1] == ["TOWN"]
    follow(False, True, ("TOWN", "GATE"))
    (one,) = log.ended
    assert (one.length, one.forced, one.info["milestones"]) == (4, 2, ["GATE"])
    assert " forced=2 " in log.episode_line(one) and "recent/length" not in log.metrics()
    follow(False, True, ("TOWN",))
    (two,) = log.ended
    assert (two.length, two.forced, two.info["milestones"]) == (2, 0, ["TOWN"])
    assert "forced=" not in log.episode_line(two) and log.metrics()["recent/length"] == 2
