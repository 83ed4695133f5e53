"""Exact exploitability on the lattice: against the slow solver, in an evaluation, in words and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rematch import api, cli, worlds
from rematch import config as settings
from rematch.config import ConfigError
from rematch.engine.evaluate import evaluate, exactly
from rematch.engine.policy import NetworkConfig, Policy
from rematch.engine.scoreboard import Scoreboard
from rematch.show.pictures import learning
from rematch.show.words import evaluation_lines, exact_words, scoreboard_lines
from rematch.spec import Floats, Move, Noise, Seat, World
from rematch.worlds.lattice import exact as judging
from rematch.worlds.lattice import world as lattice
from rematch.worlds.lattice.board import SOLUTION, Board
from rematch.worlds.lattice.exact import exact, judge
from rematch.worlds.lattice.rules import Config
from tests.lattice_slow import Lattice, Pair, Robot

pytestmark = pytest.mark.usefixtures("blank_pictures")

ROLES = ("pursuer", "evader")


class Moody:
    """Plays by a hash of what it sees: another mixture in every position."""

    def __init__(self, seed: int) -> None:
        self.name, self.seed = f"moody {seed}", seed

    def chances(self, seat: Seat) -> Floats:
        own, other, _, _, left = seat.sight.astype(np.uint64).T
        word = (own * np.uint64(1_000_003) + other) * np.uint64(97) + left + np.uint64(self.seed)
        weights = np.stack([word * np.uint64(k) % np.uint64(1009) for k in (31, 57, 93)], 1) + 1.0
        return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move:
        draw = np.random.default_rng([noise.seed % 2**32, noise.step, seat.seat]).random(len(seat.rows))
        return Move((draw[:, None] > np.cumsum(self.chances(seat), 1)[:, :2]).sum(1).astype(np.int32))


class Solved:
    """The exact solution as a player: what it must do is looked up by what it sees."""

    def __init__(self, config: Config, side: int) -> None:
        self.name, self.side = "solved", side
        self.board, self.world = Board(config), lattice.make(config, 1)
        mixes = np.zeros((2, config.horizon, self.board.rows, self.board.cols, 3))
        self.board.induction((SOLUTION,), lambda m: (None, None), 1,
                             lambda m: {"mixes": (mixes[0, m - 1], mixes[1, m - 1])})
        self.by_sight: dict[tuple[float, ...], Floats] = {}
        every = np.arange(self.board.states)
        pursuers = self.board.pursuers[every // self.board.cols]
        evaders = self.board.evaders[every % self.board.cols]
        for m in range(1, config.horizon + 1):
            seen, mirrored = self.world.look(pursuers, evaders, np.full(len(every), m, np.int32))
            mix = mixes[side, m - 1].reshape(-1, 3)
            mix[mirrored != 0] = mix[mirrored != 0, ::-1]
            sights = map(tuple, seen[ROLES[side]]["state"][:, 0].tolist())
            self.by_sight |= zip(sights, mix.astype(np.float32))

    def chances(self, seat: Seat) -> Floats:
        return np.array([self.by_sight[tuple(row)] for row in seat.sight.tolist()])


def robot(state: int, n: int) -> Robot:
    return state // 8 % n, state // 8 // n, state % 8


@pytest.mark.parametrize("options", [
    {"n": 3, "horizon": 3, "radius": 0.5, "skip": 2}, {"n": 3, "horizon": 3, "block": 1},
    {"n": 3, "horizon": 2, "radius": 0.0, "symmetry": False}, {"n": 2, "horizon": 3, "radius": 0.0}], ids=str)
def test_figures_equal_those_of_the_slow_solver(options: dict[str, Any]) -> None:
    config, players = Config(**options), {role: Moody(i) for i, role in enumerate(ROLES)}
    n = config.n
    world = lattice.make(config, 1)
    twin = Lattice(**{key: value for key, value in options.items() if key != "symmetry"})

    def played_by(role: str) -> Any:
        known: dict[tuple[Pair, int], list[float]] = {}
        states = [(y * n + x) * 8 + heading for x, y, heading in twin.robots]
        pairs = [(p, e) for p in states for e in states]
        pursuers, evaders = (np.array(column, np.int32) for column in zip(*pairs))
        for m in range(1, config.horizon + 1):
            seen, mirrored = world.look(pursuers, evaders, np.full(len(pairs), m, np.int32))
            seat = Seat(world.spec.roles[role], ROLES.index(role), world, pursuers, seen[role]["state"][:, 0])
            for pair, mix, swapped in zip(pairs, players[role].chances(seat).astype(float), mirrored):
                shares = (mix / mix.sum())[:: -1 if swapped else 1].tolist()
                known[(robot(pair[0], n), robot(pair[1], n)), m] = shares
        return lambda pair, moves_left: known[pair, moves_left]

    pursuer, evader = played_by("pursuer"), played_by("evader")
    starts = twin.starts(n / 4)

    def mean(values: dict[Pair, float]) -> float:
        return sum(values[pair] for pair in starts) / len(starts)

    value, best_pursuer, best_evader = twin.value(), twin.best_pursuer(evader), twin.best_evader(pursuer)
    found = exact(config, players, 2)
    assert found["value"] == pytest.approx(mean(value), abs=1e-9)
    assert found["best_pursuer"] == pytest.approx(mean(best_pursuer), abs=1e-9)
    assert found["best_evader"] == pytest.approx(mean(best_evader), abs=1e-9)
    assert found["played"] == pytest.approx(mean(twin.played(pursuer, evader)), abs=1e-9)
    assert found["nash_conv"] == pytest.approx(mean(best_pursuer) - mean(best_evader), abs=1e-9)
    assert found["nash_conv"] == pytest.approx(found["regret_pursuer"] + found["regret_evader"], abs=1e-9)
    assert found["gap"] == pytest.approx(abs(2 * found["played"] - 1))
    for role, regret in (("pursuer", {p: value[p] - best_evader[p] for p in starts}),
                         ("evader", {p: best_pursuer[p] - value[p] for p in starts})):
        assert found[f"worst_{role}"] == pytest.approx(max(regret.values()), abs=1e-9)
        assert found[f"lost_{role}"] == pytest.approx(sum(x > 0.5 for x in regret.values()) / len(starts))


def test_the_exact_solution_as_a_player_loses_nothing() -> None:
    for options in ({"n": 5, "horizon": 10}, {"n": 5, "horizon": 10, "skip": 3}):
        config = Config(**options)
        found = exact(config, {role: Solved(config, side) for side, role in enumerate(ROLES)}, 2)
        assert -1e-9 <= found["nash_conv"] <= 1e-6
        assert found["played"] == pytest.approx(found["value"], abs=1e-6)
        one_sided = exact(config, {"pursuer": Solved(config, 0), "evader": Moody(1)}, 2)
        assert one_sided["regret_pursuer"] <= 1e-6 < one_sided["regret_evader"]


def test_games_agree_with_what_is_worked_out() -> None:
    config, players = Config(n=5, horizon=10, skip=3), {role: Moody(i) for i, role in enumerate(ROLES)}
    board = Scoreboard(lambda games, first, seed: lattice.make(config, games, first, seed), 1, 2)
    spec = lattice.make(config, 1).spec
    row = evaluate(board, lattice, spec, players, (20_000, ("none",), 0))
    assert row["exact"] == exact(config, players, 1)  # threads change nothing
    rate = row["rates"]["pursuer"]
    assert rate["low"] - 0.01 < row["exact"]["played"] < rate["high"] + 0.01
    assert row["exact"]["best_evader"] <= row["exact"]["played"] <= row["exact"]["best_pursuer"]


def test_policies_are_judged_as_deployed() -> None:
    config = Config(n=5, horizon=4)
    spec = lattice.make(config, 1).spec
    policies = {role: Policy(about, NetworkConfig(hidden=(16,)), role) for role, about in spec.roles.items()}
    for i, policy in enumerate(policies.values()):
        policy.initialise(i)
    sampled = exact(config, policies, 1)
    for policy in policies.values():
        policy.greedy = True
    greedy = exact(config, policies, 2)
    assert 0 < sampled["nash_conv"] <= 1 and 0 < greedy["nash_conv"] <= 1
    assert sampled["nash_conv"] != greedy["nash_conv"]


def test_who_tells_no_chances_is_not_judged() -> None:
    config = Config(n=5, horizon=4)
    bots: dict[str, Any] = {role: lattice.bot(lattice.BOTS[role][0], role) for role in ROLES}
    board = Scoreboard(lambda games, first, seed: lattice.make(config, games, first, seed), 1, 1)
    if not all(hasattr(bot, "chances") for bot in bots.values()):
        assert exactly(board, lattice, bots) == {}
    mute: dict[str, Any] = {"pursuer": Moody(0), "evader": type("Mute", (), {"name": "mute"})()}
    assert exactly(board, lattice, mute) == {}
    with pytest.raises(ConfigError, match="evader: mute tells no chances"):
        judge(config, mute, 1)


@pytest.mark.parametrize(
    "answer", [np.zeros((7, 3)), np.full((1, 3), 0.5), None], ids=["shape", "sum", "sign"])
def test_chances_that_are_none_are_refused(answer: Any) -> None:
    class Wrong(Moody):
        def chances(self, seat: Seat) -> Floats:
            out = np.tile(np.array([[1.5, -0.5, 0.0]]), (len(seat.rows), 1)) if answer is None else answer
            return np.asarray(np.tile(out, (len(seat.rows), 1)) if len(out) == 1 else out, np.float32)

    with pytest.raises(ConfigError, match=r"pursuer: expected chances \[\d+, 3\] that add to 1"):
        exact(Config(n=3, horizon=2), {"pursuer": Wrong(0), "evader": Moody(1)}, 1)


def test_a_board_that_is_too_large_says_so_and_lets_training_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    players = {role: Moody(i) for i, role in enumerate(ROLES)}
    monkeypatch.setattr(judging, "MOST", 1000)
    found = exact(Config(n=5, horizon=4), players, 1)
    assert list(found) == ["refused"] and "n = 5, horizon = 4" in found["refused"]
    assert exact_words({"exact": found}) == [f"NashConv was not worked out: {found['refused']}"]
    with pytest.raises(ConfigError, match="million positions"):
        judging.exact_picture(Config(n=5, horizon=4), players, 1)


def test_words_put_both_measures_side_by_side() -> None:
    found = exact(Config(n=3, horizon=3), {role: Moody(i) for i, role in enumerate(ROLES)}, 1)
    rates = {role: {"rate": 0.5, "low": 0.4, "high": 0.6, "games": 100} for role in ROLES}
    row = {"step": 5, "rates": rates, "gap": 0.0, "gap_high": 0.2, "exact": found, "table": []}
    line = evaluation_lines(row)[0]
    assert f"NE-GAP 0.000 (at most 0.200)  NashConv {found['nash_conv']:.3f} (exact)" in line
    text = "\n".join(scoreboard_lines(row))
    assert f"NashConv {found['nash_conv']:.3f} (exact): 0 is unbeatable play" in text
    assert f"{found['best_evader']:.3f} by the best evader" in text
    only = exact_words({"exact": {"nash_conv": 0.25, "value": -0.05}})  # a world that tells no more than that
    assert only == ["NashConv 0.250 (exact): 0 is unbeatable play, whatever the NE gap says"]
    assert exact_words({}) == []


def test_the_learning_picture_shows_it() -> None:
    rows = [{"step": s, "rates": {}, "gap": 0.1, "gap_high": 0.2, "table": [], "exact": {"nash_conv": x}}
            for s, x in ((1, 0.9), (2, 0.3))]
    plain = [{key: value for key, value in row.items() if key != "exact"} for row in rows]
    assert learning(rows, []) != learning(plain, [])


def test_a_run_is_judged_along_the_way_and_by_eval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings.replace(api.default("lattice"), {
        "world": Config(n=3, horizon=4), "games": 64, "steps": 8, "total_steps": 1024, "threads": 1,
        "evaluation.every": 1, "evaluation.games": 50, "network.hidden": (16,)})
    run = api.train(config, folder=tmp_path / "run")
    assert [0 <= row["exact"]["nash_conv"] <= 1 for row in run.history] == [True, True]
    assert "NashConv" in (tmp_path / "run" / "train.log").read_text()
    file = tmp_path / "lost.png"
    assert cli.main(["eval", str(tmp_path / "run"), "--games", "50", "--picture", str(file)]) == 0
    said = capsys.readouterr().out
    assert f"NashConv {run.history[-1]['exact']['nash_conv']:.3f} (exact)" in said and "NE-GAP" in said
    assert file.read_bytes().startswith(b"\x89PNG")
    assert cli.main(["eval", str(tmp_path / "run"), "--picture", str(tmp_path / "no" / "a.png")]) == 2
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"NashConv {run.history[-1]['exact']['nash_conv']:.3f} (exact)" in page
    capsys.readouterr()
    cli.main(["status", str(tmp_path / "run")])
    assert "NashConv" in capsys.readouterr().out


def test_worlds_without_an_answer_are_left_alone() -> None:
    pursuit = worlds.find("pursuit")

    def make(games: int, first: int, seed: int) -> World:
        world: World = pursuit.make(pursuit.Config(), games, first, seed)
        return world

    assert exactly(Scoreboard(make, 1, 1), pursuit, {role: Moody(0) for role in ROLES}) == {}
