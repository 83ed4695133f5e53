"""Seating: which player sits where. Slots hold policies; slot 0 is the learner's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from rematch.core.arrays import Floats, aligned_zeros
from rematch.core.player import Player
from rematch.core.spec import Role


class SeatedPolicy(Protocol):
    """The parts of a policy that the collector needs."""

    role: Role
    config: Any
    network: Any
    weights: Floats


class NoNetwork:
    """The network of a role that no policy plays."""

    packed_size = 0
    reads_privileged = False


class BotsOnly:
    """Stands for the policy of a role that only other players play."""

    config = NoNetwork()
    network = NoNetwork()
    weights: Floats = np.zeros(0, np.float32)

    def __init__(self, role: Role) -> None:
        self.role = role


class RoleSeating:
    """Players of one role: policies in slots 0 .. S - 1 (0 is the learner), other players in the slots after.

    Without slots for policies the first of the other players is the learner's behaviour player.
    """

    def __init__(self, policy: SeatedPolicy, slots: int) -> None:
        self.policy = policy
        self.packed = aligned_zeros((slots, policy.network.packed_size))
        self.others: list[Player] = []  # slot S + i
        self.names: dict[int, str] = {}  # slot -> name of the opponent in it
        # For collectors that do not read `packed`: slot -> its weights, and the slots filled since they read.
        self.placed: dict[int, Floats] = {}
        self.changed: set[int] = set()
        self.learner_weights: Any = None  # on a GPU: the tensor of the learner that slot 0 plays from

    def place(self, slot: int, weights: Floats) -> None:
        """Put a policy's weights into a slot."""
        self.policy.network.pack(weights[None], self.packed[slot : slot + 1])
        self.placed[slot] = weights.copy()
        self.changed.add(slot)

    def add_slots(self, count: int) -> None:
        """More slots for policies; before any player sits after them."""
        assert not self.others, "slots of other players would change"
        before, (slots, size) = self.packed, self.packed.shape
        self.packed = aligned_zeros((slots + count, size))
        self.packed[:slots] = before

    def seat_player(self, player: Player) -> int:
        """Seat a player that is no policy of this network; its slot."""
        self.others.append(player)
        return len(self.packed) + len(self.others) - 1

    def value(self, obs: Floats, privileged: Floats | None) -> Floats:
        """[n] values of observations [n, F] by the policy in slot 0."""
        n, actions = len(obs), self.policy.role.actions
        discrete = actions.kind == "discrete"
        action = np.zeros(n, np.int32) if discrete else np.zeros((n, actions.size), np.float32)
        logp, value = np.zeros(n, np.float32), np.zeros(n, np.float32)
        slot, number = np.zeros(n, np.int32), np.zeros(n, np.uint32)
        self.policy.network.act(
            self.packed[:1], slot, obs, number, (0, 0), action, logp, value,
            greedy=True, privileged=privileged,
        )
        return value

    def player_names(self) -> list[str]:
        """The name of the player in each slot."""
        return [self.player_name(slot) for slot in range(len(self.packed) + len(self.others))]

    def player_name(self, slot: int) -> str:
        """"" for the learner."""
        if slot >= len(self.packed):
            is_learner = not len(self.packed) and slot == 0
            return "" if is_learner else self.others[slot - len(self.packed)].name
        return self.names.get(slot, "")


Seating = Mapping[str, RoleSeating]  # role -> its players
