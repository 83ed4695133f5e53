"""Films of episodes: always a GIF, an MP4 with an encoder, otherwise one clear line."""

from __future__ import annotations

import io
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rematch.core.recording import CompressedImage, EpisodeRecording, Frame
from rematch.reporting import episode_film, mp4
from rematch.reporting.console import Console


def recording(count: int = 5, actions: int = 7, bars: int = 3) -> EpisodeRecording:
    frames = []
    for number in range(count):
        frames.append(
            Frame(
                picture=CompressedImage.of(Image.new("RGB", (161, 99), (10 * number, 90, 120))),
                action=number % actions,
                scores=np.linspace(-1, 1, actions, dtype=np.float32),
                rewards=dict.fromkeys(("env", "rnd", "novel", "bayes", "total"), (0.1, number * 0.1)),
                milestones=tuple((f"badge-{i}", None if i else 0.5, i == 1) for i in range(bars)),
            )
        )
    names = tuple(f"action-{i}" for i in range(actions))
    return EpisodeRecording(name="rollout_250000", actions=names, frames=frames, steps_per_frame=1,
                            caption="cut off after 5 steps")


@pytest.fixture
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(mp4.importlib, "import_module", missing)


def program(folder: Path, text: str) -> None:
    file = folder / "ffmpeg"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_composed_picture_is_complete_and_its_panel_fits() -> None:
    for actions, bars in ((2, 0), (7, 3), (7, 12), (30, 12)):
        made = recording(actions=actions, bars=bars)
        sheet = episode_film.composed(made.frames[0], made)
        assert sheet.width % 2 == 0 == sheet.height % 2
        assert sheet.crop((0, 0, 161, 99)).tobytes() == made.frames[0].picture.image().tobytes()
        pixels = np.asarray(sheet)
        assert (pixels[-2:, -episode_film.PANEL :] == episode_film.PAPER).all(), "nothing is cut off below"
        assert (pixels[:, -2:] == episode_film.PAPER).all() and (pixels == episode_film.GOLD).all(-1).any()


def test_pictures_of_a_film_have_one_size() -> None:
    few, many = recording(bars=0), recording(bars=9)
    made = replace(few, frames=[*few.frames, *many.frames])
    assert len({episode_film.composed(frame, made).size for frame in made.frames}) == 1


def test_film_without_an_encoder_is_a_gif_and_one_line(no_encoder: None) -> None:
    out = io.StringIO()
    console = Console(out)
    for _ in range(2):
        films = console.film(recording())
        assert list(films) == ["rollout_250000.gif"]
    film = Image.open(io.BytesIO(films["rollout_250000.gif"]))
    assert getattr(film, "n_frames", 0) >= 5
    assert out.getvalue().splitlines() == [mp4.NONE]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo 'Unknown encoder' >&2; exit 1", "Unknown encoder"),
        ("cat >/dev/null", "it wrote no file"),
    ],
)
def test_encoder_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    program(tmp_path, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    films, output = episode_film.films(recording())
    assert list(films) == ["rollout_250000.gif"]
    assert output == f"no MP4: {tmp_path}/ffmpeg: {why}"


def test_encoder_gets_every_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, 'for last; do :; done; cat > "$last"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    films, output = episode_film.films(recording())
    assert not output
    sheet = episode_film.composed(recording().frames[0], recording())
    size = 3 * sheet.width * sheet.height
    data = films["rollout_250000.mp4"]
    assert data[:size] == sheet.tobytes() and len(data) == size * (5 + 40), "and the last for two seconds"


def test_encoder_makes_the_same_film_twice() -> None:
    if not mp4.encoder():
        pytest.skip("no ffmpeg here")
    pictures = [episode_film.composed(frame, recording()) for frame in recording().frames]
    one, two = (mp4.mp4(lambda: iter(pictures), 20) for _ in range(2))
    assert one == two and one[0][4:8] == b"ftyp" and not one[1]


def test_film_that_cannot_be_made_does_not_stop_a_run() -> None:
    out = io.StringIO()
    made = recording()
    made.frames.clear()
    assert Console(out).film(made) == {}
    assert out.getvalue().startswith("no film of rollout_250000: ")
