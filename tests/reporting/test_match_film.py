"""The film: right length, right winner, equal bytes, small."""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, DECIDED, Next, View
from rematch.reporting.match_film import FPS, HOLD, SIDE, Reel, film, outcome


class Chase:
    """Two dots on a line: the hunter moves 2, the runner 1; the runner wins if it lasts `lasts` steps."""

    def __init__(self, games: int = 1, apart: float = 30.0, lasts: int = 1000) -> None:
        place = (Field(name="place", columns=("own", "other")), Field(name="clock", columns=("time",)))
        move = Actions(kind="continuous", names=("move",))
        self.spec = Spec(world="chase", roles={
            name: Role(name=name, fields=place, actions=move, seats=(seat,))
            for seat, name in enumerate(("hunter", "runner"))})
        self.games, self.first, self.apart, self.lasts = games, 0, apart, lasts
        self.next = Next(seed=np.zeros(games, np.uint64), slot=np.zeros((games, 2), np.int32),
                         stage=np.zeros((games, 0), np.float32))
        self.slot, self.counters = self.next.slot, {"steps": 0}
        fields = {role: {f.name: np.zeros((games, 1, f.size), np.float32) for f in place}
                  for role in self.spec.roles}
        self.view = View(fields=fields, acting=np.ones((games, 2), np.uint8),
                         reward=np.zeros((games, 2), np.float32), ended=np.zeros(games, np.uint8),
                         outcome=np.zeros((games, 2), np.float32), length=np.zeros(games, np.int32))
        self.episodes = 0
        self.restart()

    def restart(self) -> None:
        self.at, self.time = np.array([0.0, self.apart]), 0
        self.show()

    def show(self) -> None:
        for seat, role in enumerate(self.spec.roles):
            self.view[role]["place"][0, 0] = self.at[[seat, 1 - seat]]
            self.view[role]["clock"][0, 0] = self.time

    def step(self, actions: Mapping[str, Any]) -> View:
        assert actions["hunter"].shape == actions["runner"].shape == (1, 1, 1)
        self.at += [2 * actions["hunter"][0, 0, 0], actions["runner"][0, 0, 0]]
        self.time += 1
        self.view.length[0] = self.time
        caught = self.at[0] >= self.at[1]
        self.view.ended[0] = DECIDED if caught or self.time == self.lasts else 0
        self.view.outcome[0] = (1, 0) if caught else (0, 1)
        if self.view.ended[0]:
            self.episodes += 1
            self.restart()
        self.show()
        return self.view


class Runs:
    """Always moves right by `pace`; records its observations."""

    def __init__(self, name: str, pace: float) -> None:
        self.name, self.pace = name, pace
        self.seen: list[np.ndarray] = []
        self.noises: list[RngKey] = []

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Decision:
        self.seen.append(seat.obs.copy())
        self.noises.append(rng_key)
        count = np.ones((1, 1)) if recurrent_state is None else recurrent_state + 1
        assert count[0, 0] == len(self.seen), "the recurrent state goes from move to move"
        return Decision(action=np.full((1, 1), self.pace, np.float32), recurrent_state=count)


def draw(world: Any, row: int, trail: list[Any]) -> Image.Image:
    trail.append(world.at.copy())
    picture = Image.new("RGB", (600, 300), "white")
    pen = ImageDraw.Draw(picture)
    for places in trail[-50:]:
        pen.point([(float(x) % 600, 150) for x in places], "grey")
    for x, colour in zip(world.at, ("#D55E00", "#0072B2")):
        pen.ellipse((x % 600 - 8, 142, x % 600 + 8, 158), colour)
    return picture


def pair() -> dict[str, Runs]:
    return {"hunter": Runs("straight", 1.0), "runner": Runs("<b>slow</b>", 1.0)}


def frames(data: bytes) -> tuple[list[np.ndarray], float]:
    picture = Image.open(io.BytesIO(data))
    shown, length = [], 0.0
    for i in range(picture.n_frames):
        picture.seek(i)
        shown.append(np.asarray(picture.convert("RGB")))
        length += picture.info["duration"] / 1000
    return shown, length


def test_film_of_a_short_game_shows_every_step_and_names_the_winner() -> None:
    players = pair()
    data, caption = film(Chase(), players, draw)
    assert caption == "hunter (straight) wins after 30 steps"
    shown, length = frames(data)
    assert len(shown) == 31 and length == pytest.approx(30 / FPS + HOLD)
    assert max(shown[0].shape) == SIDE
    assert not np.array_equal(shown[-1], shown[-2]), "the last picture carries the caption"
    # the picture under the caption is the last position before the end, not the restarted game's
    half = shown[0].shape[0] * 2 // 3
    assert np.array_equal(shown[-1][:half], shown[-2][:half]) and not np.array_equal(shown[-1], shown[0])


def test_players_get_all_fields_of_their_role_and_independent_random_numbers() -> None:
    players = pair()
    film(Chase(), players, draw, seed=7)
    assert [list(s[0]) for s in players["hunter"].seen[:2]] == [[0, 30, 0], [2, 31, 1]]
    assert list(players["runner"].seen[1][0]) == [31, 2, 1]
    noises = players["hunter"].noises + players["runner"].noises
    assert len(set(noises)) == len(noises) == 60


def test_film_of_a_long_game_fits_the_time_and_shows_its_end() -> None:
    data, caption = film(Chase(apart=5000.0, lasts=400), pair(), draw, seconds=4.0)
    assert caption == "runner (<b>slow</b>) wins after 400 steps"
    _, length = frames(data)
    assert 2.8 < length <= 4.0 + 2 / FPS


def test_film_of_equal_games_has_equal_bytes() -> None:
    one, other = (film(Chase(apart=40.0), pair(), draw) for _ in "ab")
    assert one == other


def test_film_of_a_noisy_world_fits_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)

    def noisy(world: Any, row: int, trail: list[Any]) -> Image.Image:
        return Image.fromarray(generator.integers(0, 256, (100, 100, 3), dtype=np.uint8))

    free, _ = film(Chase(apart=16.0), pair(), noisy)
    monkeypatch.setattr("rematch.reporting.match_film.MOST_BYTES", 60_000)
    small, _ = film(Chase(apart=16.0), pair(), noisy)
    assert len(small) <= 60_000 < len(free)
    assert frames(small)[1] == pytest.approx(frames(free)[1], abs=0.2)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 100, 777])
def test_reel_is_evenly_spaced_and_short(count: int) -> None:
    reel = Reel(8)
    for i in range(count):
        reel.add(Image.new("RGB", (1, 1), (i // 256, i % 256, 0)))
    stored = [256 * red + green for red, green, _ in (picture.getpixel((0, 0)) for picture in reel.pictures)]
    assert stored == list(range(0, count, reel.pace)) and len(stored) <= 8
    assert count < 8 or len(stored) >= 4
    ends = reel.end()
    assert ends[-1].getpixel((0, 0)) == ((count - 1) // 256, (count - 1) % 256, 0) and len(ends) <= 9


def test_caption_for_every_kind_of_end() -> None:
    world, players = Chase(), pair()
    view = world.view
    view.length[0], view.ended[0], view.outcome[0] = 9, DECIDED, (1, 0)
    players["hunter"].name = "hunter (learnt)"
    assert outcome(world, view, players) == "hunter (learnt) wins after 9 steps"
    view.length[0], view.ended[0], view.outcome[0] = 9, DECIDED, (0.5, 0.5)
    assert outcome(world, view, players) == "drawn after 9 steps"
    view.ended[0] = CUT_OFF
    assert "cut off" in outcome(world, view, players)
    view.ended[0] = 0
    assert "undecided" in outcome(world, view, players)


def test_caption_of_a_world_with_one_seat() -> None:
    lonely, view = SimpleNamespace(spec=SimpleNamespace(seats=1)), Chase().view
    view.ended[0], view.length[0] = DECIDED, 9
    for score, caption in ((1.0, "goal reached after 9 steps"), (0.0, "over after 9 steps")):
        view.outcome[0, 0] = score
        assert outcome(lonely, view, pair()) == caption  # type: ignore[arg-type]


def test_wrong_players_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="1 game"):
        film(Chase(games=2), pair(), draw)
    with pytest.raises(ConfigError, match="no player for runner"):
        film(Chase(), {"hunter": Runs("a", 1.0)}, draw)
