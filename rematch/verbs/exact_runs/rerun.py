"""Trains a stretch of a run again in a copy of its folder, and compares every bit that the run has stored.

Each row of metrics.jsonl, each evaluation and each checkpoint of the stretch must come out with the stored
bytes. The first difference ends it with one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch import api
from rematch.core.clock import Clock
from rematch.core.component import Component
from rematch.core.errors import ConfigError, Damaged
from rematch.core.recording import EpisodeRecording
from rematch.core.run_config import Config
from rematch.core.system.interrupts import StopRequest
from rematch.core.system.progress import PROGRESS
from rematch.reporting import untrusted_folder
from rematch.storage import atomic_files, checkpoint, lineage, run_copy
from rematch.storage.run_folder import HISTORY_FILE, METRICS_FILE, Run
from rematch.training.loop import train as loop
from rematch.training.recipes import stored_config
from rematch.training.trainer import Trainer

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
MOMENT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmg]?)", re.I)


class OtherBits(ConfigError):
    """A stretch came out with other bits than the run has stored."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a run has stored about its past: settings, rows by iteration, checkpoints."""

    folder: Path
    config: Config
    metrics: dict[int, str]  # iteration -> its line of metrics.jsonl
    evaluations: dict[int, str]  # iteration -> its row of history.json
    checkpoints: list[int]  # iterations

    @classmethod
    def read(cls, folder: Path) -> StoredRun:
        with Run.open(folder, write=False) as run:
            config, history, checkpoints = stored_config(run), run.history, run.checkpoint_iterations()
        try:
            text = untrusted_folder.read(folder, METRICS_FILE).decode("utf-8", "replace")
        except untrusted_folder.Unreadable as error:
            raise ConfigError(f"{folder}: {error}") from None
        metrics = {}
        for line in text.splitlines():
            if match := re.match(r'\{"iteration": ?([0-9]{1,15}),', line):
                metrics[int(match[1])] = line
        rows = {row["iteration"]: atomic_files.json_line(row, HISTORY_FILE) for row in history
                if isinstance(row.get("iteration"), int)}
        return cls(folder=folder, config=config, metrics=metrics, evaluations=rows, checkpoints=checkpoints)

    @property
    def newest(self) -> int:
        """The newest iteration that is logged or saved."""
        return max([*self.metrics, *self.checkpoints], default=0)

    def iteration_of(self, text: str, name: str) -> int:
        """A moment of the run: "120" is an iteration, "2M" or "640k" a number of steps (rounded down)."""
        match = MOMENT.fullmatch(text.strip())
        if not match or (not match[2] and "." in match[1]):
            raise ConfigError(f"{name} = {text!r}: expected an iteration such as 120, or steps such as 2.5M")
        if not match[2]:
            iteration = int(match[1])
        else:
            steps = self.config.games * self.config.steps
            iteration = int(float(match[1]) * UNITS[match[2].lower()]) // steps
        if iteration > self.newest:
            raise ConfigError(f"{name} = {text!r}: iteration {iteration}; expected at most {self.newest}, "
                              f"which {self.folder} has reached")
        return iteration

    def require_start(self, iteration: int) -> None:
        """ConfigError where neither a checkpoint nor the settings give the state at this iteration."""
        source = lineage.read(self.folder)
        if source is not None and not any(saved <= iteration for saved in self.checkpoints):
            oldest = min(self.checkpoints, default=0)
            raise ConfigError(f"{self.folder} was {source.sentences()[0]}, and no checkpoint at or before "
                              f"iteration {iteration} is stored; expected {oldest} or later")


class Recorder(Component):
    """A component that watches a re-run stretch; it has no state and changes nothing."""

    name = "recorder"


@dataclass
class Comparison:
    """The display of a re-run: compares each row with the stored one and reports the progress."""

    stored: StoredRun
    first: int
    last: int
    rows: int = 0
    evaluations: int = 0
    checkpoints: int = 0

    def line(self, text: str) -> None:
        """Lines of the log are those of the original run."""

    def activity(self, text: str) -> None:
        """The progress of a match is not shown."""

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        """The films of the run itself are not made again."""
        return {}

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None:
        iteration = metrics["iteration"]
        expected = self.stored.metrics.get(iteration)
        if expected is not None:
            self._compare(METRICS_FILE, iteration, expected, atomic_files.json_line(metrics, METRICS_FILE))
            self.rows += 1
        share = (iteration - self.first) / max(1, self.last - self.first)
        PROGRESS.report(share, f"iteration {iteration} of {self.last}")

    def evaluation(self, row: dict[str, Any]) -> None:
        expected = self.stored.evaluations.get(row["iteration"])
        if expected is not None:
            line = atomic_files.json_line(row, HISTORY_FILE)
            self._compare(HISTORY_FILE, row["iteration"], expected, line)
            self.evaluations += 1

    def _compare(self, file: str, iteration: int, expected: str, line: str) -> None:
        if expected == line:
            return
        before, now = (atomic_files.read_json(text.encode(), file) for text in (expected, line))
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        key = keys[0] if keys else ""
        first = f"{key} is {now.get(key)!r:.40} instead of {before.get(key)!r:.40}"
        raise OtherBits(f"{self.stored.folder}: iteration {iteration} came out with other bits than {file} "
                        f"holds: {first}")

    def compare_state(self, iteration: int, state: dict[str, Any]) -> None:
        """Compare a state with the stored checkpoint of its iteration, if there is one that verifies."""
        folder = self.stored.folder / "checkpoints" / f"iter_{iteration:08d}"
        try:
            manifest, files = checkpoint.verify(folder)
        except Damaged:
            return
        stored = atomic_files.read_json(files[checkpoint.STATE_FILE], checkpoint.STATE_FILE)
        if stored.get("clock", {}).get("evaluation_pending"):
            return  # saved in the middle of this iteration, before its evaluation
        for name, data in checkpoint.encode_state(state).items():
            if atomic_files.file_digest(data) != manifest.files[name]:
                raise OtherBits(f"{self.stored.folder}: the state at iteration {iteration} came out with "
                                f"other bits than {folder.name}/{name} holds")
        self.checkpoints += 1

    def sentence(self) -> str:
        return (f"started at iteration {self.first}; equal to the bit: rows of {METRICS_FILE} {self.rows}, "
                f"evaluations {self.evaluations}, checkpoints {self.checkpoints}")


class StateComparison(Recorder):
    """Compares the state of the run at the iterations of stored checkpoints."""

    def __init__(self, comparison: Comparison, trainer: Trainer) -> None:
        self.comparison, self.trainer = comparison, trainer

    def end_iteration(self, clock: Clock) -> None:
        if clock.iteration in self.comparison.stored.checkpoints:
            self.comparison.compare_state(clock.iteration, self.trainer.state_dict())


def rerun(
    stored: StoredRun, first: int, last: int, target: Path,
    recorders: Callable[[Trainer], Iterable[Recorder]] = lambda trainer: (),
) -> Comparison:
    """Train a copy of the run in `target` from its newest checkpoint at or before `first` to `last`.

    The copy ends with a checkpoint of `last`. OtherBits at the first difference from what the run stored.
    """
    stored.require_start(first)
    with Run.open(stored.folder, write=False) as run:
        saved = run.load(until=first) if any(i <= first for i in stored.checkpoints) else None
    if saved is not None:
        api.check_fingerprint(stored.folder, stored.config, saved)
    run_copy.copy_run(stored.folder, target, saved)
    with StopRequest(None) as stop, Run.open(target, write=True) as run:
        trainer, saved = Trainer(stored.config), run.load()
        if saved is not None:
            api.load_checkpoint(trainer, saved)
        run.rewind(saved)
        clock = trainer.clock
        comparison = Comparison(stored, clock.iteration, last)
        trainer.bind(run, comparison, stop)
        trainer.parts = [*trainer.parts, *recorders(trainer), StateComparison(comparison, trainer)]
        trainer.start(resumed=True)

        def reached() -> bool:
            return stop() or (clock.iteration >= last and not clock.evaluation_pending)

        if not (clock.iteration >= last and not clock.evaluation_pending):
            loop(trainer, reached)
        if stop():
            raise KeyboardInterrupt
    return comparison
