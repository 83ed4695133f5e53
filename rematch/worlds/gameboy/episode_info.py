"""Infos of ended episodes and start groups of running ones, for rematch.core.world.EventLog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .ram_reader import Facts
from .titles import START_GROUPS, Title

if TYPE_CHECKING:
    from .savestate_world import SavestateGames


def of_step(world: SavestateGames, facts: Facts) -> list[tuple[int, dict[str, Any]]]:
    """(row, info) of the episodes that ended with the last step, before their games restart."""
    episode_infos: list[tuple[int, dict[str, Any]]] = []
    for row in np.flatnonzero(world.view.ended).tolist():
        badges, name = int(facts.badges[row].sum()), world.title.map_name(int(facts.map[row]))
        bundle = world._origin(row)
        info = {"badges": badges, "map": name, "savestate": "" if bundle is None else bundle.sha256}
        episode_infos.append((row, info | {"milestones": world.milestones(row, since=True)}))
    return episode_infos


def start_groups(world: SavestateGames) -> list[str]:
    """[N] the start groups of the running episodes."""
    groups = []
    for row in range(world.games):
        bundle = world._origin(row)
        groups.append(START_GROUPS[0] if bundle is None else bundle.start_group)
    return groups


def headlines(title: Title) -> tuple[str, ...]:
    """The most important milestones: the badges, then the end."""
    kinds = ("badge", "end")
    return tuple(one.name for kind in kinds for one in title.milestones if one.kind == kind)
