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
from typing import TYPE_CHECKING, Any

# A row of a product must not depend on where in its batch it stands; on some processors MKL's fastest kernels
# make it (oneMKL manual, "Conditional Numerical Reproducibility"). Read by MKL at its first call.
os.environ.setdefault("MKL_CBWR", "AUTO")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rematch.api import configure, load, resume, train
    from rematch.bench.run import benchmark
    from rematch.cluster.request import ClusterRequest
    from rematch.core.errors import ConfigError
    from rematch.verbs.calibrate import calibrate
    from rematch.verbs.catalog import describe_world, list_recipes, list_worlds
    from rematch.verbs.check import check
    from rematch.verbs.evaluate import evaluate
    from rematch.verbs.exploit import exploit
    from rematch.verbs.export import export
    from rematch.verbs.on_cluster.check import cluster_check
    from rematch.verbs.play import play
    from rematch.verbs.replays import film, replay
    from rematch.verbs.report import report
    from rematch.verbs.runs import list_runs, status
    from rematch.verbs.settings import describe_settings
    from rematch.verbs.solve import solve
    from rematch.verbs.sweep import sweep
    from rematch.verbs.tournament import tournament
    from rematch.web.server import serve

_MODULES = {  # public name -> the module that defines it
    "ClusterRequest": "rematch.cluster.request",
    "ConfigError": "rematch.core.errors",
    "benchmark": "rematch.bench.run",
    "calibrate": "rematch.verbs.calibrate",
    "check": "rematch.verbs.check",
    "cluster_check": "rematch.verbs.on_cluster.check",
    "configure": "rematch.api",
    "describe_settings": "rematch.verbs.settings",
    "describe_world": "rematch.verbs.catalog",
    "evaluate": "rematch.verbs.evaluate",
    "exploit": "rematch.verbs.exploit",
    "export": "rematch.verbs.export",
    "film": "rematch.verbs.replays",
    "list_recipes": "rematch.verbs.catalog",
    "list_runs": "rematch.verbs.runs",
    "list_worlds": "rematch.verbs.catalog",
    "load": "rematch.api",
    "play": "rematch.verbs.play",
    "replay": "rematch.verbs.replays",
    "report": "rematch.verbs.report",
    "resume": "rematch.api",
    "serve": "rematch.web.server",
    "solve": "rematch.verbs.solve",
    "status": "rematch.verbs.runs",
    "sweep": "rematch.verbs.sweep",
    "tournament": "rematch.verbs.tournament",
    "train": "rematch.api",
}
__all__ = [
    "ClusterRequest", "ConfigError", "benchmark", "calibrate", "check", "cluster_check", "configure",
    "describe_settings", "describe_world", "evaluate", "exploit", "export", "film", "list_recipes",
    "list_runs", "list_worlds", "load", "play", "replay", "report", "resume", "serve", "solve", "status",
    "sweep", "tournament", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rematch' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
