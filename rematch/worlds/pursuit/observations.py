"""What each robot sees: the names of its fields, and what could be otherwise without its noticing.

With `full_obs` there is one field, `state`, of 14 + 2 K + 1 numbers. Without it each robot has sensors of its
own: `state` [7] (itself; the other's distance and bearing, -1 and 0 while unseen), `lidar` [rays] (walls and
obstacles, never the other robot: who is unseen is unseen), `history` [history_length * (7 + rays)] (the last
frames of both, the newest last, zeros before the start) and `clock` [1] (time to go).
See full_observation.h, sensor_observation.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Floats
from rematch.core.spec import Field
from rematch.core.world import Observations

from . import native
from .config import Config

ROLES = ("pursuer", "evader")
ROBOT = ("x", "y", "heading", "speed", "turn")
UNSEEN = -1.0  # the distance of a robot that is not seen
DISTANCE, BEARING = 5, 6  # places in a frame, after the five numbers of the robot itself
TRIES = 32  # places that are tried for a robot out of sight, before it stays where it is
HIDDEN = ("the other robot while unseen", "its heading, speed and turn", "what its sensors show",
          "obstacles that no ray has met", "the noise to come")

Games = NDArray[Any]  # [n] rows of core.GAME_TYPE
Luck = NDArray[np.float64]


def fields_of(config: Config, rules: native.Core) -> tuple[Field, ...]:
    """The fields of either role."""
    own = tuple(f"own_{word}" for word in ROBOT)
    if config.full_obs:
        words = ("distance", "bearing")
        obstacles = (f"obstacle_{k + 1}_{word}" for k in range(rules.shown) for word in words)
        columns = (*own, *(f"other_{word}" for word in ROBOT), "distance", "bearing", "wall_x", "wall_y",
                   *obstacles, "time_to_go")
        return (Field(name="state", columns=columns),)
    state = (*own, "distance", "bearing")
    lidar = tuple(f"ray_{k + 1}" for k in range(config.lidar_rays))
    ages = range(config.history_length - 1, -1, -1)  # steps ago, the oldest first
    history = tuple(f"{word}_{age}_ago" for age in ages for word in (*state, *lidar))
    frames = (config.history_length, len(state) + len(lidar))
    return (Field(name="state", columns=state), Field(name="lidar", columns=lidar, low=0.0),
            Field(name="history", columns=history, shape=frames),
            Field(name="clock", columns=("time_to_go",), low=0.0))


def privileged_of(config: Config) -> tuple[Field, ...]:
    """For learning alone, where robots have sensors: where the other one truly is, in half arenas."""
    return () if config.full_obs else (Field(name="other", columns=("x", "y")),)


def write_privileged(config: Config, games: Games, view: Observations, where: Any) -> None:
    """Write `aside_of` for these rows of the view."""
    if config.full_obs:
        return
    for seat, role in enumerate(ROLES):
        other = view[role]["other"][:, 0]
        other[where, 0] = games["x"][where, 1 - seat] / np.float32(config.arena_width / 2)
        other[where, 1] = games["y"][where, 1 - seat] / np.float32(config.arena_height / 2)


def hidden_of(config: Config) -> tuple[str, ...]:
    """What neither role is shown."""
    grid = ("visited",) if config.w_search else ()  # of w_search: where the pursuer has been
    return grid if config.full_obs else (*HIDDEN, *grid)


def blank(fields: tuple[Field, ...], games: int) -> Observations:
    """role -> field -> zeros [games, 1, F]."""
    return {role: {f.name: np.zeros((games, 1, f.size), np.float32) for f in fields} for role in ROLES}


class Redraw:
    """Games as one robot knows them, everything else drawn anew.

    The other robot's heading, speed and turn are never shown; its place is drawn where it is out of sight: in
    reach of where it was last seen, if that was within the history, else anywhere. Its own frames are then as
    if it had stood there. Obstacles stay where they are.
    """

    def __init__(self, config: Config, rules: native.Core, seat: int, key: int) -> None:
        self.config, self.rules, self.seat, self.other, self.key = config, rules, seat, 1 - seat, key
        self.fields = fields_of(config, rules)

    def __call__(self, games: Bytes, annex: Bytes) -> None:
        """Change games [n, S] and their annex [n, T] in place."""
        named, kept = games.view(native.GAME_TYPE)[:, 0], annex.view(self.rules.annex_type)[:, 0]
        count = len(games)
        kept["noise"][:, 1] = rng.words(self.key, rng.SENSOR, count)
        self._motion(named, rng.units(self.key, rng.SENSOR, 3 * count, 1).reshape(3, count))
        now = kept["frames"][np.arange(count), self.seat, named["step"] % self.config.history_length]
        centre, reach = self._last_seen(named, kept["frames"][:, self.seat])
        waiting = np.flatnonzero(now[:, DISTANCE] == UNSEEN)
        for attempt in range(TRIES):
            if not waiting.size:
                break
            luck = rng.units(self.key, rng.SENSOR, 2 * count, 2 + attempt).reshape(2, count)[:, waiting]
            tried, memory = games[waiting], annex[waiting]
            rows = tried.view(native.GAME_TYPE)[:, 0]
            place = self._place(luck, centre[waiting], reach[waiting])
            rows["x"][:, self.other], rows["y"][:, self.other] = place
            good = self._possible(rows) & ~self._seen(tried, memory)
            games[waiting[good]] = tried[good]
            waiting = waiting[~good]
        self._stand(games, annex)

    def _motion(self, games: Games, luck: Luck) -> None:
        config, o = self.config, self.other
        begun = games["step"] > 0
        top = (config.pursuer_v_max, config.evader_v_max)[o]
        held = (games["step"] <= config.prep_steps) if o == 0 else np.zeros(len(games), bool)
        speed = np.full(len(games), top) if config.fixed_speed else luck[1] * top
        games["theta"][:, o] = np.pi * (2 * luck[0] - 1)
        games["v"][:, o] = np.where(begun & ~held, speed, 0)
        games["omega"][:, o] = np.where(begun, config.omega_max * (2 * luck[2] - 1), 0)

    def _last_seen(self, games: Games, frames: Floats) -> tuple[Luck, Luck]:
        """Where the other was last seen [n, 2], and how far it can have come since [n]; inf: anywhere."""
        config = self.config
        centre, reach = np.zeros((len(games), 2)), np.full(len(games), np.inf)
        top = (config.pursuer_v_max, config.evader_v_max)[self.other]
        half = np.array([config.arena_width, config.arena_height]) / 2
        for age in range(config.history_length - 1, 0, -1):
            frame = frames[np.arange(len(games)), (games["step"] - age) % config.history_length].astype(float)
            saw = (games["step"] >= age) & (frame[:, DISTANCE] != UNSEEN)
            way = np.pi * (frame[:, 2] + frame[:, BEARING])
            apart = frame[:, DISTANCE] * 2 * np.hypot(*half)
            place = frame[:, :2] * half + apart[:, None] * np.stack([np.cos(way), np.sin(way)], 1)
            centre[saw], reach[saw] = place[saw], age * top * config.dt
        return centre, reach

    def _place(self, luck: Luck, centre: Luck, reach: Luck) -> tuple[Luck, Luck]:
        config = self.config
        limit = np.array([config.arena_width, config.arena_height]) / 2 - config.robot_radius
        anywhere = (2 * luck - 1).T * limit
        far, way = np.sqrt(luck[0]) * np.where(np.isfinite(reach), reach, 0), 2 * np.pi * luck[1]
        near = centre + far[:, None] * np.stack([np.cos(way), np.sin(way)], 1)
        place = np.clip(np.where(np.isfinite(reach)[:, None], near, anywhere), -limit, limit)
        return place[:, 0], place[:, 1]

    def _possible(self, games: Games) -> NDArray[np.bool_]:
        """Not caught, not in an obstacle, and at the start as far away as starts are."""
        x, y = games["x"].astype(float), games["y"].astype(float)
        apart, start = np.hypot(x[:, 1] - x[:, 0], y[:, 1] - y[:, 0]), games["step"] == 0
        fine = (apart > self.config.capture_radius) & (
            ~start | (apart >= games["stage"][:, 0]) & (apart <= games["stage"][:, 1]))
        x, y = x[:, self.other, None], y[:, self.other, None]
        gap = np.hypot(x - games["obstacle_x"], y - games["obstacle_y"])
        there = np.arange(native.MOST_OBSTACLES) < games["obstacles"][:, None]
        clear = (gap >= games["obstacle_radius"] + self.config.robot_radius) | ~there
        possible: NDArray[np.bool_] = fine & clear.all(1)
        return possible

    def _seen(self, games: Bytes, annex: Bytes) -> NDArray[np.bool_]:
        """Whether the seat would see the other now."""
        obs = blank(self.fields, len(games))
        self.rules.observe(games, annex.copy(), obs)
        seen: NDArray[np.bool_] = obs[ROLES[self.seat]]["state"][:, 0, DISTANCE] != UNSEEN
        return seen

    def _stand(self, games: Bytes, annex: Bytes) -> None:
        """The other's frames of all its steps so far: what it sees now."""
        self.rules.observe(games, annex, blank(self.fields, len(games)))
        step = games.view(native.GAME_TYPE)[:, 0]["step"]
        frames = annex.view(self.rules.annex_type)[:, 0]["frames"][:, self.other]
        length = self.config.history_length
        newest = frames[np.arange(len(games)), step % length]
        made = np.arange(length) <= step[:, None]
        frames[:] = np.where(made[:, :, None], newest[:, None], 0)
