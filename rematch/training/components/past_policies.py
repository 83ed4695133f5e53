"""Past policies as a component: stores the policies of evenly spaced iterations in past/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rematch.core.clock import Clock
from rematch.core.component import Component, Setup, SmallRun
from rematch.core.config import knob
from rematch.evaluation.past_policies import policy_metadata, stride


@dataclass(frozen=True, kw_only=True)
class PastPoliciesConfig:
    """Policies of earlier iterations, for payoff matrices and forgetting curves."""

    count: int = knob(
        40, "past policies stored for the report, evenly spaced; above this number every second one is "
        "deleted; 0: off", unit="policies", low=0, high=1000,
    )  # fmt: skip


class PastPolicies(Component):
    """Stores past policies and deletes some of them; the iteration alone decides which."""

    name = "past_policies"
    Config = PastPoliciesConfig

    @classmethod
    def off(cls, config: PastPoliciesConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup) or ("" if config.count else "past_policies.count is 0")

    @classmethod
    def no_effect(cls, key: str, config: PastPoliciesConfig, setup: Setup) -> str:
        return "the world has one seat" if setup.spec.seats == 1 else ""

    @classmethod
    def shrink(cls, config: PastPoliciesConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"count": min(config.count, 3)}  # so that some are deleted

    def end_iteration(self, clock: Clock) -> None:
        distance = stride(clock.iteration, self.config.count)
        if clock.iteration % distance and not clock.done:
            return
        networks = self.setup.agents.networks
        arrays = {f"{name}/{key}": array for name, policy in networks.items()
                  for key, array in policy.arrays().items()}  # fmt: skip
        metadata = {name: policy_metadata(self.setup.config, policy, clock.iteration)
                    for name, policy in networks.items()}  # fmt: skip
        stored = [*range(distance, clock.iteration, distance), clock.iteration]
        self.setup.log.write_past(clock.iteration, arrays, metadata, stored)
