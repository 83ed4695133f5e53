"""The safety filter of the pursuer: it executes the nearest safe action, or the least unsafe one.

The constraints of the specification (section 4) are computed again, in doubles. A result is verified without
a solver: it satisfies the constraints, the Karush-Kuhn-Tucker conditions hold, and no point of a fine grid
is better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.pursuit_games import named, rollout_actions, split

from rematch.core.player import RngKey, Seat
from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.bots import bot
from rematch.worlds.pursuit.config import Config
from rematch.worlds.pursuit.world import PursuitWorld, make

AHEAD, WEIGHT, SEPARATION = 0.1, 150.0, 0.35
SIZE = native.GAME_TYPE.itemsize
KINDS = ("separation", "walls", "obstacles")  # the most important first
CLOSE: dict[str, Any] = {
    "safety_filter": True, "arena_width": 6.0, "arena_height": 5.0, "n_obstacles_min": 0,
    "n_obstacles_max": 5, "obstacle_gap": 0.1, "obstacle_margin": 0.1, "min_init_distance": 0.3,
    "max_init_distance": 5.0, "capture_radius": 0.01,
}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {
    "plain": {}, "separation": {"safety_separation": True, "evader_v_max": 0.0, "max_init_distance": 0.7},
    "fixed speed": {"fixed_speed": True}, "preparing": {"prep_steps": 5},
    "steep": {"safety_gamma": 1.0, "dt": 0.2, "pursuer_v_max": 3.0, "safety_separation": True,
              "evader_v_max": 0.0},
}  # fmt: skip


class FilteredStep:
    """One step: games before and after it, chosen and executed actions of the pursuers."""

    def __init__(self, config: Config, games: int, seed: int, unsafe_starts: bool = True) -> None:
        self.config, rng = config, np.random.default_rng(seed)
        self.world = make(config, games, seed=seed)
        rows = np.arange(games)
        if unsafe_starts:  # anywhere, also in obstacles, where constraints must be relaxed
            states = self.world.save(rows)
            game = states[:, :SIZE].copy()
            limit = np.array([config.arena_width, config.arena_height]) / 2 - config.robot_radius
            place = rng.uniform(-limit, limit, (games, 2)).astype(np.float32)
            moved = rng.random(games) < 0.5
            columns = game.view(native.GAME_TYPE)[:, 0]
            columns["x"][moved, 0], columns["y"][moved, 0] = place[moved].T
            self.world.load(rows, np.concatenate([game, states[:, SIZE:]], 1))
        self.before = named(self.world)
        width = 1 if config.fixed_speed else 2
        action = rollout_actions(rng, games, width)
        chosen = np.clip(action[:, 0], -1, 1).astype(np.float32)
        speed = np.ones(games, np.float32) if config.fixed_speed else chosen[:, 0]
        self.chosen = np.stack(
            [config.pursuer_v_max * (speed + 1) / 2, config.omega_max * chosen[:, -1]], 1
        ).astype(float)
        if config.prep_steps:
            self.chosen[:, 0] = 0
        counts_before = counts(self.world)
        view = self.world.step(split(action))
        self.running = view.ended == 0
        after = named(self.world)
        self.after, self.executed = after, np.stack([after["v"][:, 0], after["omega"][:, 0]], 1).astype(float)
        self.counts = {name: counts(self.world)[name] - counts_before[name] for name in counts_before}

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        c = self.config
        most = 0.0 if c.prep_steps else c.pursuer_v_max
        least = c.pursuer_v_max if c.fixed_speed and not c.prep_steps else 0.0
        return np.array([least, -c.omega_max]), np.array([most, c.omega_max])

    def cost(self, z: np.ndarray) -> np.ndarray:
        off = z - (self.chosen if z.ndim == 2 else self.chosen[:, None])
        return WEIGHT * off[..., 0] ** 2 + off[..., 1] ** 2


def counts(world: PursuitWorld) -> dict[str, np.ndarray]:
    optional_bytes = world.save(np.arange(world.games))[:, SIZE:].copy()
    optional = optional_bytes.view(world.shared.rules.optional_type)[:, 0]
    names = ("interventions", "relaxed", "violations")
    return {name: optional[f"safety_{name}"].astype(int) for name in names}


def lookahead_point(game: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    theta = game["theta"][:, 0].astype(float)
    return (
        game["x"][:, 0] + AHEAD * np.cos(theta),
        game["y"][:, 0] + AHEAD * np.sin(theta),
        np.cos(theta),
        np.sin(theta),
    )


def barriers(config: Config, game: np.ndarray) -> dict[str, np.ndarray]:
    """kind -> [n, count, 3]: h and its gradient at the lookahead point; h is 1e9 for missing obstacles."""
    x, y, _, _ = lookahead_point(game)
    half_x, half_y = (
        np.float32(side * 0.5) - np.float32(config.robot_radius)
        for side in (config.arena_width, config.arena_height)
    )
    zero, one = np.zeros_like(x), np.ones_like(x)
    walls = [
        (half_x - x, -one, zero),
        (half_x + x, one, zero),
        (half_y - y, zero, -one),
        (half_y + y, zero, one),
    ]

    def disc(cx: Any, cy: Any, reach: Any) -> tuple[Any, Any, Any]:
        dx, dy = x - cx, y - cy
        return dx**2 + dy**2 - reach**2, 2 * dx, 2 * dy

    out = {"separation": [], "walls": walls, "obstacles": []}
    if config.safety_separation:
        out["separation"] = [disc(game["x"][:, 1], game["y"][:, 1], SEPARATION)]
    for k in range(config.n_obstacles_max):
        h, gx, gy = disc(
            game["obstacle_x"][:, k],
            game["obstacle_y"][:, k],
            game["obstacle_radius"][:, k].astype(float) + np.float32(config.robot_radius),
        )
        out["obstacles"].append((np.where(k < game["obstacles"], h, 1e9), gx, gy))
    return {
        kind: np.array([np.stack(b, 1) for b in lines_of_kind]).transpose(1, 0, 2)
        for kind, lines_of_kind in out.items()
        if lines_of_kind
    }


def lines(config: Config, game: np.ndarray) -> dict[str, np.ndarray]:
    """kind -> [n, count, 3]: (a, b, c) of dt (a_v v + a_w w) + gamma h >= 0, normalised to distances."""
    _, _, cosine, sine = lookahead_point(game)
    out = {}
    for kind, b in barriers(config, game).items():
        h, gx, gy = b[..., 0], b[..., 1], b[..., 2]
        along = config.dt * (gx * cosine[:, None] + gy * sine[:, None]) / np.sqrt(WEIGHT)
        across = config.dt * AHEAD * (gy * cosine[:, None] - gx * sine[:, None])
        raw = np.stack([along, across, config.safety_gamma * h], -1)
        out[kind] = raw / np.maximum(np.hypot(along, across), 1e-12)[..., None]
    return out


def margin(line: np.ndarray, z: np.ndarray) -> np.ndarray:
    """[n, points, count] signed distance of points [n, points, 2] of (v, omega) from lines [n, count, 3]."""
    scaled = z * [np.sqrt(WEIGHT), 1.0]
    return scaled @ line[..., :2].transpose(0, 2, 1) + line[:, None, :, 2]


def grid(case: FilteredStep, count: int = 33) -> np.ndarray:
    """[n, points, 2]: a grid over all actions, and a finer one around the executed action."""
    low, high = case.bounds()
    v, w = (np.linspace(low[i], high[i], count) for i in range(2))
    full_range = np.stack(np.meshgrid(v, w, indexing="ij"), -1).reshape(1, -1, 2)
    near = case.executed[:, None] + (full_range - full_range.mean(1, keepdims=True)) * 0.05
    everywhere = np.broadcast_to(full_range, (len(near), *full_range.shape[1:]))
    return np.clip(np.concatenate([everywhere, near], 1), low, high)


@pytest.mark.parametrize("mode", MODES)
def test_executed_action_is_the_nearest_safe_one(mode: str) -> None:
    """No grid point violates an important kind less; among those that are equal, none is nearer."""
    case = FilteredStep(Config(**(CLOSE | MODES[mode])), 800, seed=len(mode))
    running = case.running
    low, high = case.bounds()
    assert ((case.executed >= low - 1e-5) & (case.executed <= high + 1e-5))[running].all()
    constraints, points = lines(case.config, case.before), grid(case)
    candidates = np.ones(points.shape[:2], bool)  # points no worse than the result in the kinds so far
    feasible = np.ones(points.shape[:2], bool)
    worst = np.zeros(len(points))
    for kind in KINDS:
        if kind in constraints:
            own_violation = np.maximum(-margin(constraints[kind], case.executed[:, None])[:, 0].min(1), 0)
            point_violation = np.maximum(-margin(constraints[kind], points).min(2), 0)
            best = np.where(candidates, point_violation, np.inf).min(1)
            assert (own_violation <= best + 2e-5)[running].all(), kind
            feasible &= point_violation == 0
            candidates &= point_violation <= (own_violation + 1e-9)[:, None]
            worst = np.maximum(worst, own_violation)
    better = np.where(candidates, case.cost(points), np.inf).min(1)
    assert (case.cost(case.executed) <= better + 1e-3)[running].all()
    relaxed = case.counts["relaxed"] > 0
    assert (worst[~relaxed & running] < 2e-5).all()  # only a relaxed step violates a line
    assert not (feasible.any(1) & relaxed & running).any()  # and only if no point is feasible
    assert relaxed.any() and (~relaxed & (case.counts["interventions"] > 0)).any()


@pytest.mark.parametrize("mode", ["plain", "separation", "steep"])
def test_executed_action_satisfies_karush_kuhn_tucker(mode: str) -> None:
    """The direction from the executed to the chosen action is a sum of outward normals of active lines."""
    case = FilteredStep(Config(**(CLOSE | MODES[mode])), 3000, seed=11)
    changed = case.running & (case.counts["interventions"] > 0) & (case.counts["relaxed"] == 0)
    low, high = case.bounds()
    bounds = np.array(
        [
            [1, 0, -low[0] * np.sqrt(WEIGHT)],
            [-1, 0, high[0] * np.sqrt(WEIGHT)],
            [0, 1, -low[1]],
            [0, -1, high[1]],
        ]
    )
    constraints = lines(case.config, case.before)
    bounds_of_games = np.broadcast_to(bounds, (len(case.executed), 4, 3))
    all_lines = np.concatenate([*constraints.values(), bounds_of_games], 1)
    slack = margin(all_lines, case.executed[:, None])[:, 0]
    assert changed.sum() > 300
    corners = 0
    for n in np.flatnonzero(changed):
        direction = (case.chosen[n] - case.executed[n]) * [np.sqrt(WEIGHT), 1.0]
        out = -all_lines[n][np.abs(slack[n]) < 2e-5, :2]  # outward normals of active lines
        length = np.linalg.norm(direction)
        if length < 1e-3:
            continue
        on_one_line = (out @ direction > length * (1 - 1e-4)).any() if len(out) else False
        pairs = [(i, j) for i in range(len(out)) for j in range(i)]
        between_two = any(
            (np.linalg.lstsq(np.stack([out[i], out[j]], 1), direction, rcond=None)[0] > -1e-3).all()
            and abs(np.linalg.det(np.stack([out[i], out[j]]))) > 1e-6
            for i, j in pairs
        )
        corners += not on_one_line
        assert on_one_line or between_two, n
    assert corners > 10


def test_safe_action_is_not_changed() -> None:
    config = Config(**CLOSE)
    case = FilteredStep(config, 3000, seed=3, unsafe_starts=False)
    constraints = lines(config, case.before).values()
    inside = np.min([margin(kind, case.chosen[:, None])[:, 0].min(1) for kind in constraints], 0)
    safe, unsafe = inside > 1e-5, inside < -1e-5
    assert safe.sum() > 500 and unsafe.sum() > 100
    assert (case.counts["interventions"][safe] == 0).all() and (
        case.counts["interventions"][unsafe] == 1
    ).all()
    free = make(Config(**CLOSE | {"safety_filter": False}), 3000, seed=3)
    rng = np.random.default_rng(3)
    free.step(split(rollout_actions(rng, 3000, 2)))
    same = named(free)
    for name in ("x", "y", "theta", "v", "omega"):
        assert (same[name][safe] == case.after[name][safe]).all()


@pytest.mark.parametrize("mode", ["plain", "separation", "steep"])
def test_safe_states_stay_safe(mode: str) -> None:
    """h' >= (1 - gamma) h, except for the deviation of a turn from its tangent: 0.1 m (1 - cos(omega dt))."""
    config = Config(**(CLOSE | MODES[mode]))
    deviation = AHEAD * (1 - np.cos(config.omega_max * config.dt)) * 1.02 + 1e-5
    checked = 0
    for seed in range(4):
        case = FilteredStep(config, 2000, seed=20 + seed)
        before, after = barriers(config, case.before), barriers(config, case.after)
        safe = case.running & np.all([h[..., 0].min(1) >= 0 for h in before.values()], axis=0)
        game = case.before  # the robot itself must not be in an obstacle, which would push it out
        gap = np.hypot(game["x"][:, :1] - game["obstacle_x"], game["y"][:, :1] - game["obstacle_y"])
        reach = np.where(np.arange(8) < game["obstacles"][:, None], game["obstacle_radius"] + 0.15, 0)
        safe &= (gap > reach).all(1)
        assert (case.counts["relaxed"][safe] == 0).all()  # standing still is always safe
        for kind, lines_of_kind in before.items():
            steep = np.hypot(lines_of_kind[..., 1], lines_of_kind[..., 2]) + 2 * deviation
            floor = (1 - config.safety_gamma) * lines_of_kind[..., 0] - steep * deviation - 1e-5
            assert (after[kind][..., 0] >= floor)[safe].all(), kind
        checked += int(safe.sum())
    assert checked > 1500


@pytest.mark.parametrize("pursuer", ["random", "pure_pursuit", "drive"])
def test_games_stay_safe(pursuer: str) -> None:
    """Games with a safe start never touch a wall or an obstacle; without the filter they do."""
    rules = {
        "max_steps": 400,
        "n_obstacles_min": 4,
        "n_obstacles_max": 6,
        "arena_width": 9.0,
        "arena_height": 9.0,
        "w_collision": 1.0,
        "w_wall": 1.0,
        "distance_scale": 0.0,
    }
    touched = {}
    for filter_on in (True, False):
        config = Config(safety_filter=filter_on, **rules)
        world, rows = make(config, 100, seed=7), np.arange(100, dtype=np.int32)
        start = barriers(config, named(world))
        safe = np.all([h[..., 0].min(1) > 0 for h in start.values()], axis=0)
        assert safe.sum() > 50
        running, hits = safe.copy(), 0
        for step in range(400):
            seat = Seat(
                role=world.spec.roles["pursuer"],
                seat=0,
                world=world,
                rows=rows,
                obs=world.view["pursuer"]["state"][:, 0],
            )
            drive = np.tile(np.float32([1.0, 0.2 * np.sin(step / 9)]), (100, 1))
            move = (
                drive if pursuer == "drive" else bot(pursuer, "pursuer").act(seat, RngKey(1, 2, step)).action
            )
            still = np.tile(np.float32([-1.0, 0.0]), (100, 1))
            view = world.step({"pursuer": move[:, None], "evader": still[:, None]})
            hits += int((view.reward[running & (view.ended == 0), 0] != 0).sum())
            running &= view.ended == 0
            if filter_on:
                assert (counts(world)["violations"][running] == 0).all()
        touched[filter_on] = hits
        if filter_on:
            assert world.counters["safety_interventions"] > 0
    assert touched[True] == 0 and (touched[False] > 0 or pursuer == "pure_pursuit")


def test_violations_are_counted() -> None:
    """A robot of fixed speed cannot stop: in a corner constraints are relaxed, which is counted."""
    config = Config(fixed_speed=True, safety_filter=True, n_obstacles_min=0, n_obstacles_max=0)
    world = make(config, 1)
    states = world.save(np.arange(1))
    game = states[:, :SIZE].copy()
    columns = game.view(native.GAME_TYPE)[:, 0]
    columns["x"], columns["y"], columns["theta"] = [(9.7, -9.0)], [(9.7, -9.0)], [(np.pi / 4, 0.0)]
    world.load(np.arange(1), np.concatenate([game, states[:, SIZE:]], 1))
    ahead = {role: np.zeros((1, 1, 1), np.float32) for role in ("pursuer", "evader")}
    for _ in range(10):
        world.step(ahead)
    assert world.counters["safety_relaxed"] > 0 and world.counters["safety_violations"] > 0
    assert world.counters["safety_interventions"] > 0
    assert set(make(Config(), 1).counters) == {"spawn_redraws", "obstacles_missing"}
