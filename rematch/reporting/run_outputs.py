"""What a finished run leaves for people: policies, a picture, a film, a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rematch.core.errors import RunError
from rematch.evaluation import past_policies

if TYPE_CHECKING:
    from rematch.storage.run_folder import Run
    from rematch.training.trainer import Session

PICTURE, FILM, REPORT = "learning.png", "match.gif", "report.html"


def make(session: Session, run: Run, missing: bool) -> dict[str, Path]:
    """Write all of it, or only what is `missing`; returns name -> path of all there is.

    Each file is replaced as a whole, so whatever is there was finished. The report shows the others: it is
    made again whenever one of them was.
    """
    from rematch.reporting import learning_curves, match_film, run_summary

    try:
        for name, policy in session.minds.networks.items():
            run.write_policy(
                name, policy.arrays(), past_policies.card(session.config, policy, session.iteration)
            )
        files = (PICTURE, FILM, REPORT)
        there = {name for name in files if missing and (run.folder / name).is_file()}
        draw = getattr(session.module, "draw", None)
        title = f"{session.config.game}, seed {session.config.seed}"  # no folder: equal runs, equal bytes
        if PICTURE not in there:
            rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
            run.write_file(PICTURE, learning_curves.learning(run.history, rows, title))
        if FILM not in there and draw is not None:
            world = session.make_level(1, 0, session.config.seed)
            run.write_file(FILM, match_film.film(world, session.policies, draw)[0])
        if len(there) < (3 if draw is not None else 2):
            run.write_file(REPORT, run_summary.page(run.folder).encode("utf-8", "replace"))
    except (OSError, RunError) as error:
        why = error if isinstance(error, RunError) else error.strerror
        raise RunError(f"{why}; the training itself is complete and saved: "
                       f"make the rest with `rematch resume {run.folder}`") from None
    named = {"run": run.folder, "policies": run.folder / "policies", "picture": run.folder / PICTURE,
             "film": run.folder / FILM, "report": run.folder / REPORT}
    return {name: path for name, path in named.items() if path.exists()}
