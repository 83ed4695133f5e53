"""Disturbances of the robots: factors of speed and turn rate, delay, noise of actuators and sensors."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.native_worlds import (
    check_one_line_error,
    check_parts_and_threads,
    check_saved_games_continue,
    load_corrupted,
    rollout_bytes,
    save_all,
)
from support.pursuit_games import ROLES, core_width, named, rollout_actions, same_bits, split
from support.pursuit_reference import Reference

from rematch.worlds import conformance
from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.config import Config
from rematch.worlds.pursuit.world import PursuitWorld, make
from rematch.worlds.registry import find

SIZE = native.GAME_TYPE.itemsize
SMALL: dict[str, Any] = {"arena_width": 8.0, "arena_height": 6.0, "min_init_distance": 1.0, "dt": 0.1,
                         "max_init_distance": 6.0, "max_steps": 30, "n_obstacles_min": 0,
                         "n_obstacles_max": 3}
ALL: dict[str, Any] = {"speed_variation": 0.3, "turn_variation": 0.2, "action_delay": 3,
                       "actuator_noise": 0.1, "sensor_noise": 0.05}
SENSORS: dict[str, Any] = {"full_obs": False, "visibility": "combined", "history_length": 3, "lidar_rays": 5}
FULL, PARTIAL = Config(**SMALL, **ALL), Config(**SMALL, **ALL, **SENSORS, safety_filter=True)


def optional_of(world: PursuitWorld) -> np.ndarray:
    """[N] the optional state by name."""
    return save_all(world)[:, SIZE:].copy().view(world.shared.rules.optional_type)[:, 0]


def actions(world: PursuitWorld, step: int) -> dict[str, np.ndarray]:
    """Actions that depend on the game number and the step only."""
    game = np.arange(world.first, world.first + world.games)[:, None] * 7 + np.arange(2) * 3
    return {role: np.sin(game * 1.7 + step * 0.31 + seat).astype(np.float32)[:, None]
            for seat, role in enumerate(ROLES)}


def rollout(world: PursuitWorld, steps: int, start: int = 0, threads: int = 1) -> bytes:
    return rollout_bytes(world, actions, range(start, start + steps), threads)


# --- against the slow rules -------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(sorted(ALL)), min_size=1), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_disturbed_world_equals_reference_bit_for_bit(
    names: set[str], full: bool, fixed: bool, seed: int
) -> None:
    config = Config(**SMALL, **{name: ALL[name] for name in names}, **({} if full else SENSORS),
                    fixed_speed=fixed, prep_steps=4,
                    observe_drawn_speed=bool(seed % 2) and "speed_variation" in names)
    world, rng = make(config, 33, seed=seed), np.random.default_rng(seed)
    slow = Reference(config, world.next.seed, world.next.stage)
    ended = 0
    for step in range(45):
        states = named(world)
        for name, own in (("x", slow.x), ("y", slow.y), ("theta", slow.theta), ("v", slow.v),
                           ("omega", slow.omega), ("step", slow.steps)):
            assert same_bits(states[name], own), (name, step)
        assert same_bits(optional_of(world)["speed_factor"], slow.factors[:, 0])
        for seat, role in enumerate(ROLES):
            expected = slow.obs(seat) if full else slow.frames[:, seat, -1, :7]
            assert same_bits(world.view[role]["state"][:, 0], expected), (role, step)
        action = rollout_actions(rng, world.games, core_width(config))
        view, result = world.step(split(action)), slow.step(action)
        assert same_bits(view.reward, result["reward"])
        assert (view.ended == (result["captured"] | result["timeout"])).all()
        ended += int(view.ended.sum())
    assert ended > 0


# --- one at a time ----------------------------------------------------------------------------------------

OPEN = Config(n_obstacles_min=0, n_obstacles_max=0)


@pytest.mark.parametrize("safety", [False, True])
def test_world_without_disturbances_has_the_saved_state_of_before(safety: bool) -> None:
    """Checkpoints of older runs have these sizes: Game, then 32 bytes with the safety filter, then frames."""
    assert make(dataclasses.replace(OPEN, safety_filter=safety), 1).save(np.zeros(1, np.int32)).shape[1] == (
        SIZE + (32 if safety else 0))
    frames = 4 * 2 * 10 * (7 + 36)
    assert make(dataclasses.replace(OPEN, full_obs=False), 1).save(np.zeros(1, np.int32)).shape[1] == (
        SIZE + 32 + frames)


def test_factors_are_uniform_and_drawn_for_each_episode() -> None:
    config = dataclasses.replace(OPEN, speed_variation=0.2, turn_variation=0.5, max_steps=2)
    world = make(config, 2000, seed=3)
    first = optional_of(world)
    for name, width in (("speed_factor", 0.2), ("turn_factor", 0.5)):
        factor = first[name]
        assert (np.abs(factor - 1) <= width).all() and abs(factor.mean() - 1) < 0.02 * width * 2
        assert factor.std() == pytest.approx(width / np.sqrt(3), rel=0.05)
        assert abs(np.corrcoef(factor.T)[0, 1]) < 0.1  # the robots have factors of their own
    go = np.ones((2000, 2, 2), np.float32)
    world.step(split(go))
    assert np.allclose(named(world)["v"], first["speed_factor"]) and (optional_of(world) == first).all()
    assert np.allclose(named(world)["omega"], 2.84 * first["turn_factor"])
    world.step(split(go))  # a new episode
    assert (optional_of(world)["speed_factor"] != first["speed_factor"]).all()


@pytest.mark.parametrize("full", [False, True])
def test_drawn_speed_is_observed_where_the_setting_says_so(full: bool) -> None:
    config = dataclasses.replace(OPEN, speed_variation=0.2, fixed_speed=True, evader_v_max=1.5, full_obs=full)
    for observed in (False, True):
        world = make(dataclasses.replace(config, observe_drawn_speed=observed), 500, seed=3)
        factor = optional_of(world)["speed_factor"].copy()
        world.step(split(np.zeros((500, 2, 1), np.float32)))
        expected = factor / 1.2 if observed else np.minimum(factor, 1)
        for seat, role in enumerate(ROLES):
            shown = world.view[role]["state"][:, 0]
            assert np.allclose(shown[:, 3], expected[:, seat])
            assert not full or np.allclose(shown[:, 8], expected[:, 1 - seat])


@pytest.mark.parametrize("delay", [1, 2, 5])
@pytest.mark.parametrize("fixed", [False, True])
def test_delayed_actions_are_executed_later(delay: int, fixed: bool) -> None:
    config = dataclasses.replace(OPEN, action_delay=delay, fixed_speed=fixed)
    world, width = make(config, 3), core_width(config)
    rng, sent = np.random.default_rng(1), []
    for step in range(12):
        sent.append(rng.uniform(-1, 1, (3, 2, width)).astype(np.float32))
        world.step(split(sent[-1]))
        arrived = sent[step - delay][:, :, -1] if step >= delay else np.zeros((3, 2))
        assert np.allclose(named(world)["omega"], 2.84 * arrived, atol=1e-6)
        speed = sent[step - delay][:, :, 0] if step >= delay else -np.ones((3, 2))
        assert np.allclose(named(world)["v"], 1.0 if fixed else (speed + 1) / 2, atol=1e-6)


def test_actuator_noise_has_its_deviation() -> None:
    world = make(dataclasses.replace(OPEN, actuator_noise=0.05), 4000, seed=1)
    samples = []
    for _ in range(2):
        world.step(split(np.zeros((4000, 2, 2), np.float32)))  # half the top speed, straight on
        samples.append(np.stack([named(world)["v"] - 0.5, named(world)["omega"] / 2.84]))
    noise = np.array(samples)
    assert noise.std((0, 2, 3)) == pytest.approx([0.05, 0.05], rel=0.03)
    assert np.abs(noise.mean((0, 2, 3))).max() < 0.002
    flat = noise.transpose(0, 1, 3, 2).reshape(8, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(8)).max() < 0.08  # steps, robots, speed and turn: independent


def test_sensor_noise_has_its_deviation_and_spares_the_clock() -> None:
    config = Config(n_obstacles_min=0, n_obstacles_max=2)
    noisy, exact = (make(dataclasses.replace(config, sensor_noise=n), 3000, seed=2) for n in (0.02, 0.0))
    for role in ROLES:
        now, true = noisy.view[role]["state"][:, 0], exact.view[role]["state"][:, 0]
        assert (now[:, -1] == true[:, -1]).all() and (np.abs(now) <= 1).all()
        difference = now - true
        inside = (np.abs(true) < 0.9) & (true != 0)
        for column in (0, 1, 2, 5, 7, 11):
            assert difference[inside[:, column], column].std() == pytest.approx(0.02, rel=0.08), column
        angle = (difference[:, 2] + 1) % 2 - 1  # an angle wraps around
        assert np.abs(angle).max() < 0.12
        missing = named(exact)["obstacles"] < 2
        assert (difference[missing, 16:18] == 0).all() and difference[~missing, 16].std() > 0.01
    assert (named(noisy)["x"] == named(exact)["x"]).all()  # noise changes what is seen, not what is


def test_sensor_noise_leaves_unseen_robots_unseen() -> None:
    config = Config(full_obs=False, sensor_noise=0.3)
    noisy, exact = (make(dataclasses.replace(config, sensor_noise=n), 500, seed=2) for n in (0.3, 0.0))
    for role in ROLES:
        now, true = noisy.view[role]["state"][:, 0], exact.view[role]["state"][:, 0]
        unseen = true[:, 5] == -1
        assert (now[unseen, 5:] == true[unseen, 5:]).all() and (now[~unseen, 5] >= 0).all()
        assert 0.1 < unseen.mean() < 0.9
        assert (noisy.view[role]["lidar"] == exact.view[role]["lidar"]).all()  # it has noise of its own


# --- the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [
    FULL, PARTIAL, Config(**SMALL, action_delay=2), Config(**SMALL, sensor_noise=0.1),
    Config(**SMALL, speed_variation=0.2, fixed_speed=True),
    Config(**SMALL, speed_variation=0.2, fixed_speed=True, observe_drawn_speed=True)])
def test_disturbed_pursuit_passes_conformance(config: Config) -> None:
    trial = conformance.Trial(games=3, steps=12, stage=(2.0, 5.0, 1.0, 2.0), all_seeing=not config.full_obs)
    conformance.check_game(find("pursuit"), config, trial=trial)


@pytest.mark.parametrize("config", [FULL, PARTIAL])
def test_disturbed_parts_and_threads_change_no_bit(config: Config) -> None:
    check_parts_and_threads(tuple(make(config, 83, first=5) for _ in range(3)), rollout, 3)


@pytest.mark.parametrize("config", [FULL, PARTIAL])
def test_disturbed_games_are_saved_whole(config: Config) -> None:
    check_saved_games_continue(make(config, 20, seed=4), make(config, 20, seed=9), rollout)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([FULL, PARTIAL]), st.data())
def test_corrupted_disturbances_are_rejected_or_harmless(config: Config, data: st.DataObject) -> None:
    world = make(config, 2, seed=1)
    if load_corrupted(world, data):
        rollout(world, 3)
        for role in ROLES:
            assert all((np.abs(field) <= 1).all() for field in world.view[role].values())
        assert np.isfinite(world.view.reward).all()


def test_factors_out_of_range_are_rejected() -> None:
    world = make(FULL, 2)
    states = save_all(world)
    for name, value in (("speed_factor", 1.4), ("turn_factor", np.nan), ("delayed", 2.0)):
        changed = states.copy()
        changed[:, SIZE:].view(world.shared.rules.optional_type)[:, 0][name][1] = value
        load = functools.partial(world.load, np.arange(2), changed)
        check_one_line_error(load, f"saved games: {name} is not from")


def test_resampled_disturbances_change_the_future_only() -> None:
    world = make(FULL, 200, seed=1)
    rollout(world, 10)
    now, other = optional_of(world), world.resample(np.arange(200), 0, 7)[:, SIZE:].copy()
    drawn = other.view(world.shared.rules.optional_type)[:, 0]
    assert (drawn["noise"][:, 0] == now["noise"][:, 0]).all()  # of the present observation
    assert (drawn["noise"][:, 1] != now["noise"][:, 1]).all()
    assert (drawn["speed_factor"] != now["speed_factor"]).all()
    assert (drawn["delayed"][:, 0] == now["delayed"][:, 0]).all()  # the robot knows its own actions
    assert (drawn["delayed"][:, 1] != now["delayed"][:, 1]).all()


def test_turn_rate_of_half_a_turn_a_step_counts_the_variation() -> None:
    check_one_line_error(lambda: make(Config(omega_max=50.0, turn_variation=0.5), 1),
                         "omega_max = 50: expected at most pi / dt / (1 + turn_variation)")
    make(Config(omega_max=50.0), 1)
