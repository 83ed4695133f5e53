"""Takes: an episode from the start, beside the training and without a trace in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import single_seat_worlds
from support.single_seat_worlds import little

from rematch.agents.learners.dqn import Dqn
from rematch.core.system.interrupts import StopRequested
from rematch.exploration.count_bonus import CountBonus
from rematch.exploration.rnd_images import RndImages
from rematch.rehearsal.trial import play
from rematch.training.components import episode_video
from rematch.training.components.episode_video import EpisodeRecorder, EpisodeVideo
from rematch.training.trainer import Trainer

__all__ = ["little"]


TERMS, WEIGHTS = ("env", "rnd_images", "count_bonus"), (1.0, 0.1, 0.1)  # of single_seat_worlds.small


def recorder(trainer: Trainer) -> EpisodeRecorder:
    video = trainer.setup.get(EpisodeVideo)
    assert video is not None
    return EpisodeRecorder(video.config, trainer.setup, trainer.clock)


def state_of(trainer: Trainer) -> bytes:
    (learner,) = trainer.agents.learners.values()
    rnd, counts = trainer.setup.get(RndImages), trainer.setup.get(CountBonus)
    assert isinstance(learner, Dqn) and rnd is not None and counts is not None
    rnd_state = rnd.scorers["joypad"].state_dict()
    arrays = [learner.online.weights, rnd_state["predictor"], rnd_state["second"],
              counts.scorers["joypad"].state_dict()["counts"]]  # fmt: skip
    world = trainer.world.save(np.arange(4, dtype=np.int32))
    return b"".join(array.tobytes() for array in arrays) + world.tobytes()


def test_filming_leaves_no_trace(little: None, tmp_path: Path) -> None:
    with_films = play(single_seat_worlds.small(), tmp_path / "films")
    without = play(single_seat_worlds.small(episode_video__interval=0), tmp_path / "none")
    assert with_films.record.films == [6] * 4 and without.record.films == []
    assert state_of(with_films.trainer) == state_of(without.trainer)
    one, two = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("films", "none"))
    assert one == two
    events = [json.loads(line) for line in (tmp_path / "films" / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "film"] == [96, 192, 288, 384]


@pytest.mark.parametrize("steps", [5, 40])
def test_what_a_take_says_was_paid(
    little: None, tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_video, "CHUNK", 4)  # reward terms are computed chunk by chunk
    config = single_seat_worlds.small(
        episode_video__max_steps=steps, world__limit=11, episode_video__interval=10**6
    )
    camera = recorder(play(config, tmp_path / "run").trainer)
    world, rewards, step = camera.world, [], camera.world.step

    def counted(actions: object) -> object:
        view = step(actions)  # type: ignore[arg-type]
        rewards.append(float(view.reward[0, 0]))
        return view

    world.step = counted  # type: ignore[method-assign, assignment]
    shown, noted = camera.record()
    assert noted["length"] == len(rewards) == len(shown.frames) == min(steps, len(rewards)) <= 11
    assert noted["return_env"] == pytest.approx(sum(rewards), abs=1e-5)
    returns = np.array([noted[f"return_{name}"] for name in TERMS])
    assert noted["return_total"] == pytest.approx(returns @ np.array(WEIGHTS, np.float32))
    for number, frame in enumerate(shown.frames):
        assert frame.rewards["env"][1] == pytest.approx(sum(rewards[:number]), abs=1e-5)
        assert frame.rewards["count_bonus"][0] >= 0 and (number or frame.rewards["count_bonus"][0] == 0)
        assert frame.scores.shape == (5,) and 0 <= frame.action < 5
    assert shown.frames[-1].rewards["rnd_images"][1] > 0 and shown.frames[0].rewards["rnd_images"] == (0, 0)
    assert ("breaks off" in shown.caption) == (steps == 5)


def test_long_takes_keep_few_pictures(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_video, "MAX_FRAMES", 10)
    trainer = Trainer(single_seat_worlds.small(episode_video__max_steps=35, world__limit=60))
    trainer.start()
    shown, noted = recorder(trainer).record()
    assert shown.steps_per_frame == 4 and len(shown.frames) == -(-noted["length"] // 4) <= 10


def test_equal_sessions_make_equal_takes(little: None) -> None:
    one, two = (recorder(Trainer(single_seat_worlds.small())).record() for _ in range(2))
    assert one[1] == two[1]
    assert [frame.picture for frame in one[0].frames] == [
        frame.picture for frame in two[0].frames
    ]


def test_stop_request_ends_a_recording(little: None) -> None:
    trainer = Trainer(single_seat_worlds.small())
    trainer.setup.stop.reason = "SIGTERM"  # requested long ago
    with pytest.raises(StopRequested):
        recorder(trainer).record()
