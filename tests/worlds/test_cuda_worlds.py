"""The worlds on the GPU beside those on the CPU, bit by bit, in an emulation that needs no GPU."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.emulated_worlds import EmulatedCollector, emulated_gpu, unused

from rematch.core.errors import ConfigError, WorldError
from rematch.rollout.seating import BotsOnly, RoleSeating
from rematch.worlds.cuda_world import CudaWorld
from rematch.worlds.registry import find

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
__all__ = ["emulated_gpu"]

PLACE = Path(__file__).parents[2] / "tools/checks/same_games.py"
SPEC = importlib.util.spec_from_file_location("same_games", PLACE)
assert SPEC is not None and SPEC.loader is not None
same_games = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(same_games)

SUBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pursuit": ("pursuit", {"max_steps": 60, "arena_width": 8.0}),
    "pursuit, obstacles and shaping": ("pursuit", {
        "n_obstacles_min": 1, "n_obstacles_max": 3, "max_steps": 40, "use_visibility_reward": True,
        "w_obs_approach": 0.5, "w_vis_pursuer": 0.1, "w_search": 0.2, "w_collision": 0.3, "w_wall": 0.1,
        "survival_bonus": 0.01, "safety_filter": True, "actuator_noise": 0.1, "action_delay": 2}),
    "pursuit, sensors": ("pursuit", {"full_obs": False, "lidar_rays": 12, "history_length": 3, "n_obstacles_max": 2,
                                     "n_obstacles_min": 2, "fixed_speed": True, "max_steps": 30}),
    "lattice": ("lattice", {"n": 9, "block": 3, "horizon": 20}),
    "lattice, skip": ("lattice", {"n": 7, "skip": 3, "horizon": 15, "radius": 0.0, "symmetry": False}),
    "beasty": ("beasty", {"first": -1}),
    "beasty, variant": ("beasty", {"document_variant": True}),
    "beasty, four players": ("beasty", {"players": 4, "scoring": "count", "first": -1}),
}  # fmt: skip
GAMES, STEPS, ROLLOUTS, FIRST = 96, 40, 5, 1000


def play(subject: str, make_acting: Any = same_games.RandomActing) -> tuple[Any, Any, EmulatedCollector]:
    """The game, its world on the CPU and the collector of its world on the emulated GPU."""
    name, settings = SUBJECTS[subject]
    game = find(name)
    config = game.Config(**settings)
    world = CudaWorld(game.make(config, GAMES, FIRST, 5), game.cuda)
    seating = same_games.seats_of(game, world)
    same_games.draw_slots(world, seating, 0)
    world.restart()
    collector = EmulatedCollector(world, seating, STEPS, 7, make_acting)
    return game, game.make(config, GAMES, FIRST, 5), collector


@pytest.mark.parametrize("subject", SUBJECTS)
def test_games_have_the_bits_of_the_cpu(subject: str, emulated_gpu: None) -> None:
    _, twin, collector = play(subject)
    ended = 0
    for iteration in range(ROLLOUTS):
        same_games.draw_slots(collector.world, collector.seating, iteration)
        record = same_games.compare(collector, twin, 2**32 // STEPS - 2 + iteration)  # step numbers of 33 bits too
        ended += record["games_ended"]
        assert record["bot_decisions"] > GAMES * STEPS / 4
    assert ended > GAMES
