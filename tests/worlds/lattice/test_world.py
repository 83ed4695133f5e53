"""The lattice as a world: settings, parts, threads, saved games, bad input, scripted players, pictures."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import lattice_reference as slow
from support.lattices import BOARDS, ROLES, actions, positions
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

from rematch.core.config import validate
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey, Seat
from rematch.core.stepping import seat_at
from rematch.worlds import conformance
from rematch.worlds.lattice import native, render
from rematch.worlds.lattice.bots import BOTS, bot
from rematch.worlds.lattice.config import Config
from rematch.worlds.lattice.world import LatticeWorld, make
from rematch.worlds.registry import find


def rollout(world: LatticeWorld, steps: int, start: int = 0, threads: int = 1) -> bytes:
    """Every byte that these steps write."""
    return rollout_bytes(world, actions, range(start, start + steps), threads, extra=("mirrored",))


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "text"), [
    ({"block": 9}, "block = 9: expected less than n = 9; the block covers the board"),
    ({"block": 12}, "covers the board"),
    ({"block": 2}, "block = 2: expected an odd number, to lie in the middle of n = 9"),
    ({"n": 8, "block": 3}, "block = 3: expected an even number"),
    ({"horizon": 0}, "horizon = 0: expected a whole number from 1"),
    ({"skip": 1}, "skip = 1"), ({"n": 1}, "n = 1: expected"), ({"n": 65}, "n = 65: expected"),
    ({"min_distance": 12.0}, "min_distance = 12: no two free cells"),
    ({"min_distance": 3.0, "max_distance": 2.9}, "at most max_distance = 2.9"),
    ({"radius": -0.5}, "radius"), ({"radius": float("nan")}, "radius"), ({"symmetry": 1}, "symmetry"),
])  # fmt: skip
def test_impossible_settings_are_rejected_in_one_line(wrong: dict[str, Any], text: str) -> None:
    check_one_line_error(lambda: make(Config(**wrong), 4), text)


@pytest.mark.parametrize("stage", [(0, 20, 30), (0, 5, 4), (0.5, 1, 5), (2, 1, 5), (0, np.nan, 5),
                                   (0, 1, np.inf), (np.nan, 1, 5), (0, 2.1, 2.2)])
def test_stage_that_is_impossible_is_rejected(stage: tuple[float, ...]) -> None:
    world = make(Config(horizon=1), 3)
    with pytest.raises(ConfigError, match="stage anywhere"):
        world.set_stage(np.array([1]), np.array([stage], np.float32))
    if np.isfinite(stage).all():
        world.next.stage[1] = stage  # without the check of set_stage: detected at the restart
        with pytest.raises(ConfigError, match="stage anywhere"):
            world.step(actions(world, 0))
    crowded = make(Config(n=3, radius=3.0), 1)
    with pytest.raises(ConfigError, match="further apart than radius = 3"):
        crowded.set_stage(np.array([0]), np.array([[1, 0, 0]], np.float32))


def test_every_setting_has_an_effect() -> None:
    others = {"n": 10, "block": 3, "radius": 1.5, "skip": 3, "horizon": 12, "min_distance": 4.0,
              "max_distance": 4.0, "symmetry": False}  # fmt: skip
    assert set(others) == {field.name for field in dataclasses.fields(Config)} == set(native.RULES)
    before = rollout(make(Config(), 40), 60)
    for name, value in others.items():
        assert rollout(make(Config(**{name: value}), 40), 60) != before, name  # type: ignore[arg-type]


def test_struct_and_dataclass_are_compared() -> None:
    check_struct_comparison(Config, native.RULES, "rules.h", ("n", "float"))


# --- parts, threads, saved games, bad input -----------------------------------------------------------


@pytest.mark.parametrize("config", BOARDS[:4], ids=lambda c: f"n{c.n}")
def test_lattice_passes_conformance_under_other_rules(config: Config) -> None:
    report = conformance.check_game(find("lattice"), config, trial=conformance.Trial(stage=(1.0, 0.0, 0.0)))
    assert "resample" in report.passed


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_and_threads_change_no_bit(count: int) -> None:
    reference, threaded, divided = (make(BOARDS[1], 83, first=5) for _ in range(3))
    check_parts_and_threads((reference, threaded, divided), rollout, count)
    assert (divided.mirrored == reference.mirrored).all()


def test_saved_games_continue_alike() -> None:
    world, other = make(BOARDS[0], 20, seed=4), make(BOARDS[0], 20, seed=9)
    check_saved_games_continue(world, other, rollout, extra=("mirrored",))
    with pytest.raises(ValueError, match="read-only"):
        world.mirrored[0] = 1


@pytest.mark.parametrize(("name", "value", "words"), [
    ("robot", (648, 0), "robot is not from 0 to 647"), ("robot", (-1, 0), "robot is not"),
    ("robot", (40 * 8, 0), "blocked cell"), ("moves_left", 0, "moves_left is not from 1"),
    ("moves_left", 21, "moves_left is not from 1"), ("step", 20, "step is not"), ("step", -1, "step is not"),
    ("step", 19, "add to more than 20"), ("slot", (-1, 0), "slot is not"), ("mark", 7, "mark is not"),
    ("stage", (0, 30, 30), "stage anywhere"), ("stage", (3, 0, 9), "stage anywhere"),
])  # fmt: skip
def test_invalid_saved_games_are_rejected(name: str, value: Any, words: str) -> None:
    world = make(BOARDS[0], 3)
    before, states = save_all(world), save_all(world)
    states.view(native.GAME_TYPE)[name][1] = value
    with pytest.raises(ConfigError, match=words):
        world.load(np.arange(3), states)
    assert (save_all(world) == before).all()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_corrupted_bytes_are_rejected_or_harmless(data: st.DataObject) -> None:
    world = make(BOARDS[0], 2, seed=1)
    if not load_corrupted(world, data):
        return
    rollout(world, 3)
    for role in ROLES:
        categories = world.spec.roles[role].categories
        assert ((world.view[role]["state"] >= 0) & (world.view[role]["state"] < categories)).all()


def test_invalid_actions_are_rejected_and_nothing_moves() -> None:
    world = make(Config(), 5, first=10)
    before = save_all(world)
    for number in (3, -1, 2**31 - 1, -(2**31), 2**32, 2**62 + 1):
        wrong = {role: move.astype(np.int64) for role, move in actions(world, 0).items()}
        wrong["evader"][3] = number
        with pytest.raises(ConfigError, match="game 13: the evader's action is not 0, 1 or 2"):
            world.step(wrong)
    for action in (np.zeros((5, 1, 1), np.int32), np.zeros((4, 1), np.int32), np.zeros((5, 1), np.float32)):
        with pytest.raises(ConfigError, match="actions of pursuer"):
            world.step(actions(world, 0) | {"pursuer": action})
    with pytest.raises(ConfigError, match=r"actions of evader: expected .*, found none"):
        world.step({"pursuer": np.zeros((5, 1), np.int32)})
    with pytest.raises(ConfigError, match="rows"):
        world.save(np.array([5]))
    with pytest.raises(ConfigError, match="games = 0"):
        make(Config(), 0)
    assert (save_all(world) == before).all()


def test_core_rejects_arrays_of_wrong_shape() -> None:
    world = make(Config(), 3)
    rules, states = world.shared.rules, world.save(np.arange(3))
    obs, flags = [np.zeros((3, 1, 5), np.float32) for _ in range(2)], np.zeros(3, np.uint8)
    rules.observe(states, *obs, flags)
    for wrong in (
        (states[:, :-1].copy(), *obs, flags),
        (states, obs[0][:2], obs[1], flags),
        (states, obs[0], obs[1][:, :, :-1].copy(), flags),
        (states, *obs, flags[:2]),
    ):
        with pytest.raises(ValueError, match="wrong shape"):
            rules.observe(*wrong)
    with pytest.raises(ValueError, match="n = 65, block = 0: expected"):
        native.Core({name: getattr(Config(), name) for name in native.RULES} | {"n": 65})


# --- scripted players and pictures --------------------------------------------------------------------


def captures(pursuer: str, evader: str, config: Config, games: int = 400) -> float:
    """Fraction of first games that the pursuer wins."""
    players = {"pursuer": bot(pursuer, "pursuer"), "evader": bot(evader, "evader")}

    def act(player: Any, seat: Seat, step: int) -> Any:
        action_probs, action = player.action_probs(seat), player.act(seat, RngKey(1, 2, step)).action
        assert action_probs.dtype == np.float32 and np.allclose(action_probs.sum(1), 1, atol=1e-6)
        assert (action_probs[seat.rows, action] > 0).all()  # only actions with a positive probability
        return action

    return capture_rate(make(config, games, seed=3), players, act, config.horizon)


def test_bots_are_better_than_chance() -> None:
    config = Config(n=9, horizon=40)
    assert captures("chase", "random", config) > 0.97 > 0.8 > captures("random", "random", config)
    assert captures("chase", "straight", config) > 0.97
    assert captures("random", "flee", config) < captures("random", "random", config)
    assert captures("straight", "flee", Config(n=9, block=3, skip=2)) < 0.3


def test_bots_choose_the_nearest_or_furthest_cell() -> None:
    """Computed on the board itself, not in the frame of the observation."""
    config = Config(n=8, block=2, skip=3, horizon=20)
    robots, moves_left = positions(config, 500, 3)
    world, on = make(config, 500), slow.board(8, 2)
    world.load(np.arange(500), world.position(robots[:, 0], robots[:, 1], moves_left))
    for seat, (role, name) in enumerate((("pursuer", "chase"), ("evader", "flee"))):
        action_probs = bot(name, role).action_probs(seat_at(world, seat, np.arange(500, dtype=np.int32)))
        for row in range(500):
            own, other = on.robot(int(robots[row, seat])), on.robot(int(robots[row, 1 - seat]))
            skips = role == "pursuer" and (moves_left[row] - 1) % 3 == 0
            cells = [on.move(own, word, skips)[:2] for word in slow.NAMES]
            square = [(x - other[0]) ** 2 + (y - other[1]) ** 2 for x, y in cells]
            best = (min if name == "chase" else max)(square)
            expected = np.array([value == best for value in square], float)
            expected = expected[::-1] if world.mirrored[row] else expected
            assert np.allclose(action_probs[row], expected / expected.sum(), atol=1e-7)


def test_bot_actions_follow_their_probabilities() -> None:
    config, rows = Config(n=8), np.arange(30_000, dtype=np.int32)
    world = make(config, len(rows))
    for seat, role in enumerate(ROLES):
        for name in BOTS[role]:
            seat_view = seat_at(world, seat, rows)
            actions_taken = bot(name, role).act(seat_view, RngKey(5, 2, 2**33 + 1)).action
            frequency = [(actions_taken == action).mean() for action in range(3)]
            assert np.allclose(frequency, bot(name, role).action_probs(seat_view).mean(0), atol=0.015)


def test_bot_actions_depend_on_game_number() -> None:
    whole, tail = make(Config(), 10, first=0, seed=2), make(Config(), 6, first=4, seed=2)
    rows = np.arange(6, dtype=np.int32)
    for seat, role in enumerate(ROLES):
        for name in BOTS[role]:
            one, other = (bot(name, role).act(seat_at(w, seat, r), RngKey(5, 2, 2**33 + 1)).action
                          for w, r in ((whole, rows + 4), (tail, rows)))
            assert (one == other).all() and one.dtype == np.int32
    with pytest.raises(ConfigError, match="nearest: chase"):
        bot("chaes", "pursuer")
    with pytest.raises(ConfigError, match="expected one of"):
        bot("flee", "pursuer")
    with pytest.raises(ConfigError, match="role = joypad"):
        bot("flee", "joypad")


@pytest.mark.parametrize("config", [Config(n=9, block=3), Config(n=20, radius=0.0)])
def test_pictures_have_their_size_and_change(config: Config) -> None:
    check_pictures(make(config, 2), actions, render, 4)
    validate(config)
