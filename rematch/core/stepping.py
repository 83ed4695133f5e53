"""Every seat decides, then the world steps once: the decision points of a world, written once.

The collector batches its policies itself (rollout/collector.py); matches, films, adapters and the conformance
test let players act through this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats, Ints
from rematch.core.player import Player, RngKey, Seat
from rematch.core.spec import Role
from rematch.core.world import World


def concat_fields(role: Role, fields: Mapping[str, Floats], privileged: bool = False) -> Floats:
    """A role's fields, or its privileged ones, side by side: [N, k, F]; a single field is not copied."""
    wanted = role.privileged if privileged else role.fields
    if len(wanted) == 1:
        return fields[wanted[0].name]
    return np.concatenate([fields[f.name] for f in wanted], axis=-1)


def seat_at(world: World, seat: int, rows: Ints, obs: Floats | None = None) -> Seat:
    """The decision of one seat in these games, as a player gets it.

    obs: the observations of all seats of its role [N, k, F], where they are already side by side.
    """
    role = world.spec.role_of(seat)
    index = role.seats.index(seat)
    if obs is None:
        fields = [world.view[role.name][f.name][rows, index].reshape(len(rows), f.size) for f in role.fields]
        chosen = fields[0] if len(fields) == 1 else np.concatenate(fields, 1)
    else:
        chosen = obs[rows, index]
    mask = world.view.mask.get(role.name)
    legal = None if mask is None else mask[rows, index]
    return Seat(role=role, seat=seat, world=world, rows=rows, obs=chosen, mask=legal)


def empty_actions(world: World) -> dict[str, NDArray[Any]]:
    """role -> zeros of the shape that `step` takes: [N, k, A] floats or [N, k] ints."""
    out: dict[str, NDArray[Any]] = {}
    for role in world.spec.roles.values():
        shape = (world.games, len(role.seats))
        if role.actions.kind == "continuous":
            out[role.name] = np.zeros((*shape, role.actions.size), np.float32)
        else:
            out[role.name] = np.zeros(shape, np.int32)
    return out


class SeatedPlayers:
    """Players by seat, the seeds of their random numbers, and the recurrent states of those that have one.

    read_values: whether one of the players passes on the values of another one's decisions.
    """

    def __init__(
        self, players: Mapping[int, Player], seeds: Mapping[int, int], stream: int, read_values: bool = False
    ) -> None:
        self.players, self.seeds, self.stream, self.read_values = players, seeds, stream, read_values
        self.recurrent_states: dict[int, NDArray[Any]] = {}  # seat -> [N, M]

    def act(
        self, world: World, actions: dict[str, NDArray[Any]], step: int,
        playing: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Write the decisions of all players that are to move into `actions`; [N, seats] where they resign.

        `step` keys the random numbers; playing [N]: only in these games.
        """
        resigned = np.zeros((world.games, world.spec.seats), bool)
        for seat, player in self.players.items():
            to_move = world.view.acting[:, seat] != 0
            rows = np.flatnonzero(to_move if playing is None else to_move & playing).astype(np.int32)
            if not rows.size:
                continue
            states = self.recurrent_states.get(seat)
            before = None if states is None else states[rows]
            rng_key = RngKey(self.seeds[seat], self.stream, step)
            decision_point = seat_at(world, seat, rows)
            decision_point.value_wanted = self.read_values
            decision = player.act(decision_point, rng_key, before)
            role = world.spec.role_of(seat)
            actions[role.name][rows, role.seats.index(seat)] = decision.action
            if decision.resigned is not None:
                resigned[rows, seat] = decision.resigned
            if decision.recurrent_state is not None:
                self._store(seat, world.games, rows, decision.recurrent_state)
        return resigned

    def _store(self, seat: int, games: int, rows: Ints, after: NDArray[Any]) -> None:
        if seat not in self.recurrent_states:
            self.recurrent_states[seat] = np.zeros((games, *after.shape[1:]), after.dtype)
        self.recurrent_states[seat][rows] = after

    def clear(self, ended: NDArray[np.bool_]) -> None:
        """Ended games [N]: all zeros is the recurrent state at the start of an episode."""
        for states in self.recurrent_states.values():
            states[ended] = 0
