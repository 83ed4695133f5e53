"""Units and scales of observed numbers and of actions, as full_observation.h and rules.h compute them."""

from __future__ import annotations

import math
from dataclasses import replace

from rematch.core.spec import Quantity

from .config import Config

UNSEEN = -1.0  # the observed distance of a robot that is not visible


def smallest(config: Config) -> float:
    """The smallest number of a quantity that is never negative: noise makes its observation negative."""
    return -1.0 if config.sensor_noise else 0.0


def top_speed(config: Config, seat: int) -> float:
    return (config.pursuer_v_max, config.evader_v_max)[seat]


def robot(config: Config, seat: int) -> tuple[Quantity, ...]:
    """x, y, heading, speed and turn rate of the robot of a seat."""
    drawn = 1 + config.speed_variation if config.observe_drawn_speed else 1.0
    speed = top_speed(config, seat) * drawn
    return (
        Quantity(unit="m", half=config.arena_width / 2),
        Quantity(unit="m", half=config.arena_height / 2),
        Quantity(unit="rad", half=math.pi),
        Quantity(unit="m/s", half=speed if speed > 0 else math.inf, low=smallest(config)),
        Quantity(unit="rad/s", half=config.omega_max),
    )


def distance(config: Config, if_negative: float | None = None) -> Quantity:
    """A distance, as a fraction of the arena's diagonal."""
    diagonal = math.hypot(config.arena_width, config.arena_height)
    return Quantity(unit="m", half=diagonal, low=smallest(config), if_negative=if_negative)


def bearing() -> Quantity:
    return Quantity(unit="rad", half=math.pi)


def ray(config: Config) -> Quantity:
    """The length of a lidar ray."""
    return Quantity(unit="m", half=config.lidar_range, low=0.0)


def clock(config: Config) -> Quantity:
    """The time to go."""
    return Quantity(unit="s", half=config.max_steps * config.dt, low=0.0)


def full_state(config: Config, seat: int, obstacles: int) -> tuple[Quantity, ...]:
    """The columns of `state` with full_obs. Where there is no obstacle, its distance is any large number."""
    walls = (Quantity(unit="m", half=side / 2, low=smallest(config))
             for side in (config.arena_width, config.arena_height))
    obstacle = replace(distance(config), low=-1.0)  # to its surface
    return (
        *robot(config, seat), *robot(config, 1 - seat), distance(config), bearing(), *walls,
        *(obstacle, bearing()) * obstacles, clock(config),
    )  # fmt: skip


def sensor_state(config: Config, seat: int) -> tuple[Quantity, ...]:
    """The columns of `state` with sensors; a negative distance: the other robot is not visible."""
    return (*robot(config, seat), distance(config, UNSEEN), bearing())


def actions(config: Config, seat: int) -> tuple[Quantity, ...]:
    """Speed from 0 to the top speed, and turn rate."""
    half_speed = top_speed(config, seat) / 2
    speed = Quantity(unit="m/s", middle=half_speed, half=half_speed)
    turn = Quantity(unit="rad/s", half=config.omega_max)
    return (turn,) if config.fixed_speed else (speed, turn)
