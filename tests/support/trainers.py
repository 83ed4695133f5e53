"""Trains runs in this process: starts or resumes a folder, without pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rematch.core import config as settings
from rematch.core.run_config import Config
from rematch.rehearsal.trial import Recorder
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.storage.array_chunks import ArrayChunk
from rematch.storage.run_folder import Run
from rematch.training.loop import train
from rematch.training.recipes import stored_config
from rematch.training.setup import Place
from rematch.training.trainer import Trainer


def start_run(
    folder: Path, config: Config, stop: Callable[[Trainer], bool] = lambda trainer: False,
    place: Place | None = None,
) -> Recorder:  # fmt: skip
    """Train a new run in `folder` until `stop(trainer)`; `place`: where its training games are played."""
    trainer = Trainer(config, place=place)
    recorder = Recorder(trainer, folder)
    with Run.create(folder, settings.to_yaml(config)) as run:
        trainer.bind(run, recorder)
        trainer.start()
        train(trainer, lambda: stop(trainer))
    return recorder


def resume_run(
    folder: Path, stop: Callable[[Trainer], bool] = lambda trainer: False, place: Place | None = None
) -> Recorder:
    """Resume the run in `folder` from its newest checkpoint, if there is one, until `stop(trainer)`."""
    with Run.open(folder, write=True) as run:
        trainer, checkpoint = Trainer(stored_config(run), place=place), run.load()
        recorder = Recorder(trainer, folder)
        if checkpoint is not None:
            trainer.load_state_dict(checkpoint.parts)
        run.rewind(checkpoint)
        trainer.bind(run, recorder)
        trainer.start(resumed=True)
        train(trainer, lambda: stop(trainer))
    return recorder


def advance(trainer: Trainer, iterations: int) -> list[dict[str, float]]:
    """Play and learn these iterations without a log; the metrics of each. A new run is started first."""
    if trainer.clock.iteration == trainer.clock.first:
        trainer.start()
    rows = []
    for _ in range(iterations):
        rollout = trainer.next_rollout()
        trainer.after_rollout(rollout)
        metrics = trainer.update(rollout)
        trainer.clock.iteration += 1
        trainer.after_update(rollout, metrics)
        rows.append(metrics | trainer.metrics())
    return rows


def first_difference(one: Any, two: Any, key: str = "state") -> str:
    """The key of the first entry in which two trees of state differ, bit for bit; "" where they are equal."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        parts = [(one[name], two[name], f"{key}.{name}") for name in one]
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        parts = [(a, b, f"{key}.{i}") for i, (a, b) in enumerate(zip(one, two))]
    elif isinstance(one, ArrayChunk) and isinstance(two, ArrayChunk):
        parts = [(one.name, two.name, f"{key}.name"), (one.arrays(), two.arrays(), f"{key}.arrays")]
    elif isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        same = one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
        return "" if same else key
    else:
        return "" if type(one) is type(two) and one == two else key
    return next((result for result in (first_difference(*part) for part in parts) if result), "")


def first_rollout(trainer: Trainer) -> RolloutBuffer:
    """The first rollout of a new run, as it was collected."""
    trainer.start()
    return trainer.next_rollout()
