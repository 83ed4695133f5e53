"""The film: right length and speed, right winner, equal bytes, small."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.recorded_games import recorded

from rematch.core.errors import ConfigError
from rematch.core.recording import BROKEN_OFF, CUT_OFF_END, DECIDED_END, Replay, ReplayPlayer
from rematch.reporting import mp4
from rematch.reporting.match_film import FPS, HOLD, MOST_PICTURES, SIDE, MatchFilm, Pace, film
from rematch.worlds import registry


def frames(data: bytes) -> tuple[list[np.ndarray], float]:
    picture = Image.open(io.BytesIO(data))
    shown, length = [], 0.0
    for i in range(picture.n_frames):
        picture.seek(i)
        shown.append(np.asarray(picture.convert("RGB")))
        length += picture.info["duration"] / 1000
    return shown, length


def test_card_game_lasts_one_second_per_turn_and_names_the_winner() -> None:
    replay = recorded("beasty")
    data, caption = film(replay)
    assert caption == replay.caption() and caption.endswith(f"after {replay.length} steps")
    shown, length = frames(data)
    assert len(shown) == replay.length + 1 and length == pytest.approx(replay.length + HOLD)
    assert 20 < replay.length < 26 and max(shown[0].shape) == SIDE
    assert not np.array_equal(shown[-1], shown[-2]), "the last picture carries the caption"
    # the picture under the caption is the last position before the end, not the restarted game's
    half = shown[0].shape[0] * 2 // 3
    assert np.array_equal(shown[-1][:half], shown[-2][:half]) and not np.array_equal(shown[-1], shown[0])


def test_lattice_lasts_one_second_per_move_and_pursuit_real_time() -> None:
    lattice, pursuit = recorded("lattice"), recorded("pursuit", limit=60)
    assert frames(film(lattice)[0])[1] == pytest.approx(lattice.length + HOLD)
    assert frames(film(pursuit)[0])[1] == pytest.approx(60 * 0.05 + HOLD)


def test_game_without_a_renderer_is_filmed_as_text() -> None:
    assert registry.find("gymnasium").renderer is None
    replay = recorded("gymnasium", id="CartPole-v1")
    shown, _ = frames(film(replay)[0])
    assert len(shown) == replay.length + 1 and len({picture.tobytes() for picture in shown}) > 5


def test_film_of_a_long_game_fits_the_time_and_shows_its_end() -> None:
    replay = recorded("beasty")
    shown, length = frames(film(replay, seconds=5.0)[0])
    assert 4.0 < length <= 5.2 and len(shown) == replay.length + 1


@pytest.mark.parametrize("length", [1, 24, 499, 5000, 100_000])
@pytest.mark.parametrize("rate", [0.5, 1.0, 2.5, 20.0, 100.0])
@pytest.mark.parametrize("seconds", [3.0, 60.0, 600.0])
def test_pace_is_that_of_the_world_unless_the_film_is_too_long(
    length: int, rate: float, seconds: float
) -> None:
    pace = Pace.of(length, rate, seconds, MOST_PICTURES)
    shown = -(-length // pace.stride) * pace.delay
    assert pace.delay >= 1 / FPS - 1e-9 and -(-length // pace.stride) <= MOST_PICTURES + 1
    assert shown <= seconds - HOLD + pace.delay + 1e-6
    if length / rate <= seconds - HOLD:
        assert abs(shown - length / rate) <= pace.delay


def test_film_of_equal_games_has_equal_bytes() -> None:
    replay = recorded("lattice")
    assert film(replay) == film(replay)


def test_film_of_a_noisy_world_fits_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, replay = np.random.default_rng(0), recorded("lattice")

    def noisy(world: Any, row: int, trail: list[Any]) -> Image.Image:
        return Image.fromarray(generator.integers(0, 256, (100, 100, 3), dtype=np.uint8))

    game = registry.find("lattice")
    monkeypatch.setattr(type(game), "renderer", replace(game.renderer, draw=noisy))  # type: ignore[type-var]
    free, _ = film(replay)
    monkeypatch.setattr("rematch.reporting.match_film.MOST_BYTES", len(free) // 2)
    small, _ = film(replay)
    assert len(small) <= len(free) // 2
    assert frames(small)[1] == pytest.approx(frames(free)[1], abs=4.0)


def test_mp4_shows_each_turn_for_a_second() -> None:
    if not mp4.encoder():
        pytest.skip("no MP4 encoder")
    replay = recorded("lattice")
    pictures = list(MatchFilm(replay)._video())
    assert len(pictures) == pytest.approx(FPS * (replay.length + HOLD), abs=1)
    data, reason = MatchFilm(replay).mp4()
    assert not reason and b"ftyp" in data[:16]


def ended(end: str, outcome: tuple[float, ...], *names: str, steps: int = 9) -> Replay:
    roles = ("hunter", "runner", "hunter")
    players = tuple(ReplayPlayer(role=role, name=name) for role, name in zip(roles, names))
    actions = {"hunter": np.zeros((steps, 1), np.int32)}
    return Replay(world="x", build="", settings={}, seed=0, game=0, start=np.zeros(1, np.uint8),
                  players=players, actions=actions, end=end, outcome=outcome, final="", states="")


@pytest.mark.parametrize(("replay", "caption"), [
    (ended(DECIDED_END, (1.0, 0.0), "straight", "slow"), "hunter (straight) wins after 9 steps"),
    (ended(DECIDED_END, (1.0, 0.0), "hunter (learnt)", "slow"), "hunter (learnt) wins after 9 steps"),
    (ended(DECIDED_END, (1.0, 0.0, 1.0), "a", "b", "c"), "hunter 1 (a) and hunter 2 (c) win after 9 steps"),
    (ended(DECIDED_END, (0.5, 0.5), "a", "b"), "drawn after 9 steps"),
    (ended(CUT_OFF_END, (0.5, 0.5), "a", "b"), "undecided, cut off after 9 steps"),
    (ended(BROKEN_OFF, (0.5, 0.5), "a", "b"), "still undecided after 9 steps"),
    (ended(DECIDED_END, (1.0,), "a"), "goal reached after 9 steps"),
    (ended(DECIDED_END, (0.0,), "a"), "over after 9 steps"),
    (ended(DECIDED_END, (0.0,), "a", steps=1), "over after 1 step"),
])  # fmt: skip
def test_caption_for_every_kind_of_end(replay: Replay, caption: str) -> None:
    assert replay.caption() == caption


def test_replay_without_a_step_is_refused_in_one_line() -> None:
    empty = recorded("lattice", limit=0)
    with pytest.raises(ConfigError, match="no step to show"):
        film(empty)
