"""Ask every seat that is to move: the decision points of a world, written once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rematch.core.arrays import Floats, Ints
from rematch.core.player import Move, Noise, Player, Seat
from rematch.core.spec import Role
from rematch.core.world import World


def concat_fields(role: Role, sight: Mapping[str, Floats], aside: bool = False) -> Floats:
    """A role's fields, or its privileged ones, as one row per seat: [N, k, F]; a single field as it is."""
    fields = role.aside if aside else role.fields
    if len(fields) == 1:
        return sight[fields[0].name]
    return np.concatenate([sight[f.name] for f in fields], axis=-1)


def ask_player(
    player: Player, world: World, sight: Floats, seat: tuple[Role, int, Ints], noise: Noise
) -> Move:
    """A player's decisions in rows of a role's j-th seat; seat: (role, j, rows), sight [N, k, F]."""
    role, j, rows = seat
    mask = world.view.mask.get(role.name)
    legal = None if mask is None else mask[rows, j]
    return player.act(Seat(role, role.seats[j], world, rows, sight[rows, j], legal), noise)
