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

from rematch.spec import DECIDED, RUNNING

from .bundle import Bundle

if TYPE_CHECKING:
    from .world import GameboyWorld

MARK = 48  # inputs between states on the way
CLOSE = 16  # the same while it is being shortened
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


def without_detours(aside: GameboyWorld, root: int, way: Walk) -> Walk:
    """One pass from the end to the beginning."""
    marked = walk(aside, root, way.inputs, CLOSE)
    assert marked is not None, "it was walked before"
    starts = [root, *(aside.library.add(mark) for mark in marked.marks)]
    inputs, places = list(way.inputs), list(marked.places)
    for low in range(len(way.inputs) - 1, -1, -1):
        if places[low] is None:
            continue
        again = [m for m in range(len(inputs) - 1, low, -1) if places[m] == places[low]]
        first = min(low // CLOSE, len(starts) - 1)
        near = first * CLOSE
        for high in again[:TRIES]:
            rest, by = inputs[near:low] + inputs[high:], places[near:low] + places[high:]
            found = walk(aside, starts[first], rest, by=by)
            if found and found.end.milestones == way.end.milestones and found.strength >= way.strength:
                inputs[near:], places[near:] = found.inputs, found.places
                break
    return replace(way, inputs=inputs, places=places)
