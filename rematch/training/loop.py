"""The training loop: for one run, and in turns for several runs that share a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from rematch.core.clock import Request
from rematch.core.system.interrupts import StopRequested
from rematch.training.trainer import Trainer

Turns = Generator[None, None, bool]  # yields where other runs may take a turn; returns what `train` returns


def train(trainer: Trainer, stop: Callable[[], bool]) -> bool:
    """Train until the run ends, or until `stop()` is true; True when the run is complete."""
    turns = train_in_turns(trainer, stop)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return bool(end.value)


def train_in_turns(trainer: Trainer, stop: Callable[[], bool]) -> Turns:
    """As `train`. It yields when a rollout is submitted and when an update has begun: several runs that are
    advanced in turns play, and learn, in one launch of the GPU."""
    try:
        return (yield from run_iterations(trainer, stop))
    finally:
        trainer.setup.queue.drop()


def run_iterations(trainer: Trainer, stop: Callable[[], bool]) -> Turns:
    """As `train_in_turns`; a rollout that was submitted ahead of its iteration may still be played."""
    clock = trainer.clock
    while not clock.done:
        was_pending, clock.evaluation_pending = clock.evaluation_pending, False
        if not was_pending:
            yield from iteration(trainer)
        requests = trainer.requests()
        last = Request.END in requests
        if last and not was_pending:
            trainer.finish()
        evaluated = last or Request.EVALUATE in requests
        if evaluated:
            evaluate(trainer, last, was_pending, stop)
        trainer.end_iteration()
        regular = not clock.evaluation_pending and (evaluated or Request.CHECKPOINT in requests)
        stopping = stop()
        if trainer.save_due() or regular or stopping:
            trainer.save(temporary=not regular)
        trainer.log.whole_iteration = clock.iteration
        if stopping:
            break
    return clock.done


def evaluate(trainer: Trainer, last: bool, was_pending: bool, stop: Callable[[], bool]) -> None:
    """Evaluate, unless a stop request comes first: then the evaluation is pending until a resume."""
    clock = trainer.clock
    clock.evaluation_pending = not trainer.evaluation_needs_rollout
    if clock.evaluation_pending and trainer.save_due():
        trainer.end_iteration()
        trainer.save(temporary=True)
    if clock.evaluation_pending and stop() and not was_pending:
        return
    try:
        trainer.evaluate(last)
    except StopRequested:
        if not clock.evaluation_pending:  # components have changed: a resume repeats the iteration
            raise


def iterate(trainer: Trainer) -> None:
    """One iteration: collect a rollout, learn from it, log it."""
    for _ in iteration(trainer):
        pass


def iteration(trainer: Trainer) -> Generator[None, None, None]:
    """As `iterate`, in turns."""
    clock, started = trainer.clock, time.perf_counter()
    decisions = clock.learner_steps
    trainer.setup.queue.submit(clock, trainer.before_rollout)
    yield
    rollout = trainer.next_rollout()
    trainer.after_rollout(rollout)
    trainer.start_update(rollout)
    yield
    metrics = trainer.update(rollout)
    clock.iteration += 1
    trainer.after_update(rollout, metrics)
    metrics |= trainer.metrics()
    row = {"iteration": clock.iteration, "step": clock.step, "games": clock.finished_games, **metrics}
    trainer.log.metrics(row)
    seconds = time.perf_counter() - started
    rate = (clock.learner_steps - decisions) / seconds
    trainer.log.timing({"iteration": clock.iteration, "seconds": seconds, "learner_steps_per_second": rate})
    trainer.log.progress(clock.step, clock.steps_per_iteration / seconds, row)
