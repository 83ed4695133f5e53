"""The setup of a run: the world, seating, log and builders that all components share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rematch.agents.build import learner_class
from rematch.agents.learner import AgentSet, Learner
from rematch.core.clock import Clock, Phase
from rematch.core.component import Component, user_errors_named
from rematch.core.config import untracked
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.spec import Spec
from rematch.core.system.interrupts import StopRequest
from rematch.core.system.user_code import described
from rematch.core.world import World
from rematch.curriculum.levels import Levels, restart_on
from rematch.evaluation.past_policies import policy_metadata
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.rollout_queue import RolloutQueue
from rematch.rollout.seating import RoleSeating, Seating
from rematch.training.device import check_device, collector_of, placed
from rematch.training.run_log import RunLog
from rematch.worlds import registry
from rematch.worlds.game import Game
from rematch.worlds.native_world import NativeWorld

Kind = TypeVar("Kind")
LEAST_GAMES = 16  # of a compiled world, for each thread that plays


def playing_threads(world: World, threads: int) -> int:
    """Threads that play the games of a run.

    A step of few games of a compiled world is mostly Python, for which threads wait for one another: four
    games on two threads took two to three times as long as on one.
    """
    if not isinstance(world, NativeWorld):
        return threads
    return max(1, min(threads, world.games // LEAST_GAMES))


class Place(Protocol):
    """Where training games are played, if not on threads of this process or on its GPU."""

    def world(self, world: World) -> World:
        """The world whose games are played there; `world` is made here and has the first games."""

    def collector(self, setup: RunSetup) -> Any:
        """The Collector that plays them."""


class RunSetup:
    """Offers components the world, the seating, the log and each other."""

    def __init__(self, config: Config, place: Place | None = None) -> None:
        self.config, self.place = config, place
        self.game: Game = registry.find(config.game)
        self.learner_class: type[Learner] = learner_class(untracked(config))
        self.user_code = (*config.components, *config.reward_terms)  # names of the user's components
        self.seating: dict[str, RoleSeating] = {}
        self.log = RunLog()
        self.stop = StopRequest(None)  # never requested; `Trainer.bind` sets that of the command
        self.built: list[Component] = []
        self.agents: AgentSet  # set by the component that builds them
        self.collector: Any  # a Collector (rollout/collector.py)
        self.queue: RolloutQueue  # the rollouts of the training games
        self.prepare_rollout: Callable[[], None] = lambda: None  # `before_rollout` of all components

    @cached_property
    def spec(self) -> Spec:
        return self.game.spec(self.config.world)

    @cached_property
    def world(self) -> World:
        world: World = self.make_world(self.config.games, 0, self.config.seed)
        if self.place is not None:
            return self.place.world(world)
        check_device(self)
        world = placed(world, self.config, self.game)
        return world

    @property
    def learners(self) -> Mapping[str, Learner]:
        return self.agents.learners

    def get(self, kind: type[Kind]) -> Kind | None:
        """The built component of a class; None where it is switched off."""
        return next((part for part in self.built if isinstance(part, kind)), None)

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [part for part in self.built if isinstance(part, kind)]

    def make_world(self, games: int, first: int, seed: int) -> World:
        """A world with the rules of this run; used for training, evaluation and films."""
        return self.game.make(self.config.world, games, first, seed)

    def make_level(self, games: int, first: int, seed: int, level: int | None = None) -> World:
        """A world on the present level of the curriculum, or on the level with this number."""
        world, levels = self.make_world(games, first, seed), self.get(Levels)
        if levels is not None:
            progress = levels.progress
            restart_on(world, progress.present_stage if level is None else progress.level_stage(level))
        return world

    def level_name(self, level: int) -> str:
        """The name of a level of the curriculum."""
        levels = self.get(Levels)
        assert levels is not None
        return levels.progress.levels[level].name

    def make_collector(self, world: World, seating: Seating, steps: int, seed: int) -> ThreadCollector:
        threads = playing_threads(world, self.config.threads)
        collector = ThreadCollector(world, seating, steps, threads, seed)
        collector.before_step = self.check_stop
        return collector

    def collect(self, iteration: int) -> RolloutBuffer:
        rollout: RolloutBuffer = self.collector.collect(iteration)
        return rollout

    def build(self, kinds: Iterable[type[Component]], config_of: Any) -> list[Component]:
        """The components that are switched on, connected to each other and to a collector."""
        for kind in kinds:
            try:
                part = kind.build(config_of(self.config, kind), self)
            except (ConfigError, OSError, MemoryError):
                raise
            except (Exception, SystemExit) as error:
                raise ConfigError(f"component {kind.name} cannot be built: {described(error)}") from error
            if part is not None:
                self.built.append(part)
        config = self.config
        if self.place is not None:
            self.collector = self.place.collector(self)
        elif config.device == "cpu":
            self.collector = self.make_collector(self.world, self.seating, config.steps, config.seed)
        else:
            self.collector = collector_of(self.world, self.seating, untracked(config), config.seed)
            self.collector.before_step = self.check_stop
        if config.lag:
            self.collector.set_lag(config.lag)
        self.queue = RolloutQueue(self.collector, self.world, self.seating, self.built)
        self.collector.allocate(self.columns)
        for part in self.built:
            with user_errors_named(part.name, "connect"):
                part.connect()
        return self.built

    @property
    def columns(self) -> set[str]:
        """The optional rollout columns that some component or learner reads."""
        columns = {column for part in self.built for column in part.columns}
        return columns | set(self.learner_class.columns)

    def make_clock(self) -> Clock:
        c = self.config
        phase = Phase(1, tuple(self.spec.roles))
        return Clock(c.games * c.steps, c.start_iteration, c.iterations, phase, iteration=c.start_iteration)

    def store_policies(self, clock: Clock, suffix: str = "") -> None:
        """Write all current policies into policies/."""
        for name, policy in self.agents.networks.items():
            metadata = policy_metadata(self.config, policy, clock.iteration)
            self.log.write_policy(f"{name}{suffix}", policy.arrays(), metadata)

    def check_stop(self) -> None:
        """Raise StopRequested if this run must stop; long operations call it between their steps."""
        self.stop.check()

    def watch(self, text: str) -> None:
        """As `check_stop`, and show the progress of a long operation."""
        self.stop.check()
        self.log.activity(text)

    @property
    def folder(self) -> Path:
        return self.log.folder
