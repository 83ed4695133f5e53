"""Learner: turns a rollout into a better policy. Class attributes declare what a learner supports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.agents.policy import Policy
from rematch.core.arrays import Floats, Ints, Tree
from rematch.core.component import Evidence, PlayState, Record, Setup, SmallRun
from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.core.world import World
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

MakeWorld = Callable[[int, int, int], World]  # games, first, seed
Ask = Callable[[Tree, Sequence[Tree]], list[Tree]]  # what all share, a request per process -> replies


class Regularizer(Protocol):
    """A penalty on a policy's weights, added to every gradient step."""

    name: str

    def penalty(self, policy: Policy) -> tuple[float, Floats]:
        """The penalty and its gradient [P]."""

    def parabola(self) -> tuple[Floats, Floats]:
        """The same penalty as weights [P] where it is 0, and its curvature [P] there: it is the sum of
        curvature / 2 * (weights - those weights)^2. A learner on a GPU computes it from copies of both."""


@dataclass(frozen=True)
class TermInfo:
    """A reward term of the rollouts: its name and weight."""

    name: str
    weight: float


@dataclass
class AgentSet:
    """A run's learners and players by role. Roles that share one network have one learner, the first's."""

    learners: dict[str, Learner]
    players: dict[str, Any]  # deployed players: Player, with `greedy`
    networks: dict[str, Policy]  # the networks that a run writes to policies/, by name
    behaviour: dict[str, Player] = field(default_factory=dict)  # of training games, without a slot
    forget: Callable[[Ints], None] = lambda games: None  # of games restarted outside rollouts


class Learner:
    """One learner of one role."""

    name: ClassVar[str]
    Config: ClassVar[type[Any]]
    columns: ClassVar[frozenset[str]] = frozenset()  # optional rollout columns that it reads
    trains_policy: ClassVar[bool] = False  # by a policy gradient of the acting network: EWC can regularize it
    seats_opponents: ClassVar[bool] = True  # its policy has a slot beside frozen opponents
    learns_forced_actions: ClassVar[bool] = False  # off-policy: also from actions that it did not choose
    plays_ahead: ClassVar[bool] = True  # whether its training games can be played while it learns (lag 1)
    short_steps: ClassVar[tuple[int, int]] = (32, 16)  # games and steps of a short trial
    evaluation_every: ClassVar[int] = 4  # iterations between the evaluations of a short trial
    policy_class: ClassVar[type[Policy]] = Policy

    policy: Policy
    threads: int
    rate: float  # factor of the learning rate, 0 to 1
    native: bool  # computed in C threads, so that several learners can learn at the same time
    regularizers: list[Regularizer]
    device_weights: Any = None  # its weights on a GPU, as acting reads them; they stay in their place

    # --- before anything is built ---

    @classmethod
    def check(cls, config: Any, setup: Setup) -> None:
        """ConfigError for worlds and settings that this learner does not support; config: its section."""

    @classmethod
    def memory_bytes(cls, config: Any, setup: Setup) -> int:
        """Bytes beside those of the network: replay buffers."""
        return 0

    @classmethod
    def shrink(cls, config: Any, small: SmallRun) -> Mapping[str, Any]:
        return {}

    @classmethod
    def uses_torch(cls, config: RunConfig) -> bool:
        """Whether training imports torch."""
        return bool(config.network.in_torch)

    @classmethod
    def needs_cpu(cls, config: RunConfig, spec: Spec) -> str:
        """Why it cannot learn on a GPU from games that are played there; empty if it can."""
        return f"learner {cls.name} takes its games from the CPU"

    @classmethod
    def in_kernels(cls, config: RunConfig, spec: Spec) -> bool:
        """Whether a GPU computes its network in compiled kernels; if not, torch does."""
        return False

    @classmethod
    def gpu_acting(cls, config: RunConfig, spec: Spec) -> Any:
        """The class that acts on a GPU for one role, where `needs_cpu` is empty: RoleActing of
        rollout/cuda_collector.py."""
        raise NotImplementedError

    @classmethod
    def deterministic_play(cls, config: RunConfig) -> bool:
        """Whether the deployed player uses no random numbers."""
        return False

    @classmethod
    def speed_settings(cls, config: RunConfig) -> dict[str, Any]:
        """The settings that the speed of training depends on, for benchmarks."""
        network, ppo = config.network, config.ppo
        return {
            "network": list(network.hidden), "activation": network.activation, "shared_trunk": network.shared,
            "fourier": network.fourier, "epochs": ppo.epochs, "batch": ppo.minibatch_size,
            "history": config.league.opponent_share,
        }  # fmt: skip

    @classmethod
    def build(
        cls, config: RunConfig, spec: Spec, make: MakeWorld, terms: Sequence[TermInfo] = ()
    ) -> AgentSet:
        """The learners and players of all roles; `terms`: the reward terms of the run."""
        raise NotImplementedError

    # --- training ---

    @classmethod
    def join(cls, learners: Iterable[Learner]) -> None:
        """These learners of one class learn at the same time: on a GPU in one launch."""

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """One update; returns metrics, among them "decisions"."""
        raise NotImplementedError

    def start(self, rollout: RolloutBuffer, progress: float, iteration: int) -> bool:
        """Begin an update that runs beside this thread; False where `learn` does it all."""
        return False

    def result(self) -> dict[str, float]:
        """Wait for the update that `start` began; what `learn` returns."""
        raise NotImplementedError

    def acting(self, progress: float) -> Floats:
        """The weights with which its policy acts in training games."""
        return self.policy.weights

    def freeze_player(self, new: NDArray[np.integer[Any]]) -> None:
        """With a lag, before each rollout: a player without a slot copies what it reads of the learner.

        The games `new` [n] start an episode in this rollout.
        """

    def play_state(self) -> PlayState:
        """What its player of training games reads or changes, where that has no slot."""
        return PlayState()

    def share_work(self, processes: int, ask: Ask) -> None:
        """Training games are played in other processes; `ask` sends work of this learner to its twins
        there."""

    def answer(self, shared: Tree, request: Tree, count: Callable[[], None]) -> Tree:
        """In such a process: the reply to a request. `count` is called again and again: a process that does
        not count for a while hangs."""
        raise NotImplementedError

    def load_weights(self, policy: Policy) -> None:
        """Start from the weights of another policy; all other state is new."""
        raise NotImplementedError

    def finish(self) -> str:
        """Training has ended: the policy becomes the deployed one. Returns a log line or ""."""
        return ""

    def evidence(self, record: Record) -> Iterable[Evidence]:
        """The effects of its settings in a short trial."""
        return ()

    def state_dict(self) -> Tree:
        raise NotImplementedError

    def load_state_dict(self, tree: Tree) -> None:
        raise NotImplementedError
