"""The rollouts of a run, in order; with lag 1 each is played while the learners learn from the one before it.

With lag 1 the policies of rollout k are those that learned from rollout k - 2, one update older than with lag
0. The order of all calls is fixed: the result of rollout k is taken, the components prepare rollout k + 1
while the world rests, it is submitted, and then the learners learn from rollout k. So nothing depends on
which of the two ends first.

A checkpoint has the state of each component after its last hook, but that of components that playing changes
(`Component.changed_by_play`) from before the pending rollout: a resumed run plays it again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rematch.core.arrays import Floats, Tree, stored_float, stored_int
from rematch.core.clock import Clock
from rematch.core.component import Component, component_state
from rematch.core.world import World
from rematch.rollout.collector import Collector
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import Seating

STATE_KEY = "pending_rollout"  # in a checkpoint


@dataclass
class Submission:
    """A rollout that was prepared, and that no learner has seen yet."""

    clock: Clock  # of the iteration that will learn from it
    playing: bool = True  # whether the collector has it; false after a resume
    states: dict[str, Tree] = field(default_factory=dict)  # with a lag: component -> its state before playing
    players: dict[str, list[str]] = field(default_factory=dict)  # RolloutBuffer.players
    restart_stage: Floats | None = None  # RolloutBuffer.restart_stage


class RolloutQueue:
    """Submits the rollouts of a run and returns them in order."""

    def __init__(
        self, collector: Collector, world: World, seating: Seating, parts: Sequence[Component]
    ) -> None:
        self.collector, self.world, self.seating, self.parts = collector, world, seating, parts
        self.pending: Submission | None = None
        self.ahead = 0  # rollouts that were submitted ahead of their iteration

    def submit(self, clock: Clock, prepare: Callable[[Clock], None]) -> None:
        """Submit the rollout of this iteration, if it is not pending; `prepare` is that of `next`."""
        if self.pending is None:
            prepare(clock)
            self._submit(clock)

    def next(self, clock: Clock, prepare: Callable[[Clock], None]) -> RolloutBuffer:
        """The rollout of this iteration; `prepare` calls `before_rollout` of all components."""
        self.submit(clock, prepare)
        rollout = self._result(clock)
        if self.collector.lag and clock.iteration + 1 < clock.last:
            ahead = replace(clock, iteration=clock.iteration + 1)
            prepare(ahead)
            self._submit(ahead)
            self.ahead += 1
        return rollout

    def _submit(self, clock: Clock) -> None:
        pending = self.pending = Submission(clock)
        if self.collector.lag:
            parts = [part for part in self.parts if part.changed_by_play]
            pending.states = {part.name: copy.deepcopy(component_state(part)) for part in parts}
        self._start(pending)

    def _start(self, pending: Submission) -> None:
        pending.playing = True
        pending.restart_stage = self.world.next.stage.copy()
        pending.players = {role: seats.player_names() for role, seats in self.seating.items()}
        self.collector.submit(pending.clock.iteration)

    def _result(self, clock: Clock) -> RolloutBuffer:
        pending, self.pending = self.pending, None
        assert pending is not None
        if not pending.playing:
            self._start(pending)
        rollout = self.collector.result()
        assert pending.restart_stage is not None
        rollout.players, rollout.restart_stage = pending.players, pending.restart_stage
        rollout.counters, log = dict(self.world.counters), self.world.event_log
        rollout.start_groups = log.bands() if log is not None else []
        clock.phase, clock.fixed_slots = pending.clock.phase, pending.clock.fixed_slots
        clock.learning_rate_factor = pending.clock.learning_rate_factor
        return rollout

    def drop(self) -> None:
        """Give up the pending rollout; its games stay where they stand."""
        if self.collector.lag:
            self.collector.drop()
        self.pending = None

    # --- state ---

    def state_dict(self) -> Tree:
        """The states of all components that have one, and the clock of a pending rollout."""
        state, before_play = {}, {}
        if self.pending is not None:
            clock, before_play = self.pending.clock, self.pending.states
            state[STATE_KEY] = {"iteration": clock.iteration, "rate": clock.learning_rate_factor}
        now = {part.name: component_state(part) for part in self.parts if part.name not in before_play}
        return state | {name: tree for name, tree in (before_play | now).items() if tree}

    def load_state_dict(self, tree: Mapping[str, Tree], clock: Clock) -> None:
        """After all components: their states are those before the pending rollout."""
        self.pending = None
        if STATE_KEY not in tree:
            return
        iteration = stored_int(tree[STATE_KEY], "iteration")
        if iteration != clock.iteration or not self.collector.lag:
            raise ValueError(f"a pending rollout of iteration {iteration}")
        ahead = replace(clock, learning_rate_factor=stored_float(tree[STATE_KEY], "rate", 0, 1))
        names = [part.name for part in self.parts if part.changed_by_play and part.name in tree]
        self.pending = Submission(ahead, False, {name: copy.deepcopy(tree[name]) for name in names})
