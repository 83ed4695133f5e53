"""The world of a run as a component: staggered first games, and the state of all games in checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Tree, stored_array
from rematch.core.clock import Clock
from rematch.core.component import Component, Setup

STAGGERED = 1 << 40  # iteration number of the first rollout before training; training never counts this far


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A component without settings of its own."""


class WorldState(Component):
    """The states of all games, and the seeds, slots and stages that they restart with."""

    name = "world_state"
    Config = NoSettings
    changed_by_play = True

    @classmethod
    def configs(cls) -> dict[str, tuple[type, str]]:
        return {}

    @classmethod
    def memory_bytes(cls, config: NoSettings, setup: Setup) -> int:
        """The rollout buffer, the arrays of an update, and the states of the games."""
        c, decision_bytes = setup.config, 0
        for role in setup.spec.roles.values():
            # RoleRollout: observation, action, six numbers, flags; PPO: advantages, targets, shuffled order
            decision_bytes += len(role.seats) * (4 * role.size + 4 * role.actions.size + 25 + 5 * 4 + 2 * 8)
            if c.network.reads_privileged:
                decision_bytes += 4 * len(role.seats) * role.privileged_size
        state_bytes = int(setup.make_world(1, 0, 0).save(np.zeros(1, np.int32)).shape[1])
        roles = setup.spec.roles.values()
        view_bytes = sum(4 * len(role.seats) * (role.size + role.privileged_size) for role in roles)
        copies = 3 + 2 * c.lag  # of the states; with a lag also those before the pending rollout
        return int(c.games * ((1 + c.lag) * c.steps * decision_bytes + copies * state_bytes + 2 * view_bytes))

    def start(self, clock: Clock) -> None:
        """Play some steps without learning, and restart groups of games at different times.

        Otherwise the first rollout would contain the first steps of all games.
        """
        config, world = self.setup.config, self.setup.world
        all_rows = np.arange(config.games, dtype=np.int32)
        initial_states = world.save(all_rows)
        groups = -(-config.stagger // config.steps)
        words = rng.words(config.seed, rng.STAGGER, config.games) if groups else None
        group = all_rows if words is None else words % np.uint64(groups)
        for g in range(groups):
            self.setup.prepare_rollout()
            rows = np.flatnonzero(group == g).astype(np.int32)
            world.load(rows, initial_states[rows])
            self.setup.agents.forget(rows)
            self.setup.collect(STAGGERED + g)

    def state_dict(self) -> Tree:
        world = self.setup.world
        rows = np.arange(self.setup.config.games, dtype=np.int32)
        restart = world.next
        return {"states": world.save(rows), "seed": restart.seed, "slot": restart.slot,
                "stage": restart.stage}

    def load_state_dict(self, tree: Tree) -> None:
        world = self.setup.world
        restart = world.next
        restart.seed[:] = stored_array(tree, "seed", restart.seed)
        restart.slot[:] = stored_array(tree, "slot", restart.slot)
        restart.stage[:] = stored_array(tree, "stage", restart.stage)
        world.load(np.arange(self.setup.config.games, dtype=np.int32), tree["states"])
