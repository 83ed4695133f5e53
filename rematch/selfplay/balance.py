"""Balance: a role that leads too far does not learn until the other role has caught up.

Both roles learn from the same games, but seldom at the same speed. The lead is measured in the training games
between the newest policies, as a moving average, so it costs no games and needs no evaluation. Where the game
itself favours one role, that role would wait for ever: `until` ends it, and then the game decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rematch.core.arrays import Tree, stored_float
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.world import Next
from rematch.rollout.rollout_buffer import RolloutBuffer


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    """Balance of two roles that learn simultaneously."""

    threshold: float = knob(
        0.0, "difference of the roles' win rates, in training games between their newest policies, above "
        "which the leading role does not learn; 0: both always learn", unit="fraction", low=0, high=1,
    )  # fmt: skip
    games: int = knob(
        500, "time constant of the moving average of the win rate", unit="games", low=1, needs="threshold"
    )
    until: float = knob(
        1.0, "fraction of the run after which both roles always learn", unit="fraction", low=0, high=1,
        needs="threshold",
    )  # fmt: skip


class Balance(Component):
    """Measures the lead of a role and lets only the other role learn while it is large."""

    name = "balance"
    Config = BalanceConfig
    needs = "schedule.kind=simultaneous"

    def __init__(self, config: BalanceConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.first, self.last = setup.spec.roles
        self.rate = 0.5  # moving average of the first role's score
        self.held = ""  # role that does not learn in this iteration

    @classmethod
    def off(cls, config: BalanceConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup) or ("" if config.threshold else "balance.threshold is 0")

    @classmethod
    def no_effect(cls, key: str, config: BalanceConfig, setup: Setup) -> str:
        if len(setup.spec.roles) != 2:
            return "a lead is between two roles, and the world has another number"
        return "" if setup.learner_class.seats_opponents else "all roles of this learner learn together"

    @classmethod
    def shrink(cls, config: BalanceConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"threshold": 1e-9 if config.threshold else 0.0, "games": 1}

    @property
    def leader(self) -> str:
        """The role that leads by more than the threshold; empty: none."""
        lead = 2 * self.rate - 1
        if abs(lead) <= self.config.threshold:
            return ""
        return str(self.first if lead > 0 else self.last)

    def before_rollout(self, clock: Clock, next: Next) -> None:
        self.held = self.leader if clock.progress < self.config.until else ""
        clock.phase = replace(clock.phase, roles=tuple(r for r in clock.phase.roles if r != self.held))

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        games = rollout.finished()
        newest = np.logical_and.reduce([(games.slot[role] == 0).all(1) for role in (self.first, self.last)])
        scores = games.outcome[self.first][newest]
        if scores.size:
            old_share = (1 - 1 / self.config.games) ** len(scores)
            self.rate = old_share * self.rate + (1 - old_share) * float(scores.mean())

    def metrics(self) -> Metrics:
        return {"rate": self.rate, **{f"held_{role}": float(role == self.held)
                                      for role in (self.first, self.last)}}

    def evidence(self, record: Record) -> Iterable[Evidence]:
        held = [name for name in (self.first, self.last)
                if any(row.get(f"balance/held_{name}") for row in record.metrics)]
        yield Evidence(self.name, f"{' and '.join(held)} waited for the other role" if held else "")

    def state_dict(self) -> Tree:
        return {"rate": self.rate}

    def load_state_dict(self, tree: Tree) -> None:
        self.rate = stored_float(tree, "rate", 0.0, 1.0)
