"""The rules of the lattice: a slow reference, examples, the eight frames, starts."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from support import lattice_reference as slow
from support.lattices import BOARDS, ROLES, actions, named, positions

from rematch.worlds.lattice import config as rules
from rematch.worlds.lattice.config import Config
from rematch.worlds.lattice.world import make

# --- the rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", BOARDS, ids=lambda c: f"n{c.n}b{c.block}k{c.skip}r{c.radius:g}")
def test_world_equals_slow_reference(config: Config) -> None:
    """15 000 steps of each board, all numbers equal; half of the games start anywhere."""
    games, steps = 60, 250
    world = make(config, games, seed=3)
    stage = rules.stage_of(config)
    world.set_stage(np.arange(0, games, 2), np.tile([1, 0, 0], (games // 2, 1)))
    world.restart()
    references = [slow.Game(config, int(world.next.seed[row]), tuple(world.next.stage[row].tolist()))
             for row in range(games)]
    actions_drawn = np.random.default_rng(0).integers(0, 3, (steps, games, 2), np.int32)
    ends: Counter[float] = Counter()
    for step in range(steps):
        obs = np.stack([world.view[role]["state"][:, 0] for role in ROLES], 1)
        assert np.array_equal(obs, [reference.obs() for reference in references])
        assert world.mirrored.tolist() == [reference.frame()[1] for reference in references]
        view = world.step({role: actions_drawn[step, :, k : k + 1] for k, role in enumerate(ROLES)})
        pairs = zip(references, actions_drawn[step].tolist())
        results = [reference.play(tuple(action)) for reference, action in pairs]
        for name in ("ended", "length", "reward", "outcome"):
            assert np.array_equal(getattr(view, name), [row[name] for row in results]), name
        ends.update(view.outcome[view.ended == 1, 0].tolist())
    saved = named(world)
    assert saved["robot"].tolist() == [[t.board.number(r) for r in t.robots] for t in references]
    for name in ("episode", "moves_left", "step"):
        assert saved[name].tolist() == [getattr(reference, name) for reference in references]
    assert min(ends[0.0], ends[1.0]) > 20 and np.array_equal(stage, world.next.stage[1])


@pytest.mark.parametrize("config", BOARDS, ids=lambda c: f"n{c.n}b{c.block}")
def test_tables_equal_config_and_reference(config: Config) -> None:
    """The compiled tables, those of config.py, and the reference."""
    table = make(config, 1).shared.rules.table
    free, board = rules.free_cells(config), slow.board(config.n, config.block)
    assert free.tolist() == [board.free(i % config.n, i // config.n) for i in range(config.n**2)]
    for state in np.flatnonzero(np.repeat(free, 8)).tolist():
        after = [board.number(board.move(board.robot(state), name)) for name in slow.NAMES]
        assert table["move"][state].tolist() == rules.moves(config)[state].tolist() == after
        stay = [board.number(board.move(board.robot(state), name, True)) for name in slow.NAMES]
        assert rules.moves(config, stays=True)[state].tolist() == stay
        images = [board.number(robot) for robot in board.images(board.robot(state))]
        assert table["image"][state].tolist()[:4] == images[:4]
        assert sorted(table["image"][state]) == sorted(images)
    pairs = [(a[1] * config.n + a[0], b[1] * config.n + b[0]) for _, a, b in board.pairs()]
    assert [tuple(pair) for pair in table["pair"].tolist()] == pairs
    near, far = config.nearest_start, config.furthest_start
    starts = {(a[1] * config.n + a[0], b[1] * config.n + b[0]) for _, a, b in slow.starts(board, near, far)}
    assert starts == set(zip(*(c.tolist() for c in np.nonzero(rules.start_pairs(config)))))
    assert rules.reach(config) == make(config, 1).shared.rules.reach


def test_moves_equal_examples() -> None:
    """Sliding along a wall, staying before a block, cutting its corner, crossing without capture, skip."""
    config = Config(n=9, block=3, horizon=20, radius=0.0, skip=8, symmetry=False)
    world = make(config, 1)

    def after(pursuer: slow.Robot, evader: slow.Robot, words: str, moves_left: int = 20) -> list[slow.Robot]:
        board = slow.board(9, 3)
        state = [np.array([board.number(robot)]) for robot in (pursuer, evader)]
        world.load(np.array([0]), world.position(*state, np.array([moves_left])))
        move = {role: np.array([["lsr".index(word)]]) for role, word in zip(ROLES, words)}
        assert world.step(move).ended[0] == 0
        return [board.robot(robot) for robot in world.state_of(0)["robot"]]

    assert after((0, 0, 4), (8, 4, 1), "rl") == [(0, 1, 3), (8, 5, 2)]  # both slide up along a wall
    assert after((8, 8, 1), (2, 4, 7), "sl") == [(8, 8, 1), (2, 4, 0)]  # a corner; the block ahead
    assert after((2, 3, 7), (3, 6, 3), "sr") == [(3, 2, 7), (3, 7, 2)]  # past the block's corner
    assert after((0, 0, 0), (1, 0, 4), "ss") == [(1, 0, 0), (0, 0, 4)]  # crossing is no capture
    assert after((0, 0, 0), (8, 8, 4), "ls", moves_left=17) == [(0, 0, 1), (7, 8, 4)]  # 16 mod 8 = 0
    assert after((0, 0, 0), (8, 8, 4), "ls", moves_left=16) == [(1, 1, 1), (7, 8, 4)]


# --- frames -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [c for c in BOARDS if c.symmetry], ids=lambda c: f"n{c.n}b{c.block}")
def test_eight_images_have_equal_observations_and_successors(config: Config) -> None:
    config = dataclasses.replace(config, radius=0.0)
    world = make(config, 8 * 300)
    robots, moves_left = positions(config, 300, 1)
    image = world.shared.rules.table["image"]
    eight = image[robots].transpose(2, 0, 1).reshape(-1, 2).astype(np.int32)  # frame after frame
    world.load(np.arange(world.games), world.position(eight[:, 0], eight[:, 1], np.tile(moves_left, 8)))
    for role in ROLES:
        obs = world.view[role]["state"].reshape(8, 300, 5)
        assert (obs == obs[0]).all()
    smallest = np.tile(image[robots[:, 0]].min(1), 8)
    assert (world.view["pursuer"]["state"][:, 0, 0] == smallest).all()
    # A board and its mirror image: one of the two is shown mirrored, unless it is its own image.
    boards, mirrored = eight.reshape(8, 300, 2), world.mirrored.reshape(8, 300)
    asymmetric = (boards == boards[0]).all(2).sum(0) == 1
    assert (mirrored[:4] == mirrored[0]).all() and (mirrored[4:] == mirrored[4]).all()
    assert (mirrored[0] != mirrored[4])[asymmetric].all() and asymmetric.mean() > 0.5
    assert (mirrored[:, ~asymmetric] == 0).all()  # rotations come first
    # The same actions in the frame of the observation lead to the images of one and the same position.
    moves = np.random.default_rng(2).integers(0, 3, (2, 300, 1))
    view = world.step({role: np.tile(moves[k], (8, 1)) for k, role in enumerate(ROLES)})
    running = (view.ended == 0).reshape(8, 300)
    assert (running == running[0]).all() and running[0].mean() > 0.6
    after = named(world)["robot"].reshape(8, 300, 2)[:, running[0]]
    images = image[after[0]].transpose(2, 0, 1)
    for frame in range(8):
        assert (images == after[frame]).all(2).any(0).all()
    obs = world.view["evader"]["state"].reshape(8, 300, 5)[:, running[0]]
    assert (obs == obs[0]).all()


def test_observation_columns_stay_in_their_categories() -> None:
    """Over all positions of a small board every column stays in its range and has its meaning."""
    for symmetry in (True, False):
        config = Config(n=3, horizon=2, symmetry=symmetry, radius=0.0)
        world = make(config, 1)
        states = np.arange(72)
        pursuer, evader = (a.reshape(-1) for a in np.meshgrid(states, states))
        obs, mirrored = world.observe_positions(pursuer, evader, np.full(pursuer.size, 2))
        fields = world.spec.roles["pursuer"].fields[0]
        for role in ROLES:
            columns = obs[role]["state"][:, 0]
            assert (columns >= 0).all() and (columns < fields.categories).all() and fields.high == 199
            if not symmetry:
                assert [len(np.unique(c)) for c in columns.T] == [72, 72, 200, 200, 1]
                assert np.array_equal(columns[:, 0], (pursuer, evader)[role == "evader"])
        distinct = len(np.unique(obs["pursuer"]["state"][:, 0], axis=0))
        game = slow.Game(config, 0, (0.0, 0.0, 9.0))
        orbits = set()
        for p, e in zip(pursuer.tolist(), evader.tolist()):
            game.robots = [game.board.robot(p), game.board.robot(e)]
            orbits.add(tuple(game.board.number(robot) for robot in game.frame()[0]))
        assert distinct == len(orbits) and (mirrored.any() == symmetry)


# --- starts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anywhere", [0.0, 1.0])
def test_starts_are_uniform(anywhere: float) -> None:
    config = Config(n=4, block=2, horizon=3, radius=1.0, min_distance=2.0, max_distance=3.2)
    games = 120_000
    world = make(config, games, seed=7)
    world.set_stage(np.arange(games), np.tile([anywhere, 2.0, 3.2], (games, 1)))
    world.restart()
    game = named(world)
    board = slow.board(4, 2)
    pairs = [p for p in board.pairs() if p[0] > 1] if anywhere else slow.starts(board, 2.0, 3.2)
    expected = {(a[1] * 4 + a[0], b[1] * 4 + b[0]) for _, a, b in pairs}
    cells = Counter(zip(*(game["robot"] // 8).T.tolist()))
    assert set(cells) == expected
    check_uniform(list(cells.values()), len(expected))
    check_uniform(list(Counter(zip(*(game["robot"] % 8).T.tolist())).values()), 64)
    states = Counter(zip(*game["robot"].T.tolist()))  # cells and headings together
    check_uniform(list(states.values()), 64 * len(expected), full=False)
    moves_left = Counter(game["moves_left"].tolist())
    assert set(moves_left) == ({1, 2, 3} if anywhere else {3})
    check_uniform(list(moves_left.values()), len(moves_left))
    assert (game["step"] == 0).all() and (world.view.ended == 0).all()


def check_uniform(counts: list[int], cells: int, full: bool = True) -> None:
    """Chi-square: five standard deviations about its mean."""
    assert len(counts) == cells or not full
    counts = counts + [0] * (cells - len(counts))
    mean = sum(counts) / cells
    statistic = sum((count - mean) ** 2 / mean for count in counts)
    assert abs(statistic - (cells - 1)) <= 5 * (2 * max(cells - 1, 1)) ** 0.5


def test_start_within_the_radius_is_no_capture() -> None:
    world = make(Config(n=5, horizon=4, radius=2.0, min_distance=0.0, max_distance=1.0), 50)
    assert (world.view.ended == 0).all() and (world.view.length == 0).all()
    view = world.step(actions(world, 0))
    assert view.length.tolist() == [1] * 50 and (view.ended == 1).mean() > 0.5
