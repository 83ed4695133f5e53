"""The sensors of pursuit: against a reference bit for bit, by geometry, and by the conformance test."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.float_arithmetic import log
from support.pursuit_games import core_width, named, rollout_actions, same_bits, split
from support.pursuit_reference import Reference

from rematch.core.player import RngKey, Seat
from rematch.worlds import conformance
from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.bots import BOTS, bot
from rematch.worlds.pursuit.config import VISIBILITY, Config
from rematch.worlds.pursuit.world import PursuitWorld, make
from rematch.worlds.registry import find

ROLES = ("pursuer", "evader")
SIZE = native.GAME_TYPE.itemsize
SMALL: dict[str, Any] = {
    "arena_width": 8.0,
    "arena_height": 6.0,
    "min_init_distance": 1.0,
    "max_init_distance": 6.0,
}

CONFIGS: list[dict[str, Any]] = [
    {"max_steps": 60},
    {"visibility": "radius", "view_range": 3.0, "max_steps": 40, "n_obstacles_max": 6, **SMALL},
    {
        "visibility": "line_of_sight",
        "max_steps": 40,
        "n_obstacles_min": 0,
        "n_obstacles_max": 8,
        "lidar_rays": 7,
        "history_length": 3,
        "lidar_range": 30.0,
        "obstacle_gap": 0.1,
        **SMALL,
    },
    {
        "visibility": "combined",
        "view_half_angle": 100.0,
        "max_steps": 30,
        "n_obstacles_max": 5,
        "lidar_noise": 0.5,
        "history_length": 1,
        "lidar_rays": 1,
        "fixed_speed": True,
        "w_vis_pursuer": 0.1,
        **SMALL,
    },
]


def optional_of(world: PursuitWorld, states: np.ndarray) -> np.ndarray:
    return states[:, SIZE:].copy().view(world.shared.rules.optional_type)[:, 0]


def with_games(world: PursuitWorld, **values: Any) -> PursuitWorld:
    """The same world with these numbers of its games changed: name -> [N, ...]."""
    states = world.save(np.arange(world.games))
    games = states[:, :SIZE].copy()
    for name, value in values.items():
        games.view(native.GAME_TYPE)[:, 0][name] = value
    other = make(world.config, world.games)
    other.load(np.arange(world.games), np.concatenate([games, states[:, SIZE:]], 1))
    return other


def rolled_out(world: PursuitWorld, steps: int, seed: int = 0) -> PursuitWorld:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        world.step(split(rollout_actions(rng, world.games, core_width(world.config))))
    return world


@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_sensors_equal_reference_bit_for_bit(number: int) -> None:
    config = Config(full_obs=False, **CONFIGS[number])
    games = 35
    rng = np.random.default_rng(number)
    world = make(config, games, seed=number)
    slow = Reference(config, world.next.seed, world.next.stage)
    visible, episodes = 0, 0
    for step in range(130):
        for s, role in enumerate(ROLES):
            view = {name: field[:, 0] for name, field in world.view[role].items()}
            newest = slow.frames[:, s, -1]
            assert same_bits(view["state"], newest[:, :7]), (role, step)
            assert same_bits(view["lidar"], newest[:, 7:]), (role, step)
            assert same_bits(view["history"], slow.frames[:, s].reshape(games, -1)), (role, step)
            remaining = (config.max_steps - slow.steps).astype(np.float32)
            assert same_bits(view["clock"][:, 0], remaining * slow.per_max_steps)
            visible += int((view["state"][:, 5] != -1).sum())
        action = rollout_actions(rng, games, core_width(config))
        view, expected = world.step(split(action)), slow.step(action)
        assert same_bits(view.reward, expected["reward"])
        episodes += int(view.ended.sum())
    assert episodes > games and 0.05 < visible / (130 * games * 2) < 0.95


# --- the lidar ------------------------------------------------------------------------------------------

NOISELESS = Config(
    full_obs=False, lidar_noise=0.0, n_obstacles_min=0, n_obstacles_max=6, visibility="combined", **SMALL
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 8, 36, 360]), st.sampled_from([0.5, 5.0, 50.0]))
def test_lidar_rays_end_at_the_first_surface(seed: int, rays: int, reach: float) -> None:
    """No point before the end of a ray lies in a wall or an obstacle; its end touches one."""
    config = dataclasses.replace(NOISELESS, lidar_rays=rays, lidar_range=reach)
    world = make(config, 4, seed=seed)
    for game, row in zip(named(world), range(4)):
        for s, role in enumerate(ROLES):
            lengths = world.view[role]["lidar"][row, 0].astype(float) * reach
            assert (lengths <= reach * (1 + 1e-6)).all()
            angle = game["theta"][s] - np.pi + np.arange(rays) * 2 * np.pi / rays
            fraction = np.linspace(0, 1, 60)[:, None]
            x = game["x"][s] + fraction * lengths * np.cos(angle)
            y = game["y"][s] + fraction * lengths * np.sin(angle)
            clearance = np.minimum(config.arena_width / 2 - np.abs(x), config.arena_height / 2 - np.abs(y))
            for k in range(game["obstacles"]):
                difference = np.hypot(x - game["obstacle_x"][k], y - game["obstacle_y"][k])
                clearance = np.minimum(clearance, difference - game["obstacle_radius"][k])
            assert (clearance > -2e-3).all()  # a grazing ray is sensitive
            assert ((np.abs(clearance[-1]) < 2e-3) | (lengths > reach * (1 - 1e-6))).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 35))
def test_lidar_shifts_when_the_robot_turns(seed: int, by: int) -> None:
    world = make(NOISELESS, 8, seed=seed)
    theta = named(world)["theta"] + by * 2 * np.pi / 36
    turned = with_games(world, theta=(theta + np.pi) % (2 * np.pi) - np.pi)
    for role in ROLES:
        before, after = world.view[role]["lidar"][:, 0], turned.view[role]["lidar"][:, 0]
        difference = np.abs(after - np.roll(before, -by, axis=1))
        assert np.median(difference) < 1e-5
        assert (difference > 1e-2).mean() < 0.01  # a tangent ray may pass or not


def test_lidar_measures_wall_and_obstacle_ahead() -> None:
    config = dataclasses.replace(
        NOISELESS, arena_width=20.0, arena_height=20.0, n_obstacles_min=1, n_obstacles_max=1
    )
    world = with_games(
        make(config, 1),
        x=(7.0, 0.0),
        y=(0.0, 5.0),
        theta=(0.0, np.pi / 2),
        obstacles=1,
        obstacle_x=[0.0] * 8,
        obstacle_y=[8.0] + [0.0] * 7,
        obstacle_radius=[0.5] + [0.0] * 7,
    )
    ahead = {role: world.view[role]["lidar"][0, 0, 18] * 5 for role in ROLES}
    assert ahead["pursuer"] == pytest.approx(3.0, abs=1e-5) and ahead["evader"] == pytest.approx(
        2.5, abs=1e-5
    )


def test_reference_logarithm_is_accurate() -> None:
    """The reference has the same bits as the compiled one."""
    x = np.concatenate([np.linspace(2.0**-24, 1, 100_001), 2.0 ** -np.arange(25.0)]).astype(np.float32)
    exact = np.log(x.astype(float))
    assert (np.abs(log(x) - exact) <= 1e-7 + 2e-7 * np.abs(exact)).all() and log(np.float32([1.0]))[0] == 0


def test_lidar_noise_is_normal_and_independent() -> None:
    config = Config(
        full_obs=False,
        n_obstacles_min=0,
        n_obstacles_max=0,
        arena_width=8.0,
        arena_height=8.0,
        max_init_distance=6.0,
    )
    noisy, quiet = make(config, 400), make(dataclasses.replace(config, lidar_noise=0.0), 400)
    difference = []
    for role in ROLES:
        truth = quiet.view[role]["lidar"][:, 0] * 5.0
        measured = noisy.view[role]["lidar"][:, 0] * 5.0
        difference.append(np.where(truth < 4.9, measured - truth, np.nan))
    differences = np.stack(difference)
    measured_mask = np.isfinite(differences)
    assert measured_mask.sum() > 15_000
    z = differences[measured_mask] / 0.02
    assert abs(z.mean()) < 0.03 and z.std() == pytest.approx(1, abs=0.02)
    assert (np.abs(z) < 1).mean() == pytest.approx(0.6827, abs=0.01)
    both = measured_mask.all(0)
    assert abs(np.corrcoef(difference[0][both], difference[1][both])[0, 1]) < 0.03
    before = noisy.view["pursuer"]["lidar"].copy()
    stand_still = {role: np.array([[-1.0, 0.0]] * 400, np.float32)[:, None] for role in ROLES}
    noisy.step(stand_still)
    assert (noisy.view["pursuer"]["lidar"] != before).mean() > 0.5  # each step has other noise


# --- visibility -----------------------------------------------------------------------------------------


def sees_other(world: PursuitWorld, role: str) -> np.ndarray:
    return np.asarray(world.view[role]["state"][:, 0, 5] != -1)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31))
def test_visibility_modes_follow_geometry(seed: int) -> None:
    """combined = fov and line of sight; fov = radius and the angle; bearing and distance by geometry."""
    sees = {
        mode: make(dataclasses.replace(NOISELESS, visibility=mode, view_range=4.0), 60, seed=seed)
        for mode in VISIBILITY
    }
    game = named(sees["fov"])
    for s, role in enumerate(ROLES):
        fov, radius, line, both = (sees_other(sees[mode], role) for mode in VISIBILITY)
        assert (both == (fov & line)).all() and (fov <= radius).all()
        dx, dy = game["x"][:, 1 - s] - game["x"][:, s], game["y"][:, 1 - s] - game["y"][:, s]
        bearing = (np.arctan2(dy, dx) - game["theta"][:, s] + np.pi) % (2 * np.pi) - np.pi
        clear = (np.abs(np.abs(bearing) - np.pi / 3) > 1e-4) & (np.abs(np.hypot(dx, dy) - 4) > 1e-4)
        assert (radius == (np.hypot(dx, dy) <= 4))[clear].all()
        assert (fov == (radius & (np.abs(bearing) <= np.pi / 3)))[clear].all()
        state = sees["fov"].view[role]["state"][:, 0]
        assert state[fov, 5] == pytest.approx(np.hypot(dx, dy)[fov] / 10, abs=1e-5)
        assert np.cos(state[fov, 6] * np.pi) == pytest.approx(np.cos(bearing[fov]), abs=1e-5)
        assert (state[~fov, 5] == -1).all() and (state[~fov, 6] == 0).all()


def observation_of(world: Any, role: str) -> dict[str, Any]:
    """The observation of a robot, without privileged fields."""
    return {field.name: world.view[role][field.name] for field in world.spec.roles[role].fields}


@pytest.mark.parametrize("mode", VISIBILITY)
def test_invisible_robot_has_no_effect_on_observations(mode: str) -> None:
    """Neither has it on the lidar."""
    world = rolled_out(make(dataclasses.replace(NOISELESS, visibility=mode, view_range=3.0), 300, seed=8), 7)
    games, rng, unseen = named(world), np.random.default_rng(1), 0
    for s, role in enumerate(ROLES):
        moved = {name: games[name].copy() for name in ("x", "y", "theta", "v", "omega")}
        moved["x"][:, 1 - s] = rng.uniform(-3.8, 3.8, 300)
        moved["y"][:, 1 - s] = rng.uniform(-2.8, 2.8, 300)
        moved["theta"][:, 1 - s] = rng.uniform(-3, 3, 300)
        moved["v"][:, 1 - s], moved["omega"][:, 1 - s] = 0.5, 1.0
        other = with_games(world, **moved)
        both = ~sees_other(world, role) & ~sees_other(other, role)
        unseen += int(both.sum())
        for name, field in observation_of(world, role).items():
            assert (field[both] == other.view[role][name][both]).all(), name
        visible = sees_other(world, role) | sees_other(other, role)
        assert (world.view[role]["state"][visible] != other.view[role]["state"][visible]).any((1, 2)).all()
    assert unseen > 20


# --- history --------------------------------------------------------------------------------------------


def test_history_equals_past_observations() -> None:
    config = Config(full_obs=False, max_steps=25, n_obstacles_max=3)
    world, rng = make(config, 20, seed=2), np.random.default_rng(0)
    past: dict[str, list[np.ndarray]] = {role: [] for role in ROLES}
    started = np.zeros(20, int)
    for step in range(60):
        for role in ROLES:
            view = world.view[role]
            past[role].append(np.concatenate([view["state"][:, 0], view["lidar"][:, 0]], 1))
            history = view["history"].reshape(20, 10, 43)
            for age in range(10):
                old = step - age >= started
                assert (history[~old, 9 - age] == 0).all()
                assert (history[old, 9 - age] == past[role][max(step - age, 0)][old]).all()
        view = world.step(split(rollout_actions(rng, 20, 2)))
        started[view.ended > 0] = step + 1
    assert (started > 0).all() and not (past["pursuer"][-1] == past["evader"][-1]).all()


def test_saved_games_have_optional_state_only_with_sensors() -> None:
    full, partial = make(Config(), 2), make(Config(full_obs=False), 2)
    assert full.save(np.arange(2)).shape[1] == SIZE
    assert partial.save(np.arange(2)).shape[1] == SIZE + 32 + 2 * 10 * 43 * 4
    assert [field.size for field in partial.spec.roles["evader"].fields] == [7, 36, 430, 1]
    assert len(set(partial.spec.roles["evader"].columns)) == 474


# --- conformance, resampling ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"visibility": "combined", "n_obstacles_max": 4, "w_search": 0.1},
        {"visibility": "line_of_sight", "n_obstacles_min": 0, "n_obstacles_max": 0},
        {
            "visibility": "radius",
            "fixed_speed": True,
            "prep_steps": 5,
            "history_length": 1,
            "safety_filter": True,
        },
    ],
)
def test_sensors_pass_conformance(changes: dict[str, Any]) -> None:
    common = {"lidar_rays": 180, "lidar_range": 20.0, "n_obstacles_min": 1, "n_obstacles_max": 1, **SMALL}
    config = Config(full_obs=False, max_steps=50, **common | changes)
    report = conformance.check_game(
        find("pursuit"),
        config,
        moves=subjects(config.n_obstacles_max == 1),
        trial=conformance.Trial(
            games=4, steps=12, all_seeing=True, stage=(2.0, 5.0, 0.0, float(config.n_obstacles_max))
        ),
    )
    assert report.skipped == ["that bots see nothing hidden (they read the true state)"]


def test_conformance_detects_bots_that_read_hidden_state() -> None:
    bots = {"pursuer": [bot("pure_pursuit", "pursuer")]}
    trial = conformance.Trial(games=3, steps=5)
    with pytest.raises(conformance.BrokenPromise, match="its action depends on what its seat cannot see"):
        conformance.check(make, dataclasses.replace(NOISELESS, max_steps=20), bots=bots, trial=trial)


def subjects(obstacles: bool) -> list[conformance.Subject]:
    """Parts of the state with the field that observes them (an obstacle in plain view), and hidden parts."""

    def move(name: str, index: int, by: float) -> Any:
        def change(states: np.ndarray) -> np.ndarray:
            column = states[:, :SIZE].view(native.GAME_TYPE)[:, 0][name].reshape(len(states), -1)[:, index]
            column += np.where(column > 0, -by, by).astype(column.dtype)
            return states

        return change

    out = []
    for seat, role in enumerate(ROLES):
        columns = {"x": "own_x", "y": "own_y", "theta": "own_heading", "omega": "own_turn"}
        for name, column in columns.items():
            for field, observed in (("state", column), ("history", f"{column}_0_ago")):
                out.append(
                    conformance.Subject(
                        name=f"own {name}",
                        role=role,
                        field=field,
                        columns=(observed,),
                        change=move(name, seat, 0.1),
                    )
                )
        on_lidar = [("walls", "x", seat), *([("obstacle", "obstacle_radius", 0)] if obstacles else [])]
        out += [
            conformance.Subject(name=name, role=role, field="lidar", change=move(column, index, 0.1))
            for name, column, index in on_lidar
        ]
        out.append(conformance.Subject(name="step", role=role, field="clock", change=move("step", 0, 1)))
        for hidden in ("theta", "v", "omega"):  # of the other robot
            to = move(hidden, 1 - seat, 0.001)
            out.append(conformance.Subject(name=f"other {hidden}", role=role, field="", change=to))
        for hidden in ("slot", "seed"):
            out.append(conformance.Subject(name=hidden, role=role, field="", change=move(hidden, 0, 1)))
    return out


@pytest.mark.parametrize("mode", VISIBILITY)
@pytest.mark.parametrize("seat", [0, 1])
def test_resampled_games_have_equal_observations_and_other_hidden_state(mode: str, seat: int) -> None:
    config = dataclasses.replace(NOISELESS, visibility=mode, view_range=3.0, lidar_noise=0.02)
    for steps in (0, 7):
        world, rows = rolled_out(make(config, 200, seed=5), steps), np.arange(200, dtype=np.int32)
        truth, resampled = world.save(rows), world.resample(rows, seat, 3)
        assert (resampled == world.resample(rows, seat, 3)).all() and (world.save(rows) == truth).all()
        other = make(config, 200)
        other.load(rows, resampled)
        for name, field in observation_of(world, ROLES[seat]).items():
            assert (field == other.view[ROLES[seat]][name]).all(), name
        then, now, o = named(world), named(other), 1 - seat
        assert (then["theta"][:, o] != now["theta"][:, o]).all()
        visible = sees_other(world, ROLES[seat])
        assert (then["x"][visible, o] == now["x"][visible, o]).all()
        history = world.view[ROLES[seat]]["history"].reshape(200, 10, 43)
        lost = ~visible & (history[:, :, 5] > 0).any(1)  # visible a short while ago: it cannot be far
        moved = np.hypot(now["x"][:, o] - then["x"][:, o], now["y"][:, o] - then["y"][:, o])
        assert (moved[lost] <= 2 * 9 * config.evader_v_max * config.dt + 1e-3).all()
        never = ~visible & ~lost
        if never.sum() > 20:
            assert (moved[never] > 0).mean() > 0.9 and moved[never].mean() > 1.0
        optional = [optional_of(world, states) for states in (truth, resampled)]
        assert (optional[0]["noise"][:, 0] == optional[1]["noise"][:, 0]).all()
        assert (optional[0]["noise"][:, 1] != optional[1]["noise"][:, 1]).all()
        if steps:
            assert (optional[0]["frames"][:, o] != optional[1]["frames"][:, o]).any((1, 2)).all()


def test_bots_are_not_limited_by_sensors() -> None:
    rows = np.arange(30, dtype=np.int32)
    blind = make(dataclasses.replace(NOISELESS, view_range=0.0), 30, seed=1)
    clear = make(dataclasses.replace(NOISELESS, full_obs=True, visibility="fov"), 30, seed=1)
    for seat, role in enumerate(ROLES):
        for name in BOTS[role]:
            moves = [
                bot(name, role)
                .act(
                    Seat(
                        role=world.spec.roles[role],
                        seat=seat,
                        world=world,
                        rows=rows,
                        obs=world.view[role]["state"][:, 0],
                    ),
                    RngKey(1, 2, 3),
                )
                .action
                for world in (blind, clear)
            ]
            assert (moves[0] == moves[1]).all(), name
