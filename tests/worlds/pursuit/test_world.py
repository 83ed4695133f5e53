"""Pursuit as a world: settings, parts, threads, saved games, starts, scripted players, pictures."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.native_worlds import (
    capture_rate,
    check_one_line_error,
    check_parts_and_threads,
    check_pictures,
    check_saved_games_continue,
    check_struct_comparison,
    load_corrupted,
    rollout_bytes,
    save_all,
)

from rematch.core.config import has_effect, validate
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey, Seat
from rematch.worlds import conformance
from rematch.worlds.pursuit import native, render
from rematch.worlds.pursuit.bots import BOTS, bot
from rematch.worlds.pursuit.config import STAGE, Config
from rematch.worlds.pursuit.world import PursuitWorld, make
from rematch.worlds.registry import find

ROLES = ("pursuer", "evader")
BUSY = Config(n_obstacles_min=1, n_obstacles_max=5, max_steps=40, w_search=1.0, w_wall=0.1,
              survival_bonus=0.02)
BLIND = Config(n_obstacles_min=1, n_obstacles_max=5, max_steps=40, full_obs=False, visibility="combined",
               safety_filter=True, history_length=4, lidar_rays=10)


def actions(world: PursuitWorld, step: int) -> dict[str, np.ndarray]:
    """Actions that depend on the game number and the step only."""
    out = {}
    for role in ROLES:
        size = world.spec.roles[role].actions.size
        game = np.arange(world.first, world.first + world.games)[:, None]
        numbers = game * 7 + np.arange(size) * 3 + len(role)
        out[role] = np.sin(numbers * 1.7 + step * 0.31).astype(np.float32)[:, None]
    return out


def rollout(world: PursuitWorld, steps: int, start: int = 0, threads: int = 1) -> bytes:
    """Every byte that these steps write."""
    return rollout_bytes(world, actions, range(start, start + steps), threads)


# --- settings -----------------------------------------------------------------------------------------

# For each setting another value, and the settings without which it has no effect.
SIGHT = {"w_vis_pursuer": 0.5}
PARTIAL: dict[str, Any] = {"full_obs": False}
SAFE: dict[str, Any] = {"safety_filter": True}
CLOSE: dict[str, Any] = {"capture_radius": 0.2, "min_init_distance": 0.4, "max_init_distance": 0.6}
SEARCH: dict[str, Any] = {"reward_form": "original", "w_search": 0.5, "full_obs": False, "view_range": 5.0}
OTHER_VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "arena_width": (18.0, {}), "arena_height": (18.0, {}), "dt": (0.06, {}), "max_steps": (90, {}),
    "pursuer_v_max": (1.1, {}), "evader_v_max": (1.1, {}), "omega_max": (2.0, {}), "fixed_speed": (True, {}),
    "robot_radius": (0.3, {}), "capture_radius": (2.9, {}), "prep_steps": (5, {}),
    "min_init_distance": (4.0, {}), "max_init_distance": (6.0, {}),
    "n_obstacles_min": (1, {}), "n_obstacles_max": (3, {}), "obstacle_radius_min": (0.5, {}),
    "obstacle_radius_max": (0.8, {}), "obstacle_gap": (4.0, {}), "obstacle_margin": (1.0, {}),
    "n_obstacle_obs": (3, {}), "distance_scale": (2.0, {}), "capture_bonus": (10.0, {}),
    "timeout_penalty": (-10.0, {}), "survival_bonus": (0.1, {}), "use_visibility_reward": (True, {}),
    "visibility_weight": (0.5, {"use_visibility_reward": True}), "w_obs_approach": (1.0, {}),
    "w_vis_pursuer": (0.5, {}), "w_search": (0.5, {}), "w_collision": (0.5, {}), "w_wall": (0.5, {}),
    "sight_range": (4.0, SIGHT), "sight_half_angle": (20.0, SIGHT), "sight_occlusion": (False, SIGHT),
    "full_obs": (False, {}), "lidar_rays": (35, PARTIAL), "lidar_range": (4.0, PARTIAL),
    "lidar_noise": (0.03, PARTIAL), "history_length": (9, PARTIAL), "visibility": ("combined", PARTIAL),
    "view_half_angle": (50.0, PARTIAL), "view_range": (5.0, PARTIAL), "safety_filter": (True, {}),
    "safety_gamma": (0.1, SAFE), "safety_separation": (True, SAFE | CLOSE),
    "reward_form": ("original", {"use_visibility_reward": True}), "stale_steps": (20, SEARCH),
    "speed_variation": (0.1, {}), "turn_variation": (0.1, {}), "action_delay": (2, {}),
    "actuator_noise": (0.1, {}), "sensor_noise": (0.1, {}),
    "observe_drawn_speed": (True, {"speed_variation": 0.1}),
}


def test_every_setting_has_an_effect() -> None:
    assert set(OTHER_VALUES) == {field.name for field in dataclasses.fields(Config)} == set(native.RULES)
    common: dict[str, Any] = {"max_steps": 100, "capture_radius": 2.0, "arena_width": 14.0,
                             "arena_height": 14.0}
    before: dict[str, bytes] = {}
    for name, (value, required) in OTHER_VALUES.items():
        config = Config(**(common | required))
        assert has_effect(config, name) == "" and getattr(config, name) != value
        key = str(required)
        if key not in before:
            before[key] = rollout(make(config, 48), 210)
        assert rollout(make(dataclasses.replace(config, **{name: value}), 48), 210) != before[key], name


@pytest.mark.parametrize(("wrong", "text"), [
    ({"n_obstacles_min": 3}, "n_obstacles_min = 3: expected at most n_obstacles_max = 2"),
    ({"n_obstacle_obs": 0}, "blind"),
    ({"n_obstacle_obs": 1}, "n_obstacle_obs = 1: expected -1 or at least n_obstacles_max = 2"),
    ({"min_init_distance": 28.0, "max_init_distance": 30.0}, "free diagonal"),
    ({"min_init_distance": 16.0}, "min_init_distance = 16: expected at most max_init_distance = 15"),
    ({"min_init_distance": 0.5}, "min_init_distance = 0.5: expected more than capture_radius"),
    ({"obstacle_radius_min": 1.5}, "obstacle_radius_min = 1.5: expected at most obstacle_radius_max = 1"),
    ({"obstacle_radius_max": 9.6}, "obstacle_radius_max = 9.6: expected at most 9.5"),
    ({"n_obstacles_min": 8, "n_obstacles_max": 8, "arena_width": 5.0, "arena_height": 5.0,
      "obstacle_radius_min": 1.0}, "as many as fit"),
    ({"robot_radius": 10.0}, "robot_radius = 10: expected less than half the arena"),
    ({"omega_max": 63.0}, "omega_max = 63: expected at most pi / dt"),
    ({"prep_steps": 1200}, "prep_steps = 1200: expected less than max_steps"),
    ({"use_visibility_reward": True, "n_obstacles_min": 0, "n_obstacles_max": 0}, "to hide behind"),
    ({"sight_range": 5.0}, "sight_range = 5.0: has no effect"),
    ({"visibility": "xray"}, "visibility = 'xray': expected one of fov, radius, line_of_sight, combined"),
    ({"full_obs": False, "lidar_rays": 0}, "lidar_rays = 0: expected a whole number from 1 to 360"),
    ({"max_steps": 0}, "max_steps = 0: expected"), ({"n_obstacles_max": 9}, "n_obstacles_max = 9: expected"),
    ({"arena_width": -1.0}, "arena_width"), ({"dt": 0.0}, "dt"),
    # It passes the checks of the config, but no sampled start fits: rejected when the world is built.
    ({"min_init_distance": 27.85, "max_init_distance": 28.0}, "no start found"),
])
def test_impossible_settings_are_rejected_in_one_line(wrong: dict[str, Any], text: str) -> None:
    check_one_line_error(lambda: make(Config(**wrong), 4), text)


@pytest.mark.parametrize(("changes", "idle"), [
    ({}, {"lidar_rays", "lidar_range", "lidar_noise", "history_length", "visibility", "view_half_angle",
          "view_range", "safety_gamma", "safety_separation"}),
    (PARTIAL, {"n_obstacle_obs", "safety_gamma", "safety_separation"}),
    (PARTIAL | {"visibility": "radius"} | SAFE, {"n_obstacle_obs", "view_half_angle"}),
    (PARTIAL | {"visibility": "line_of_sight"} | SAFE, {"n_obstacle_obs", "view_half_angle", "view_range"}),
])
def test_settings_of_another_mode_have_no_effect(changes: dict[str, Any], idle: set[str]) -> None:
    rules = Config(**changes)
    sensor_settings = {"lidar_rays", "lidar_range", "lidar_noise", "history_length", "visibility",
                       "view_half_angle", "view_range", "safety_gamma", "safety_separation", "n_obstacle_obs"}
    assert {name for name in sensor_settings if has_effect(rules, name)} == idle
    make(dataclasses.replace(rules, n_obstacle_obs=-1 if rules.full_obs else 0), 1)  # no other check applies


def test_struct_and_dataclass_are_compared() -> None:
    check_struct_comparison(Config, native.RULES, "state.h", ("dt", "int32_t"))


def test_spec_is_zero_sum_without_optional_rewards() -> None:
    assert make(Config(), 1).spec.zero_sum
    for name in ("survival_bonus", "w_obs_approach", "w_vis_pursuer", "w_search", "w_collision", "w_wall"):
        assert not make(Config(**{name: 0.1}), 1).spec.zero_sum
    assert not make(Config(use_visibility_reward=True), 1).spec.zero_sum


# --- the contract, parts, threads, saved games --------------------------------------------------------


@pytest.mark.parametrize("config", [Config(max_steps=60), BUSY, Config(fixed_speed=True, max_steps=30)])
def test_pursuit_passes_conformance_and_observes_its_state(config: Config) -> None:
    def move(name: str, index: int, by: float) -> Any:
        def change(states: np.ndarray) -> np.ndarray:
            games = states.view(native.GAME_TYPE)[:, 0]
            games[name][:, index] += np.where(games[name][:, index] > 0, -by, by).astype(np.float32)
            return states
        return change

    subjects = [conformance.Subject(name=f"{name} {index}", role=role, field="state",
                                 change=move(name, index, by))
                for role in ROLES
                for name, index, by in (("x", 0, 0.1), ("y", 1, 0.1), ("theta", 0, 0.1), ("theta", 1, 0.1),
                                        ("obstacle_x", 0, 0.1), ("obstacle_y", 0, 0.1),
                                        ("omega", 1, 0.1))]
    report = conformance.check_game(find("pursuit"), config, moves=subjects,
                                   trial=conformance.Trial(games=3, steps=12, stage=(2.0, 6.0, 1.0, 2.0)))
    # Random play seldom captures: in short games the evader may win all of them.
    assert [line for line in report.skipped if not line.startswith("that outcomes differ")] == []


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("config", [BUSY, BLIND])
def test_parts_and_threads_change_no_bit(config: Config, count: int) -> None:
    reference, threaded, divided = (make(config, 83, first=5) for _ in range(3))
    check_parts_and_threads((reference, threaded, divided), rollout, count)
    assert reference.counters["spawn_redraws"] >= 0


@pytest.mark.parametrize("config", [BUSY, BLIND])
def test_saved_games_continue_alike(config: Config) -> None:
    check_saved_games_continue(make(config, 20, seed=4), make(config, 20, seed=9), rollout)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([BUSY, BLIND]), st.data())
def test_corrupted_bytes_are_rejected_or_harmless(config: Config, data: st.DataObject) -> None:
    world = make(config, 2, seed=1)
    if not load_corrupted(world, data):
        return
    rollout(world, 3)
    for role in ROLES:
        assert all((np.abs(field) <= 1).all() for field in world.view[role].values())
    assert np.isfinite(world.view.reward).all()


def test_invalid_actions_are_rejected_and_nothing_moves() -> None:
    world = make(Config(), 5, first=10)
    before = save_all(world)
    for number in (np.nan, np.inf, -np.inf):
        wrong = actions(world, 0)
        wrong["evader"][3, 0, 1] = number
        with pytest.raises(ConfigError, match="game 13: the evader's action is not a finite number"):
            world.step(wrong)
    for shape in ((5, 2), (5, 1, 1), (4, 1, 2)):
        with pytest.raises(ConfigError, match="actions of pursuer"):
            world.step(actions(world, 0) | {"pursuer": np.zeros(shape, np.float32)})
    with pytest.raises(ConfigError, match="actions of evader"):
        world.step({"pursuer": np.zeros((5, 1, 2), np.float32)})
    with pytest.raises(ConfigError, match="rows"):
        world.save(np.array([5]))
    assert (save_all(world) == before).all()


def test_core_rejects_arrays_of_wrong_shape() -> None:
    world = make(Config(), 3)
    rules, states = world.shared.rules, world.save(np.arange(3))
    no_optional, full = np.zeros((3, 0), np.uint8), np.zeros((3, 1, rules.columns), np.float32)
    obs = {role: {"state": full.copy()} for role in ROLES}
    rules.observe(states, no_optional, obs)
    for wrong in (
        (states[:, :-1].copy(), no_optional, obs),
        (states, np.zeros((3, 8), np.uint8), obs),
        (states[:0], no_optional[:0], {role: {"state": full[:0]} for role in ROLES}),
        (states, no_optional, obs | {"pursuer": {"state": full[:2]}}),
        (states, no_optional, obs | {"evader": {"state": full[:, :, :-1].copy()}}),
    ):
        with pytest.raises(ValueError, match="wrong shape"):
            rules.observe(*wrong)


# --- starts -------------------------------------------------------------------------------------------


def test_starts_keep_to_the_stage() -> None:
    world = make(Config(n_obstacles_min=0, n_obstacles_max=4, max_steps=2), 500)
    stage = np.array([2.0, 5.0, 1, 3], np.float32)
    world.set_stage(np.arange(500), np.tile(stage, (500, 1)))
    world.next.slot[:] = (1, 2)
    counts: set[int] = set()
    for step in range(20):
        view = world.step(actions(world, step))
        if view.ended.all():
            games = save_all(world).view(native.GAME_TYPE)[:, 0]
            distance = np.hypot(games["x"][:, 1] - games["x"][:, 0], games["y"][:, 1] - games["y"][:, 0])
            assert ((distance >= 2.0 - 1e-6) & (distance <= 5.0 + 1e-6)).all()
            assert (games["stage"] == stage).all() and (world.slot == (1, 2)).all()
            counts |= set(games["obstacles"].tolist())
            check_clearances(games)
    assert counts == {1, 2, 3}


def check_clearances(games: np.ndarray) -> None:
    """No robot in an obstacle, no obstacles too close to one another or to a wall."""
    for k in range(4):
        exists = k < games["obstacles"]
        x, y, r = (games[f"obstacle_{name}"][:, k] for name in ("x", "y", "radius"))
        for seat in range(2):
            distance = np.hypot(games["x"][:, seat] - x, games["y"][:, seat] - y)
            assert (distance[exists] >= r[exists] + 0.15 - 1e-5).all()
        assert (np.maximum(np.abs(x), np.abs(y))[exists] + r[exists] <= 9.5 + 1e-5).all()
        for j in range(k):
            distance = np.hypot(games["obstacle_x"][:, j] - x, games["obstacle_y"][:, j] - y)
            assert (distance[exists] >= (r + games["obstacle_radius"][:, j])[exists] + 0.5 - 1e-5).all()


@pytest.mark.parametrize("stage", [(3, 15, 0, 3), (5, 4, 0, 2), (0.4, 5, 0, 0), (29, 30, 0, 0),
                                   (3, 15, -1, 1), (3, 15, 0.5, 1), (np.nan, 15, 0, 1), (3, np.inf, 0, 1)])
def test_stage_that_is_impossible_is_rejected(stage: tuple[float, ...]) -> None:
    world = make(Config(max_steps=1), 3)
    with pytest.raises(ConfigError):
        world.set_stage(np.array([1]), np.array([stage], np.float32))
    if np.isfinite(stage).all():
        world.next.stage[1] = stage  # without the check of set_stage: detected at the restart
        with pytest.raises(ConfigError):
            world.step(actions(world, 0))
    assert world.spec.stage == STAGE


# --- scripted players and pictures --------------------------------------------------------------------


def captures(pursuer: str, evader: str, config: Config, games: int = 60) -> float:
    """Fraction of first games that the pursuer wins."""
    players = {"pursuer": bot(pursuer, "pursuer"), "evader": bot(evader, "evader")}

    def act(player: Any, seat: Seat, step: int) -> Any:
        action = player.act(seat, RngKey(1, 2, step)).action
        assert (np.abs(action) <= 1).all()
        return action

    return capture_rate(make(config, games, seed=3), players, act, config.max_steps)


@pytest.mark.parametrize("pursuer", BOTS["pursuer"][2:])
@pytest.mark.parametrize("evader", BOTS["evader"])
def test_faster_pursuers_catch_every_evader(pursuer: str, evader: str) -> None:
    assert captures(pursuer, evader, Config(evader_v_max=0.7)) == 1.0


@pytest.mark.parametrize("evader", BOTS["evader"][3:])
def test_evaders_outrun_slow_pursuers(evader: str) -> None:
    config = Config(pursuer_v_max=0.4, min_init_distance=6.0, n_obstacles_min=3, n_obstacles_max=3)
    assert captures("pure_pursuit", evader, config) <= 0.1
    assert captures("pure_pursuit", "stand_still", config) == 1.0


def test_bot_actions_depend_on_game_number() -> None:
    full, tail = make(Config(), 10, first=0, seed=2), make(Config(), 6, first=4, seed=2)
    rng_key = RngKey(5, 2, 2**33 + 1)
    rows = np.arange(6, dtype=np.int32)
    for role, seat in (("pursuer", 0), ("evader", 1)):
        for name in BOTS[role]:
            seats = [Seat(role=w.spec.roles[role], seat=seat, world=w, rows=r,
                          obs=w.view[role]["state"][r, 0])
                     for w, r in ((full, rows + 4), (tail, rows))]
            one, other = (bot(name, role).act(seat_view, rng_key) for seat_view in seats)
            assert (one.action == other.action).all() and one.action.shape == (6, 2)
    with pytest.raises(ConfigError, match="nearest: pure_pursuit"):
        bot("pure_persuit", "pursuer")
    with pytest.raises(ConfigError, match="expected one of"):
        bot("lion", "evader")


@pytest.mark.parametrize("config", [Config(n_obstacles_max=6), Config(arena_width=4.0, arena_height=30.0),
                                    BLIND])
def test_pictures_have_their_size_and_change(config: Config) -> None:
    check_pictures(make(config, 2), actions, render, 30)
    validate(config)
