"""The worlds on the GPU beside those on the CPU, bit by bit, in an emulation that needs no GPU."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.emulated_worlds import emulated_gpu

from rematch.core.errors import ConfigError, WorldError
from rematch.core.world import SeatRule, SlotRule
from rematch.rollout.cuda_collector import CudaCollector
from rematch.worlds.cuda_world import GAMES_PER_BLOCK, CudaWorld
from rematch.worlds.pursuit import cuda as pursuit_on_gpu
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
        "survival_bonus": 0.01, "safety_filter": True, "actuator_noise": 0.1, "action_delay": 2,
        "speed_variation": 0.2, "observe_drawn_speed": True}),
    "pursuit, sensors": ("pursuit", {"full_obs": False, "lidar_rays": 12, "history_length": 3,
                                     "n_obstacles_max": 2, "n_obstacles_min": 2, "fixed_speed": True,
                                     "max_steps": 30}),
    "lattice": ("lattice", {"n": 9, "block": 3, "horizon": 20}),
    "lattice, skip": ("lattice", {"n": 7, "skip": 3, "horizon": 15, "radius": 0.0, "symmetry": False}),
    "beasty": ("beasty", {"first": -1}),
    "beasty, variant": ("beasty", {"earlier_rules": True}),
    "beasty, four players": ("beasty", {"players": 4, "scoring": "count", "first": -1}),
}  # fmt: skip
GAMES, STEPS, ROLLOUTS, FIRST = 96, 40, 5, 1000
FIRST_ITERATION = 2**32 // STEPS - 2  # the step number, a random key, gets its 33rd bit in the second rollout


class StoredActions(same_games.RandomActing):  # type: ignore[misc, name-defined]
    """Plays the actions that lie in the rollout."""

    def act(self, t: int, first_step: Any, only_values: bool = False) -> None:
        """Leaves the actions as they are."""


def start(subject: str, make_acting: Any = same_games.RandomActing) -> tuple[Any, CudaCollector]:
    """A world on the CPU, and the collector of the same one on the emulated GPU."""
    name, settings = SUBJECTS[subject]
    game = find(name)
    config = game.Config(**settings)
    world = CudaWorld(game.make(config, GAMES, FIRST, 5), game.cuda)
    seating = same_games.seats_of(game, world.spec)
    same_games.draw_slots(world, seating, 0)
    world.restart()
    collector = CudaCollector(world, seating, STEPS, 7, make_acting)
    return game.make(config, GAMES, FIRST, 5), collector


@pytest.mark.parametrize("subject", SUBJECTS)
def test_games_have_the_bits_of_the_cpu(subject: str, emulated_gpu: None) -> None:
    twin, collector = start(subject)
    ended = 0
    for iteration in range(ROLLOUTS):
        same_games.draw_slots(collector.world, collector.seating, iteration)
        record = same_games.compare(collector, twin, FIRST_ITERATION + iteration)
        ended += record["games_ended"]
        assert record["bot_decisions"] > GAMES * STEPS / 4
    assert ended > GAMES


@pytest.mark.parametrize("subject", ["pursuit, obstacles and shaping", "lattice", "beasty"])
def test_saved_games_continue_on_the_gpu(subject: str, emulated_gpu: None) -> None:
    twin, collector = start(subject)
    rows = np.arange(GAMES, dtype=np.int32)
    collector.collect(0)
    saved, counters = collector.world.save(rows), collector.world.counters
    twin.load(rows, saved)
    assert dict(counters) == dict(twin.counters)
    collector.collect(1)
    assert not np.array_equal(collector.world.save(rows), saved)
    collector.world.load(rows, saved)
    assert np.array_equal(collector.world.save(rows), saved)
    same_games.compare(collector, twin, 2)


def test_comparison_detects_a_difference(emulated_gpu: None) -> None:
    twin, collector = start("lattice")
    collector.world.tables["move"][::7] = collector.world.tables["move"][0]
    with pytest.raises(same_games.Difference, match="differs between CPU and GPU in"):
        same_games.compare(collector, twin, 0)


@pytest.mark.parametrize(("subject", "action", "reason"), [
    ("lattice", 3, "an action is not 0, 1 or 2"),
    ("beasty", 12, "the action of the player to move is not legal"),
    ("beasty", -1, "the action of the player to move is not legal"),
    ("pursuit", float("nan"), "an action is not a finite number"),
])  # fmt: skip
def test_failures_name_the_game(subject: str, action: float, reason: str, emulated_gpu: None) -> None:
    _, collector = start(subject, StoredActions)
    collector.world.next.slot[:] = 1
    collector.world.next.slot[37] = 0
    collector.world.restart()
    for track in collector.rollout.role_tracks.values():
        track.action_tensor[:] = action
    with pytest.raises(WorldError, match=f"^game {FIRST + 37}: {reason}$"):
        collector.collect(0)


def test_the_kernel_of_pursuit_has_memory_for_the_games_of_a_block() -> None:
    assert pursuit_on_gpu.GAMES_PER_BLOCK == GAMES_PER_BLOCK
    assert f"STEP_GAMES = {GAMES_PER_BLOCK} }}" in (pursuit_on_gpu.FOLDER / "kernels.cu").read_text()


def test_other_players_are_refused_in_one_line(emulated_gpu: None) -> None:
    _, collector = start("beasty")
    collector.seating["player"].seat_player(find("beasty").bot("search:20", "player"))
    with pytest.raises(ConfigError, match="search:20 cannot be seated on the GPU; expected cpu"):
        collector.collect(0)


def test_a_role_that_only_bots_play_needs_no_kernel_of_a_network(emulated_gpu: None) -> None:
    twin, collector = start("beasty", None)
    collector.seating["player"].packed = np.zeros((0, 0), np.float32)
    collector.world.next.slot[:] = 8
    collector.world.restart()
    assert same_games.compare(collector, twin, 0)["bot_decisions"] == GAMES * STEPS


def seat_rules() -> st.SearchStrategy[SeatRule]:
    """Rules of one seat, with up to five bots and up to four past policies."""

    def rule(learns: bool | None, share: float, weights: list[int], open_slots: set[int]) -> SeatRule:
        limits = np.cumsum(np.array(weights) / max(1, sum(weights)))
        bots, opened = np.arange(9, 9 + len(weights), dtype=np.int32), np.array(sorted(open_slots), np.int32)
        return SeatRule(learns, share if weights else 0.0, limits, bots, opened)

    learns, shares = st.sampled_from([None, False, True]), st.sampled_from([0.0, 0.3, 1.0])
    weights, slots = st.lists(st.integers(1, 9), max_size=5), st.sets(st.integers(1, 8), max_size=4)
    return st.builds(rule, learns, shares, weights, slots)


def push_next(world: CudaWorld) -> None:
    """As the collector before a rollout: slots are drawn on the GPU where a rule gives them."""
    rule, first_step = world.push_next(), np.zeros(1, np.int64)
    rule["first_step"], rule["start"] = first_step.ctypes.data, 77
    structs = torch.from_numpy(rule.view(np.uint8).reshape(-1))
    world.program.kernel("begin_rollout")((-(-GAMES // 64), 1), 64, structs)
    assert first_step[0] == 77


def test_slots_drawn_on_the_gpu_are_those_of_the_host(emulated_gpu: None) -> None:
    game = find("beasty")
    world = CudaWorld(game.make(game.Config(players=4), GAMES, 0, 5), game.cuda)

    @given(st.integers(0, 2**40), st.integers(0, 2**40), st.sampled_from([0.0, 0.4, 1.0]),
           st.lists(seat_rules(), min_size=4, max_size=4))  # fmt: skip
    def check(seed: int, iteration: int, share: float, seats: list[SeatRule]) -> None:
        rule = SlotRule(seed, iteration, share, tuple(seats))
        world.next.draw_slots(rule)
        push_next(world)
        drawn = world.next_tensors["slot"].numpy()
        assert np.array_equal(drawn, rule.draw(GAMES)) and np.array_equal(drawn, world.next.slot)

    check()


def test_rule_that_is_too_large_for_the_kernel_is_drawn_on_the_host(emulated_gpu: None) -> None:
    game = find("pursuit")
    world = CudaWorld(game.make(game.Config(), GAMES, 0, 5), game.cuda)
    many = np.arange(1, 100, dtype=np.int32)
    rule = SlotRule(3, 4, 1.0, (SeatRule(False, 0.0, np.zeros(0), many[:0], many),) * 2)
    world.next.draw_slots(rule)
    push_next(world)
    assert np.array_equal(world.next_tensors["slot"].numpy(), rule.draw(GAMES))


def test_slots_written_on_the_host_replace_a_rule(emulated_gpu: None) -> None:
    game = find("pursuit")
    world = CudaWorld(game.make(game.Config(), GAMES, 0, 5), game.cuda)
    slots = np.arange(1, 4, dtype=np.int32)
    world.next.draw_slots(SlotRule(3, 4, 1.0, (SeatRule(False, 0.0, np.zeros(0), slots[:0], slots),) * 2))
    world.next.slot[:] = 0
    push_next(world)
    assert not world.next_tensors["slot"].any()
