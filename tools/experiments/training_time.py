"""Where training time goes: the CPU seconds of a recipe's iterations by part, on one thread.

    python tools/experiments/training_time.py beasty beasty_expert --iterations 20 [--json]

CPU time is counted, so that a busy machine changes little. A part's time is its own: what it calls that is a
part too is counted there. Evaluations and checkpoints are left out, they come at intervals that one sets.
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

WARM = 3  # iterations before the clock starts: what is made at first use
REST = "all else: league, logs, tables of numbers"


class Clock:
    """CPU seconds by part. One thread works at a time, whichever it is, so one stack serves."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.stack, self.since = [REST], time.process_time()

    def turn(self) -> None:
        """What was spent since the last turn belongs to whoever is on top."""
        now = time.process_time()
        self.spent[self.stack[-1]] += now - self.since
        self.since = now

    def timed(self, part: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.turn()
            self.stack.append(part)
            try:
                return act(*given, **named)
            finally:
                self.turn()
                self.stack.pop()

        return call


class Timed:
    """An object whose methods of these names are timed, and all else is as it was."""

    def __init__(self, inner: Any, clock: Clock, parts: dict[str, str]) -> None:
        self._inner = inner
        for name, part in parts.items():
            setattr(self, name, clock.timed(part, getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def watch(trainer: Trainer, clock: Clock) -> None:
    """Put the clock around every part of an iteration."""
    rules, gathering = "rules: the game's steps, views, saved states", "update: gathering"
    collector = trainer.setup.collector
    watched: list[tuple[Any, dict[str, str]]] = [
        (collector, {"collect": "rollout buffer: its columns are written", "_ask_others": "bots"}),
        (collector.rollout, {"advantages": "update: advantages"}),
        *((world, dict.fromkeys(("step", "save", "load"), rules)) for world in collector.parts),
    ]
    for learner in trainer.agents.learners.values():
        student = getattr(learner, "student", learner)
        watched += [(learner, {"learn": gathering}), (student, {"step": "update: Adam"}),
                    (student, {"gradient": "update: gradient"})]
        if student is not learner:
            watched.append((learner, {"values": "search of positions"}))
    for thing, parts in watched:
        for name, part in parts.items():
            setattr(thing, name, clock.timed(part, getattr(thing, name)))
    for seating in trainer.setup.seating.values():
        player: Any = copy.copy(seating.policy)  # the learner's own stays: its gradient asks what it is
        player.network = Timed(player.network, clock, {"act": "network: acting"})
        seating.policy = player


def measure(recipe: str, iterations: int, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The parts of one recipe: seconds of CPU an iteration, and shares."""
    config = settings.replace(api.configure(recipe), {"threads": 1} | (changes or {}))
    trainer = Trainer(config)
    with tempfile.TemporaryDirectory() as place, \
            Run.create(Path(place) / "run", settings.to_yaml(config)) as run:
        trainer.bind(run, Recorder(trainer))
        trainer.start()
        train(trainer, lambda: trainer.clock.iteration >= WARM)
        clock = Clock()
        watch(trainer, clock)
        clock.since, first = time.process_time(), trainer.clock.iteration
        began, steps = clock.since, trainer.clock.learner_steps
        last = [began]

        def stop() -> bool:
            clock.turn()
            last[0] = clock.since
            return trainer.clock.iteration >= first + iterations

        train(trainer, stop)
        spent = dict(clock.spent)
    done, total = trainer.clock.iteration - first, last[0] - began
    parts = sorted(spent.items(), key=lambda item: -item[1])
    return {
        "recipe": recipe, "iterations": done, "seconds_an_iteration": total / done,
        "learner_steps_a_second": (trainer.clock.learner_steps - steps) / total,
        "parts": [{"part": name, "seconds": s / done, "share": s / total} for name, s in parts],
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    found = [measure(recipe, given.iterations) for recipe in given.recipes]
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    for about in found:
        print(f"{about['recipe']}: {1000 * about['seconds_an_iteration']:.0f} ms of CPU an iteration, "
              f"{about['learner_steps_a_second']:,.0f} learner steps a CPU second "
              f"({about['iterations']} iterations, one thread)")  # fmt: skip
        for part in about["parts"]:
            print(f"  {part['share']:6.1%}  {1000 * part['seconds']:7.1f} ms  {part['part']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(cli.main(act=main))
