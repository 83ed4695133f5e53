"""The observation fields of each robot, and resampling of the state that a robot cannot know.

With `full_obs` there is one field, `state`, of 14 + 2 K + 1 numbers (K obstacles). Otherwise each robot has
sensors: `state` [7] (the robot itself; distance and bearing of the other, -1 and 0 while it is not visible),
`lidar` [rays] (walls and obstacles, never the other robot), `history` [history_length * (7 + rays)] (the last
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

from . import native, quantities
from .config import Config
from .quantities import UNSEEN

ROLES = ("pursuer", "evader")
ROBOT = ("x", "y", "heading", "speed", "turn")
DISTANCE, BEARING = 5, 6  # columns of a frame, after the five numbers of the robot itself
TRIES = 32  # positions that are tried for a robot out of sight; if none is possible, it is not moved
HIDDEN = ("the other robot while unseen", "its heading, speed and turn", "what its sensors show",
          "obstacles that no ray has met", "the noise to come")

Games = NDArray[Any]  # [n] of native.GAME_TYPE
Doubles = NDArray[np.float64]


def fields_of(config: Config, rules: native.Core, seat: int = 0) -> tuple[Field, ...]:
    """The fields of the robot of a seat; names are those of both, quantities depend on the top speeds."""
    own = tuple(f"own_{word}" for word in ROBOT)
    shown = rules.shown_obstacles
    if config.full_obs:
        words = ("distance", "bearing")
        obstacles = (f"obstacle_{k + 1}_{word}" for k in range(shown) for word in words)
        columns = (*own, *(f"other_{word}" for word in ROBOT), "distance", "bearing", "wall_x", "wall_y",
                   *obstacles, "time_to_go")
        return (Field(name="state", columns=columns, quantities=quantities.full_state(config, seat, shown)),)
    state = (*own, "distance", "bearing")
    lidar = tuple(f"ray_{k + 1}" for k in range(config.lidar_rays))
    ages = range(config.history_length - 1, -1, -1)  # steps ago, the oldest first
    history = tuple(f"{word}_{age}_ago" for age in ages for word in (*state, *lidar))
    frames = (config.history_length, len(state) + len(lidar))
    seen, rays = quantities.sensor_state(config, seat), (quantities.ray(config),) * config.lidar_rays
    return (Field(name="state", columns=state, quantities=seen),
            Field(name="lidar", columns=lidar, low=0.0, quantities=rays),
            Field(name="history", columns=history, shape=frames,
                  quantities=(*seen, *rays) * config.history_length),
            Field(name="clock", columns=("time_to_go",), low=0.0, quantities=(quantities.clock(config),)))


def privileged_of(config: Config) -> tuple[Field, ...]:
    """Privileged fields, with sensors only: true position of the other robot, in units of half the arena."""
    return () if config.full_obs else (Field(name="other", columns=("x", "y")),)


def hidden_of(config: Config) -> tuple[str, ...]:
    """Names of the state that neither role observes."""
    grid = ("visited",) if config.w_search else ()  # of w_search: visits of the pursuer
    sensors = () if config.full_obs else HIDDEN
    return tuple(dict.fromkeys((*sensors, *_hidden_disturbances(config), *grid)))


def _hidden_disturbances(config: Config) -> tuple[str, ...]:
    names = {
        "speed and turn factors": config.speed_variation or config.turn_variation,
        "the other robot's actions on their way": config.action_delay,
        "the noise to come": config.actuator_noise or config.sensor_noise,
        "what the noise covers": config.sensor_noise,
    }
    return tuple(name for name, is_on in names.items() if is_on)


def resample_disturbances(config: Config, optional: NDArray[Any], seat: int, key: int) -> None:
    """Draw factors, noise to come and the other robot's actions on their way again, in place.

    `optional` [n]: the optional state by name. With sensors `Resampler` has drawn the key of the noise.
    """
    count = len(optional)
    if config.full_obs:
        optional["noise"][:, 1] = rng.words(key, rng.SENSOR, count)
    factors = 2 * rng.units(key, rng.DYNAMICS, 4 * count).reshape(2, count, 2) - 1
    optional["speed_factor"] = 1 + config.speed_variation * factors[0]
    optional["turn_factor"] = 1 + config.turn_variation * factors[1]
    if config.action_delay:
        delayed = optional["delayed"][:, 1 - seat]
        delayed[:] = (2 * rng.units(key, rng.ACTUATOR, delayed.size) - 1).reshape(delayed.shape)
        if config.fixed_speed:
            delayed[..., 0] = 1


def blank(fields: tuple[Field, ...], games: int) -> Observations:
    """role -> field -> zeros [games, 1, F]."""
    return {role: {f.name: np.zeros((games, 1, f.size), np.float32) for f in fields} for role in ROLES}


class Resampler:
    """Samples games that agree with the observations of one robot.

    The other robot's heading, speed and turn rate are never observed, so they are always sampled. Its
    position is sampled while it is out of sight: within reach of its last sighting if that is in the history,
    else anywhere. All its frames are then what it observes from the new position. Obstacles are not moved.
    """

    def __init__(self, config: Config, rules: native.Core, seat: int, key: int) -> None:
        self.config, self.rules, self.seat, self.other, self.key = config, rules, seat, 1 - seat, key
        self.fields = fields_of(config, rules)

    def __call__(self, games: Bytes, optional: Bytes) -> None:
        """Change games [n, S] and their optional state [n, T] in place."""
        named = games.view(native.GAME_TYPE)[:, 0]
        named_optional = optional.view(self.rules.optional_type)[:, 0]
        count = len(games)
        named_optional["noise"][:, 1] = rng.words(self.key, rng.SENSOR, count)
        self._sample_motion(named, rng.units(self.key, rng.SENSOR, 3 * count, 1).reshape(3, count))
        frames = named_optional["frames"][:, self.seat]
        newest = frames[np.arange(count), named["step"] % self.config.history_length]
        centre, reach = self._last_sighting(named, frames)
        unplaced = np.flatnonzero(newest[:, DISTANCE] == UNSEEN)
        for attempt in range(TRIES):
            if not unplaced.size:
                break
            uniform = rng.units(self.key, rng.SENSOR, 2 * count, 2 + attempt).reshape(2, count)[:, unplaced]
            tried, tried_optional = games[unplaced], optional[unplaced]
            rows = tried.view(native.GAME_TYPE)[:, 0]
            place = self._sample_position(uniform, centre[unplaced], reach[unplaced])
            rows["x"][:, self.other], rows["y"][:, self.other] = place
            good = self._is_possible(rows) & ~self._sees_other(tried, tried_optional)
            games[unplaced[good]] = tried[good]
            unplaced = unplaced[~good]
        self._fill_frames(games, optional)

    def _sample_motion(self, games: Games, uniform: Doubles) -> None:
        config, o = self.config, self.other
        moving = games["step"] > 0
        top = (config.pursuer_v_max, config.evader_v_max)[o]
        frozen = (games["step"] <= config.prep_steps) if o == 0 else np.zeros(len(games), bool)
        speed = np.full(len(games), top) if config.fixed_speed else uniform[1] * top
        games["theta"][:, o] = np.pi * (2 * uniform[0] - 1)
        games["v"][:, o] = np.where(moving & ~frozen, speed, 0)
        games["omega"][:, o] = np.where(moving, config.omega_max * (2 * uniform[2] - 1), 0)

    def _last_sighting(self, games: Games, frames: Floats) -> tuple[Doubles, Doubles]:
        """Position of the last sighting [n, 2] and the largest distance since then [n]; inf: not sighted."""
        config = self.config
        centre, reach = np.zeros((len(games), 2)), np.full(len(games), np.inf)
        top = (config.pursuer_v_max, config.evader_v_max)[self.other]
        half = np.array([config.arena_width, config.arena_height]) / 2
        for age in range(config.history_length - 1, 0, -1):
            frame = frames[np.arange(len(games)), (games["step"] - age) % config.history_length].astype(float)
            sighted = (games["step"] >= age) & (frame[:, DISTANCE] != UNSEEN)
            direction = np.pi * (frame[:, 2] + frame[:, BEARING])
            distance = frame[:, DISTANCE] * 2 * np.hypot(*half)
            offset = distance[:, None] * np.stack([np.cos(direction), np.sin(direction)], 1)
            place = frame[:, :2] * half + offset
            centre[sighted], reach[sighted] = place[sighted], age * top * config.dt
        return centre, reach

    def _sample_position(self, uniform: Doubles, centre: Doubles, reach: Doubles) -> tuple[Doubles, Doubles]:
        config = self.config
        limit = np.array([config.arena_width, config.arena_height]) / 2 - config.robot_radius
        anywhere = (2 * uniform - 1).T * limit
        radius = np.sqrt(uniform[0]) * np.where(np.isfinite(reach), reach, 0)
        direction = 2 * np.pi * uniform[1]
        near = centre + radius[:, None] * np.stack([np.cos(direction), np.sin(direction)], 1)
        place = np.clip(np.where(np.isfinite(reach)[:, None], near, anywhere), -limit, limit)
        return place[:, 0], place[:, 1]

    def _is_possible(self, games: Games) -> NDArray[np.bool_]:
        """[n] not captured, outside obstacles and, at the start, at a distance within the stage."""
        x, y = games["x"].astype(float), games["y"].astype(float)
        distance, start = np.hypot(x[:, 1] - x[:, 0], y[:, 1] - y[:, 0]), games["step"] == 0
        far_enough = (distance > self.config.capture_radius) & (
            ~start | (distance >= games["stage"][:, 0]) & (distance <= games["stage"][:, 1]))
        x, y = x[:, self.other, None], y[:, self.other, None]
        gap = np.hypot(x - games["obstacle_x"], y - games["obstacle_y"])
        exists = np.arange(native.MOST_OBSTACLES) < games["obstacles"][:, None]
        clear = (gap >= games["obstacle_radius"] + self.config.robot_radius) | ~exists
        possible: NDArray[np.bool_] = far_enough & clear.all(1)
        return possible

    def _sees_other(self, games: Bytes, optional: Bytes) -> NDArray[np.bool_]:
        """[n] whether the seat sees the other robot in these games."""
        obs = blank(self.fields, len(games))
        self.rules.observe(games, optional.copy(), obs)
        seen: NDArray[np.bool_] = obs[ROLES[self.seat]]["state"][:, 0, DISTANCE] != UNSEEN
        return seen

    def _fill_frames(self, games: Bytes, optional: Bytes) -> None:
        """Replace all past frames of the other robot by its present one."""
        self.rules.observe(games, optional, blank(self.fields, len(games)))
        step = games.view(native.GAME_TYPE)[:, 0]["step"]
        frames = optional.view(self.rules.optional_type)[:, 0]["frames"][:, self.other]
        length = self.config.history_length
        newest = frames[np.arange(len(games)), step % length]
        recorded = np.arange(length) <= step[:, None]
        frames[:] = np.where(recorded[:, :, None], newest[:, None], 0)
