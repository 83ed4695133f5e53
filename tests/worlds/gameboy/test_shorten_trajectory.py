"""Ways walked again: detours go, the milestone and the strength stay, and the bundle replays to its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds

from rematch.core.system.interrupts import StopRequested
from rematch.worlds.gameboy import shorten_trajectory
from rematch.worlds.gameboy.cartridge.constants import ACTIONS
from rematch.worlds.gameboy.emulator import pyboy_emulator

gameboy_worlds.need_pyboy()
OPPOSITE = {"down": "up", "up": "down", "left": "right", "right": "left"}
START, B = ACTIONS.index("start"), ACTIONS.index("b")


def arrivals() -> dict[str, tuple[int, Any]]:
    """By the newest milestone of the solution: how many inputs lead there, and the savestate."""
    world, out = gameboy_worlds.world(1), {}
    world.set_capture_rule(lambda *asked: True)
    for count, action in enumerate(gameboy_worlds.tiny().solution[:60], 1):
        gameboy_worlds.press(world, action)
        for bundle in world.captured.values():
            out[world.events[-1][1]] = (count, bundle)
    return out


def scratch(since: Any) -> Any:
    world = gameboy_worlds.world(1)
    world.next.stage[:, 0] = world.library.add(since)
    world.restart()
    return world


def memory_after(since: Any, inputs: Sequence[int]) -> bytes:
    world = scratch(since)
    for action in inputs:
        gameboy_worlds.press(world, action)
    return bytes(world.shared.pool.ram[0].tobytes())


def with_detours(since: Any, trajectory: list[int], places: Sequence[int]) -> tuple[list[int], int]:
    """After these many inputs: back and forth again, and the box of START opened and closed."""
    out, count = list(trajectory), 0
    for at in sorted(places, reverse=True):
        back = OPPOSITE.get(ACTIONS[trajectory[at - 1]])
        walks = [] if back is None else [[ACTIONS.index(back), trajectory[at - 1]]]
        for detour in (*walks, [START, B]):
            if memory_after(since, [*trajectory[:at], *detour]) == memory_after(since, trajectory[:at]):
                out[at:at] = detour
                count += 1
    return out, count


def replayed(bundle: Any) -> str:
    rom = gameboy_worlds.tiny().rom
    bare = pyboy_emulator.acquire(rom)
    bare.load(pyboy_emulator.power_on(rom))
    for action in bundle.actions:
        bare.press(action)
    return hashlib.sha256(bare.save()).hexdigest()


def test_detours_go_and_the_milestone_stays() -> None:
    result, solution = arrivals(), list(gameboy_worlds.tiny().solution)
    (first, since), (last, stored) = result["DAWN"], result["ROUTE-1"]
    trajectory = solution[first:last]
    longer, detours = with_detours(since, trajectory, (4, 8, 11))
    assert detours >= 3 and len(longer) == len(trajectory) + 2 * detours
    world = gameboy_worlds.world(2)
    out = world.shorten(since, [*longer, *[B] * 5])
    assert len(out.inputs) <= len(trajectory) and not out.decided
    once = shorten_trajectory.play(scratch(since), 0, longer)
    assert once is not None and out.strength >= once.strength
    assert out.end.milestones == stored.milestones and out.end.parent == since.sha256
    assert out.end.actions == since.actions + out.inputs and replayed(out.end) == out.end.sha256
    plain = shorten_trajectory.shorten(world, since, longer)
    assert plain is not None and plain.inputs == out.inputs, "what comes after the milestone does not matter"


def test_nothing_is_left_out_that_makes_a_weaker_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were one stronger with every step that he makes, he would make every one again."""
    result, play = arrivals(), shorten_trajectory.play
    (first, since), (last, stored) = result["DAWN"], result["ROUTE-1"]
    longer, detours = with_detours(since, list(gameboy_worlds.tiny().solution[first:last]), (8,))

    def hardening(world: Any, start: int, inputs: Sequence[int], *more: Any, **by: Any) -> Any:
        made = play(world, start, inputs, *more, **by)
        if made:
            made.strength = (5.0, float(len(made.end.actions)))
        return made

    monkeypatch.setattr(shorten_trajectory, "play", hardening)
    out = shorten_trajectory.shorten(gameboy_worlds.world(1), since, longer)
    assert detours and out is not None
    assert out.inputs == longer and out.end.milestones == stored.milestones


def test_states_on_the_trajectory_are_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorten_trajectory, "WAYPOINT_INTERVAL", 8)
    result, solution = arrivals(), list(gameboy_worlds.tiny().solution)
    first, last = (result[name][0] for name in ("DAWN", "ROUTE-1"))
    out = gameboy_worlds.world(1).shorten(result["DAWN"][1], solution[first:last])
    assert out is not None and len(out.waypoints) == (len(out.inputs) - 4) // 8 > 0
    for number, waypoint in enumerate(out.waypoints, 1):
        assert waypoint.place == f"+{8 * number}" and waypoint.milestones == ("DAWN",)
        assert waypoint.actions == out.end.actions[: first + 8 * number]
        assert replayed(waypoint) == waypoint.sha256


def test_trajectory_that_leaves_its_states_ends_at_once() -> None:
    result, solution = arrivals(), list(gameboy_worlds.tiny().solution)
    (first, since), (last, _) = result["DAWN"], result["ROUTE-1"]
    trajectory = shorten_trajectory.play(scratch(since), 0, solution[first:last])
    assert trajectory is not None
    inputs, places = trajectory.inputs, trajectory.places
    assert shorten_trajectory.play(scratch(since), 0, inputs, by=places) is not None
    for other in range(1, len(trajectory.places)):
        by = [*trajectory.places]
        by[other] = -1
        assert shorten_trajectory.play(scratch(since), 0, trajectory.inputs, by=by) is None
    assert shorten_trajectory.play(scratch(since), 0, inputs[:-1], by=places[:-1]) is None


def test_inputs_without_a_milestone_are_no_trajectory() -> None:
    assert gameboy_worlds.world(1).shorten(None, [B] * 6) is None
    assert gameboy_worlds.world(1).shorten(None, []) is None


def test_shortening_plays_in_a_separate_emulator() -> None:
    """Neither the games nor the library of the world that asks change."""
    world = gameboy_worlds.world(2)
    gameboy_worlds.follow(world, 7)
    before, (first, _) = world.save(np.arange(2)), arrivals()["DAWN"]
    world.shorten(None, list(gameboy_worlds.tiny().solution[:first]))
    assert (world.save(np.arange(2)) == before).all() and not len(world.library)


def test_stop_request_ends_the_attempts() -> None:
    result = arrivals()
    (first, since), (last, _) = result["DAWN"], result["ROUTE-1"]
    longer, _ = with_detours(since, list(gameboy_worlds.tiny().solution[first:last]), (4, 8, 11))
    attempts: list[int] = []

    def stop() -> None:
        attempts.append(1)
        raise StopRequested

    with pytest.raises(StopRequested):
        gameboy_worlds.world(1).shorten(since, longer, stop)
    assert attempts == [1]
