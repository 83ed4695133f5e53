"""The trainer: the ordered components of a run, its clock and its log. training/loop.py has the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

from rematch.core.clock import Clock, Request
from rematch.core.component import Component, Metrics, merged_metrics, raise_named, user_errors_named
from rematch.core.run_config import Config
from rematch.core.system.interrupts import StopRequest
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.training.config import components_of, section
from rematch.training.fingerprint import fingerprint
from rematch.training.run_log import Display
from rematch.training.setup import Place, RunSetup

Result = TypeVar("Result")


class Trainer:
    """All mutable state of one run, which `state_dict` and `load_state_dict` save and restore.

    `only`: classes of the components to build; default: all that the settings switch on. `place`: where the
    training games are played; default: as the settings say, in this process."""

    def __init__(
        self, config: Config, only: Iterable[type[Component]] | None = None, place: Place | None = None
    ) -> None:
        self.config = config
        self.setup = RunSetup(config, place)
        self.clock = self.setup.make_clock()
        kinds = list(components_of(config)) if only is None else list(only)
        self.parts = self.setup.build(kinds, section)
        self.setup.prepare_rollout = self.before_rollout
        self.world, self.log = self.setup.world, self.setup.log
        self.agents = self.setup.agents

    def each(self, hook: str, call: Callable[[Component], Result]) -> list[Result]:
        """Run one hook of every component, in order; its name is recorded with the columns that it reads."""
        results, reads = [], self.setup.collector.rollout.reads
        for part in self.parts:
            reads.reader = part.name
            try:
                results.append(call(part))
            except (Exception, SystemExit) as error:
                raise_named(part.name, hook, error)
        reads.reader = ""
        return results

    def bind(self, run: Any, display: Display, stop: StopRequest | None = None) -> None:
        """Send lines and files to this run folder and display; long operations end when `stop` is true."""
        self.log.bind(run, display)
        self.setup.stop = stop or self.setup.stop

    def policies_loaded(self) -> None:
        """Tell the components that the learners start from loaded policies."""
        self.each("policies_loaded", lambda part: part.policies_loaded(self.clock))

    # --- the hooks, as the loop calls them ---

    def start(self, resumed: bool = False) -> None:
        """Before the loop: restore the files of a resumed run, or play the first games of a new one."""
        if resumed:
            self.each("resumed", lambda part: part.resumed(self.clock))
        if self.clock.iteration == self.clock.first:
            self.before_rollout()
            self.each("start", lambda part: part.start(self.clock))

    def before_rollout(self, ahead: Clock | None = None) -> None:  # ahead: of a later iteration
        self.each("before_rollout", lambda part: part.before_rollout(ahead or self.clock, self.world.next))

    def next_rollout(self) -> RolloutBuffer:
        return self.setup.queue.next(self.clock, self.before_rollout)

    def after_rollout(self, rollout: RolloutBuffer) -> None:
        self.each("after_rollout", lambda part: part.after_rollout(rollout, self.clock))

    def start_update(self, rollout: RolloutBuffer) -> None:
        self.each("start_update", lambda part: part.start_update(rollout, self.clock))

    def update(self, rollout: RolloutBuffer) -> Metrics:
        """Let the learners learn; the metrics of their updates."""
        return merged_metrics(self.parts, self.each("update", lambda part: part.update(rollout, self.clock)))

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics) -> None:
        self.each("after_update", lambda part: part.after_update(rollout, metrics, self.clock))

    def metrics(self) -> Metrics:
        return merged_metrics(self.parts, self.each("metrics", lambda part: part.metrics()))

    def requests(self) -> set[Request]:
        """The requests of all components after an iteration."""
        clock = self.clock
        asked = self.each("requests", lambda part: list(map(Request, part.requests(clock))))
        requests = set(chain.from_iterable(asked))
        if clock.iteration == clock.last:
            requests.add(Request.END)
        if clock.iteration % self.config.save_every == 0:
            requests.add(Request.CHECKPOINT)
        return requests

    @property
    def evaluation_needs_rollout(self) -> bool:
        return any(part.reads_rollout_after_evaluation for part in self.parts)

    def finish(self) -> None:
        self.each("finish", lambda part: part.finish(self.clock))

    def evaluate(self, last: bool) -> None:
        """Play the matches, then tell all components; a StopRequested in a match changes no state."""
        fields: dict[str, Any] = {}
        for entries in self.each("evaluation_fields", lambda part: part.evaluation_fields(self.clock)):
            fields |= entries
        rollout = self.setup.collector.rollout
        results = self.each("evaluate", lambda part: part.evaluate(self.clock, fields, last))
        self.clock.evaluation_pending = False
        for evaluation in chain.from_iterable(results):
            self._after_evaluation(evaluation, rollout)
        if last and not self.clock.done:
            self.clock.end_reason = "a component requested the end"

    def _after_evaluation(self, evaluation: Any, rollout: RolloutBuffer) -> None:
        self.each("after_evaluation", lambda part: part.after_evaluation(evaluation, rollout, self.clock))

    def end_iteration(self) -> None:
        self.each("end_iteration", lambda part: part.end_iteration(self.clock))

    def save(self, temporary: bool) -> None:
        """Save a checkpoint; a temporary one is deleted when the next is saved."""
        self.each("before_checkpoint", lambda part: part.before_checkpoint(self.clock))
        self.log.save(self.clock.iteration, self.state_dict(), fingerprint(self.config), temporary)

    def save_due(self) -> bool:
        return self.log.save_due(self.config.save_seconds)

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        return {"clock": self.clock.state_dict()} | self.setup.queue.state_dict()

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        self.clock.load_state_dict(tree["clock"])
        for part in self.parts:
            with user_errors_named(part.name, "load_state_dict"):
                part.load_state_dict(tree.get(part.name, {}))
        self.setup.queue.load_state_dict(tree, self.clock)
