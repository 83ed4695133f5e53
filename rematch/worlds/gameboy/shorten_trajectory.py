"""Removes detours from the inputs that lead from a savestate to a milestone.

Random play turns around often. Where the player was free to walk and stood in the same place twice, the
inputs between are removed and the others are replayed. The result is used if it reaches the same milestones
with no less strength. The search goes from the end to the start, so that little is replayed and little can
change: one step on grass more or less changes the random numbers of the cartridge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.core.world import DECIDED, RUNNING

from .savestates import Bundle

if TYPE_CHECKING:
    from .world import GameboyWorld

WAYPOINT_INTERVAL = 48  # inputs between waypoints of the result
SEARCH_INTERVAL = 16  # inputs between waypoints during the search
BLOCK = 32  # inputs whose detours are removed together, at first
PASSES, TRIES = 2, 2  # passes over the trajectory; attempts at one place


@dataclass
class Trajectory:
    """Inputs up to a milestone, the places before each input, and the state that they reach."""

    inputs: list[int]
    places: list[int | None]  # None where the player was not free to walk
    strength: tuple[float, float]  # levels, HP
    end: Bundle
    decided: bool
    waypoints: list[Bundle] = field(default_factory=list)  # states on the trajectory


def standing_place(world: GameboyWorld) -> int | None:
    """The place of the player; None in a match or a text box."""
    facts = world._facts()
    return None if facts.battle[0] or facts.text[0] else int(facts.place[0])


def play(
    world: GameboyWorld, start: int, inputs: Sequence[int], every: int = 0, by: Sequence[int | None] = ()
) -> Trajectory | None:
    """Play inputs in the only game of `world`, from savestate `start` of its library or -1 for power-on.

    None if they reach no milestone, or deviate from the places `by`. every: inputs between waypoints; 0: no
    waypoints.
    """
    waypoints: list[Bundle] = []
    strengths: list[tuple[float, float]] = []

    def any_milestone(*arguments: Any) -> bool:
        strengths.append(arguments[-1])
        return True

    world.set_capture_rule(any_milestone)
    world.next.stage[:, 0] = start
    world.restart()
    places = [standing_place(world)]
    for n, action in enumerate(inputs, 1):
        view = world.step({"joypad": np.array([[action]])})
        if world.captured:
            decided = bool(view.ended[0] == DECIDED)
            return Trajectory(list(inputs[:n]), places, strengths[-1], world.captured[0], decided, waypoints)
        if view.ended[0] != RUNNING:
            return None
        places.append(standing_place(world))
        if by and (n >= len(by) or places[n] != by[n]):
            return None
        if every and n % every == 0 and len(inputs) - n >= every // 2:
            waypoints.append(replace(world.capture(0), place=f"+{n}"))
    return None


def shorten(
    world: GameboyWorld, start: Bundle | None, inputs: Sequence[int],
    before_play: Callable[[], None] = lambda: None,
) -> Trajectory | None:  # fmt: skip
    """A shorter trajectory from `start` (None: power-on) to the milestone that the inputs reach.

    `before_play` is called before each attempt and may raise StopRequested.
    """
    config = replace(world.config, screen=False, max_steps=len(inputs) + 1, idle_steps=0, workers=0)
    scratch = type(world)(config, 1)
    try:
        root = -1 if start is None else scratch.library.add(start)
        best = play(scratch, root, inputs)
        for _ in range(PASSES if best else 0):
            assert best is not None
            best = remove_detours(scratch, root, best, before_play)
        return play(scratch, root, best.inputs, WAYPOINT_INTERVAL) if best else None
    finally:
        scratch.shared.pool.close()


class DetourRemoval:
    """One pass over a trajectory from its end to its start; inputs before the present ones never change."""

    def __init__(
        self, scratch: GameboyWorld, root: int, trajectory: Trajectory, before_play: Callable[[], None]
    ) -> None:
        with_waypoints = play(scratch, root, trajectory.inputs, SEARCH_INTERVAL)
        assert with_waypoints is not None, "it was played before"
        self.scratch, self.trajectory, self.before_play = scratch, trajectory, before_play
        self.starts = [root, *(scratch.library.add(waypoint) for waypoint in with_waypoints.waypoints)]
        self.inputs, self.places = list(trajectory.inputs), list(with_waypoints.places)
        self.failed: set[bytes] = set()  # inputs that failed before

    def cut(self, low: int, high: int) -> None:
        """Remove loops that start at inputs low to high - 1: all at once, else by halves."""
        if high - low == 1:
            returns = [m for m in range(len(self.inputs) - 1, low, -1) if self.places[m] == self.places[low]]
            any(self._try_order(low, [m]) for m in (returns[:TRIES] if self.places[low] is not None else ()))
            return
        if (order := self._without_loops(low, high)) and not self._try_order(low, order):
            middle = (low + high) // 2
            self.cut(middle, high)
            self.cut(low, middle)

    def _without_loops(self, low: int, high: int) -> list[int]:
        """Indices of the inputs from `low` on without loops; empty if there is no loop."""
        last = {place: m for m, place in enumerate(self.places[: len(self.inputs)]) if place is not None}
        order, index = [], low
        while index < high:
            index = last.get(self.places[index], index)  # type: ignore[arg-type]
            order.append(index)
            index += 1
        return order if order != list(range(low, index)) else []

    def _try_order(self, low: int, replacement: list[int]) -> bool:
        """Play the inputs `replacement` and all after its last one instead of those from `low` on.

        Returns True, and takes the result, if it is as good.
        """
        order = [*range(low), *replacement, *range(replacement[-1] + 1, len(self.inputs))]
        if (key := bytes(self.inputs[m] for m in order)) in self.failed:
            return False
        self.before_play()
        first = min(low // SEARCH_INTERVAL, len(self.starts) - 1)
        offset, previous = first * SEARCH_INTERVAL, self.trajectory
        by = [self.places[m] for m in order[offset:]]
        result = play(self.scratch, self.starts[first], list(key[offset:]), by=by)
        same = result is not None and result.end.milestones == previous.end.milestones
        if result is None or not same or result.strength < previous.strength:
            self.failed.add(key)
            return False
        self.inputs[offset:], self.places[offset:] = result.inputs, result.places
        return True


def remove_detours(
    scratch: GameboyWorld, root: int, trajectory: Trajectory, before_play: Callable[[], None]
) -> Trajectory:
    """One pass from the end to the start, BLOCK inputs at once where that succeeds."""
    removal = DetourRemoval(scratch, root, trajectory, before_play)
    for high in range(len(trajectory.inputs), 0, -BLOCK):
        removal.cut(max(0, high - BLOCK), high)
    return replace(trajectory, inputs=removal.inputs, places=removal.places)
