"""A way walked again without its detours: from a savestate to the milestone that its inputs lead to.

Who came somewhere by chance turned around often. Where he stood in the same place twice, free to walk, the
inputs between are left out and the rest is played: kept if it still leads there, and who comes is no weaker.
From the end to the beginning, so that little is played again and little can go otherwise: a step on grass
more or less moves the cartridge's chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.core.world import DECIDED, RUNNING

from .savestates import Bundle

if TYPE_CHECKING:
    from .world import GameboyWorld

MARK = 48  # inputs between states on the way
CLOSE = 16  # the same while it is being shortened
BLOCK = 32  # inputs whose detours are left out together, at first
PASSES, TRIES = 2, 2  # over the whole way, and of leaving out more or less from one place on


@dataclass
class Walk:
    """Inputs as far as the milestone, the place before each where one could walk, and where they led."""

    inputs: list[int]
    places: list[int | None]
    strength: tuple[float, float]  # levels, HP
    end: Bundle
    over: bool
    marks: list[Bundle] = field(default_factory=list)  # states on the way


def standing(world: GameboyWorld) -> int | None:
    facts = world._facts()
    return None if facts.battle[0] or facts.text[0] else int(facts.place[0])


def walk(
    world: GameboyWorld, start: int, inputs: Sequence[int], every: int = 0, by: Sequence[int | None] = ()
) -> Walk | None:
    """Play these in the only game of `world`, from a savestate of its library, or -1 for power-on.

    None if they reach no milestone, or lead elsewhere than `by` those places. With `every` states on the way
    are kept, so many inputs from each other.
    """
    marks: list[Bundle] = []
    strengths: list[tuple[float, float]] = []

    def any_milestone(*asked: Any) -> bool:
        strengths.append(asked[-1])
        return True

    world.watch(any_milestone)
    world.next.stage[:, 0] = start
    world.restart()
    places = [standing(world)]
    for n, action in enumerate(inputs, 1):
        view = world.step({"joypad": np.array([[action]])})
        if world.captured:
            over = bool(view.ended[0] == DECIDED)
            return Walk(list(inputs[:n]), places, strengths[-1], world.captured[0], over, marks)
        if view.ended[0] != RUNNING:
            return None
        places.append(standing(world))
        if by and (n >= len(by) or places[n] != by[n]):
            return None
        if every and n % every == 0 and len(inputs) - n >= every // 2:
            marks.append(replace(world.capture(0), place=f"+{n}"))
    return None


def shortened(world: GameboyWorld, since: Bundle | None, inputs: Sequence[int]) -> Walk | None:
    """The shortest way found from `since` (None: power-on) to the milestone that these inputs lead to."""
    config = replace(world.config, screen=False, max_steps=len(inputs) + 1, idle_steps=0, workers=0)
    aside = type(world)(config, 1)
    try:
        root = -1 if since is None else aside.library.add(since)
        best = walk(aside, root, inputs)
        for _ in range(PASSES if best else 0):
            assert best is not None
            best = without_detours(aside, root, best)
        return walk(aside, root, best.inputs, MARK) if best else None
    finally:
        aside.hall.bank.close()


class Retrace:
    """One pass over a way, from its end to its beginning; what lies before the part at hand never changes."""

    def __init__(self, aside: GameboyWorld, root: int, way: Walk) -> None:
        marked = walk(aside, root, way.inputs, CLOSE)
        assert marked is not None, "it was walked before"
        self.aside, self.way = aside, way
        self.starts = [root, *(aside.library.add(mark) for mark in marked.marks)]
        self.inputs, self.places = list(way.inputs), list(marked.places)
        self.failed: set[bytes] = set()  # ways that led elsewhere, or to less

    def cut(self, low: int, high: int) -> None:
        """Leave out what returns to where it began, for inputs low .. high - 1 at once, else by halves."""
        if high - low == 1:
            again = [m for m in range(len(self.inputs) - 1, low, -1) if self.places[m] == self.places[low]]
            any(self._kept(low, [m]) for m in (again[:TRIES] if self.places[low] is not None else ()))
            return
        if (on := self._without_loops(low, high)) and not self._kept(low, on):
            middle = (low + high) // 2
            self.cut(middle, high)
            self.cut(low, middle)

    def _without_loops(self, low: int, high: int) -> list[int]:
        """The inputs from `low` on, each place left as for the last time; none where nothing is left out."""
        last = {place: m for m, place in enumerate(self.places[: len(self.inputs)]) if place is not None}
        on, at = [], low
        while at < high:
            at = last.get(self.places[at], at)  # type: ignore[arg-type]
            on.append(at)
            at += 1
        return on if on != list(range(low, at)) else []

    def _kept(self, low: int, on: list[int]) -> bool:
        """Play inputs `on` and all after the last of them instead of those from `low` on; kept if as good."""
        order = [*range(low), *on, *range(on[-1] + 1, len(self.inputs))]
        if (key := bytes(self.inputs[m] for m in order)) in self.failed:
            return False
        first = min(low // CLOSE, len(self.starts) - 1)
        near, way = first * CLOSE, self.way
        by = [self.places[m] for m in order[near:]]
        found = walk(self.aside, self.starts[first], list(key[near:]), by=by)
        if not found or found.end.milestones != way.end.milestones or found.strength < way.strength:
            self.failed.add(key)
            return False
        self.inputs[near:], self.places[near:] = found.inputs, found.places
        return True


def without_detours(aside: GameboyWorld, root: int, way: Walk) -> Walk:
    """One pass from the end to the beginning, BLOCK inputs at once where that still leads there."""
    pass_ = Retrace(aside, root, way)
    for high in range(len(way.inputs), 0, -BLOCK):
        pass_.cut(max(0, high - BLOCK), high)
    return replace(way, inputs=pass_.inputs, places=pass_.places)
