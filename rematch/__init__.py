"""Rematch trains game agents by self-play and measures how strong they are.

    import rematch
    run = rematch.train("quick", {"seed": 1})
    rematch.evaluate(run.folder)

Every command is a function whose result prints as a table; `dir(rematch)` lists them. Importing this costs
next to nothing: torch and the worlds are loaded when they are first needed.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

# A row of a product must not depend on where in its batch it stands; on some processors MKL's fastest kernels
# make it (oneMKL manual, "Conditional Numerical Reproducibility"). Read by MKL at its first call.
os.environ.setdefault("MKL_CBWR", "AUTO")

__version__ = "0.1.0"

if os.path.isdir(os.path.join(os.path.dirname(__file__), "cores")):  # a wheel: cores for several processors
    from rematch.core.system import portable_cores

    portable_cores.install()

if TYPE_CHECKING:
    from rematch.api import configure, load, resume, train
    from rematch.bench.run import benchmark
    from rematch.cluster.request import ClusterRequest
    from rematch.core.errors import ConfigError
    from rematch.sweeps.run_place import Limits
    from rematch.sweeps.search import SearchRequest, search
    from rematch.training.best_response import ExploitRequest
    from rematch.verbs.calibrate import CalibrationOptions, calibrate
    from rematch.verbs.catalog import describe_world, list_recipes, list_worlds
    from rematch.verbs.check import check
    from rematch.verbs.evaluate import EvaluationOptions, evaluate
    from rematch.verbs.exact_runs.diff import diff
    from rematch.verbs.exact_runs.fork import fork
    from rematch.verbs.exact_runs.rewind import rewind
    from rematch.verbs.exact_runs.verify import verify
    from rematch.verbs.exploit import exploit
    from rematch.verbs.export import curves, export
    from rematch.verbs.on_cluster.check import cluster_check
    from rematch.verbs.play import play
    from rematch.verbs.replays import GameChoice, film, replay
    from rematch.verbs.report import report
    from rematch.verbs.runs import list_runs, notify, status
    from rematch.verbs.settings import describe_settings
    from rematch.verbs.solve import solve
    from rematch.verbs.sweep import sweep
    from rematch.verbs.tournament import MatchOptions, tournament
    from rematch.web.server import serve

_MODULES = {  # public name -> the module that defines it
    "CalibrationOptions": "rematch.verbs.calibrate",
    "ClusterRequest": "rematch.cluster.request",
    "ConfigError": "rematch.core.errors",
    "EvaluationOptions": "rematch.verbs.evaluate",
    "ExploitRequest": "rematch.training.best_response",
    "GameChoice": "rematch.verbs.replays",
    "Limits": "rematch.sweeps.run_place",
    "MatchOptions": "rematch.verbs.tournament",
    "SearchRequest": "rematch.sweeps.search",
    "benchmark": "rematch.bench.run",
    "calibrate": "rematch.verbs.calibrate",
    "check": "rematch.verbs.check",
    "cluster_check": "rematch.verbs.on_cluster.check",
    "configure": "rematch.api",
    "curves": "rematch.verbs.export",
    "describe_settings": "rematch.verbs.settings",
    "describe_world": "rematch.verbs.catalog",
    "diff": "rematch.verbs.exact_runs.diff",
    "evaluate": "rematch.verbs.evaluate",
    "exploit": "rematch.verbs.exploit",
    "export": "rematch.verbs.export",
    "film": "rematch.verbs.replays",
    "fork": "rematch.verbs.exact_runs.fork",
    "list_recipes": "rematch.verbs.catalog",
    "list_runs": "rematch.verbs.runs",
    "list_worlds": "rematch.verbs.catalog",
    "load": "rematch.api",
    "notify": "rematch.verbs.runs",
    "play": "rematch.verbs.play",
    "replay": "rematch.verbs.replays",
    "report": "rematch.verbs.report",
    "resume": "rematch.api",
    "rewind": "rematch.verbs.exact_runs.rewind",
    "search": "rematch.sweeps.search",
    "serve": "rematch.web.server",
    "solve": "rematch.verbs.solve",
    "status": "rematch.verbs.runs",
    "sweep": "rematch.verbs.sweep",
    "tournament": "rematch.verbs.tournament",
    "train": "rematch.api",
    "verify": "rematch.verbs.exact_runs.verify",
}
__all__ = [
    "CalibrationOptions", "ClusterRequest", "ConfigError", "EvaluationOptions", "ExploitRequest",
    "GameChoice", "Limits", "MatchOptions", "SearchRequest", "benchmark", "calibrate", "check",
    "cluster_check", "configure", "curves", "describe_settings", "describe_world", "diff", "evaluate",
    "exploit", "export", "film", "fork", "list_recipes", "list_runs", "list_worlds", "load", "notify",
    "play", "replay", "report", "resume", "rewind", "search", "serve", "solve", "status", "sweep",
    "tournament", "train", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rematch' has no attribute {name!r}")
    if "ipykernel" in sys.modules:  # a notebook: long functions show their progress
        importlib.import_module("rematch.reporting.html.notebook").enable()
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
