"""Many runs, one table: every seed of every combination of settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.reporting import sweep_text
from rematch.reporting.result import Block, Result, Table
from rematch.sweeps import plan
from rematch.sweeps.run_place import Limits
from rematch.training import recipes
from rematch.verbs.arguments import Log, silent


class SweepTable(Result):
    """Every run of a sweep, and the interquartile mean over the seeds of each combination."""

    def blocks(self) -> Iterator[Block]:
        yield sweep_text.title(self)
        for heading, rows in sweep_text.tables(self):
            yield ""
            if heading:
                yield heading
            yield Table(rows)
        yield ""
        yield from (*sweep_text.notes(self), *sweep_text.MEANING)


def sweep(
    recipe: str = "quick",
    *,
    seeds: str | Iterable[int],
    grid: Mapping[str, Sequence[Any]] | None = None,
    changes: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    limits: Limits | None = None,
    log: Log = silent,
) -> SweepTable:
    """Train every seed of every combination of the grid's values.

    `seeds` is "0-9" or a list of numbers; `limits` says how many runs train at a time, for how long, and on
    which cluster. Repeat the call to continue a sweep that was stopped. `log` receives its lines.
    """
    if "seed" in (changes or {}):
        raise ConfigError("changes: seed has no effect in a sweep; expected seeds")
    flags = [f"{key}={','.join(map(plan.flag_text, values))}" for key, values in (grid or {}).items()]
    seed_list = plan.read_seeds(seeds if isinstance(seeds, str) else ",".join(map(str, seeds)))

    def configure(more_flags: Sequence[str]) -> Config:
        return recipes.configure(recipe, flags=more_flags, changes=changes)

    target = Path(folder or plan.usual_folder(recipe))
    runs = plan.make_plan(target, recipe, seed_list, plan.read_grid(flags), configure)
    return SweepTable(plan.run(runs, limits or Limits(), log, "the same call again"))
