"""Runs that train together on one GPU: the seeds of a sweep in one process, each in a folder of its own.

One launch plays the rollouts of many runs, and one launch makes their updates; no result depends on the runs
beside it, so each folder has the bytes that its run would have alone, and can be resumed alone. The runs are
two groups that take turns: while the GPU computes for one, the processor works for the other.

`rematch sweep` starts this module as a child process; it ends when all runs have trained to their end, and
each of them is resumed alone afterwards for its report and film, or for its error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rematch import api
from rematch.agents.learners.cuda_update import CudaUpdate
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.system import cuda
from rematch.core.system.gpu_errors import gpu_error, is_gpu_error
from rematch.core.system.interrupts import StopRequest, StopRequested
from rematch.reporting.console import Console
from rematch.rollout.cuda_play import CudaPlay
from rematch.storage.run_folder import CONFIG_FILE, Run
from rematch.training.loop import Turns, train_in_turns
from rematch.training.recipes import configure
from rematch.training.trainer import Trainer

GROUPS = 2  # that take turns


@dataclass
class RunInTurns:
    """A run, its trainer, and its training in turns."""

    run: Run
    trainer: Trainer
    turns: Turns

    def advance(self) -> bool:
        """One turn; False where the run has ended, is stopped or has failed."""
        try:
            next(self.turns)
            return True
        except (StopIteration, StopRequested):
            pass
        except ConfigError as error:  # the run ends alone, with the same error
            print(f"{self.run.folder}: {error}", flush=True)
        return False


class Group:
    """Runs whose rollouts, and whose updates, are one launch each."""

    def __init__(self, runs: Sequence[RunInTurns]) -> None:
        self.runs = list(runs)
        self.stream = cuda.new_stream()
        setups = [run.trainer.setup for run in self.runs]
        self.play = CudaPlay([setup.collector for setup in setups])
        learners: list[Any] = [learner for setup in setups for learner in setup.learners.values()]
        self.update = CudaUpdate(learners)

    def advance(self) -> None:
        """A turn of each run; then the GPU begins what they have submitted."""
        with cuda.on_stream(self.stream):
            self.runs = [run for run in self.runs if run.advance()]
            self.play.launch()
            self.update.launch()


def train_together(folders: Mapping[Path, Sequence[str]], minutes: float | None = None) -> None:
    """Train these runs to their end, or for `minutes`: folder -> recipe and flags of its settings.

    A folder that holds a run already is resumed from its newest checkpoint. All runs need the same world,
    networks and numbers of games and steps.
    """
    with StopRequest(minutes) as stop, ExitStack() as stack:
        runs = [stack.enter_context(_opened(folder, words, stop)) for folder, words in folders.items()]
        runs = [run for run in runs if not run.trainer.clock.done]
        groups = [Group(runs[n::GROUPS]) for n in range(min(GROUPS, len(runs)))]
        while any(group.runs for group in groups):
            for group in groups:
                group.advance()


@contextmanager
def _opened(folder: Path, words: Sequence[str], stop: StopRequest) -> Iterator[RunInTurns]:
    """The run in this folder, started or resumed."""
    resumed = (folder / CONFIG_FILE).exists()
    with ExitStack() as stack:
        if resumed:
            run = stack.enter_context(Run.open(folder, write=True))
            trainer, _ = api.restored(run)
            run.timing({"event": "resume", "iteration": trainer.clock.iteration, "time": time.time()})
        else:
            config = configure(words[0], flags=words[1:])
            trainer = Trainer(config)
            run = stack.enter_context(Run.create(folder, settings.to_yaml(config)))
            api.announce(trainer, run)
        display = Console(live=False)
        display.off = True
        trainer.bind(run, display, stop)
        yield RunInTurns(run, trainer, _turns(trainer, resumed, stop))
        if not trainer.clock.done:
            run.timing({"event": "stop", "why": stop.reason, "iteration": trainer.clock.iteration,
                        "time": time.time()})  # fmt: skip


def _turns(trainer: Trainer, resumed: bool, stop: StopRequest) -> Turns:
    trainer.start(resumed)
    yield
    return (yield from train_in_turns(trainer, stop))


def main(words: Sequence[str]) -> int:
    """words: minutes or "", and the folders with their settings as JSON."""
    folders: dict[str, Any] = json.loads(words[1])
    minutes = float(words[0]) if words[0] else None
    try:
        train_together({Path(folder): flags for folder, flags in folders.items()}, minutes)
    except ConfigError as error:
        print(f"rematch: {error}", flush=True)
        return 2
    except torch.OutOfMemoryError:
        print(f"rematch: {len(folders)} runs at once need more memory than the GPU has; expected fewer "
              "seeds, or fewer games or steps: they train one by one now", flush=True)
        return 2
    except Exception as error:
        if not is_gpu_error(error):
            raise
        print(f"rematch: {gpu_error(error)}", flush=True)
        return 2
    return 0
