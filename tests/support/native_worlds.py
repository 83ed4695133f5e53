"""Checks that the tests of the native worlds share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from rematch.core.errors import ConfigError
from rematch.core.player import Seat
from rematch.worlds.native_world import NativeWorld, compare_with_struct

Rollout = Callable[..., bytes]  # (world, steps, start=0, threads=1) -> every byte that the steps write


def save_all(world: NativeWorld) -> Any:
    return world.save(np.arange(world.games))


def rollout_bytes(
    world: Any, actions: Callable[[Any, int], Any], steps: range, threads: int, extra: tuple[str, ...] = ()
) -> bytes:
    """All observations, results and final states of these steps; extra: names of other arrays."""
    out = []
    for step in steps:
        view = world.step(actions(world, step), threads=threads)
        out += [field.tobytes() for role in world.spec.roles for field in view[role].values()]
        out += [array.tobytes() for array in (view.reward, view.ended, view.outcome, view.length)]
        out += [getattr(world, name).tobytes() for name in extra]
    return b"".join(out) + bytes(save_all(world).tobytes())


def check_one_line_error(build: Callable[[], Any], text: str) -> None:
    """`build` raises ConfigError with this text, in one line."""
    with pytest.raises(ConfigError) as error:
        build()
    assert text in str(error.value) and "\n" not in str(error.value)


def check_struct_comparison(
    config: type, struct: Mapping[str, str], header: str, changed: tuple[str, str]
) -> None:
    """A new member, a member of another type and a missing member are found; changed: (name, C type)."""
    name, other_type = changed
    compare_with_struct(config, struct, header)
    missing = {key: c_type for key, c_type in struct.items() if key != name}
    for other in ({**struct, "gravity": "float"}, {**struct, name: other_type}, missing):
        with pytest.raises(ImportError, match=rf"setting (gravity|{name}) "):
            compare_with_struct(config, other, header)


def check_parts_and_threads(worlds: tuple[Any, Any, Any], rollout: Rollout, count: int) -> None:
    """Three equal worlds, numbered from 5: one alone, one with `count` threads, one in `count` parts."""
    reference, threaded, divided = worlds
    expected = rollout(reference, 100)
    assert reference.state_of(0)["episode"] > 0
    assert rollout(threaded, 100, threads=count) == expected
    parts = divided.parts(count)
    assert [part.first for part in parts] == [5 + reference.games * n // count for n in range(count)]
    runners = [threading.Thread(target=rollout, args=(part, 100)) for part in parts]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert (save_all(divided) == save_all(reference)).all()  # parts share the memory of their world
    assert divided.view.reward.tobytes() == reference.view.reward.tobytes()
    assert (divided.slot == reference.slot).all() and divided.counters == reference.counters


def check_saved_games_continue(world: Any, other: Any, rollout: Rollout, extra: tuple[str, ...] = ()) -> None:
    """`other`, with as many games and other seeds, loads games of `world`; both then continue alike."""
    rollout(world, 55)
    other.next.seed[:], saved = world.next.seed, save_all(world)
    other.load(np.arange(world.games), saved)
    for role in world.spec.roles:
        for name, field in world.view[role].items():
            assert (other.view[role][name] == field).all()
    assert all((getattr(other, name) == getattr(world, name)).all() for name in extra)
    assert rollout(other, 90, start=55) == rollout(world, 90, start=55)
    other.load(np.array([3, 1]), saved[[7, 7]])
    assert (other.save(np.array([1, 3])) == saved[7]).all()


def load_corrupted(world: Any, data: st.DataObject) -> bool:
    """Load the games of a world with some bytes changed; False if they were rejected, in one line."""
    states = save_all(world)
    for _ in range(data.draw(st.integers(1, 4))):
        row, column = data.draw(st.integers(0, 1)), data.draw(st.integers(0, states.shape[1] - 1))
        states[row, column] = data.draw(st.integers(0, 255))
    try:
        world.load(np.arange(world.games), states)
    except ConfigError as error:
        assert "\n" not in str(error)
        return False
    return True


def capture_rate(
    world: Any, players: Mapping[str, Any], act: Callable[[Any, Seat, int], Any], steps: int
) -> float:
    """Fraction of first games that the pursuer wins; act(player, seat, step) -> actions [N, ...]."""
    rows = np.arange(world.games, dtype=np.int32)
    won: NDArray[np.float64] = np.full(world.games, np.nan)
    for step in range(steps):
        actions = {}
        for seat, (role, player) in enumerate(players.items()):
            obs = world.view[role]["state"][:, 0]
            view = Seat(role=world.spec.roles[role], seat=seat, world=world, rows=rows, obs=obs)
            actions[role] = act(player, view, step)[:, None]
        result = world.step(actions)
        new = (result.ended == 1) & np.isnan(won)
        won[new] = result.outcome[new, 0]
        if not np.isnan(won).any():
            break
    return float(won.mean())


def check_pictures(world: Any, actions: Callable[[Any, int], Any], render: Any, steps: int) -> None:
    """A picture before and after every step; render: the module with `draw` and `frame_point`."""
    trail: list[Any] = []
    first = last = render.draw(world, 1, trail)
    for step in range(steps):
        world.step(actions(world, step))
        last = render.draw(world, 1, trail)
    assert first.size == last.size == (480, 480) and len(trail) == steps + 1
    assert trail[-1] == render.frame_point(world, 1) and first.tobytes() != last.tobytes()
