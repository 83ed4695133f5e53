"""Write one page about a run, or about several seeds."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rematch.cluster.request import ClusterRequest
from rematch.core.errors import CodeNotAllowed, ConfigError
from rematch.reporting import run_summary
from rematch.reporting.html import run_payoff
from rematch.storage.run_folder import Run
from rematch.sweeps import status as sweep_status
from rematch.training.recipes import stored_config
from rematch.verbs.arguments import MOST_GAMES, Log, check_integer, folder_of, silent


class Report(NamedTuple):
    """The page and the facts on it; `page, facts = rematch.report(...)` works too."""

    page: Path
    facts: dict[str, Any]

    def lines(self) -> list[str]:
        out = []
        for run in self.facts["runs"]:
            out += [f"PROBLEM: {run['label']}: {problem}" for problem in run["problems"]]
            out.append(f"{run['label']}: {run['verdict']}")
            out += [f"  likely cause: {cause}" for cause in run["causes"]]
        if self.facts.get("quick"):
            out.append("--quick: no games were played; a payoff matrix is shown only where one was stored")
        return [*out, f"report  {self.page}"]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """The whole page in an iframe, which separates its style from that of the notebook."""
        text = html.escape(self.page.read_text(errors="replace"), quote=True)
        return f'<iframe sandbox="" style="width: 100%; height: 40em" srcdoc="{text}"></iframe>'

    def to_dict(self) -> dict[str, Any]:
        return {"page": str(self.page), **self.facts}


def report(
    runs: Path | str | Sequence[Path | str], out: Path | str | None = None, games: int | None = None,
    log: Log = silent, quick: bool = False, cluster: ClusterRequest | None = None,
) -> Report:
    """Write the page about a run, about several runs, or about the runs of a sweep.

    `games` is the number of games of each match between past policies. The page of one run goes into its
    folder, that of several into the current one. Only a page that Rematch wrote is ever overwritten. With
    `quick` no games are played: a payoff matrix is on the page only where an earlier report stored it. With
    `cluster` the actors of a Ray cluster play them.
    """
    if quick and games is not None:
        raise ConfigError("--games has no effect with --quick: no games are played")
    if quick and cluster is not None:
        raise ConfigError("--cluster has no effect with --quick: no games are played")
    if games is not None:
        check_integer("games", games, 1, MOST_GAMES)
    names = [runs] if isinstance(runs, Path | str) else list(runs)
    folders = [folder for name in names for folder in run_folders(folder_of(name))]
    for folder in folders:
        refuse_unknown_code(folder)
    if cluster is not None:
        play_on(cluster, folders, games, log)
    page, facts = run_summary.report(folders, out, games, log, quick)
    return Report(page, facts)


def play_on(cluster: ClusterRequest, folders: Sequence[Path], games: int | None, log: Log) -> None:
    """Play and store the payoff matrices of all runs on a cluster; the report reads them."""
    from rematch.verbs.on_cluster.match_shards import match_shards

    with match_shards(cluster) as shards:
        assert shards is not None
        for folder in folders:
            run_payoff.matrix_of(folder, games, log, shards.of_matrix)


def refuse_unknown_code(folder: Path) -> None:
    """CodeNotAllowed where a run names code: a page without its settings would replace a better one."""
    try:
        with Run.open(folder, write=False) as run:
            stored_config(run)
    except CodeNotAllowed:
        raise
    except ConfigError:
        return  # the page says what cannot be read


def run_folders(folder: Path) -> list[Path]:
    """The started runs of a sweep; for any other folder, that folder alone."""
    return sweep_status.started_runs(folder) if sweep_status.is_sweep(folder) else [folder]
