"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from rematch.core.clock import Request
from rematch.training.trainer import Trainer


def train(trainer: Trainer, stop: Callable[[], bool]) -> bool:
    """Train until the run ends, or until `stop()` is true; True when the run is complete."""
    clock = trainer.clock
    while not clock.done:
        was_pending, clock.evaluation_pending = clock.evaluation_pending, False
        if not was_pending:
            iterate(trainer)
        requests = trainer.requests()
        last, stopping = Request.END in requests, stop()
        if last:
            trainer.finish()
        evaluate = last or Request.EVALUATE in requests
        needed_now = last or was_pending or trainer.evaluation_needs_rollout
        clock.evaluation_pending = stopping and evaluate and not needed_now
        if evaluate and not clock.evaluation_pending:
            trainer.evaluate(last)
        trainer.end_iteration()
        stopping = stopping or stop()
        regular = clock.done or Request.CHECKPOINT in requests
        if regular or stopping:
            trainer.save(temporary=clock.evaluation_pending or not regular)
        if stopping:
            break
    return clock.done


def iterate(trainer: Trainer) -> None:
    """One iteration: collect a rollout, learn from it, log it."""
    clock, started = trainer.clock, time.perf_counter()
    decisions = clock.learner_steps
    trainer.before_rollout()
    rollout = trainer.collect()
    trainer.after_rollout(rollout)
    metrics = trainer.update(rollout)
    clock.iteration += 1
    row = {"iteration": clock.iteration, "step": clock.step, "games": clock.finished_games, **metrics}
    trainer.log.metrics(row)
    trainer.after_update(rollout, metrics)
    seconds = time.perf_counter() - started
    rate = (clock.learner_steps - decisions) / seconds
    trainer.log.timing({"iteration": clock.iteration, "seconds": seconds, "learner_steps_per_second": rate})
    trainer.log.progress(clock.step, clock.steps_per_iteration / seconds, row)
