"""Jobs on the page of a run, whatever its world: the payoff matrix of its past policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request

from rematch.core.errors import ConfigError
from rematch.core.system.progress import PROGRESS
from rematch.web.run_data import Json, RunData

Progress = Callable[[str], None]


def start_payoff(data: RunData, request: Request, body: Json) -> Json:
    """Start the job that plays the past policies of a run against each other."""
    if body:
        raise ConfigError("expected an empty object")
    return data.jobs.start("", "payoff", {"folder": str(data.folder(request.path_params["run"]))})


def payoff_job(request: Json, progress: Progress) -> Json:
    """The job itself, in the child process; it writes nothing."""
    from rematch.reporting.html.run_payoff import matrix_of
    from rematch.reporting.run_summary import matrix_facts

    progress("loading the past policies")
    with PROGRESS.shown_by(lambda share, text: progress(f"{100 * share:.0f} %")):
        matrix = matrix_of(Path(request["folder"]), None, lambda line: None, store=False)
    if matrix is None:
        raise ConfigError("this run has fewer than two past policies")
    facts = matrix_facts(matrix)
    return {key: facts[key] for key in ("payoff", "cyclic")}


def job_state(data: RunData, request: Request) -> Json:
    return data.jobs.find(request.path_params["job"]).to_json()


def cancel(data: RunData, request: Request, body: Json) -> Json:
    job = data.jobs.find(request.path_params["job"])
    job.cancel()
    return job.to_json()


JOBS: dict[str, Callable[[Json, Progress], Any]] = {"payoff": payoff_job}
