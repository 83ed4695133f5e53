"""The diary: every episode once, with what it was paid, in lines and in tables."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import single_seat_worlds
from support.single_seat_worlds import little

from rematch import api
from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.replay_buffer import COMPONENTS
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING
from rematch.curriculum.demonstrations import LED
from rematch.exploration.milestone_bonus import Beliefs
from rematch.rehearsal.shrink import Witness, differences, play
from rematch.rollout.rollout_buffer import Tape
from rematch.storage.run_folder import Run
from rematch.training.episode_log import Diary
from rematch.training.run_log import passed
from rematch.training.trainer import Session, train

__all__ = ["little"]

WHOLE: dict[str, Any] = {"dqn__replay": 4 * 200, "watch__video_interval": 0}  # the replay holds the whole run


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_what_the_replay_holds(little: None, tmp_path: Path) -> None:
    """Each episode again from the replay: r_env of its steps, bonuses of its sights but the first."""
    session = play(single_seat_worlds.small(**WHOLE), tmp_path / "run").session
    (learner,) = session.learners.values()
    assert isinstance(learner, Dqn) and learner.replay.head == 96
    reward, ended = learner.replay.arrays["reward"][:96], learner.replay.arrays["ended"][:96]
    expected = []
    for game in range(4):
        ends = np.flatnonzero(ended[:, game] != RUNNING)
        for begin, end in zip([0, *(ends[:-1] + 1)], ends):
            part = reward[begin : end + 1, game].astype(np.float64)
            returns = np.array([part[:, 0].sum(), *part[1:, 1:].sum(0)])
            expected.append((4 * (end + 1), game, 4 * begin, end + 1 - begin, returns))
    expected.sort(key=lambda row: row[:2])
    rows = table(tmp_path / "run" / "episodes.csv")
    assert len(rows) == len(expected) > 20 and session.finished == len(rows)
    for number, (row, (end, game, begin, length, returns)) in enumerate(zip(rows, expected), 1):
        columns = ("episode_id", "env_id", "length_steps", "start_step", "end_step")
        numbers = [int(row[name]) for name in columns]
        assert numbers == [number, game, length, begin, end]
        told = [float(row[f"return_{name}"]) for name in COMPONENTS]
        assert told == pytest.approx(returns, rel=1e-4, abs=1e-5)
        assert float(row["return_total"]) == pytest.approx(returns @ learner.weights, rel=1e-4, abs=1e-5)


def test_columns_are_those_of_the_specification(little: None, tmp_path: Path) -> None:
    session = play(single_seat_worlds.small(**WHOLE), tmp_path / "run").session
    assert (
        (tmp_path / "run" / "episodes.csv")
        .read_text()
        .startswith(
            "episode_id,env_id,length_steps,return_env,return_total,return_rnd,return_novel,return_bayes,"
            "return_way,milestones_reached,alarm_triggered,start_step,end_step,led_steps\n"
        )
    )
    assert session.diary is not None
    believing(session.diary)
    assert session.diary.head().split(",")[9:16] == [
        "milestones_reached",
        "alpha_badge_Boulder",
        "beta_badge_Boulder",
        "mean_badge_Boulder",
        "low95_badge_Boulder",
        "high95_badge_Boulder",
        "alpha_badge_Cascade",
    ]


class Believing:
    """Stands for exploration/milestone_bonus.py."""

    names = ("badge_Boulder", "badge_Cascade", "badge_Thunder")

    def __init__(self) -> None:
        self.beliefs = Beliefs(3, (1.0, 1.0), 0.98)
        self.beliefs.alpha[:], self.beliefs.beta[:] = [81, 3, 1], [19, 9, 9]
        self.alarmed = np.array([False, True, False])


class Telling:
    """Stands for a world with a story."""

    headlines = Believing.names

    def bands(self) -> list[str]:
        return ["early", "mid", "mid", "late"]


def believing(diary: Diary) -> None:
    told: Any = (Believing(), Telling())
    diary.believer, diary.world = told


def test_lines_say_what_the_document_asks(little: None, tmp_path: Path) -> None:
    session = play(single_seat_worlds.small(**WHOLE), tmp_path / "run").session
    diary = session.diary
    assert diary is not None
    log = (tmp_path / "run" / "train.log").read_text()
    assert len(re.findall(r"^\[EP \d+ env=\d\] len=\d+  R_env=-?\d+\.\d  R_total=-?\d+\.\d$", log, re.M)) > 20
    assert len(re.findall(r"^step=\d+/384  epsilon=", log, re.M)) == 384 // 48
    assert "sps" not in log, "clock times stay out of what is compared"
    believing(diary)
    words = diary.log_line(384, 5000, 1012.3)
    assert re.fullmatch(
        r"step=384/5000  sps=1012  epsilon=0\.\d+  len=\d\.\d  R_env=\S+  R_total=\S+  r_env=\S+  r_rnd=\S+  "
        r"r_novel=\S+  r_bayes=0\.0000  r_way=0\.0000  r_total=\S+  episodes=\d+  envs=4  "
        r"spawn: early 25% \| mid 50% \| late 25%",
        words,
    ), words
    diary._close(1, 384, {"badges": 2, "map": "PewterCity", "savestate_tag": "gym", "milestones": ("a", "b")})
    line = diary.episode_line(diary.ended[-1])
    told = "badges=2  map=PewterCity  savestate_tag=gym"
    assert line.endswith(f"{told}  theta_Boulder=0.81  theta_Cascade=0.25")
    assert list(diary.foremost(1)) == ["badge_Boulder"]


def test_posteriors_and_alarms_are_kept(little: None, tmp_path: Path) -> None:
    diary = Session(single_seat_worlds.small(**WHOLE)).diary
    assert diary is not None
    believing(diary)
    with Run.create(tmp_path / "run", "") as run:
        diary.write_progress(run, 100)
        diary.write_progress(run, 200)
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
    with Run.create(tmp_path / "cut", api.settings.to_yaml(config)) as run:
        session = Session(config)

        class Killed(Exception):
            pass

        def stop() -> bool:
            if session.iteration == 6:
                raise Killed
            return False

        with pytest.raises(Killed):
            train(session, run, Witness(session), stop)
    before = len(table(tmp_path / "cut" / "episodes.csv"))
    with Run.open(tmp_path / "cut", write=True) as run:
        again, checkpoint = Session(config), run.load()
        assert checkpoint is not None and checkpoint.iteration == 4
        again.restore(checkpoint.parts)
        run.rewind(checkpoint)
        assert 0 < len(table(tmp_path / "cut" / "episodes.csv")) < before
        train(again, run, Witness(again), lambda: False)
    assert differences(tmp_path / "straight", tmp_path / "cut") == []
    rows = table(tmp_path / "cut" / "episodes.csv")
    assert [int(row["episode_id"]) for row in rows] == list(range(1, len(rows) + 1))


def test_intervals_are_passed_once(little: None) -> None:
    for per, interval in ((32, 48), (32, 96), (100, 7), (3, 10)):
        due = [step for step in range(per, 40 * per, per) if passed(step, per, interval)]
        crossed = {step // interval for step in range(per, 40 * per, per)} - {0}
        assert len(due) == len(crossed)
    assert not passed(100, 10, 0)


def test_films_of_a_world_without_pictures_are_refused(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(single_seat_worlds.stroll, "draw")
    with pytest.raises(ConfigError, match=r"watch.video_interval = 96: this world draws no pictures"):
        single_seat_worlds.small()


def test_what_a_game_was_led_to_is_not_its_own(little: None) -> None:
    """Over two tapes: led for five steps to one milestone, it reaches the next; then it plays by itself."""
    session = Session(single_seat_worlds.small(**WHOLE))
    diary, role = session.diary, session.config.games
    assert diary is not None
    how = np.zeros((2, role), np.int64)
    stand_in: Any = SimpleNamespace(practice=SimpleNamespace(how=how), starts=[])
    diary.swarm = stand_in

    def follow(led: bool, ends: bool, names: tuple[str, ...], shown: tuple[str, ...] = ()) -> None:
        tape = Tape(session.spec, 2, role)
        how[:, 1] = LED if led else 0
        tape.led += [(0, 1, name) for name in shown]
        if ends:
            tape.ended[1, 1] = 1
            tape.told.append((1, 1, {"milestones": list(names)}))
        diary.learner.reward = np.ones((2, role, len(COMPONENTS)), np.float32)
        diary.follow(tape, diary.step)

    follow(True, False, (), ("TOWN",))
    again = Session(session.config).diary
    assert again is not None
    again.restore(diary.state())
    assert (again.led == diary.led).all() and again.shown == diary.shown and again.shown[1] == ["TOWN"]
    follow(False, True, ("TOWN", "GATE"))
    (one,) = diary.ended
    assert (one.length, one.led, one.told["milestones"]) == (4, 2, ["GATE"])
    assert " led=2 " in diary.episode_line(one) and "recent/length" not in diary.metrics()
    follow(False, True, ("TOWN",))
    (two,) = diary.ended
    assert (two.length, two.led, two.told["milestones"]) == (2, 0, ["TOWN"])
    assert "led=" not in diary.episode_line(two) and diary.metrics()["recent/length"] == 2
