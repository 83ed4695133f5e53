"""A way walked again without its detours: from a savestate to the milestone that its inputs lead to.

Who came somewhere by chance turned around often. Where what is read of memory is the same twice, the inputs
between are left out and the rest is played: kept if it still leads there, and who comes is no weaker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.spec import DECIDED, RUNNING

from .bundle import Bundle

if TYPE_CHECKING:
    from .world import GameboyWorld

PATIENCE = 30  # times its length that a way may be played in order to shorten it
TRIES = 3  # of leaving out more or less from one place on


@dataclass
class Walk:
    """Inputs as far as the milestone, what memory was before each and after the last, and where they led."""

    inputs: list[int]
    memories: list[bytes]
    strength: tuple[float, float]
    end: Bundle
    over: bool


def walk(world: GameboyWorld, inputs: Sequence[int]) -> Walk | None:
    """Play these in the only game of `world`, from where it begins; None if they reach no milestone."""
    strengths: list[tuple[float, float]] = []

    def any_milestone(*asked: Any) -> bool:
        strengths.append(asked[-1])
        return True

    world.watch(any_milestone)
    world.restart()
    memories = [world.hall.bank.ram[0].tobytes()]
    for n, action in enumerate(inputs, 1):
        view = world.step({"joypad": np.array([[action]])})
        if world.captured:
            over = bool(view.ended[0] == DECIDED)
            return Walk(list(inputs[:n]), memories, strengths[-1], world.captured[0], over)
        if view.ended[0] != RUNNING:
            return None
        memories.append(world.hall.bank.ram[0].tobytes())
    return None


def shortened(world: GameboyWorld, since: Bundle | None, inputs: Sequence[int]) -> Walk | None:
    """The shortest way found from `since` (None: power-on) to the milestone that these inputs lead to."""
    config = replace(world.config, screen=False, max_steps=len(inputs) + 1, idle_steps=0, workers=0)
    aside = type(world)(config, 1)
    try:
        if since is not None:
            aside.next.stage[:, 0] = aside.library.add(since)
        best = walk(aside, inputs)
        played, n = len(inputs), 0
        while best and n < len(best.inputs) and played < PATIENCE * len(inputs):
            same = [m for m in range(len(best.inputs) - 1, n, -1) if best.memories[m] == best.memories[n]]
            for m in same[:TRIES]:
                found = walk(aside, best.inputs[:n] + best.inputs[m:])
                played += len(best.inputs) - (m - n)
                if found and found.end.milestones == best.end.milestones and found.strength >= best.strength:
                    best = found
                    break
            n += 1
        return best
    finally:
        aside.hall.bank.close()
