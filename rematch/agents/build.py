"""The list of learners, and the agents of a run built from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rematch.agents.learner import AgentSet, Learner, MakeWorld, TermInfo
from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.expert_iteration import ExpertIteration
from rematch.agents.learners.lookahead import Lookahead
from rematch.agents.learners.ppo import Ppo
from rematch.core.spec import Spec

if TYPE_CHECKING:
    from rematch.core.run_config import Config

LEARNERS: dict[str, type[Learner]] = {cls.name: cls for cls in (Ppo, Lookahead, ExpertIteration, Dqn)}


def learner_class(config: Config) -> type[Learner]:
    return LEARNERS[config.learner]


def build_agents(config: Config, spec: Spec, make: MakeWorld, terms: Sequence[TermInfo] = ()) -> AgentSet:
    """Learners and players of all roles. make: (games, first, seed) -> World, for players that plan."""
    return learner_class(config).build(config, spec, make, terms)
