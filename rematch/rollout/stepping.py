"""Ask every seat that is to move: the decision points of a world, written once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rematch.core.arrays import Floats, Ints
from rematch.core.player import Decision, Player, RngKey, Seat
from rematch.core.spec import Role
from rematch.core.world import World


def concat_fields(role: Role, obs: Mapping[str, Floats], privileged: bool = False) -> Floats:
    """A role's fields, or its privileged ones, as one row per seat: [N, k, F]; a single field as it is."""
    fields = role.privileged if privileged else role.fields
    if len(fields) == 1:
        return obs[fields[0].name]
    return np.concatenate([obs[f.name] for f in fields], axis=-1)


def ask_player(
    player: Player, world: World, obs: Floats, seat: tuple[Role, int, Ints], rng_key: RngKey
) -> Decision:
    """A player's decisions in rows of a role's j-th seat; seat: (role, j, rows), sight [N, k, F]."""
    role, j, rows = seat
    mask = world.view.mask.get(role.name)
    legal = None if mask is None else mask[rows, j]
    return player.act(Seat(role, role.seats[j], world, rows, obs[rows, j], legal), rng_key)
