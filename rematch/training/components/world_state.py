"""The world of a run as a component: how its first games start, and their state in checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Setup

STAGGERED = 1 << 40  # iteration numbers of the rollouts before training: far from those that training counts


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A component without settings of its own."""


class WorldState(Component):
    """The states of all games, and what each restarts from."""

    name = "world_state"
    Config = NoSettings

    @classmethod
    def configs(cls) -> dict[str, tuple[type, str]]:
        return {}

    @classmethod
    def memory_bytes(cls, config: NoSettings, setup: Setup) -> int:
        """The rollout buffer, what an update makes of it, and the states of the games."""
        c, decision = setup.config, 0
        for role in setup.spec.roles.values():
            # RoleRollout: observation, action, six numbers, flags; PPO: advantages, targets, shuffled order
            decision += len(role.seats) * (4 * role.size + 4 * role.actions.size + 25 + 5 * 4 + 2 * 8)
            if c.network.reads_privileged:
                decision += 4 * len(role.seats) * role.privileged_size
        state = int(setup.make_world(1, 0, 0).save(np.zeros(1, np.int32)).shape[1])
        roles = setup.spec.roles.values()
        view = sum(4 * len(role.seats) * (role.size + role.privileged_size) for role in roles)
        return int(c.games * (c.steps * decision + 3 * state + 2 * view))

    def start(self, clock: Clock) -> None:
        """Play games that are not learned from first, each restarting at its own time: then no rollout holds
        the first steps of all games."""
        config, world = self.setup.config, self.setup.world
        every = np.arange(config.games, dtype=np.int32)
        fresh = world.save(every)
        groups = -(-config.stagger // config.steps)
        draws = rng.words(config.seed, rng.STAGGER, config.games) if groups else None
        group = every if draws is None else draws % np.uint64(groups)
        for g in range(groups):
            self.setup.prepare_rollout()
            first = np.flatnonzero(group == g).astype(np.int32)
            world.load(first, fresh[first])
            self.setup.agents.forget(first)
            self.setup.collect(STAGGERED + g)

    def state_dict(self) -> Tree:
        world = self.setup.world
        rows = np.arange(self.setup.config.games, dtype=np.int32)
        after = world.next
        return {"states": world.save(rows), "seed": after.seed, "slot": after.slot, "stage": after.stage}

    def load_state_dict(self, tree: Tree) -> None:
        world = self.setup.world
        world.next.seed[:], world.next.slot[:] = tree["seed"], tree["slot"]
        world.next.stage[:] = tree["stage"]
        world.load(np.arange(self.setup.config.games, dtype=np.int32), tree["states"])
