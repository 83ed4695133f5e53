"""Who learns and who plays: built from a run's settings, to train it or to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rematch.agents.learners.dqn import Bonus, Dqn
from rematch.agents.learners.expert_iteration import Expert
from rematch.agents.learners.lookahead import Foresight, Lookahead, LookaheadPlayer
from rematch.agents.learners.ppo import Guard, Ppo
from rematch.agents.learners.q_policy import QPlayer
from rematch.agents.policy import Policy
from rematch.core.arrays import Floats, Ints, Tree
from rematch.core.player import Player
from rematch.core.spec import Role, Spec
from rematch.core.world import World
from rematch.curriculum.demo_progress import Way
from rematch.exploration.count_bonus import Novelty
from rematch.exploration.milestone_bonus import Milestones
from rematch.exploration.rnd_images import RndScreen
from rematch.rollout.rollout_buffer import Tape

if TYPE_CHECKING:
    from rematch.training.trainer import Config


class Learner(Protocol):
    """Turns tape into a better network."""

    policy: Policy
    threads: int
    rate: float  # of the learning rate: 1, or less near balance where the schedule damps it
    native: bool  # computed by our own threads, so that several can learn at the same time
    guard: Guard | None  # what else its gradient minds

    def learn(self, tape: Tape, progress: float, iteration: int) -> dict[str, float]: ...

    def acting(self, progress: float) -> Floats:
        """The weights that its policy acts with while training."""

    def state(self) -> Tree: ...

    def restore(self, tree: Tree) -> None: ...


@dataclass
class Minds:
    """A run's learners and players by role. Where both roles share one network its learner is the first's."""

    learners: dict[str, Learner]
    players: dict[str, Any]  # as deployed: Player, with `greedy`
    networks: dict[str, Policy]  # what a run leaves in policies/, by name
    seated: dict[str, Player] = field(default_factory=dict)  # who trains, where that is no policy in a slot
    forget: Callable[[Ints], None] = lambda games: None  # these games began anew outside of a rollout
    milestones: Milestones | None = None  # what is believed of them, where the world tells any

    def finish(self) -> list[str]:
        """After the last iteration, before it is judged: players become what is deployed. Lines about it."""
        averaging = [it for it in self.learners.values() if isinstance(it, Ppo) and it.config.average]
        return [f"Average: {learner.policy.role.name} is {learner.finish()}" for learner in averaging]


def build(config: Config, spec: Spec, make: Callable[[int, int, int], World]) -> Minds:
    """make: (games, first, seed) -> World, for players that look ahead."""
    if config.learner == "lookahead":
        value = Policy(spec.role_of(0), config.network, "value")
        value.initialise(config.seed << 8)
        foresight = Foresight(make, spec, value)
        learner = Lookahead(foresight, config.lookahead, config.seed << 8, config.threads)
        explore = config.lookahead.explore
        return Minds(
            learners={spec.role_of(0).name: learner},
            players={role: LookaheadPlayer(foresight, role) for role in spec.roles},
            networks={"value": value},
            seated={role: LookaheadPlayer(foresight, role, explore) for role in spec.roles},
        )
    if config.learner == "dqn":
        return _remembering(config, spec)
    learners: dict[str, Learner] = {}
    for r, (role, about) in enumerate(spec.roles.items()):
        policy = Policy(about, config.network, f"{role} (learnt)")
        policy.initialise(config.seed << 8 | r)
        if config.learner == "expert":
            learners[role] = Expert(policy, config.expert, config.seed << 8 | r, config.threads, make)
        else:
            learners[role] = Ppo(policy, config.ppo, config.seed << 8 | r, config.threads)
    policies = {role: learner.policy for role, learner in learners.items()}
    return Minds(learners=learners, players=dict(policies), networks=policies)


def bonuses(config: Config, role: Role, games: int) -> list[Bonus]:
    """Those that a run of dqn has, for so many games."""
    found: list[Bonus] = []
    if config.rnd_screen.weight:
        found.append(RndScreen(config.rnd_screen, role, config.seed << 8))
    if config.novelty.weight:
        found.append(Novelty(config.novelty, role, games))
    if config.swarm == "bands" and config.bands.practice and config.bands.way:
        found.append(Way(config.bands, role, games))
    if role.milestones:
        found.append(Milestones(config.milestones, role, games))
    return found


def _remembering(config: Config, spec: Spec) -> Minds:
    """Alone with a memory: Q-learning."""
    (role,) = spec.roles.values()
    learner = Dqn(config, role, bonuses(config, role, config.games))
    return Minds(
        learners={role.name: learner},
        players={role.name: QPlayer(learner.online, config.dqn.epsilon_play)},
        networks={role.name: learner.online},
        seated={role.name: learner.explorer},
        forget=learner.explorer.forget,
        milestones=next((bonus for bonus in learner.bonuses if isinstance(bonus, Milestones)), None),
    )
