"""The pursuer's safety filter against what it promises: the nearest safe action, or the least unsafe one.

The lines of the specification (section 4) are written out once more, in doubles. That an answer is right is
judged without solving anything: it is within the lines, Karush's conditions hold, and no point of a fine grid
is better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.pursuit_games import rollout_actions, split

from rematch.core.player import RngKey, Seat
from rematch.worlds.pursuit import native
from rematch.worlds.pursuit.bots import bot
from rematch.worlds.pursuit.config import Config
from rematch.worlds.pursuit.world import PursuitWorld, make

AHEAD, WEIGHT, APART = 0.1, 150.0, 0.35
SIZE = native.GAME_TYPE.itemsize
KINDS = ("separation", "walls", "obstacles")  # as dear as they are kept
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


class Filtered:
    """Games before a step, their lines, and what the pursuers drove."""

    def __init__(self, config: Config, games: int, seed: int, careless: bool = True) -> None:
        self.config, rng = config, np.random.default_rng(seed)
        self.world = make(config, games, seed=seed)
        rows = np.arange(games)
        if careless:  # anywhere, in obstacles too: that is where lines must give way
            states = self.world.save(rows)
            game = states[:, :SIZE].copy()
            limit = np.array([config.arena_width, config.arena_height]) / 2 - config.robot_radius
            place = rng.uniform(-limit, limit, (games, 2)).astype(np.float32)
            odd = rng.random(games) < 0.5
            columns = game.view(native.GAME_TYPE)[:, 0]
            columns["x"][odd, 0], columns["y"][odd, 0] = place[odd].T
            self.world.load(rows, np.concatenate([game, states[:, SIZE:]], 1))
        self.before = named(self.world)
        width = 1 if config.fixed_speed else 2
        action = rollout_actions(rng, games, width)
        wish = np.clip(action[:, 0], -1, 1).astype(np.float32)
        speed = np.ones(games, np.float32) if config.fixed_speed else wish[:, 0]
        self.wish = np.stack(
            [config.pursuer_v_max * (speed + 1) / 2, config.omega_max * wish[:, -1]], 1
        ).astype(float)
        if config.prep_steps:
            self.wish[:, 0] = 0
        counted = counts(self.world)
        view = self.world.step(split(action))
        self.fine = view.ended == 0
        after = named(self.world)
        self.after, self.driven = after, np.stack([after["v"][:, 0], after["omega"][:, 0]], 1).astype(float)
        self.counts = {name: counts(self.world)[name] - counted[name] for name in counted}

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        c = self.config
        most = 0.0 if c.prep_steps else c.pursuer_v_max
        least = c.pursuer_v_max if c.fixed_speed and not c.prep_steps else 0.0
        return np.array([least, -c.omega_max]), np.array([most, c.omega_max])

    def cost(self, z: np.ndarray) -> np.ndarray:
        off = z - (self.wish if z.ndim == 2 else self.wish[:, None])
        return WEIGHT * off[..., 0] ** 2 + off[..., 1] ** 2


def named(world: PursuitWorld) -> np.ndarray:
    return world.save(np.arange(world.games))[:, :SIZE].copy().view(native.GAME_TYPE)[:, 0]


def counts(world: PursuitWorld) -> dict[str, np.ndarray]:
    optional_bytes = world.save(np.arange(world.games))[:, SIZE:].copy()
    optional = optional_bytes.view(world.shared.rules.optional_type)[:, 0]
    names = ("interventions", "relaxed", "violations")
    return {name: optional[f"safety_{name}"].astype(int) for name in names}


def nose(game: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    theta = game["theta"][:, 0].astype(float)
    return (
        game["x"][:, 0] + AHEAD * np.cos(theta),
        game["y"][:, 0] + AHEAD * np.sin(theta),
        np.cos(theta),
        np.sin(theta),
    )


def barriers(config: Config, game: np.ndarray) -> dict[str, np.ndarray]:
    """kind -> [n, count, 3]: h and its slopes along x and y at the nose; h is 1e9 for what is not there."""
    x, y, _, _ = nose(game)
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
        out["separation"] = [disc(game["x"][:, 1], game["y"][:, 1], APART)]
    for k in range(config.n_obstacles_max):
        h, gx, gy = disc(
            game["obstacle_x"][:, k],
            game["obstacle_y"][:, k],
            game["obstacle_radius"][:, k].astype(float) + np.float32(config.robot_radius),
        )
        out["obstacles"].append((np.where(k < game["obstacles"], h, 1e9), gx, gy))
    return {
        kind: np.array([np.stack(b, 1) for b in many]).transpose(1, 0, 2)
        for kind, many in out.items()
        if many
    }


def lines(config: Config, game: np.ndarray) -> dict[str, np.ndarray]:
    """kind -> [n, count, 3]: (a, b, c) of dt (a_v v + a_w w) + gamma h >= 0, the cost being a distance."""
    _, _, cosine, sine = nose(game)
    out = {}
    for kind, b in barriers(config, game).items():
        h, gx, gy = b[..., 0], b[..., 1], b[..., 2]
        along = config.dt * (gx * cosine[:, None] + gy * sine[:, None]) / np.sqrt(WEIGHT)
        across = config.dt * AHEAD * (gy * cosine[:, None] - gx * sine[:, None])
        raw = np.stack([along, across, config.safety_gamma * h], -1)
        out[kind] = raw / np.maximum(np.hypot(along, across), 1e-12)[..., None]
    return out


def room(line: np.ndarray, z: np.ndarray) -> np.ndarray:
    """[n, points, count] how far points [n, points, 2] of (v, omega) lie within lines [n, count, 3]."""
    scaled = z * [np.sqrt(WEIGHT), 1.0]
    return scaled @ line[..., :2].transpose(0, 2, 1) + line[:, None, :, 2]


def grid(case: Filtered, count: int = 33) -> np.ndarray:
    """[n, points, 2]: the whole range of actions, and a finer one around what was driven."""
    low, high = case.bounds()
    v, w = (np.linspace(low[i], high[i], count) for i in range(2))
    whole = np.stack(np.meshgrid(v, w, indexing="ij"), -1).reshape(1, -1, 2)
    near = case.driven[:, None] + (whole - whole.mean(1, keepdims=True)) * 0.05
    everywhere = np.broadcast_to(whole, (len(near), *whole.shape[1:]))
    return np.clip(np.concatenate([everywhere, near], 1), low, high)


@pytest.mark.parametrize("mode", MODES)
def test_the_driven_action_is_the_nearest_safe_one(mode: str) -> None:
    """Kinds are kept in their order as far as can be; among the actions that are left none is nearer."""
    case = Filtered(Config(**(CLOSE | MODES[mode])), 800, seed=len(mode))
    fine = case.fine
    low, high = case.bounds()
    assert ((case.driven >= low - 1e-5) & (case.driven <= high + 1e-5))[fine].all()
    cage, points = lines(case.config, case.before), grid(case)
    left = np.ones(points.shape[:2], bool)  # points no worse than the answer in the kinds kept so far
    feasible = np.ones(points.shape[:2], bool)
    worst = np.zeros(len(points))
    for kind in KINDS:
        if kind in cage:
            mine = np.maximum(-room(cage[kind], case.driven[:, None])[:, 0].min(1), 0)
            theirs = np.maximum(-room(cage[kind], points).min(2), 0)
            best = np.where(left, theirs, np.inf).min(1)
            assert (mine <= best + 2e-5)[fine].all(), kind
            feasible &= theirs == 0
            left &= theirs <= (mine + 1e-9)[:, None]
            worst = np.maximum(worst, mine)
    better = np.where(left, case.cost(points), np.inf).min(1)
    assert (case.cost(case.driven) <= better + 1e-3)[fine].all()
    relaxed = case.counts["relaxed"] > 0
    assert (worst[~relaxed & fine] < 2e-5).all()  # only a relaxed step crosses a line
    assert not (feasible.any(1) & relaxed & fine).any()  # and only where nothing is feasible
    assert relaxed.any() and (~relaxed & (case.counts["interventions"] > 0)).any()


@pytest.mark.parametrize("mode", ["plain", "separation", "steep"])
def test_karush_kuhn_and_tucker_agree(mode: str) -> None:
    """The way from the answer back to the wish leads out through the lines it lies on."""
    case = Filtered(Config(**(CLOSE | MODES[mode])), 3000, seed=11)
    changed = case.fine & (case.counts["interventions"] > 0) & (case.counts["relaxed"] == 0)
    low, high = case.bounds()
    bounds = np.array(
        [
            [1, 0, -low[0] * np.sqrt(WEIGHT)],
            [-1, 0, high[0] * np.sqrt(WEIGHT)],
            [0, 1, -low[1]],
            [0, -1, high[1]],
        ]
    )
    cage = lines(case.config, case.before)
    everything = np.concatenate([*cage.values(), np.broadcast_to(bounds, (len(case.driven), 4, 3))], 1)
    slack = room(everything, case.driven[:, None])[:, 0]
    assert changed.sum() > 300
    corners = 0
    for n in np.flatnonzero(changed):
        way = (case.wish[n] - case.driven[n]) * [np.sqrt(WEIGHT), 1.0]
        out = -everything[n][np.abs(slack[n]) < 2e-5, :2]  # normals of the lines it lies on, outwards
        length = np.linalg.norm(way)
        if length < 1e-3:
            continue
        alone = (out @ way > length * (1 - 1e-4)).any() if len(out) else False
        pairs = [(i, j) for i in range(len(out)) for j in range(i)]
        within = any(
            (np.linalg.lstsq(np.stack([out[i], out[j]], 1), way, rcond=None)[0] > -1e-3).all()
            and abs(np.linalg.det(np.stack([out[i], out[j]]))) > 1e-6
            for i, j in pairs
        )
        corners += not alone
        assert alone or within, n
    assert corners > 10


def test_a_safe_wish_is_left_alone() -> None:
    config = Config(**CLOSE)
    case = Filtered(config, 3000, seed=3, careless=False)
    cage = lines(config, case.before).values()
    inside = np.min([room(many, case.wish[:, None])[:, 0].min(1) for many in cage], 0)
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
def test_from_a_safe_state_nothing_leads_into_harm(mode: str) -> None:
    """h' >= (1 - gamma) h, but for what turning takes the nose off its tangent: 0.1 m (1 - cos(omega dt))."""
    config = Config(**(CLOSE | MODES[mode]))
    bend = AHEAD * (1 - np.cos(config.omega_max * config.dt)) * 1.02 + 1e-5
    checked = 0
    for seed in range(4):
        case = Filtered(config, 2000, seed=20 + seed)
        before, after = barriers(config, case.before), barriers(config, case.after)
        safe = case.fine & np.all([many[..., 0].min(1) >= 0 for many in before.values()], axis=0)
        game = case.before  # nor is the robot itself in an obstacle, which would push it out
        gap = np.hypot(game["x"][:, :1] - game["obstacle_x"], game["y"][:, :1] - game["obstacle_y"])
        reach = np.where(np.arange(8) < game["obstacles"][:, None], game["obstacle_radius"] + 0.15, 0)
        safe &= (gap > reach).all(1)
        assert (case.counts["relaxed"][safe] == 0).all()  # standing still is always safe
        for kind, many in before.items():
            steep = np.hypot(many[..., 1], many[..., 2]) + 2 * bend
            floor = (1 - config.safety_gamma) * many[..., 0] - steep * bend - 1e-5
            assert (after[kind][..., 0] >= floor)[safe].all(), kind
        checked += int(safe.sum())
    assert checked > 1500


@pytest.mark.parametrize("pursuer", ["random", "pure_pursuit", "drive"])
def test_whole_games_stay_safe(pursuer: str) -> None:
    """Games that begin safely never touch a wall or an obstacle; without the filter they do."""
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
    for on in (True, False):
        config = Config(safety_filter=on, **rules)
        world, rows = make(config, 100, seed=7), np.arange(100, dtype=np.int32)
        start = barriers(config, named(world))
        safe = np.all([many[..., 0].min(1) > 0 for many in start.values()], axis=0)
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
            if on:
                assert (counts(world)["violations"][running] == 0).all()
        touched[on] = hits
        if on:
            assert world.counters["safety_interventions"] > 0
    assert touched[True] == 0 and (touched[False] > 0 or pursuer == "pure_pursuit")


def test_violations_are_counted() -> None:
    """A robot of fixed speed cannot stop: driven into a corner the filter gives way, which is counted."""
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
