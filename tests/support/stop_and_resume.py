"""A run that is stopped and resumed, beside the same run undisturbed."""

from __future__ import annotations

from pathlib import Path

from rematch.core.run_config import Config
from support.trainers import resume_run, start_run


def stop_and_go_on(config: Config, folder: Path, at: int) -> None:
    """Train in `folder`, stop after iteration `at`, go on from what was saved to the end."""
    stopped = start_run(folder, config, lambda trainer: trainer.clock.iteration >= at)
    assert not stopped.trainer.clock.done and stopped.trainer.clock.iteration == at
    resumed = resume_run(folder)
    assert resumed.trainer.clock.done
