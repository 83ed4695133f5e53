"""The compiled rules of pursuit, bit for bit against the plain ones, and against closed forms."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pursuit_reference import Reference

import rematch.worlds.pursuit as package
from rematch.config import ConfigError, has_effect, validate
from rematch.spec import Noise, Seat
from rematch.worlds.pursuit import core
from rematch.worlds.pursuit.rules import STAGE, compare_with_struct
from rematch.worlds.pursuit.world import BOTS, Config, PursuitWorld, bot, make

ROLES = ("pursuer", "evader")
EXTRAS = {"survival_bonus": 0.02, "w_obs_approach": 50.0, "w_vis_pursuer": 0.3, "w_search": 2.0,
          "w_collision": 0.7, "w_wall": 0.4}

# One line per kind of game; together they switch everything on and off.
CONFIGS: list[dict[str, Any]] = [
    {},
    {"n_obstacles_min": 0, "n_obstacles_max": 0, "max_steps": 40},
    {"n_obstacles_min": 0, "n_obstacles_max": 8, "max_steps": 90, "capture_radius": 1.0, "min_init_distance": 1.5},
    {"n_obstacles_min": 8, "n_obstacles_max": 8, "arena_width": 9.0, "arena_height": 12.0, "max_steps": 70},
    {"fixed_speed": True, "n_obstacles_max": 3, "evader_v_max": 1.15, "max_steps": 55},
    {"prep_steps": 30, "max_steps": 60, "pursuer_v_max": 3.0, "evader_v_max": 0.0, "n_obstacle_obs": 5},
    {"n_obstacles_max": 5, "max_steps": 80, "use_visibility_reward": True, "visibility_weight": 0.1, **EXTRAS},
    {"n_obstacles_min": 1, "n_obstacles_max": 4, "max_steps": 50, "arena_width": 6.0, "arena_height": 6.0,
     "sight_occlusion": False, "sight_half_angle": 30.0, "sight_range": 2.5, "capture_radius": 0.3,
     "min_init_distance": 0.7, "max_init_distance": 3.0, "obstacle_margin": 0.0, "dt": 0.2, **EXTRAS},
    {"n_obstacles_min": 8, "n_obstacles_max": 8, "arena_width": 5.0, "arena_height": 5.0, "obstacle_gap": 0.05,
     "max_steps": 45, "robot_radius": 0.3, "dt": 0.3, "pursuer_v_max": 4.0, "evader_v_max": 4.0,
     "capture_radius": 0.2, "min_init_distance": 2.0, "obstacle_margin": 0.1, "omega_max": 9.0, **EXTRAS},
    {"arena_width": 4.0, "arena_height": 10.0, "obstacle_radius_min": 1.6, "obstacle_radius_max": 1.9,
     "obstacle_margin": 0.05, "obstacle_gap": 0.05, "n_obstacles_min": 1, "min_init_distance": 9.3,
     "max_init_distance": 12.0, "max_steps": 60},  # few starts: obstacles are redrawn
]


def rollout_actions(rng: np.random.Generator, games: int, width: int) -> np.ndarray:
    """[n, 2, A]: mostly long straight drives, so that walls and obstacles are met; sometimes far out of range."""
    action = rng.uniform(-1.3, 1.3, (games, 2, width)).astype(np.float32)
    action[:, :, -1] *= rng.choice([0.05, 1.0], (games, 1))
    if width == 2:
        action[:, :, 0] = np.where(rng.random((games, 2)) < 0.8, 1.0, action[:, :, 0])
    return action


def split(action: np.ndarray) -> dict[str, np.ndarray]:
    return {role: action[:, seat : seat + 1] for seat, role in enumerate(ROLES)}


def named(world: PursuitWorld) -> np.ndarray:
    return world.save(np.arange(world.games)).view(core.GAME_TYPE)[:, 0]


def same_bits(ours: Any, theirs: Any) -> bool:
    """Equal as bytes; a zero has one sign here, for no rule looks at it."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.shape == theirs.shape and (ours + 0).tobytes() == (theirs.astype(ours.dtype) + 0).tobytes()


@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_equals_the_reference_bit_for_bit(number: int) -> None:
    config = Config(**CONFIGS[number])
    games, steps = 67, 160  # 67: two full blocks and a part of one
    rng = np.random.default_rng(number)
    world = make(config, games, seed=100 + number)
    slow = Reference(config, world.next.seed, world.next.stage)
    episodes = 0
    for step in range(steps):
        states = named(world)
        for name, mine in (("x", slow.x), ("y", slow.y), ("theta", slow.theta), ("v", slow.v),
                           ("omega", slow.omega), ("obstacle_x", slow.ox), ("obstacle_y", slow.oy),
                           ("obstacle_radius", slow.orad), ("step", slow.steps), ("obstacles", slow.obstacles),
                           ("episode", slow.episode), ("spawn_redraws", slow.redraws),
                           ("obstacles_missing", slow.missing)):
            assert same_bits(states[name], mine), (name, step)
        if config.w_search:
            assert same_bits(states["visited"], slow.visited.reshape(games, 100))
        for seat, role in enumerate(ROLES):
            assert same_bits(world.view[role]["state"][:, 0], slow.sight(seat)), (role, step)
        action = rollout_actions(rng, games, core_width(config))
        view, expected = world.step(split(action)), slow.step(action)
        assert same_bits(view.reward, expected["reward"]), step
        assert same_bits(view.length, expected["length"])
        assert (view.outcome == np.stack([expected["captured"], expected["timeout"]], 1)).all()
        assert (view.ended == (expected["captured"] | expected["timeout"])).all()
        episodes += int(view.ended.sum())
        if config.zero_sum:
            assert (view.reward.sum(1) == 0).all()
    assert number == 0 or episodes > games  # resets were compared too


def core_width(config: Config) -> int:
    return 1 if config.fixed_speed else 2


def test_the_comparison_covers_enough() -> None:
    assert len(CONFIGS) * 67 * 160 >= 100_000
    counts = make(Config(**CONFIGS[9]), 67, seed=109).counters
    assert counts["spawn_redraws"] > 0
    assert make(Config(**CONFIGS[8]), 67, seed=108).counters["obstacles_missing"] > 0
