"""Rematch trains game agents by self-play and tells the truth about how strong they are.

    import rematch
    run = rematch.train("quick", {"seed": 1})
    run.scoreboard()

Importing this costs next to nothing: torch and the worlds are loaded where they are first needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# A row of a product must not depend on where in its batch it stands; on some processors MKL's fastest kernels
# make it (oneMKL manual, "Conditional Numerical Reproducibility"). Read by MKL at its first call.
os.environ.setdefault("MKL_CBWR", "AUTO")

__version__ = "0.1.0"
__all__ = ["exploit", "load", "report", "resume", "sweep", "train"]

if TYPE_CHECKING:
    from rematch.api import load, resume, train
    from rematch.cli.commands.evaluate import exploit_run as exploit
    from rematch.reporting.run_summary import report
    from rematch.sweeps.plan import sweep


def __getattr__(name: str) -> Any:
    if name == "exploit":
        from rematch.cli.commands.evaluate import exploit_run

        return exploit_run
    if name == "sweep":
        from rematch.sweeps import plan

        return plan.sweep
    if name == "report":
        from rematch.reporting.run_summary import report

        return report
    if name in __all__:
        from rematch import api

        return getattr(api, name)
    raise AttributeError(f"module 'rematch' has no attribute {name!r}")
