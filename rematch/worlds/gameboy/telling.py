"""What a game has to tell (rematch.spec.TellingWorld): milestones, how an episode ended, where it began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .seeing import Facts
from .titles import BANDS, Title

if TYPE_CHECKING:
    from .keeping import KeptGames

POWER_ON = "power_on"  # the tag of a game that began there


def of_step(world: KeptGames, facts: Facts) -> list[tuple[int, dict[str, Any]]]:
    """(row, what) of the step just made, before ended games begin anew."""
    told: list[tuple[int, dict[str, Any]]] = []
    if world.fresh.any():
        for row, mark in np.argwhere(world.fresh).tolist():
            told.append((row, {"event": "milestone", "milestone": world.hall.reader.names[mark]}))
    for row in np.flatnonzero(world.view.ended).tolist():
        badges, name = int(facts.badges[row].sum()), world.title.map_name(int(facts.map[row]))
        end = {"event": "end", "badges": badges, "map": name, "savestate_tag": tag(world, row)}
        told.append((row, end | {"milestones": world.milestones(row, since=True)}))
    return told


def tag(world: KeptGames, row: int) -> str:
    """The savestate that the running game began from, in a word."""
    bundle = world._origin(row)
    return POWER_ON if bundle is None else getattr(bundle, "tag", "") or bundle.map


def bands(world: KeptGames) -> list[str]:
    """[N] those of the savestates that the running games began from."""
    found = [world._origin(row) for row in range(world.games)]
    return [BANDS[0] if bundle is None else bundle.band for bundle in found]


def headlines(title: Title) -> tuple[str, ...]:
    """The badges, then the end."""
    order = [mark.name for kind in ("badge", "end") for mark in title.marks if mark.kind == kind]
    return tuple(order)
