"""What a game has to tell (rematch.core.world.EventLog): how an episode ended, where it began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .ram_reader import Facts
from .titles import BANDS, Title

if TYPE_CHECKING:
    from .savestate_world import KeptGames


def of_step(world: KeptGames, facts: Facts) -> list[tuple[int, dict[str, Any]]]:
    """(row, what) of the episodes that the step just made ended, before they begin anew."""
    episode_infos: list[tuple[int, dict[str, Any]]] = []
    for row in np.flatnonzero(world.view.ended).tolist():
        badges, name = int(facts.badges[row].sum()), world.title.map_name(int(facts.map[row]))
        bundle = world._origin(row)
        end = {"badges": badges, "map": name, "savestate": "" if bundle is None else bundle.sha256}
        episode_infos.append((row, end | {"milestones": world.milestones(row, since=True)}))
    return episode_infos


def bands(world: KeptGames) -> list[str]:
    """[N] those of the savestates that the running games began from."""
    found = [world._origin(row) for row in range(world.games)]
    return [BANDS[0] if bundle is None else bundle.band for bundle in found]


def headlines(title: Title) -> tuple[str, ...]:
    """The badges, then the end."""
    order = [mark.name for kind in ("badge", "end") for mark in title.marks if mark.kind == kind]
    return tuple(order)
