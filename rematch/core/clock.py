"""Progress of a run: its iteration, steps and phase; and what components request after an iteration."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum

from rematch.core.arrays import Tree, stored_bool, stored_int, stored_text


class Request(Enum):
    """Actions that a component may request after an iteration."""

    END = "end"  # this iteration is the run's last one
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Phase:
    """Iterations `first` .. `last` - 1, in which `roles` learn. Phase 0 is the warm-up."""

    number: int
    roles: tuple[str, ...]
    first: int = 0
    last: int = sys.maxsize
    level_warmup: bool = False  # the last role learns a new level first; the next phase has this number too

    @property
    def name(self) -> str:
        return f"S{self.number}{'w' if self.level_warmup else ''}"


@dataclass
class Clock:
    """Counts iterations of `steps_per_iteration` steps of all games together."""

    steps_per_iteration: int
    first: int  # iteration that the run starts with
    last: int  # iteration after which the run is complete
    phase: Phase
    iteration: int = 0
    learner_steps: int = 0  # decisions that learners have learned from
    finished_games: int = 0
    end_reason: str = ""  # why the run ended before its last iteration
    evaluation_pending: bool = False  # a stop request skipped or ended it: it runs first after a resume
    learning_rate_factor: float = 1.0  # near balance a schedule may reduce all learning rates
    fixed_slots: dict[str, int] = field(default_factory=dict)  # role -> slot that it plays from in all games

    @property
    def step(self) -> int:
        return self.iteration * self.steps_per_iteration

    @property
    def total_steps(self) -> int:
        return self.last * self.steps_per_iteration

    @property
    def progress(self) -> float:
        """Fraction of the run that is done, 0 to 1: annealed values depend on it."""
        return min(1.0, (self.iteration - self.first) / (self.last - self.first))

    @property
    def done(self) -> bool:
        return not self.evaluation_pending and (bool(self.end_reason) or self.iteration >= self.last)

    def state_dict(self) -> Tree:
        return {
            "iteration": self.iteration, "learner_steps": self.learner_steps,
            "finished_games": self.finished_games, "end_reason": self.end_reason,
            "evaluation_pending": self.evaluation_pending,
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        self.iteration, self.learner_steps = stored_int(tree, "iteration"), stored_int(tree, "learner_steps")
        self.finished_games = stored_int(tree, "finished_games")
        self.end_reason = stored_text(tree, "end_reason")
        self.evaluation_pending = stored_bool(tree, "evaluation_pending")


def interval_passed(step: int, steps: int, interval: int) -> bool:
    """Whether the last `steps` steps reached or crossed a multiple of `interval`; 0 is never."""
    return interval > 0 and step // interval > (step - steps) // interval
