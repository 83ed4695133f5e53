"""The exact solver: matrix games, the induction, its known values, and `rematch solve`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from support.lattice_slow_solver import Lattice, Robot, game_value

from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.worlds.lattice import heatmap, solve, solver
from rematch.worlds.lattice import transition_matrix as boards
from rematch.worlds.lattice.config import Config, moves
from rematch.worlds.lattice.transition_matrix import BEST_EVADER, BEST_PURSUER, PLAYED, SOLUTION, Board

Doubles = NDArray[np.float64]

# --- matrix games -------------------------------------------------------------------------------------


def check_optimal(game: Doubles) -> float:
    """Both mixtures are chances, and promise the value: no other can promise more (von Neumann 1928)."""
    value, rows, columns = solver.matrix_value(game)
    largest = max(1.0, float(np.abs(game).max()))
    for mix in (rows, columns):
        assert (mix >= 0).all() and abs(mix.sum() - 1) < 1e-12
    assert (rows @ game).min() >= value - 1e-9 * largest
    assert (game @ columns).max() <= value + 1e-9 * largest
    return value


KINDS = {
    "uniform": lambda draw, shape: draw.random(shape),
    "whole": lambda draw, shape: draw.integers(-2, 3, shape),
    "zero or one": lambda draw, shape: draw.integers(0, 2, shape),
    "nearly tied": lambda draw, shape: draw.integers(0, 3, shape) + 1e-12 * draw.random(shape),
    "nearly equal": lambda draw, shape: 0.5 + 1e-9 * draw.random(shape),
    "of all sizes": lambda draw, shape: draw.choice([-1, 1], shape) * 10.0 ** (-16 * draw.random(shape)),
    "graded": lambda draw, shape: draw.integers(0, 2, shape) * 10.0 ** -draw.integers(0, 14, shape),
    "graded ties": lambda draw, shape: (
        draw.integers(0, 3, shape) + draw.integers(0, 2, shape) * 10.0 ** -draw.integers(6, 14, shape)),
    "almost a diagonal": lambda draw, shape: (
        np.eye(*shape) * (1 + 1e-10 * draw.random(shape)) + 1e-11 * draw.integers(0, 3, shape)),
    "twice the same": lambda draw, shape: np.repeat(np.repeat(
        draw.integers(-1, 2, (-(-shape[0] // 2), -(-shape[1] // 2))), 2, 0), 2, 1)[: shape[0], : shape[1]],
    "large": lambda draw, shape: 1e6 * draw.standard_normal(shape) + 1e7,
}


@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_of_matrix_games_are_optimal(kind: str) -> None:
    draw = np.random.default_rng(len(kind))
    for trial in range(600):
        most = 3 if trial % 2 else solver.MOST
        shape = tuple(draw.integers(1, most + 1, 2).tolist())
        check_optimal(np.asarray(KINDS[kind](draw, shape), np.float64))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_matrix_games_of_hypothesis(rows: int, columns: int, data: st.DataObject) -> None:
    near = st.sampled_from([0.0, 1.0, 0.5, 1e-300, 1e-13, 1 - 1e-13, 1 + 1e-12, -1.0, 1 / 3])
    entry = near | st.floats(-4, 4, allow_nan=False)
    line = st.lists(entry, min_size=columns, max_size=columns)
    check_optimal(np.array(data.draw(st.lists(line, min_size=rows, max_size=rows))))


def test_values_of_matrix_games_equal_a_slow_reference() -> None:
    draw = np.random.default_rng(5)
    for kind in ("uniform", "whole", "zero or one", "twice the same"):
        for _ in range(150):
            shape = tuple(draw.integers(1, 5, 2).tolist())
            game = np.asarray(KINDS[kind](draw, shape), np.float64)
            assert check_optimal(game) == pytest.approx(game_value(game.tolist()), abs=1e-9)


def test_known_matrix_games() -> None:
    value, rows, columns = solver.matrix_value(np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], np.float64))
    assert value == pytest.approx(0, abs=1e-15) and np.allclose(rows, 1 / 3) and np.allclose(columns, 1 / 3)
    value, rows, _ = solver.matrix_value(np.array([[3.0, -1.0], [-1.0, 1.0]]))  # worked by hand: 1/3, 2/3
    assert value == pytest.approx(1 / 3) and np.allclose(rows, [1 / 3, 2 / 3])
    big = np.eye(16) * np.arange(1.0, 17)  # weights as 1 / i, value 1 / sum(1 / i)
    assert solver.matrix_value(big)[0] == pytest.approx(1 / (1 / np.arange(1.0, 17)).sum())
    for bad in (np.zeros((17, 2)), np.zeros((0, 2)), np.array([[np.nan]]), np.array([[np.inf, 0]])):
        with pytest.raises(ValueError):
            solver.matrix_value(bad)


# --- the induction ---------------------------------------------------------------------------------------

BOARDS: list[dict[str, Any]] = [
    {"n": 2, "horizon": 3, "radius": 0.0},
    {"n": 3, "horizon": 4},
    {"n": 3, "horizon": 3, "block": 1, "radius": 0.0},
    {"n": 3, "horizon": 3, "skip": 2, "radius": 0.5},
    {"n": 3, "horizon": 2, "radius": 1.41422},
    {"n": 3, "horizon": 2, "radius": 5.0, "min_distance": 0.0},
    {"n": 4, "horizon": 3, "block": 2, "skip": 3},
    {"n": 4, "horizon": 2, "radius": 2.0, "min_distance": 1.0, "max_distance": 2.5},
    {"n": 4, "horizon": 1, "skip": 2},
]


def solved(config: Config, threads: int = 2) -> tuple[Board, Doubles]:
    board = Board(config)
    return board, board.induction((SOLUTION,), lambda moves_left: (None, None), threads)[SOLUTION]


def slow(options: dict[str, Any]) -> Lattice:
    return Lattice(**{key: value for key, value in options.items() if "distance" not in key})


def robot(state: int, n: int) -> Robot:
    return state // 8 % n, state // 8 // n, state % 8


@pytest.mark.parametrize("options", BOARDS, ids=str)
def test_every_start_has_the_value_of_the_slow_solver(options: dict[str, Any]) -> None:
    twin, n = slow(options), options["n"]
    values = twin.value()
    starts = twin.starts(options.get("min_distance", n / 4), options.get("max_distance", 1e9))
    mean = sum(values[pair] for pair in starts) / len(starts)
    for symmetry in (True, False):
        board, table = solved(Config(**options, symmetry=symmetry))
        expected = [[values[robot(p, n), robot(e, n)] for e in board.evaders.tolist()]
                    for p in board.pursuers.tolist()]
        np.testing.assert_allclose(table, expected, rtol=0, atol=1e-9)
        assert board.mean(table, board.starts()) == pytest.approx(mean, abs=1e-12)
        assert int(board.copies @ board.starts().sum(1)) == len(starts)
        assert (board.rows < board.cols) == symmetry


def test_symmetry_and_threads_change_nothing() -> None:
    for options in ({"n": 5, "horizon": 8, "skip": 3}, {"n": 6, "horizon": 5, "block": 2}):
        whole, full = solved(Config(**options, symmetry=False))
        board, table = solved(Config(**options))
        np.testing.assert_allclose(board.by_cells(table), whole.by_cells(full), rtol=0, atol=1e-12)
        for threads in (1, 3, 64):
            assert (solved(Config(**options), threads)[1] == table).all()


def test_images_are_symmetries_of_the_moves() -> None:
    for config in (Config(n=5, block=1), Config(n=6, block=2)):
        after, images = moves(config), boards.images(config.n)
        assert len({tuple(image) for image in images.tolist()}) == 8
        assert (images[0] == np.arange(8 * config.n**2)).all()
        for g, image in enumerate(images):
            assert sorted(image) == list(range(8 * config.n**2))
            own = after[image] if g < 4 else after[image][:, ::-1]  # a reflection swaps left and right
            assert (own == image[after]).all()


@pytest.mark.parametrize("options", [{"n": 3, "horizon": 4, "skip": 3, "radius": 0.5},
                                     {"n": 3, "horizon": 3, "block": 1, "radius": 0.0}], ids=str)
def test_best_responses_equal_those_of_the_slow_solver(options: dict[str, Any]) -> None:
    board, twin = Board(Config(**options, symmetry=False)), slow(options)
    n, horizon = options["n"], options["horizon"]
    draw = np.random.default_rng(1)
    action_probs = draw.dirichlet([0.3, 0.3, 0.3], (2, horizon, board.rows, board.cols))
    place = {robot(state, n): i for i, state in enumerate(board.evaders.tolist())}

    def of(side: int) -> Any:
        return lambda pair, left: action_probs[side, left - 1, place[pair[0]], place[pair[1]]].tolist()

    tables = board.induction(
        (BEST_PURSUER, BEST_EVADER, PLAYED), lambda m: (action_probs[0, m - 1], action_probs[1, m - 1]), 2)
    for kind, values in ((BEST_PURSUER, twin.best_pursuer(of(1))), (BEST_EVADER, twin.best_evader(of(0))),
                         (PLAYED, twin.played(of(0), of(1)))):
        expected = [[values[robot(p, n), robot(e, n)] for e in board.evaders.tolist()]
                    for p in board.pursuers.tolist()]
        np.testing.assert_allclose(tables[kind], expected, rtol=0, atol=1e-12)


def strategies(config: Config) -> tuple[Board, Doubles]:
    """Both sides' exact mixtures [2, horizon, rows, cols, 3]."""
    board = Board(config)
    mixes = np.zeros((2, config.horizon, board.rows, board.cols, 3))
    board.induction(
        (SOLUTION,), lambda m: (None, None), 2, lambda m: {"mixes": (mixes[0, m - 1], mixes[1, m - 1])})
    return board, mixes


def nash_conv(board: Board, mixes: Doubles) -> float:
    tables = board.induction((BEST_PURSUER, BEST_EVADER), lambda m: (mixes[0, m - 1], mixes[1, m - 1]), 2)
    starts = board.starts()
    return board.mean(tables[BEST_PURSUER], starts) - board.mean(tables[BEST_EVADER], starts)


def test_nothing_gains_on_the_exact_solution_and_a_best_response_plays_as_well_as_promised() -> None:
    for config in (Config(n=9, block=3, horizon=20), Config(n=9, skip=8, horizon=20), Config(n=5, skip=3)):
        board, mixes = strategies(config)
        assert 0 <= nash_conv(board, mixes) + 1e-12 <= 1e-9
        rounded = mixes.astype(np.float32).astype(np.float64)  # as players give them: renormalised
        assert nash_conv(board, rounded / rounded.sum(-1, keepdims=True)) <= 1e-6
        draw = np.random.default_rng(0).dirichlet([1, 1, 1], mixes.shape[:-1])
        replies = np.zeros((2, config.horizon, board.rows, board.cols), np.int8)
        best = board.induction((BEST_PURSUER, BEST_EVADER), lambda m, d=draw: (d[0, m - 1], d[1, m - 1]), 2,
                               lambda m, r=replies: {"replies": (r[0, m - 1], r[1, m - 1])})
        pure = np.eye(3)[replies]
        for kind, pair in ((BEST_PURSUER, (pure[0], draw[1])), (BEST_EVADER, (draw[0], pure[1]))):
            again = board.induction((PLAYED,), lambda m, p=pair: (p[0][m - 1], p[1][m - 1]), 2)[PLAYED]
            np.testing.assert_allclose(again, best[kind], rtol=0, atol=1e-12)


def test_how_brutal_the_measure_is() -> None:
    """Specification, section 9: 1 % noise costs 0.083, 1 % of the positions made uniform 0.85."""
    board, mixes = strategies(Config(n=9, block=3, horizon=20))
    assert nash_conv(board, 0.99 * mixes + 0.01 / 3) == pytest.approx(0.083, abs=0.02)
    spoilt = mixes.copy()
    spoilt[np.random.default_rng(0).random(mixes.shape[:-1]) < 0.01] = 1 / 3
    assert nash_conv(board, spoilt) == pytest.approx(0.85, abs=0.05)


@pytest.mark.parametrize("options, value", [
    ({"n": 9, "horizon": 60}, 1.0), ({"n": 11, "horizon": 60}, 1.0),
    *(({"n": 9, "block": 3, "horizon": horizon}, 0.1430) for horizon in (20, 40, 60))], ids=str)
def test_known_values(options: dict[str, Any], value: float) -> None:
    row = solve.solve(Config(**options), 2)
    assert row["value"] == pytest.approx(value, abs=5e-5)
    assert abs(row["nash_conv"]) < 1e-9


def test_tables_that_do_not_fit_are_refused() -> None:
    board = Board(Config(n=3))
    fine = np.zeros((board.rows, board.cols))
    for after, now, action_probs in (
        ({0: fine[:, 1:]}, {0: fine}, (None, None)),
        ({0: fine}, {0: fine[1:]}, (None, None)),
        ({1: fine}, {1: fine}, (None, None)),  # nobody's chances to respond to
        ({1: fine}, {1: fine}, (None, fine)),
    ):
        with pytest.raises(ValueError):
            board.solver.back(False, after, now, action_probs, {}, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        solver.Solver(np.full((2, 1, 3), 5), np.zeros((2, 1, 3)), np.zeros((1, 4, 3)))


# --- memory, pictures and the command ---------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "total_bytes", lambda: 1 << 30)
    with pytest.raises(ConfigError, match=r"n = 64: the exact solution needs about [\d.]+ GiB of memory"):
        solve.solve(Config(n=64), 1)
    monkeypatch.setattr(solve, "total_bytes", lambda: solve.memory_bytes(Config(n=5, horizon=3), 1))
    row = solve.solve(Config(n=5, horizon=3), 1)  # room for the value alone
    assert row["nash_conv"] is None and 0 < row["value"] < 1


@pytest.mark.parametrize("options", [{"n": 15}, {"n": 9, "symmetry": False}, {"n": 12, "block": 4}], ids=str)
def test_the_estimate_is_near_what_is_allocated(options: dict[str, Any]) -> None:
    import tracemalloc

    config = Config(**options, horizon=2)
    tracemalloc.start()
    solve.solve(config, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.8 * peak < solve.memory_bytes(config, 3) < 1.7 * peak


def test_pictures_are_drawn_and_equal(tmp_path: Path) -> None:
    config = Config(n=5, horizon=4, skip=2, radius=1.5)
    solve.solve(config, 1, tmp_path / "value.png")
    board, table = solved(config)
    drawn = (tmp_path / "value.png").read_bytes()
    assert drawn == heatmap.values(board, table)
    assert len(Image.open(io.BytesIO(drawn)).convert("RGB").getcolors(1 << 20) or []) > 50
    lost = heatmap.regrets(board, {"pursuer": table, "evader": 1 - table})
    assert Image.open(io.BytesIO(lost)).height > Image.open(io.BytesIO(drawn)).height


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["solve", "lattice", "--n", "9", "--block", "3", "--horizon", "20"]
    assert main.main([*words, "--json", "--threads", "1"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["value"] == pytest.approx(0.1430, abs=5e-5) and row["states"] == 44928 and row["seconds"] > 0
    assert main.main([*words, "--picture", str(tmp_path / "a.png")]) == 0
    output = capsys.readouterr().out
    assert "value 0.142981" in output and "44,928 states" in output and "NashConv" in output
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert main.main(["solve", "lattice", "--help"]) == 0
    assert "--radius" in capsys.readouterr().out


@pytest.mark.parametrize("words, complaint", [
    ("", "expected rematch solve WORLD"),
    ("pursuit", "solve pursuit: this world has no exact solver; expected one of lattice"),
    ("latice", "unknown world 'latice'"),
    ("lattice --block 9", "block = 9: expected less than n = 9; the block covers the board"),
    ("lattice --block 2", "block = 2: expected an odd number, to lie in the middle of n = 9"),
    ("lattice --n 8 --block 3", "block = 3: expected an even number, to lie in the middle of n = 8"),
    ("lattice --horizon 0", "horizon = '0': expected a whole number from 1"),
    ("lattice --horizn 5", "unknown setting --horizn = '5'; nearest: --horizon"),
    ("lattice --skip 1", "skip = 1: expected 0 or at least 2"),
    ("lattice --radius -1", "radius = '-1': expected a number from 0"),
    ("lattice --n many", "n = 'many': expected a whole number"),
    ("lattice --threads 0", "--threads = '0': expected a whole number from 1 to 64"),
    ("lattice --picture nowhere/a.png", "expected a name that ends in .png, in a folder that exists"),
    ("lattice --picture a.gif", "expected a name that ends in .png"),
    ("lattice 9", "expected a flag, found '9'"),
])
def test_bad_commands_are_refused_in_one_line(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["solve", *words.split()]) == 2
    output = capsys.readouterr()
    assert complaint in output.err and output.err.count("\n") == 1 and not output.out
