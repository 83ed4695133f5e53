"""A run that is stopped and goes on, beside the same run undisturbed."""

from __future__ import annotations

from pathlib import Path

from rematch import api
from rematch.core import config as settings
from rematch.rehearsal.shrink import Witness
from rematch.storage.run_folder import Run
from rematch.training.trainer import Config, Session, train


def stop_and_go_on(config: Config, folder: Path, at: int) -> None:
    """Train in `folder`, stop after iteration `at`, go on from what was saved to the end."""
    session = Session(config)
    with Run.create(folder, settings.to_yaml(config)) as run:
        assert not train(session, run, Witness(session), lambda: session.iteration >= at)
    with Run.open(folder, write=True) as run:
        again, checkpoint = Session(api.stored(run)), run.load()
        assert checkpoint is not None and checkpoint.iteration == at
        again.restore(checkpoint.parts)
        run.rewind(checkpoint)
        assert train(again, run, Witness(again), lambda: False)
