"""Takes: an episode from the start, beside the training and without a trace in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import single_seat_worlds
from support.single_seat_worlds import little

from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.replay_buffer import COMPONENTS
from rematch.rehearsal.shrink import play
from rematch.training import episode_video
from rematch.training.episode_video import Camera
from rematch.training.trainer import Session

__all__ = ["little"]


def filmed(session: Session) -> Camera:
    assert session.diary is not None
    return Camera(session, session.diary)


def state_of(session: Session) -> bytes:
    (learner,) = session.learners.values()
    assert isinstance(learner, Dqn)
    rnd, novelty = learner.bonuses
    arrays = [
        learner.online.weights,
        rnd.state()["predictor"],
        rnd.state()["second"],
        novelty.state()["counts"],
    ]
    return (
        b"".join(array.tobytes() for array in arrays)
        + session.world.save(np.arange(4, dtype=np.int32)).tobytes()
    )


def test_filming_leaves_no_trace(little: None, tmp_path: Path) -> None:
    with_films = play(single_seat_worlds.small(), tmp_path / "films")
    without = play(single_seat_worlds.small(watch__video_interval=0), tmp_path / "none")
    assert with_films.takes == [6] * 4 and without.takes == []
    assert state_of(with_films.session) == state_of(without.session)
    one, two = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("films", "none"))
    assert one == two
    events = [json.loads(line) for line in (tmp_path / "films" / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "film"] == [96, 192, 288, 384]


@pytest.mark.parametrize("steps", [5, 40])
def test_what_a_take_says_was_paid(
    little: None, tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_video, "PIECE", 4)  # bonuses are asked piece by piece
    config = single_seat_worlds.small(watch__video_steps=steps, world__limit=11, watch__video_interval=10**6)
    session = play(config, tmp_path / "run").session
    camera = filmed(session)
    world, rewards, step = camera.world, [], camera.world.step

    def counted(actions: object) -> object:
        view = step(actions)  # type: ignore[arg-type]
        rewards.append(float(view.reward[0, 0]))
        return view

    world.step = counted  # type: ignore[method-assign, assignment]
    shown, noted = camera.record()
    assert noted["length"] == len(rewards) == len(shown.shots) == min(steps, len(rewards)) <= 11
    assert noted["return_env"] == pytest.approx(sum(rewards), abs=1e-5)
    (learner,) = session.learners.values()
    assert isinstance(learner, Dqn)
    returns = np.array([noted[f"return_{name}"] for name in COMPONENTS])
    assert noted["return_total"] == pytest.approx(returns @ learner.weights)
    for number, shot in enumerate(shown.shots):
        assert shot.paid["env"][1] == pytest.approx(sum(rewards[:number]), abs=1e-5)
        assert shot.paid["novel"][0] == (0 if number == 0 else pytest.approx(shot.paid["novel"][0]))
        assert shot.scores.shape == (5,) and 0 <= shot.action < 5
    assert shown.shots[-1].paid["rnd"][1] > 0 and shown.shots[0].paid["rnd"] == (0, 0)
    assert ("breaks off" in shown.caption) == (steps == 5)


def test_long_takes_keep_few_pictures(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_video, "MOST_SHOTS", 10)
    session = Session(single_seat_worlds.small(watch__video_steps=35, world__limit=60))
    session.begin()
    shown, noted = filmed(session).record()
    assert shown.pace == 4 and len(shown.shots) == -(-noted["length"] // 4) <= 10


def test_equal_sessions_make_equal_takes(little: None) -> None:
    one, two = (filmed(Session(single_seat_worlds.small())).record() for _ in range(2))
    assert one[1] == two[1]
    assert [shot.picture for shot in one[0].shots] == [
        shot.picture for shot in two[0].shots
    ]
