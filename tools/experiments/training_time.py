"""CPU seconds of the parts of a training iteration, on one thread.

    python tools/experiments/training_time.py beasty beasty_expert --iterations 20 [--json]

CPU time depends little on other load of the machine. The time of a part excludes other parts that it calls.
Evaluations and checkpoints are not included, because their intervals are settings.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rematch import api
from rematch.cli import main as cli
from rematch.core import config as settings
from rematch.rehearsal.trial import Recorder
from rematch.storage.run_folder import Run
from rematch.training.loop import train
from rematch.training.trainer import Trainer

WARMUP = 3  # iterations before the measurement: some things are built at first use
OTHER = "all else: league, logs, tables of numbers"


class Clock:
    """CPU seconds by part. Only one thread works at a time, so one stack is enough."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.stack, self.last = [OTHER], time.process_time()

    def switch(self) -> None:
        """Adds the time since the last call to the part on top of the stack."""
        now = time.process_time()
        self.seconds[self.stack[-1]] += now - self.last
        self.last = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self.stack.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self.stack.pop()

        return call


class TimedObject:
    """Wraps an object; the methods named in `parts` are timed."""

    def __init__(self, inner: Any, clock: Clock, parts: dict[str, str]) -> None:
        self._inner = inner
        for name, part in parts.items():
            setattr(self, name, clock.timed(part, getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def install_timers(trainer: Trainer, clock: Clock) -> None:
    """Wraps the methods of every part of an iteration with the clock."""
    rules, minibatches = "rules: the game's steps, views, saved states", "update: gathering"
    collector = trainer.setup.collector
    methods: list[tuple[Any, dict[str, str]]] = [
        (collector, {"submit": "rollout buffer: its columns are written", "_ask_others": "bots"}),
        (collector.rollout, {"advantages": "update: advantages"}),
        *((world, dict.fromkeys(("step", "save", "load"), rules)) for world in collector.parts),
    ]
    for learner in trainer.agents.learners.values():
        student = getattr(learner, "student", learner)
        methods += [
            (learner, {"learn": minibatches}),
            (student, {"step": "update: Adam"}),
            (student, {"gradient": "update: gradient"}),
        ]
        if student is not learner:
            methods.append((learner, {"values": "search of positions"}))
    for owner, parts in methods:
        for name, part in parts.items():
            setattr(owner, name, clock.timed(part, getattr(owner, name)))
    for seating in trainer.setup.seating.values():
        player: Any = copy.copy(seating.policy)  # a copy: the learner checks the type of its network
        player.network = TimedObject(player.network, clock, {"act": "network: acting"})
        seating.policy = player


def measure(recipe: str, iterations: int, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Parts of an iteration of one recipe: CPU seconds and shares."""
    config = settings.replace(api.configure(recipe), {"threads": 1} | (changes or {}))
    trainer = Trainer(config)
    with (
        tempfile.TemporaryDirectory() as temporary,
        Run.create(Path(temporary) / "run", settings.to_yaml(config)) as run,
    ):
        trainer.bind(run, Recorder(trainer))
        trainer.start()
        train(trainer, lambda: trainer.clock.iteration >= WARMUP)
        clock = Clock()
        install_timers(trainer, clock)
        clock.last, first = time.process_time(), trainer.clock.iteration
        started, steps = clock.last, trainer.clock.learner_steps
        end = [started]

        def stop() -> bool:
            clock.switch()
            end[0] = clock.last
            return trainer.clock.iteration >= first + iterations

        train(trainer, stop)
        seconds = dict(clock.seconds)
    iterations_done, total = trainer.clock.iteration - first, end[0] - started
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    return {
        "recipe": recipe, "iterations": iterations_done, "seconds_an_iteration": total / iterations_done,
        "learner_steps_a_second": (trainer.clock.learner_steps - steps) / total,
        "parts": [{"part": name, "seconds": s / iterations_done, "share": s / total} for name, s in parts],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    reports = [measure(recipe, args.iterations) for recipe in args.recipes]
    if args.json:
        print(json.dumps(reports, indent=1))
        return 0
    for report in reports:
        print(f"{report['recipe']}: {1000 * report['seconds_an_iteration']:.0f} ms of CPU per iteration, "
              f"{report['learner_steps_a_second']:,.0f} learner steps per CPU second "
              f"({report['iterations']} iterations, one thread)")  # fmt: skip
        for part in report["parts"]:
            print(f"  {part['share']:6.1%}  {1000 * part['seconds']:7.1f} ms  {part['part']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(cli.main(act=main))
