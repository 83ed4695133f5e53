"""The settings of pursuit, one per member of `Rules` in state.h, and their checks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rematch.core.arrays import Floats
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.native_build import refuse_stale
from rematch.worlds.native_world import compare_with_struct

from . import native

STAGE = ("min_init_distance", "max_init_distance", "n_obstacles_min", "n_obstacles_max")
SIGHT = ("sight_range", "sight_half_angle", "sight_occlusion")
VISIBILITY = ("fov", "radius", "line_of_sight", "combined")  # in the order of the enum in state.h
REWARD_FORMS = ("rematch", "original")  # in the order of the enum in state.h
DISTURBANCES = ("speed_variation", "turn_variation", "action_delay", "actuator_noise", "sensor_noise")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The rules of pursuit in an arena. Lengths in metres, times in seconds."""

    arena_width: float = knob(20.0, "width of the walled arena", unit="m", low=1.0, high=1000.0)
    arena_height: float = knob(20.0, "height of the walled arena", unit="m", low=1.0, high=1000.0)
    dt: float = knob(0.05, "duration of a step", unit="seconds", low=0.001, high=1.0)
    max_steps: int = knob(1200, "steps after which the evader wins", unit="steps", low=1, high=65535)
    pursuer_v_max: float = knob(1.0, "top speed of the pursuer", unit="m/s", low=0.0, high=100.0)
    evader_v_max: float = knob(1.0, "top speed of the evader", unit="m/s", low=0.0, high=100.0)
    omega_max: float = knob(2.84, "largest turn rate of both robots", unit="rad/s", low=0.01, high=1000.0)
    fixed_speed: bool = knob(False, "both robots always drive at top speed; the action is the turn rate only")
    robot_radius: float = knob(0.15, "radius of both robots", unit="m", low=0.01, high=100.0)
    capture_radius: float = knob(
        0.5, "distance at which the evader is caught", unit="m", low=0.01, high=100.0
    )
    prep_steps: int = knob(
        0, "first steps of an episode in which the pursuer can turn but not drive", unit="steps", low=0,
        high=65535,
    )  # fmt: skip
    min_init_distance: float = knob(
        3.0, "smallest distance between the robots at the start", unit="m", low=0.0, high=2000.0
    )
    max_init_distance: float = knob(
        15.0, "largest distance between the robots at the start", unit="m", low=0.0, high=2000.0
    )
    n_obstacles_min: int = knob(
        2, "smallest number of obstacles in an episode", unit="obstacles", low=0, high=native.MOST_OBSTACLES
    )
    n_obstacles_max: int = knob(
        2, "largest number of obstacles in an episode", unit="obstacles", low=0, high=native.MOST_OBSTACLES
    )
    obstacle_radius_min: float = knob(
        0.3, "smallest radius of an obstacle", unit="m", low=0.01, high=100.0, needs="n_obstacles_max"
    )
    obstacle_radius_max: float = knob(
        1.0, "largest radius of an obstacle", unit="m", low=0.01, high=100.0, needs="n_obstacles_max"
    )
    obstacle_gap: float = knob(
        0.5, "smallest gap between two obstacles", unit="m", low=0.0, high=100.0, needs="n_obstacles_max"
    )
    obstacle_margin: float = knob(
        0.5, "smallest gap between an obstacle and a wall", unit="m", low=0.0, high=100.0,
        needs="n_obstacles_max",
    )  # fmt: skip
    n_obstacle_obs: int = knob(
        -1, "nearest obstacles in the observation of each robot; -1: all", unit="obstacles", low=-1,
        high=native.MOST_OBSTACLES, needs="full_obs",
    )  # fmt: skip
    distance_scale: float = knob(
        1.0, "reward of the pursuer for an approach by the length of the arena's diagonal; the evader gets "
        "its negative",
    )  # fmt: skip
    capture_bonus: float = knob(100.0, "reward of the pursuer for a capture; the evader gets its negative")
    timeout_penalty: float = knob(
        -100.0, "reward of the pursuer at the time limit; the evader gets its negative"
    )
    survival_bonus: float = knob(0.0, "reward of the evader for each step that does not end the episode")
    use_visibility_reward: bool = knob(
        False, "the evader is rewarded for being hidden, not for its distance; needs obstacles"
    )
    visibility_weight: float = knob(
        1.0, "reward of the evader per step: positive while hidden, negative while visible",
        needs="use_visibility_reward",
    )  # fmt: skip
    w_obs_approach: float = knob(
        0.0, "reward of the evader for an approach to the nearest obstacle", needs="n_obstacles_max"
    )
    w_vis_pursuer: float = knob(0.0, "reward of the pursuer for each step in which it sees the evader")
    w_search: float = knob(
        0.0, "reward of the pursuer for entering cells that it has not visited recently, while it does not "
        "see the evader",
    )  # fmt: skip
    w_collision: float = knob(
        0.0, "penalty of each robot for each step in which it hits an obstacle", needs="n_obstacles_max"
    )
    w_wall: float = knob(0.0, "penalty of each robot for each step in which it hits a wall")
    sight_range: float = knob(
        10.0, "viewing range of the pursuer in the visibility rewards", unit="m", low=0.0
    )
    sight_half_angle: float = knob(
        60.0, "half of the pursuer's field of view in the visibility rewards", unit="degrees", low=0.0,
        high=180.0,
    )  # fmt: skip
    sight_occlusion: bool = knob(True, "obstacles block the view of the pursuer in the visibility rewards")
    full_obs: bool = knob(
        True, "both robots observe the full state; false: each observes through its sensors"
    )
    lidar_rays: int = knob(
        36, "lidar rays of each robot, spread over 360 degrees", unit="rays", low=1, high=native.MOST_RAYS,
        needs="full_obs=False",
    )  # fmt: skip
    lidar_range: float = knob(
        5.0, "range of the lidar", unit="m", low=0.01, high=2000.0, needs="full_obs=False"
    )
    lidar_noise: float = knob(
        0.02, "standard deviation of the lidar noise", unit="m", low=0.0, high=100.0, needs="full_obs=False"
    )
    history_length: int = knob(
        10, "frames of state and lidar in the observation of each robot, the present one included",
        unit="frames", low=1, high=100, needs="full_obs=False",
    )  # fmt: skip
    visibility: str = knob(
        "fov", "condition under which a robot sees the other; fov: within the angle and range of its field "
        "of view; radius: within its range; line_of_sight: no obstacle between them; combined: all three",
        choices=VISIBILITY, needs="full_obs=False",
    )  # fmt: skip
    view_half_angle: float = knob(
        60.0, "half of each robot's field of view", unit="degrees", low=0.0, high=180.0,
        needs="visibility=fov|combined",
    )  # fmt: skip
    view_range: float = knob(
        10.0, "distance up to which each robot sees the other", unit="m", low=0.0, high=2000.0,
        needs="visibility=fov|radius|combined",
    )  # fmt: skip
    safety_filter: bool = knob(
        False, "the pursuer executes the safe action nearest to its own: one that avoids walls and obstacles"
    )
    safety_gamma: float = knob(
        0.2, "fraction of the remaining safety margin that one step may use (gamma of the control barrier "
        "function)", unit="fraction", low=0.001, high=1.0, needs="safety_filter",
    )  # fmt: skip
    safety_separation: bool = knob(
        False, "the safety filter also keeps the pursuer 0.35 m from the evader; the capture radius must be "
        "larger", needs="safety_filter",
    )  # fmt: skip
    reward_form: str = knob(
        "rematch", "form of the optional reward terms; rematch: as the sight_* settings say, in every step; "
        "original: those of an earlier project: the evader hides by line of sight only, the last step is "
        "zero-sum, w_search counts the cells that the pursuer sees", choices=REWARD_FORMS,
    )  # fmt: skip
    stale_steps: int = knob(
        50, "steps after which a cell of w_search counts as not visited recently", unit="steps", low=1,
        high=65535, needs="reward_form=original",
    )  # fmt: skip
    speed_variation: float = knob(
        0.0, "largest relative change of each robot's top speed, drawn for each episode: the factor is "
        "uniform in 1 - x to 1 + x", unit="fraction", low=0.0, high=0.9,
    )  # fmt: skip
    turn_variation: float = knob(
        0.0, "largest relative change of each robot's largest turn rate, drawn for each episode as the "
        "speed's", unit="fraction", low=0.0, high=0.9,
    )  # fmt: skip
    action_delay: int = knob(
        0, "steps from an action to its execution; the robots do not observe the actions on their way",
        unit="steps", low=0, high=100,
    )  # fmt: skip
    actuator_noise: float = knob(
        0.0, "standard deviation of the noise of each robot's speed and turn rate in each step, relative to "
        "their largest values", unit="fraction", low=0.0, high=1.0,
    )  # fmt: skip
    sensor_noise: float = knob(
        0.0, "standard deviation of the noise of each observed number of robots, walls and obstacles, in "
        "units of the observation (range -1 to 1); the lidar has lidar_noise", unit="fraction", low=0.0,
        high=1.0,
    )  # fmt: skip
    observe_drawn_speed: bool = knob(
        False, "the observed speed is a fraction of the largest speed that speed_variation can draw; false: "
        "of the nominal top speed, and faster robots look like nominal ones", needs="speed_variation",
    )  # fmt: skip

    @property
    def zero_sum(self) -> bool:
        """Whether the rewards add to zero: only distance, capture and time-out count.

        With the form `original` w_vis_pursuer is zero-sum too.
        """
        terms = ["survival_bonus", "use_visibility_reward", "w_obs_approach", "w_search", "w_collision",
                 "w_wall"]
        if self.reward_form != "original":
            terms.append("w_vis_pursuer")
        return not any(getattr(self, term) for term in terms)

    @property
    def disturbed(self) -> bool:
        """Whether the robots differ from the nominal ones (disturbances.h)."""
        return any(getattr(self, name) for name in DISTURBANCES)

    @property
    def reach(self) -> float:
        """The largest possible distance between the robots, in metres."""
        return math.hypot(self.arena_width - 2 * self.robot_radius, self.arena_height - 2 * self.robot_radius)

    def check(self) -> None:
        """ConfigError for settings that cannot be played."""
        shorter_side = min(self.arena_width, self.arena_height)
        if 2 * self.robot_radius >= shorter_side:
            raise ConfigError(
                f"robot_radius = {self.robot_radius:g}: expected less than half the arena, "
                f"{shorter_side / 2:g}")
        most_turn = math.pi / self.dt / (1 + self.turn_variation)
        if self.omega_max > most_turn:
            factor = " / (1 + turn_variation)" if self.turn_variation else ""
            raise ConfigError(
                f"omega_max = {self.omega_max:g}: expected at most pi / dt{factor} = {most_turn:g}, "
                "half a turn a step")
        if self.prep_steps >= self.max_steps:
            raise ConfigError(
                f"prep_steps = {self.prep_steps}: expected less than max_steps = {self.max_steps}")
        check_stage(self, {name: getattr(self, name) for name in STAGE})
        self._check_obstacles(shorter_side)
        if self.use_visibility_reward and not self.n_obstacles_max:
            raise ConfigError(
                "use_visibility_reward = True: expected n_obstacles_max of at least 1 to hide behind")
        self._check_reward_form()

    def _check_reward_form(self) -> None:
        """ConfigError for settings without effect in this form of the rewards."""
        changed = {field.name for field in dataclasses.fields(self)
                   if getattr(self, field.name) != field.default}
        original = self.reward_form == "original"
        for name in SIGHT:
            if name in changed and original:
                raise ConfigError(
                    f"{name} = {getattr(self, name)}: has no effect; expected reward_form rematch")
            if name in changed and not (self.use_visibility_reward or self.w_vis_pursuer or self.w_search):
                raise ConfigError(
                    f"{name} = {getattr(self, name)}: has no effect; expected one of "
                    "use_visibility_reward, w_vis_pursuer and w_search to be on")
        if original and self.w_search and self.full_obs:
            raise ConfigError(
                f"w_search = {self.w_search:g}: has no effect with full_obs in reward_form original: the "
                "pursuer sees the evader in every step; expected full_obs false")
        if "stale_steps" in changed and not self.w_search:
            raise ConfigError(f"stale_steps = {self.stale_steps}: has no effect; expected w_search to be on")

    def _check_obstacles(self, shorter_side: float) -> None:
        if self.full_obs and 0 <= self.n_obstacle_obs < self.n_obstacles_max:
            what = "the agents would be blind" if self.n_obstacle_obs == 0 else "some would be invisible"
            raise ConfigError(
                f"n_obstacle_obs = {self.n_obstacle_obs}: expected -1 or at least n_obstacles_max = "
                f"{self.n_obstacles_max}; {what} to obstacles that are there")
        if not self.n_obstacles_max:
            return
        if self.obstacle_radius_min > self.obstacle_radius_max:
            raise ConfigError(
                f"obstacle_radius_min = {self.obstacle_radius_min:g}: expected at most obstacle_radius_max = "
                f"{self.obstacle_radius_max:g}")
        largest_radius = shorter_side / 2 - self.obstacle_margin
        if self.obstacle_radius_max > largest_radius:
            raise ConfigError(
                f"obstacle_radius_max = {self.obstacle_radius_max:g}: expected at most {largest_radius:g}, "
                "half the arena less obstacle_margin")
        # Discs enlarged by half the gap do not overlap and lie in the arena less margin plus half a gap.
        grow = self.obstacle_gap - 2 * self.obstacle_margin
        area = (self.arena_width + grow) * (self.arena_height + grow)
        disc = math.pi * (self.obstacle_radius_min + self.obstacle_gap / 2) ** 2
        if self.n_obstacles_min * disc > area:
            raise ConfigError(
                f"n_obstacles_min = {self.n_obstacles_min}: expected at most {int(area / disc)}, "
                "as many as fit the arena")


def check_stage(config: Config, stage: Mapping[str, float]) -> None:
    """ConfigError for start values that are impossible under these rules."""
    near, far, fewest, most = (stage[name] for name in STAGE)
    if not all(math.isfinite(stage[name]) for name in STAGE):
        raise ConfigError(f"stage = {dict(stage)}: expected finite numbers")
    if near > far:
        raise ConfigError(f"min_init_distance = {near:g}: expected at most max_init_distance = {far:g}")
    if near <= config.capture_radius:
        raise ConfigError(
            f"min_init_distance = {near:g}: expected more than capture_radius = {config.capture_radius:g}")
    if near >= config.reach:
        raise ConfigError(
            f"min_init_distance = {near:g}: expected less than {config.reach:g}, the arena's free diagonal")
    if fewest > most:
        raise ConfigError(f"n_obstacles_min = {fewest:g}: expected at most n_obstacles_max = {most:g}")
    if most > config.n_obstacles_max or fewest < 0 or fewest != int(fewest) or most != int(most):
        raise ConfigError(
            f"n_obstacles_min, n_obstacles_max = {fewest:g}, {most:g}: expected whole numbers from 0 to "
            f"the world's {config.n_obstacles_max}")


def stage_of(config: Config) -> Floats:
    """[4] the start values of the config."""
    return np.array([getattr(config, name) for name in STAGE], np.float32)


def struct_values(config: Config) -> dict[str, Any]:
    """The values of the C struct: a choice is its index."""
    values = {name: getattr(config, name) for name in native.RULES}
    return values | {"visibility": VISIBILITY.index(config.visibility),
                     "reward_form": REWARD_FORMS.index(config.reward_form)}


refuse_stale(native.__name__, native.BUILD, Path(__file__).with_name("native.pyx"))
compare_with_struct(Config, native.RULES, "state.h")
