"""The output files of a finished run: policies, a picture, a film, a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rematch.core.errors import RunError
from rematch.core.recording import Replay
from rematch.core.system.progress import PROGRESS
from rematch.evaluation import replay
from rematch.storage.atomic_files import recorded_read_failures
from rematch.worlds import registry

if TYPE_CHECKING:
    from rematch.storage.run_folder import Run
    from rematch.training.trainer import Trainer

PICTURE, FILM, REPORT = "learning.png", "match.gif", "report.html"


def make(trainer: Trainer, run: Run, missing: bool) -> dict[str, Path]:
    """Write all files, or with `missing` only the absent ones; returns name -> path of all that exist.

    Each file is replaced as a whole, so an existing file is complete. The report shows the other files: it is
    written again whenever one of them is.
    """
    from rematch.reporting import learning_curves, match_film, run_summary

    try:
        trainer.setup.store_policies(trainer.clock)
        files = (PICTURE, FILM, REPORT)
        existing = {name for name in files if missing and (run.folder / name).is_file()}
        filmed = trainer.setup.game.renderer is not None and replay.repeatable(trainer.setup.spec)
        # without the folder's name: equal runs have equal bytes
        title = f"{registry.title(trainer.config.game)}, seed {trainer.config.seed}"
        if PICTURE not in existing:
            PROGRESS.report(0.1, PICTURE)
            rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
            run.write_file(PICTURE, learning_curves.learning(run.history, rows, title))
        if FILM not in existing and filmed:
            PROGRESS.report(0.3, FILM)
            run.write_file(FILM, match_film.film(_match(trainer), before_step=trainer.setup.check_stop)[0])
        if len(existing) < (3 if filmed else 2):
            PROGRESS.report(0.8, REPORT)
            with recorded_read_failures() as failures:
                page = run_summary.page(run.folder)
            if failures:
                raise RunError(f"{REPORT} was not written: {failures[0]}")
            run.write_file(REPORT, page.encode("utf-8", "replace"))
    except (OSError, RunError) as error:
        reason = error if isinstance(error, RunError) else error.strerror
        if not any((run.folder / "checkpoints").glob("*/manifest.json")):
            raise RunError(f"{reason}; {run.folder} has no checkpoint any more: it was deleted or moved "
                           "while the run trained") from None
        raise RunError(f"{reason}; the training itself is complete and saved: "
                       f"write the missing files with `rematch resume {run.folder}`") from None
    paths = {"run": run.folder, "policies": run.folder / "policies", "picture": run.folder / PICTURE,
             "film": run.folder / FILM, "report": run.folder / REPORT}
    return {name: path for name, path in paths.items() if path.exists()}


def _match(trainer: Trainer) -> Replay:
    """One game of the trained policies against each other."""
    setup, config = trainer.setup, trainer.config
    world = setup.make_level(1, 0, config.seed)
    players = [trainer.agents.players[world.spec.role_of(seat).name] for seat in range(world.spec.seats)]
    match = replay.Match(world=config.game, config=config.world, seed=config.seed, step=trainer.clock.step)
    return replay.record(world, players, match, before_step=lambda step: setup.check_stop())[0]
