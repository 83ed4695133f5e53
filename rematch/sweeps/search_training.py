"""Trains the runs of a search from evaluation to evaluation; every stage continues from the run's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rematch.cluster.place import RemotePlace
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.recording import EpisodeRecording
from rematch.core.run_config import Config
from rematch.core.system.interrupts import StopRequest, StopRequested
from rematch.storage.run_folder import CONFIG_FILE, Run
from rematch.training.loop import train as loop
from rematch.training.recipes import stored_config
from rematch.training.trained_run import STATE_ERRORS
from rematch.training.trainer import Trainer


class SilentDisplay:
    """Shows nothing: the search reports its own progress."""

    def line(self, text: str) -> None: ...

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...

    def activity(self, text: str) -> None: ...

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        """No film is made."""
        return {}


def evaluation_count(config: Config) -> int:
    """The number of evaluations of a whole run."""
    every: int = config.evaluation.every
    return max(1, -(-(config.iterations - config.start_iteration) // every))


def advance(
    folder: Path, config: Config, evaluations: int, stop: StopRequest, place: RemotePlace | None = None
) -> list[dict[str, Any]]:
    """Start or continue a run until it has this number of evaluations, or to its end; its evaluations.

    StopRequested where the search must stop; the run is saved.
    """
    started = os.path.lexists(folder / CONFIG_FILE)
    if started and len(rows := finished_rows(folder, config)) >= evaluations:
        return rows[:evaluations]
    with Run.open(folder, write=True) if started else Run.create(folder, settings.to_yaml(config)) as run:
        trainer, checkpoint = Trainer(config, place=place), run.load() if started else None
        if checkpoint is not None:
            try:
                trainer.load_state_dict(checkpoint.parts)
            except STATE_ERRORS as error:
                raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {error}") from None
        if started:
            run.rewind(checkpoint)
        trainer.bind(run, SilentDisplay(), stop)
        clock = trainer.clock
        if clock.done:
            return run.history

        def reached() -> bool:
            return stop() or (len(run.history) >= evaluations and not clock.evaluation_pending)

        try:
            trainer.start(resumed=started)
            loop(trainer, reached)
        finally:
            if place is not None:
                place.close()
        if stop():
            raise StopRequested(stop.reason)
        return run.history


def finished_rows(folder: Path, config: Config) -> list[dict[str, Any]]:
    """The evaluations of a run of this search; ConfigError where the folder holds other settings."""
    with Run.open(folder, write=False) as run:
        if stored_config(run) != config:
            raise ConfigError(f"{folder} holds a run with other settings: choose another --name")
        return run.history
