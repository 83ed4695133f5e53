"""A matchmaker over a world whose games end on request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core.world import Next
from rematch.rollout.seating import RoleSeating
from rematch.selfplay.league import Matchmaker
from rematch.selfplay.opponent_pool import LeagueConfig, OpponentPool
from support import toys

TINY = NetworkConfig(hidden=(1,))


class Hall:
    """A matchmaker over a world whose games end on request."""

    def __init__(self, toy: str = "matching", games: int = 16, seed: int = 0, **changes: Any) -> None:
        module = toys.TOYS[toy]
        self.spec = module.make(module.Config(), 1).spec
        self.config = LeagueConfig(**changes)
        self.policies, pools = {}, {}
        for role, role_spec in self.spec.roles.items():
            made = Policy(role_spec, TINY, role)
            made.initialise(1)
            seating = RoleSeating(made, 1 + self.config.slots)
            bots = [module.bot(name, role) for name in self.config.bots]
            pools[role] = OpponentPool(made, seating, self.config, bots)
            self.policies[role] = made
        self.matchmaker = Matchmaker(self.config, pools, seed)
        shape = (games, self.spec.seats)
        after = Next(np.zeros(games, np.uint64), np.zeros(shape, np.int32), np.zeros((games, 0), np.float32))
        self.world: Any = SimpleNamespace(
            games=games, spec=self.spec, slot=np.zeros(shape, np.int32), next=after
        )

    def learn(self, iteration: int) -> None:
        """The current selves become others."""
        for role, made in self.policies.items():
            weights = made.weights.copy()
            weights[0], weights[1] = iteration, len(role)
            made.set(weights)

    def iterate(self, iteration: int) -> None:
        self.learn(iteration)
        self.matchmaker.snapshot(iteration)
        self.matchmaker.seat(self.world, iteration)

    def end(self, games: Any) -> None:
        self.world.slot[games] = self.world.next.slot[games]


def pool_of(**changes: Any) -> OpponentPool:
    hall = Hall(**changes)
    return next(iter(hall.matchmaker.pools.values()))
