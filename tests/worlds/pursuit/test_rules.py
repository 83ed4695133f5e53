"""The compiled rules of pursuit, bit for bit against the plain ones, and against closed forms."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import float_arithmetic
from support.pursuit_games import ROLES, core_width, named, rollout_actions, same_bits, split
from support.pursuit_reference import Reference

from rematch.core.player import RngKey, Seat
from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.bots import bot
from rematch.worlds.pursuit.config import Config, struct_values
from rematch.worlds.pursuit.world import PursuitWorld, make

EXTRAS = {"survival_bonus": 0.02, "w_obs_approach": 50.0, "w_vis_pursuer": 0.3, "w_search": 2.0,
          "w_collision": 0.7, "w_wall": 0.4}

# One line per kind of game; together they switch everything on and off.
CONFIGS: list[dict[str, Any]] = [
    {},
    {"n_obstacles_min": 0, "n_obstacles_max": 0, "max_steps": 40},
    {"n_obstacles_min": 0, "n_obstacles_max": 8, "max_steps": 90, "capture_radius": 1.0,
     "min_init_distance": 1.5},
    {"n_obstacles_min": 8, "n_obstacles_max": 8, "arena_width": 9.0, "arena_height": 12.0, "max_steps": 70},
    {"fixed_speed": True, "n_obstacles_max": 3, "evader_v_max": 1.15, "max_steps": 55},
    {"prep_steps": 30, "max_steps": 60, "pursuer_v_max": 3.0, "evader_v_max": 0.0, "n_obstacle_obs": 5},
    {"n_obstacles_max": 5, "max_steps": 80, "use_visibility_reward": True, "visibility_weight": 0.1,
     **EXTRAS},
    {"n_obstacles_min": 1, "n_obstacles_max": 4, "max_steps": 50, "arena_width": 6.0, "arena_height": 6.0,
     "sight_occlusion": False, "sight_half_angle": 30.0, "sight_range": 2.5, "capture_radius": 0.3,
     "min_init_distance": 0.7, "max_init_distance": 3.0, "obstacle_margin": 0.0, "dt": 0.2, **EXTRAS},
    {"n_obstacles_min": 8, "n_obstacles_max": 8, "arena_width": 5.0, "arena_height": 5.0,
     "obstacle_gap": 0.05, "max_steps": 45, "robot_radius": 0.3, "dt": 0.3, "pursuer_v_max": 4.0,
     "evader_v_max": 4.0,
     "capture_radius": 0.2, "min_init_distance": 2.0, "obstacle_margin": 0.1, "omega_max": 9.0, **EXTRAS},
    {"arena_width": 4.0, "arena_height": 10.0, "obstacle_radius_min": 1.6, "obstacle_radius_max": 1.9,
     "obstacle_margin": 0.05, "obstacle_gap": 0.05, "n_obstacles_min": 1, "min_init_distance": 9.3,
     "max_init_distance": 12.0, "max_steps": 60},  # few starts: obstacles are redrawn
]


@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_world_equals_reference_bit_for_bit(number: int) -> None:
    config = Config(**CONFIGS[number])
    games, steps = 67, 160  # 67: two full blocks and a part of one
    rng = np.random.default_rng(number)
    world = make(config, games, seed=100 + number)
    slow = Reference(config, world.next.seed, world.next.stage)
    episodes = 0
    for step in range(steps):
        states = named(world)
        for name, own_player in (("x", slow.x), ("y", slow.y), ("theta", slow.theta), ("v", slow.v),
                           ("omega", slow.omega), ("obstacle_x", slow.ox), ("obstacle_y", slow.oy),
                           ("obstacle_radius", slow.orad), ("step", slow.steps),
                           ("obstacles", slow.obstacles),
                           ("episode", slow.episode), ("spawn_redraws", slow.redraws),
                           ("obstacles_missing", slow.missing)):
            assert same_bits(states[name], own_player), (name, step)
        if config.w_search:
            assert same_bits(states["visited"], slow.visited.reshape(games, 100))
        for seat, role in enumerate(ROLES):
            assert same_bits(world.view[role]["state"][:, 0], slow.obs(seat)), (role, step)
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


def test_reference_comparison_covers_rare_events() -> None:
    assert len(CONFIGS) * 67 * 160 >= 100_000
    counts = make(Config(**CONFIGS[9]), 67, seed=109).counters
    assert counts["spawn_redraws"] > 0
    assert counts["obstacles_missing"] > 0


# --- closed forms -------------------------------------------------------------------------------------

OPEN = Config(n_obstacles_min=0, n_obstacles_max=0)


def placed(config: Config, **values: Any) -> PursuitWorld:
    """A world of one game with these values."""
    world = make(config, 1)
    state = world.save(np.zeros(1, np.int32))
    for name, value in values.items():
        state.view(native.GAME_TYPE)[0][name] = value
    world.load(np.zeros(1, np.int32), state)
    return world


def drive(world: PursuitWorld, pursuer: Any, evader: Any) -> Any:
    """One step of (speed, turn) pairs, or of scripted players by name."""
    actions = {}
    for seat, (role, choice) in enumerate(zip(ROLES, (pursuer, evader))):
        if isinstance(choice, str):
            rows = np.zeros(1, np.int32)
            seat_view = Seat(role=world.spec.roles[role], seat=seat, world=world, rows=rows,
                         obs=world.view[role]["state"][:, 0])
            choice = bot(choice, role).act(seat_view, RngKey(0, 2, 0)).action[0]
        actions[role] = np.array(choice, np.float32).reshape(1, 1, -1)
    return world.step(actions)


@pytest.mark.parametrize("evader_speed", [0.0, 0.25, 0.6])
def test_straight_chase_lasts_distance_over_speed_difference(evader_speed: float) -> None:
    config = Config(n_obstacles_min=0, n_obstacles_max=0, evader_v_max=evader_speed)
    world = placed(config, x=(-9.0, -5.0), y=(0.0, 0.0), theta=(0.0, 0.0))
    while not drive(world, "pure_pursuit", (1, 0)).ended[0]:
        pass
    time = (4.0 - config.capture_radius) / (config.pursuer_v_max - evader_speed)
    assert world.view.length[0] == pytest.approx(time / config.dt, abs=1.01)
    assert world.view.outcome[0].tolist() == [1, 0]


@pytest.mark.parametrize("speeds", [(1.0, 0.5), (1.0, 0.9), (1.0, 1.0), (0.7, 1.0)])
def test_lead_pursuit_drives_to_apollonius_point(speeds: tuple[float, float]) -> None:
    """The point that both reach at once: its distances from both are as their speeds (Apollonius' circle)."""
    config = Config(n_obstacles_min=0, n_obstacles_max=0, pursuer_v_max=speeds[0], evader_v_max=speeds[1],
                    arena_width=200.0, arena_height=200.0, omega_max=60.0)  # it turns in one step
    heading = 3.0  # across the pursuer's front, so that even a slower one meets it
    world = placed(config, x=(0.0, 5.0), y=(0.0, 1.0), theta=(0.0, heading), v=(0.0, speeds[1]))
    drive(world, "lead_pursuit", (-1, 0))
    aim = world.state_of(0)["theta"][0]
    way = np.array([np.cos(aim), -np.cos(heading), np.sin(aim), -np.sin(heading)]).reshape(2, 2)
    own, theirs = np.linalg.solve(way, [5.0, 1.0])  # where the two courses cross
    assert own > 0 and theirs > 0
    assert own / theirs == pytest.approx(speeds[0] / speeds[1], rel=1e-4)


def test_turning_circle_has_radius_v_over_omega() -> None:
    world = placed(OPEN, x=(0.0, 8.0), y=(0.0, 8.0), theta=(0.0, 0.0))
    places = []
    for _ in range(200):
        drive(world, (1, 0.5), (-1, 0))
        places.append((world.state_of(0)["x"][0], world.state_of(0)["y"][0]))
    turn = 0.5 * OPEN.omega_max * OPEN.dt
    centre = np.mean(places[: round(2 * np.pi / turn)], 0)
    radius = np.hypot(*(np.array(places) - centre).T)
    # Explicit Euler draws a polygon of chords v dt: its radius is v dt / (2 sin(omega dt / 2)).
    assert radius == pytest.approx(OPEN.pursuer_v_max * OPEN.dt / (2 * np.sin(turn / 2)), abs=0.02)
    assert radius.mean() == pytest.approx(OPEN.pursuer_v_max / (0.5 * OPEN.omega_max), rel=0.01)


def test_wall_stops_only_the_motion_into_it() -> None:
    heading = 0.6
    world = placed(OPEN, x=(9.7, -9.0), y=(0.0, -9.0), theta=(heading, 0.0))
    for _ in range(40):
        drive(world, (1, 0), (-1, 0))
    game = world.state_of(0)
    assert game["x"][0] == np.float32(10 - 0.15)
    assert game["y"][0] == pytest.approx(40 * 0.05 * np.sin(heading), rel=1e-5)
    assert game["theta"][0] == pytest.approx(heading)


def test_robot_is_pushed_out_of_obstacles() -> None:
    config = Config(n_obstacles_min=1, n_obstacles_max=1)
    stone = {"obstacles": 1, "obstacle_x": [1.0] + 7 * [0], "obstacle_y": [2.0] + 7 * [0],
             "obstacle_radius": [0.8] + 7 * [0]}
    centre = placed(config, x=(1.0, 8.0), y=(2.0, 8.0), theta=(0.7, 0.0), **stone)
    drive(centre, (-1, 0), (-1, 0))  # from the exact centre along the heading
    game = centre.state_of(0)
    assert game["x"][0] - 1 == pytest.approx(0.95 * np.cos(0.7), abs=1e-4)
    assert game["y"][0] - 2 == pytest.approx(0.95 * np.sin(0.7), abs=1e-4)
    side = placed(config, x=(1.9, 8.0), y=(2.0, 8.0), theta=(np.pi / 2, 0.0), **stone)
    drive(side, (-1, 0), (-1, 0))
    game = side.state_of(0)
    assert (game["x"][0], game["y"][0]) == (pytest.approx(1.95, abs=1e-4), 2.0)
    assert game["theta"][0] == pytest.approx(np.pi / 2)  # heading unchanged
    before = game
    drive(side, (-1, 0), (-1, 0))
    assert side.state_of(0)["x"] == before["x"]  # out means out


def test_preparation_stops_the_pursuer_but_not_its_turns() -> None:
    world = placed(Config(n_obstacles_min=0, n_obstacles_max=0, prep_steps=3), x=(0.0, 5.0), y=(0.0, 5.0),
                   theta=(0.0, 0.0))
    for step in range(5):
        drive(world, (1, 1), (1, 0))
        assert (world.state_of(0)["x"][0] != 0) == (step >= 3)
    assert world.state_of(0)["theta"][0] == pytest.approx(5 * 2.84 * 0.05)


# --- the arithmetic -----------------------------------------------------------------------------------


def test_trigonometry_is_accurate() -> None:
    angles = np.concatenate([np.linspace(-7, 7, 200_001), np.arange(-4, 5) * np.pi / 4]).astype(np.float32)
    sine, cosine = native.sincos(angles)
    assert np.abs(sine - np.sin(angles.astype(float))).max() < 2e-7
    assert np.abs(cosine - np.cos(angles.astype(float))).max() < 2e-7
    rng = np.random.default_rng(0)
    y, x = (rng.normal(0, 10.0 ** rng.integers(-6, 4, 200_000)).astype(np.float32) for _ in range(2))
    y[:9], x[:9] = np.repeat([-1, 0, 1], 3), np.tile([-1, 0, 1], 3)
    assert np.abs(native.atan2(y, x) - np.arctan2(y.astype(float), x.astype(float))).max() < 4e-7
    for own_player, theirs in ((native.sincos(angles), float_arithmetic.sincos(angles)),
                         ((native.atan2(y, x),), (float_arithmetic.atan2(y, x),))):
        assert all(same_bits(a, b) for a, b in zip(own_player, theirs))


@pytest.mark.parametrize("compiler", [
    "gcc -x c -std=c99 -Wall -Wextra -Werror -pedantic",
    "g++ -x c++ -Wall -Werror -D__CUDACC__ -D__device__= -D__forceinline__=inline -Wno-unused-function "
    "-Wno-unknown-pragmas",
])
def test_rules_compile_as_c99_and_cuda_c(compiler: str) -> None:
    folder = Path(native.__file__).parent
    source = '#include "rules.h"\n#include "bots.h"\n'
    command = [*compiler.split(), "-fsyntax-only", f"-I{folder}", f"-I{folder.parent / 'native'}", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = ("full_observation.h", "sensor_observation.h", "safety_filter.h", "shaping_rewards.h",
             "original_rewards.h", "disturbances.h")
    for text in ("rules.h", "state.h", "spawn.h", *parts, "bots.h"):
        words = (folder / text).read_text()
        for call in ("malloc", "sinf(", "cosf(", "atan2f(", "logf(", "fmaf(", "\nstatic "):
            assert call not in words


@pytest.mark.parametrize("changes", [{}, {"full_obs": False, "visibility": "combined"},
                                     {"safety_filter": True, "safety_separation": True},
                                     {"reward_form": "original", "use_visibility_reward": True,
                                      "w_obs_approach": 50.0},
                                     {"speed_variation": 0.2, "turn_variation": 0.1, "action_delay": 3,
                                      "actuator_noise": 0.1, "sensor_noise": 0.05}])
def test_compiler_optimisation_changes_no_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The same games from -O0 text and from the compiled core: vectorising is not rounding."""
    folder = Path(native.__file__).parent
    config = Config(max_steps=50, **changes)
    world = make(config, 40, seed=1)
    rules = np.zeros((), native.RULES_TYPE)
    for name, number in struct_values(config).items():
        rules[name] = number
    (tmp_path / "main.c").write_text(MAIN)
    headers = [f"-I{folder}", f"-I{folder.parent / 'native'}"]
    command = ["gcc", "-std=c99", "-O0", "-ffp-contract=off", *headers, "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    size = native.GAME_TYPE.itemsize

    def bytes_of() -> list[bytes]:
        return [part.tobytes() for part in np.split(world.save(np.arange(40)), [size], axis=1)]

    parts = [rules.tobytes(), *bytes_of()]
    parts += [world.next.seed.tobytes(), world.next.stage.tobytes()]
    action = rollout_actions(np.random.default_rng(3), 40, 2)
    parts += [np.ascontiguousarray(action[:, seat]).tobytes() for seat in range(2)]
    done = subprocess.run([str(tmp_path / "main")], input=b"".join(parts), capture_output=True, check=True)
    for _ in range(300):
        world.step(split(action))
    own = [field.name for field in world.spec.roles["evader"].fields]  # not what lies aside
    seen = [world.view["evader"][name].tobytes() for name in own]
    assert done.stdout == b"".join([*bytes_of(), *seen])


MAIN = """
#include <stdio.h>
#include "rules.h"
#define READ(what) if (fread(&what, sizeof what, 1, stdin) != 1) return 1
static Game games[40];
static uint8_t optional[40 * 3500];
static float lidar[2][40 * 36], history[2][40 * 430], clocks[2][40];
static float action[2][80], sight[2][40 * 31], rewards[80], outcome[80], stage[160];
static uint8_t ended[40];
static int32_t length[40], slot[80];
static uint64_t seed[40];
int main(void) {
    Rules rules;
    READ(rules); READ(games);
    Derived derived = derive(&rules);
    const size_t optional_bytes = (size_t)(40 * derived.optional_bytes);
    if (fread(optional, 1, optional_bytes, stdin) != optional_bytes) return 1;
    READ(seed); READ(stage); READ(action[0]); READ(action[1]);
    Batch batch = {games, {action[0], action[1]}, {sight[0], sight[1]}, rewards, outcome, ended, length,
                   seed, slot, stage, optional, {lidar[0], lidar[1]}, {history[0], history[1]},
                   {clocks[0], clocks[1]}};
    int stuck;
    for (int n = 0; n < 300; n++)
        for (int row = 0; row < 40; row += LANES)
            if (step(&rules, &derived, &batch, row, 40 - row < LANES ? 40 - row : LANES, &stuck)) return 2;
    fwrite(games, sizeof games, 1, stdout);
    fwrite(optional, 1, optional_bytes, stdout);
    fwrite(sight[1], sizeof(float), (size_t)(40 * derived.columns), stdout);
    fwrite(lidar[1], sizeof(float), (size_t)(40 * derived.rays), stdout);
    fwrite(history[1], sizeof(float), (size_t)(40 * derived.frames * derived.frame), stdout);
    fwrite(clocks[1], sizeof(float), derived.frames ? 40 : 0, stdout);
    return 0;
}
"""
