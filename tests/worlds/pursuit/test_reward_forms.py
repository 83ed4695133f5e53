"""The two forms of the optional rewards: against the slow rules bit for bit, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.native_worlds import check_one_line_error
from support.pursuit_games import core_width, named, rollout_actions, same_bits, split
from support.pursuit_reference import Reference

from rematch import api
from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.config import REWARD_FORMS, VISIBILITY, Config
from rematch.worlds.pursuit.world import PursuitWorld, make

SMALL: dict[str, Any] = {"arena_width": 7.0, "arena_height": 6.0, "min_init_distance": 1.0, "dt": 0.1,
                         "max_init_distance": 6.0, "max_steps": 25}
WEIGHT = st.sampled_from([0.0, 0.3, 50.0])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(REWARD_FORMS), st.booleans(), st.data())
def test_both_forms_equal_reference_bit_for_bit(form: str, full: bool, data: st.DataObject) -> None:
    weights = {name: data.draw(WEIGHT, name) for name in
               ("survival_bonus", "w_obs_approach", "w_vis_pursuer", "w_search", "w_collision", "w_wall")}
    if form == "original" and full:
        weights["w_search"] = 0.0
    sensors = {} if full else {"full_obs": False, "visibility": data.draw(st.sampled_from(VISIBILITY)),
                               "history_length": 2, "lidar_rays": 3}
    config = Config(**SMALL, **weights, **sensors, reward_form=form, n_obstacles_min=0, n_obstacles_max=3,
                    use_visibility_reward=data.draw(st.booleans()), visibility_weight=0.1)
    seed = data.draw(st.integers(0, 2**31))
    world, rng = make(config, 33, seed=seed), np.random.default_rng(seed)
    slow = Reference(config, world.next.seed, world.next.stage)
    ended = 0
    for step in range(40):
        action = rollout_actions(rng, world.games, core_width(config))
        view, expected = world.step(split(action)), slow.step(action)
        assert same_bits(view.reward, expected["reward"]), step
        if config.w_search:
            assert same_bits(named(world)["visited"], slow.visited.reshape(world.games, 100)), step
        if config.zero_sum:
            assert (view.reward.sum(1) == 0).all()
        ended += int(view.ended.sum())
    assert ended > 0


def placed(config: Config, **values: Any) -> PursuitWorld:
    """A world of one game with these values; one obstacle of radius 1 at the origin."""
    world = make(config, 1)
    state = world.save(np.zeros(1, np.int32))
    stone = {"obstacles": 1, "obstacle_x": 0.0, "obstacle_y": 0.0, "obstacle_radius": [1.0] + 7 * [0.0]}
    for name, value in (stone | values).items():
        state[:, : native.GAME_TYPE.itemsize].view(native.GAME_TYPE)[0][name] = value
    world.load(np.zeros(1, np.int32), state)
    return world


def rewards(world: PursuitWorld, pursuer: tuple[float, float], evader: tuple[float, float]) -> Any:
    action = np.array([pursuer, evader], np.float32)[None]
    return world.step(split(action)).reward[0]


STAND, GO = (-1.0, 0.0), (1.0, 0.0)
STONE = {"n_obstacles_min": 1, "n_obstacles_max": 1}
HIDE: dict[str, Any] = {**STONE, "use_visibility_reward": True, "visibility_weight": 0.1}
DIAGONAL = math.hypot(20, 20)


@pytest.mark.parametrize(("form", "heading", "seen"), [
    ("rematch", 0.0, True), ("rematch", math.pi / 2, False), ("original", math.pi / 2, True)])
def test_original_evader_hides_by_line_of_sight_only(form: str, heading: float, seen: bool) -> None:
    """The pursuer looks at the evader or away from it; no obstacle lies between them."""
    config = Config(**HIDE, reward_form=form)
    world = placed(config, x=(-9.0, -4.0), y=(5.0, 5.0), theta=(heading, 0.0))
    assert rewards(world, STAND, STAND)[1] == pytest.approx(-0.1 if seen else 0.1)
    far = placed(config, x=(-9.0, 9.0), y=(5.0, 5.0), theta=(0.0, 0.0))  # 18 m: beyond sight_range
    assert rewards(far, STAND, STAND)[1] == pytest.approx(-0.1 if form == "original" else 0.1)
    behind = placed(config, x=(-3.0, 3.0), y=(0.0, 0.0), theta=(0.0, 0.0))
    assert rewards(behind, STAND, STAND)[1] == pytest.approx(0.1)


def test_original_evader_without_obstacles_has_zero_sum_rewards() -> None:
    config = Config(n_obstacles_min=0, n_obstacles_max=1, use_visibility_reward=True, reward_form="original")
    world = placed(config, obstacles=0, x=(-3.0, 3.0), y=(0.0, 0.0), theta=(0.0, 0.0))
    pursuer, evader = rewards(world, GO, STAND)
    assert pursuer == pytest.approx(0.05 / DIAGONAL, rel=1e-3) and evader == -pursuer


@pytest.mark.parametrize("form", REWARD_FORMS)
@pytest.mark.parametrize("timeout", [False, True])
def test_original_last_step_is_zero_sum(form: str, timeout: bool) -> None:
    config = Config(**HIDE, reward_form=form, w_obs_approach=50.0, survival_bonus=0.02, w_vis_pursuer=0.3)
    x, step = ((-8.0, -4.0), 1199) if timeout else ((-8.0, -7.48), 5)
    world = placed(config, x=x, y=(0.0, 0.0), theta=(0.0, 0.0), step=step)
    pursuer, evader = rewards(world, GO, STAND if not timeout else GO)
    assert world.view.ended[0]
    closing = 0.0 if timeout else 0.05 / DIAGONAL
    terminal = -100.0 if timeout else 100.0
    if form == "original":
        assert pursuer == pytest.approx(closing + terminal, abs=1e-5) and evader == -pursuer
    else:
        approach = 50 * 0.05 / DIAGONAL if timeout else 0.0
        assert pursuer == pytest.approx(closing + terminal + 0.3, abs=1e-5)
        assert evader == pytest.approx(-terminal - 0.1 + approach, abs=1e-4)


def test_original_sight_of_the_pursuer_is_part_of_the_zero_sum() -> None:
    config = Config(**STONE, w_vis_pursuer=0.3, reward_form="original")
    assert config.zero_sum and make(config, 1).spec.zero_sum
    seen = placed(config, x=(-9.0, 9.0), y=(5.0, 5.0), theta=(math.pi / 2, 0.0))  # no field of view
    assert rewards(seen, STAND, STAND).tolist() == pytest.approx([0.3, -0.3])
    hidden = placed(config, x=(-3.0, 3.0), y=(0.0, 0.0), theta=(0.0, 0.0))
    assert rewards(hidden, STAND, STAND).tolist() == [0.0, 0.0]
    near = Config(**STONE, w_vis_pursuer=0.3, reward_form="original", full_obs=False, visibility="radius",
                  view_range=8.0)
    far = placed(near, x=(-9.0, 9.0), y=(5.0, 5.0), theta=(0.0, 0.0))  # out of range of the sensors
    assert rewards(far, STAND, STAND).tolist() == [0.0, 0.0]


def test_original_search_counts_cells_in_sight() -> None:
    """Never seen: age 1. Seen in the step before: 1 / stale_steps. While the evader is visible: nothing."""
    config = Config(**STONE, w_search=2.0, stale_steps=10, reward_form="original", full_obs=False,
                    visibility="radius", view_range=5.0)
    world = placed(config, x=(-7.0, 7.0), y=(0.0, 0.0), theta=(0.0, 0.0))
    assert rewards(world, STAND, STAND)[0] == pytest.approx(2.0)
    cells = named(world)["visited"][0].reshape(10, 10)
    centres = -9 + 2 * np.arange(10)
    inside = np.hypot(centres[None] + 7, centres[:, None]) <= 5
    assert ((cells > 0) == inside).all() and set(cells[inside]) == {1}
    assert rewards(world, STAND, STAND)[0] == pytest.approx(2.0 / 10)
    visible = placed(config, x=(-7.0, -4.0), y=(0.0, 0.0), theta=(0.0, 0.0))
    assert rewards(visible, STAND, STAND)[0] == 0.0 and not named(visible)["visited"].any()


@pytest.mark.parametrize(("wrong", "text"), [
    ({"sight_range": 5.0, "w_vis_pursuer": 1.0}, "sight_range = 5.0: has no effect; expected reward_form"),
    ({"sight_occlusion": False, "use_visibility_reward": True}, "sight_occlusion = False: has no effect"),
    ({"w_search": 1.0}, "w_search = 1: has no effect with full_obs"),
    ({"stale_steps": 20}, "stale_steps = 20: has no effect; expected w_search"),
])
def test_settings_without_effect_in_the_original_form_are_rejected(wrong: dict[str, Any], text: str) -> None:
    check_one_line_error(lambda: make(Config(**wrong, reward_form="original"), 1), text)


REPRODUCTIONS = ("ams_drl", "ra1", "ra2", "h", "i", "v", "w", "x", "y", "z1", "z2", "seed_sensitivity")


@pytest.mark.parametrize(("names", "form"), [(REPRODUCTIONS, "original"), (("pursuit", "quick"), "rematch")])
def test_reproductions_have_the_original_form(names: tuple[str, ...], form: str) -> None:
    assert {name: api.configure(name).world.reward_form for name in names} == dict.fromkeys(names, form)
