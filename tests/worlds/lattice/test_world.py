"""The lattice as a world: settings, parts, threads, saved games, bad input, scripted players, pictures."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import lattice_reference as slow
from support.lattices import BOARDS, ROLES, actions, everything, positions

from rematch.core.config import validate
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at
from rematch.worlds import conformance
from rematch.worlds.lattice import native
from rematch.worlds.lattice.bots import BOTS, bot
from rematch.worlds.lattice.config import Config
from rematch.worlds.lattice.render import draw, frame_point
from rematch.worlds.lattice.world import LatticeWorld, make
from rematch.worlds.native_world import compare_with_struct
from rematch.worlds.registry import find


def played(world: LatticeWorld, steps: int, start: int = 0, threads: int = 1) -> bytes:
    """Every byte that many steps write."""
    out = []
    for step in range(start, start + steps):
        view = world.step(actions(world, step), threads=threads)
        out += [view[role]["state"].tobytes() for role in ROLES] + [world.mirrored.tobytes()]
        out += [array.tobytes() for array in (view.reward, view.ended, view.outcome, view.length)]
    return b"".join(out) + everything(world).tobytes()


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "words"), [
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
def test_impossible_settings_are_refused_in_one_line(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make(Config(**wrong), 4)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("stage", [(0, 20, 30), (0, 5, 4), (0.5, 1, 5), (2, 1, 5), (0, np.nan, 5),
                                   (0, 1, np.inf), (np.nan, 1, 5), (0, 2.1, 2.2)])
def test_an_unplayable_stage_is_refused(stage: tuple[float, ...]) -> None:
    world = make(Config(horizon=1), 3)
    with pytest.raises(ConfigError, match="stage anywhere"):
        world.set_stage(np.array([1]), np.array([stage], np.float32))
    if np.isfinite(stage).all():
        world.next.stage[1] = stage  # behind its back: found when the game restarts
        with pytest.raises(ConfigError, match="stage anywhere"):
            world.step(actions(world, 0))
    crowded = make(Config(n=3, radius=3.0), 1)
    with pytest.raises(ConfigError, match="further apart than radius = 3"):
        crowded.set_stage(np.array([0]), np.array([[1, 0, 0]], np.float32))


def test_every_setting_is_live() -> None:
    others = {"n": 10, "block": 3, "radius": 1.5, "skip": 3, "horizon": 12, "min_distance": 4.0,
              "max_distance": 4.0, "symmetry": False}  # fmt: skip
    assert set(others) == {field.name for field in dataclasses.fields(Config)} == set(native.RULES)
    before = played(make(Config(), 40), 60)
    for name, value in others.items():
        assert played(make(Config(**{name: value}), 40), 60) != before, name  # type: ignore[arg-type]


def test_struct_and_dataclass_are_compared() -> None:
    compare_with_struct(Config, native.RULES, "rules.h")
    for other in (native.RULES | {"gravity": "float"}, native.RULES | {"n": "float"},
                  {name: kind for name, kind in native.RULES.items() if name != "n"}):
        with pytest.raises(ImportError, match=r"gravity|setting n"):
            compare_with_struct(Config, other, "rules.h")


# --- parts, threads, saved games, bad input -----------------------------------------------------------


@pytest.mark.parametrize("config", BOARDS[:4], ids=lambda c: f"n{c.n}")
def test_keeps_the_contract_under_other_rules(config: Config) -> None:
    report = conformance.check_game(find("lattice"), config, trial=conformance.Trial(stage=(1.0, 0.0, 0.0)))
    assert "resample" in report.passed


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_neither_parts_nor_threads_change_a_bit(count: int) -> None:
    whole, other, cut = (make(BOARDS[1], 83, first=5) for _ in range(3))
    expected = played(whole, 100)
    assert whole.state_of(0)["episode"] > 0
    assert played(other, 100, threads=count) == expected
    parts = cut.parts(count)
    assert [part.first for part in parts] == [5 + 83 * n // count for n in range(count)]
    runners = [threading.Thread(target=played, args=(part, 100)) for part in parts]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert (everything(cut) == everything(whole)).all()  # the parts wrote the whole's memory
    assert cut.view.reward.tobytes() == whole.view.reward.tobytes()
    assert (cut.slot == whole.slot).all() and (cut.mirrored == whole.mirrored).all()


def test_a_saved_game_goes_on_as_it_would_have() -> None:
    world, other = make(BOARDS[0], 20, seed=4), make(BOARDS[0], 20, seed=9)
    played(world, 55)
    other.next.seed[:], saved = world.next.seed, everything(world)
    other.load(np.arange(20), saved)
    assert all((other.view[role]["state"] == world.view[role]["state"]).all() for role in ROLES)
    assert (other.mirrored == world.mirrored).all()
    assert played(other, 90, start=55) == played(world, 90, start=55)
    other.load(np.array([3, 1]), saved[[7, 7]])
    assert (other.save(np.array([1, 3])) == saved[7]).all()
    with pytest.raises(ValueError, match="read-only"):
        world.mirrored[0] = 1


@pytest.mark.parametrize(("name", "value", "words"), [
    ("robot", (648, 0), "robot is not from 0 to 647"), ("robot", (-1, 0), "robot is not"),
    ("robot", (40 * 8, 0), "blocked cell"), ("moves_left", 0, "moves_left is not from 1"),
    ("moves_left", 21, "moves_left is not from 1"), ("step", 20, "step is not"), ("step", -1, "step is not"),
    ("step", 19, "add to more than 20"), ("slot", (-1, 0), "slot is not"), ("mark", 7, "mark is not"),
    ("stage", (0, 30, 30), "stage anywhere"), ("stage", (3, 0, 9), "stage anywhere"),
])  # fmt: skip
def test_rubbish_is_not_loaded(name: str, value: Any, words: str) -> None:
    world = make(BOARDS[0], 3)
    before, states = everything(world), everything(world)
    states.view(native.GAME_TYPE)[name][1] = value
    with pytest.raises(ConfigError, match=words):
        world.load(np.arange(3), states)
    assert (everything(world) == before).all()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_hostile_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    world = make(BOARDS[0], 2, seed=1)
    states = everything(world)
    for _ in range(data.draw(st.integers(1, 4))):
        states[data.draw(st.integers(0, 1)), data.draw(st.integers(0, states.shape[1] - 1))] = data.draw(
            st.integers(0, 255))
    try:
        world.load(np.arange(2), states)
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    played(world, 3)
    for role in ROLES:
        categories = world.spec.roles[role].categories
        assert ((world.view[role]["state"] >= 0) & (world.view[role]["state"] < categories)).all()


def test_actions_that_cannot_be_are_refused_and_nothing_moves() -> None:
    world = make(Config(), 5, first=10)
    before = everything(world)
    for bad in (3, -1, 2**31 - 1, -(2**31), 2**32, 2**62 + 1):
        wrong = {role: move.astype(np.int64) for role, move in actions(world, 0).items()}
        wrong["evader"][3] = bad
        with pytest.raises(ConfigError, match="game 13: the evader's action is not 0, 1 or 2"):
            world.step(wrong)
    for given_ in (np.zeros((5, 1, 1), np.int32), np.zeros((4, 1), np.int32), np.zeros((5, 1), np.float32)):
        with pytest.raises(ConfigError, match="actions of pursuer"):
            world.step(actions(world, 0) | {"pursuer": given_})
    with pytest.raises(ConfigError, match=r"actions of evader: expected .*, found none"):
        world.step({"pursuer": np.zeros((5, 1), np.int32)})
    with pytest.raises(ConfigError, match="rows"):
        world.save(np.array([5]))
    with pytest.raises(ConfigError, match="games = 0"):
        make(Config(), 0)
    assert (everything(world) == before).all()


def test_the_core_refuses_arrays_it_would_read_or_write_past() -> None:
    world = make(Config(), 3)
    rule, states = world.shared.rules, world.save(np.arange(3))
    seen, flags = [np.zeros((3, 1, 5), np.float32) for _ in range(2)], np.zeros(3, np.uint8)
    rule.observe(states, *seen, flags)
    for wrong in (
        (states[:, :-1].copy(), *seen, flags),
        (states, seen[0][:2], seen[1], flags),
        (states, seen[0], seen[1][:, :, :-1].copy(), flags),
        (states, *seen, flags[:2]),
    ):
        with pytest.raises(ValueError, match="wrong shape"):
            rule.observe(*wrong)
    with pytest.raises(ValueError, match="n = 65, block = 0: expected"):
        native.Core({name: getattr(Config(), name) for name in native.RULES} | {"n": 65})


# --- scripted players and pictures --------------------------------------------------------------------


def captures(pursuer: str, evader: str, config: Config, games: int = 400) -> float:
    """Share of first games that the pursuer wins."""
    world, rows = make(config, games, seed=3), np.arange(games, dtype=np.int32)
    won = np.full(games, np.nan)
    for step in range(config.horizon):
        chosen = {}
        for seat, (role, name) in enumerate(zip(ROLES, (pursuer, evader))):
            asked, player, rng_key = seat_at(world, seat, rows), bot(name, role), RngKey(1, 2, step)
            action_probs, move = player.action_probs(asked), player.act(asked, rng_key).action
            assert action_probs.dtype == np.float32 and np.allclose(action_probs.sum(1), 1, atol=1e-6)
            assert (action_probs[rows, move] > 0).all()  # only what its distribution allows
            chosen[role] = move[:, None]
        view = world.step(chosen)
        new = (view.ended == 1) & np.isnan(won)
        won[new] = view.outcome[new, 0]
    return float(won.mean())


def test_bots_are_better_than_chance() -> None:
    config = Config(n=9, horizon=40)
    assert captures("chase", "random", config) > 0.97 > 0.8 > captures("random", "random", config)
    assert captures("chase", "straight", config) > 0.97
    assert captures("random", "flee", config) < captures("random", "random", config)
    assert captures("straight", "flee", Config(n=9, block=3, skip=2)) < 0.3


def test_bots_do_what_they_say() -> None:
    """Worked out on the board itself, not in the frame that they see."""
    config = Config(n=8, block=2, skip=3, horizon=20)
    robots, left = positions(config, 500, 3)
    world, on = make(config, 500), slow.board(8, 2)
    world.load(np.arange(500), world.position(robots[:, 0], robots[:, 1], left))
    for seat, (role, name) in enumerate((("pursuer", "chase"), ("evader", "flee"))):
        action_probs = bot(name, role).action_probs(seat_at(world, seat, np.arange(500, dtype=np.int32)))
        for row in range(500):
            own, other = on.robot(int(robots[row, seat])), on.robot(int(robots[row, 1 - seat]))
            skips = role == "pursuer" and (left[row] - 1) % 3 == 0
            cells = [on.move(own, word, skips)[:2] for word in slow.NAMES]
            square = [(x - other[0]) ** 2 + (y - other[1]) ** 2 for x, y in cells]
            best = (min if name == "chase" else max)(square)
            wanted = np.array([value == best for value in square], float)
            wanted = wanted[::-1] if world.mirrored[row] else wanted
            assert np.allclose(action_probs[row], wanted / wanted.sum(), atol=1e-7)


def test_acting_follows_the_chances() -> None:
    config, rows = Config(n=8), np.arange(30_000, dtype=np.int32)
    world = make(config, len(rows))
    for seat, role in enumerate(ROLES):
        for name in BOTS[role]:
            asked = seat_at(world, seat, rows)
            taken = bot(name, role).act(asked, RngKey(5, 2, 2**33 + 1)).action
            share = [(taken == action).mean() for action in range(3)]
            assert np.allclose(share, bot(name, role).action_probs(asked).mean(0), atol=0.015)


def test_scripted_players_go_by_game_number() -> None:
    whole, late = make(Config(), 10, first=0, seed=2), make(Config(), 6, first=4, seed=2)
    rows = np.arange(6, dtype=np.int32)
    for seat, role in enumerate(ROLES):
        for name in BOTS[role]:
            one, other = (bot(name, role).act(seat_at(w, seat, r), RngKey(5, 2, 2**33 + 1)).action
                          for w, r in ((whole, rows + 4), (late, rows)))
            assert (one == other).all() and one.dtype == np.int32
    with pytest.raises(ConfigError, match="nearest: chase"):
        bot("chaes", "pursuer")
    with pytest.raises(ConfigError, match="expected one of"):
        bot("flee", "pursuer")
    with pytest.raises(ConfigError, match="role = joypad"):
        bot("flee", "joypad")


@pytest.mark.parametrize("config", [Config(n=9, block=3), Config(n=20, radius=0.0)])
def test_pictures(config: Config) -> None:
    world = make(config, 2)
    trail: list[Any] = []
    first = draw(world, 1, trail)
    for step in range(4):
        world.step(actions(world, step))
        last = draw(world, 1, trail)
    assert first.size == last.size == (480, 480) and len(trail) == 5
    assert trail[-1] == frame_point(world, 1) and first.tobytes() != last.tobytes()
    validate(config)
