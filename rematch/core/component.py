"""One part of a run: its settings, checks, hooks, metrics and state in one class.

A run is an ordered list of components (training/component_list.py). They share this protocol and meet only in
the rollout buffer, the seating and the clock. Flags, help, `rematch check`, the memory estimate and the
checkpoint are derived from the list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

from rematch.core.arrays import Tree
from rematch.core.clock import Clock, Request
from rematch.core.errors import ConfigError, TrainingError, UserCodeError
from rematch.core.settings.config_values import short_repr
from rematch.core.system.gpu_errors import is_gpu_error
from rematch.core.system.user_code import described, raised_by_user

if TYPE_CHECKING:
    from rematch.core.spec import Spec
    from rematch.core.world import Next, World

Metrics = dict[str, float]
Self = TypeVar("Self", bound="Component")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Evidence:
    """A line of `rematch check`: what a component did; `off` is the reason why it is switched off.

    Where no number shows the effect, `without` holds settings that switch the component off: a run with
    those settings must end with other bytes.
    """

    name: str
    proof: str = ""  # empty: enabled but without any effect
    off: str = ""
    without: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SmallRun:
    """The size of the short trial that `rematch check` plays."""

    iterations: int
    games: int
    steps: int
    setup: Any  # setup of the run at its full size: settings, game, spec, learner class

    @property
    def config(self) -> Any:
        """All settings of the run at its full size."""
        return self.setup.config

    @property
    def steps_per_iteration(self) -> int:
        return self.games * self.steps


@dataclass
class Record:
    """Values that a short trial recorded, iteration by iteration; `evidence` reads them."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    decisions: dict[str, dict[str, int]] = field(default_factory=dict)  # role -> player -> decisions it made
    phases: dict[str, str] = field(default_factory=dict)  # name of a phase -> the role that learned
    rate_factors: set[float] = field(default_factory=set)  # factors of the learning rate
    films: list[int] = field(default_factory=list)  # pictures in each recorded episode

    def largest(self, name: str) -> float:
        """The largest value of a metric of any role; 0 where it was never logged."""
        values = [value for row in self.metrics for key, value in row.items() if key.endswith(f"/{name}")]
        return max(values, default=0.0)


class Setup(Protocol):
    """Everything that a component may use. Before the run is built, only the first three fields exist."""

    config: Any  # all settings of the run
    game: Any  # worlds.game.Game
    learner_class: Any  # the class of the run's learners (agents/learner.py)
    seating: Any  # rollout.seating.Seating: role -> its players
    agents: Any  # agents.learner.AgentSet: learners, players, networks
    collector: Any  # rollout.collector.Collector; from `connect` on
    queue: Any  # rollout.rollout_queue.RolloutQueue: the rollouts of the training games; from `connect` on
    prepare_rollout: Any  # () -> None: `before_rollout` of all components
    log: Any  # training.run_log.RunLog: lines for people, tables and files of the run

    @property
    def spec(self) -> Spec: ...

    @property
    def world(self) -> World: ...

    @property
    def learners(self) -> Mapping[str, Any]:
        """role -> learner; from `connect` on."""

    def get(self, kind: type[Other]) -> Other | None:
        """The built component of a class, or None where it is switched off."""

    def all(self, kind: type[Other]) -> list[Other]:
        """The built components of a class and of its subclasses, in the order of the list."""

    def make_world(self, games: int, first: int, seed: int) -> World:
        """A world with the run's settings; training, evaluation and films all use this function."""

    def make_level(self, games: int, first: int, seed: int, level: int | None = None) -> World:
        """A world on a level of the curriculum, by default the level of the training."""

    def level_name(self, level: int) -> str:
        """The name of a level of the curriculum."""

    def make_collector(self, world: World, seating: Any, steps: int, seed: int) -> Any:
        """A collector for games that are not part of the training."""

    def collect(self, iteration: int) -> Any:
        """One rollout of the run's training games."""

    def check_stop(self) -> None:
        """Raise StopRequested if the run must stop; long operations call it between their steps."""

    def watch(self, text: str) -> None:
        """As `check_stop`, and show the progress of a long operation on the console."""

    def store_policies(self, clock: Clock, suffix: str = "") -> None:
        """Write the present policies of all roles to policies/."""


class PlayState:
    """What playing reads or changes of a component beside the world and the seats; by default nothing.

    A collector on threads shares memory with the components. One whose games are played in other processes
    sends them what they read before each rollout, and takes back what they changed. Players with a recurrent
    state, demonstrations and captures need that; none of them sees where the games are played.

    `games` are the numbers of the games of one part in the whole batch. Trees hold arrays, numbers, texts and
    lists.
    """

    def shared(self) -> Tree:
        """Before a rollout: what the games of all parts read."""
        return {}

    def load_shared(self, tree: Tree) -> None:
        """Where the games are played: the inverse of `shared`."""

    def inputs(self, games: slice) -> Tree:
        """Before a rollout: what these games read."""
        return {}

    def load_inputs(self, tree: Tree, games: slice) -> None:
        """Where the games are played: the inverse of `inputs`."""

    def results(self, games: slice) -> Tree:
        """Where the games are played, after a rollout: what these games have changed."""
        return {}

    def load_results(self, tree: Tree, games: slice) -> None:
        """After a rollout: the inverse of `results`."""


class ComponentError(TrainingError):
    """A component raised an exception in a hook; the run can be resumed from its last whole iteration."""

    def __init__(self, name: str, hook: str, error: BaseException) -> None:
        super().__init__(f"component {name} failed in {hook}: {described(error)}; the run can be resumed")


def raise_named(name: str, hook: str, error: BaseException) -> NoReturn:
    """Raise the exception of a hook with the names of component and hook.

    Errors of Rematch and of the system have clear messages; they stay as they are, unless code of the user
    raised them.
    """
    if isinstance(error, (ConfigError, OSError, MemoryError)) and not raised_by_user(error):
        raise error
    if (is_gpu_error(error) or isinstance(error, SystemExit)) and not raised_by_user(error):
        raise error
    raise ComponentError(name, hook, error) from error


@contextlib.contextmanager
def user_errors_named(name: str, hook: str) -> Iterator[None]:
    """Outside of iterations: an exception of the user's code is one line that names component and hook."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ConfigError) or not raised_by_user(error):
            raise
        raise UserCodeError(f"component {name} failed in {hook}: {described(error)}") from error


class Component:
    """One part of a run. Override what you need; the defaults do nothing.

    `name` is its key everywhere: --NAME.setting, checkpoint["NAME"], metrics "NAME/...", its line in
    `rematch check`. Hooks run for all components in the order of the list; each receives values, never the
    trainer. A component finds another one with `setup.get(OtherClass)` in `connect`.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Any]]
    needs: ClassVar[str] = ""  # settings under which this component has an effect, such as "learner=ppo|dqn"
    columns: ClassVar[frozenset[str]] = frozenset()  # optional rollout columns that it reads: "states", ...
    copies_setting: ClassVar[str] = ""  # setting with the number of network copies that it stores, if any
    reads_rollout_after_evaluation: ClassVar[bool] = False  # if True, a stop request postpones no evaluation
    # Whether games that are played change its state. With a lag, `state_dict` is then called when a rollout
    # is submitted: a checkpoint has the state before the pending rollout.
    changed_by_play: ClassVar[bool] = False
    # Whether rollouts need it: it seats players, or changes how games are played. Where games are played in
    # other processes, those build these components only.
    in_play: ClassVar[bool] = False

    # --- before anything is built ---

    @classmethod
    def configs(cls) -> Mapping[str, tuple[type[Any], str]]:
        """Sections of settings: name -> (dataclass, settings under which they have an effect)."""
        return {cls.name: (cls.Config, cls.needs)}

    @classmethod
    def check(cls, config: Any, setup: Setup) -> None:
        """Raise ConfigError for settings that cannot work with this world or with each other."""

    @classmethod
    def no_effect(cls, key: str, config: Any, setup: Setup) -> str:
        """Why the setting `key` (without the component's name) has no effect in this world, or ""."""
        return ""

    @classmethod
    def memory_bytes(cls, config: Any, setup: Setup) -> int:
        """Bytes that this component allocates."""
        return 0

    @classmethod
    def shrink(cls, config: Any, small: SmallRun) -> Mapping[str, Any]:
        """Changed settings for a short trial: an enabled component stays enabled and takes effect early."""
        return {}

    @classmethod
    def off(cls, config: Any, setup: Setup) -> str:
        """Why this component is switched off; empty if it is enabled."""
        return ""

    @classmethod
    def build(cls: type[Self], config: Any, setup: Setup) -> Self | None:
        """The component, or None where it is switched off."""
        return None if cls.off(config, setup) else cls(config, setup)

    def __init__(self, config: Any, setup: Setup) -> None:
        self.config, self.setup = config, setup

    def connect(self) -> None:
        """All components are built: look up those that this one uses."""

    # --- once a run ---

    def start(self, clock: Clock) -> None:
        """A new run, before its first rollout; `before_rollout` has set up the first games."""

    def policies_loaded(self, clock: Clock) -> None:
        """A new run starts from the policies of another run instead of random weights."""

    def resumed(self, clock: Clock) -> None:
        """A run continues: restore files to their state at the checkpoint, or at the start without one."""

    def finish(self, clock: Clock) -> None:
        """The last iteration has ended; its evaluation follows."""

    # --- one iteration, in this order ---

    def before_rollout(self, clock: Clock, next: Next) -> None:
        """Write your columns of `next`: the start states of games that restart in this rollout.

        The only hook of an iteration in which the world rests: with a lag this rollout is played while the
        other hooks run. They read the rollout (`rollout.players`, `.restart_stage`, `.counters`), never the
        world. The clock is that of the iteration that will learn from this rollout.
        """

    def after_rollout(self, rollout: Any, clock: Clock) -> None:
        """Read events, write reward terms."""

    def start_update(self, rollout: Any, clock: Clock) -> None:
        """Begin an update that runs beside this thread, as on a GPU; `update` waits for it."""

    def update(self, rollout: Any, clock: Clock) -> Metrics:
        """Update the weights. The component's name is put before names of metrics without a slash."""
        return {}

    def after_update(self, rollout: Any, metrics: Metrics, clock: Clock) -> None:
        """The clock now counts this iteration as done; `metrics` are those that `update` returned."""

    def metrics(self) -> Metrics:
        """Numbers of this iteration, for its row of metrics.jsonl; names as in `update`.

        The row is complete before an evaluation: a number of an evaluation belongs into its record.
        """
        return {}

    def requests(self, clock: Clock) -> Iterable[Request]:
        """Requests for what follows this iteration."""
        return ()

    def evaluation_fields(self, clock: Clock) -> Mapping[str, Any]:
        """Entries that this component adds to the evaluation's record."""
        return {}

    def evaluate(self, clock: Clock, fields: Mapping[str, Any], last: bool) -> Sequence[Any]:
        """Evaluations that this component makes, as records (evaluation/evaluation.py)."""
        return ()

    def after_evaluation(self, evaluation: Any, rollout: Any, clock: Clock) -> None:
        """An evaluation was made; the component may add entries and lines to it."""

    def end_iteration(self, clock: Clock) -> None:
        """The end of an iteration: after its evaluation, if any, and before its checkpoint."""

    def before_checkpoint(self, clock: Clock) -> None:
        """Update the files that belong to the checkpoint."""

    # --- always ---

    def play_state(self) -> PlayState:
        """What the games of a rollout read or change of this component, beside the seats and `next`."""
        return PlayState()

    def evidence(self, record: Record) -> Iterable[Evidence]:
        """Evidence of what this component did in a short trial."""
        return ()

    def state_dict(self) -> Tree:
        """The state for an exact resume: nested dicts of arrays, numbers, texts and lists."""
        return {}

    def load_state_dict(self, tree: Tree) -> None:
        """The inverse of `state_dict`; called in the order of the list."""


def merged_metrics(parts: Sequence[Component], results: Sequence[Metrics]) -> Metrics:
    """The metrics of all components; a key without a slash gets its component's name as prefix."""
    merged: Metrics = {}
    for part, metrics in zip(parts, results):
        for key, value in metrics.items():
            if type(value) not in (float, int) and not isinstance(value, Real):  # the second test is slow
                raise TrainingError(f"component {part.name}: the metric {key} is {short_repr(value)}, "
                                    "expected a number")
            merged[key if "/" in key else f"{part.name}/{key}"] = value
    return merged


def component_state(part: Component) -> Tree:
    """The state of a component for a checkpoint; TrainingError where it has none that can be saved."""
    try:
        state = part.state_dict()
    except Exception as error:
        raise_named(part.name, "state_dict", error)
    return checked_state(state, f"component {part.name}")


def checked_state(state: Any, owner: str) -> Tree:
    """What a state_dict() returned; TrainingError unless it is a dict."""
    if not isinstance(state, dict):
        raise TrainingError(f"{owner}: state_dict returned {type(state).__name__}, expected a dict of arrays "
                            "and numbers")
    return state
