"""Export a run: its newest policies as files, its curves to TensorBoard or Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch import api
from rematch.agents import onnx_export, policy_export
from rematch.agents.c_header import check as check_header
from rematch.agents.c_header import write as write_header
from rematch.agents.learners.q_policy import QPlayer
from rematch.agents.policy import Policy
from rematch.core.errors import ConfigError
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.past_policies import policy_metadata
from rematch.reporting.exporters import log_writers
from rematch.reporting.exporters.curves import Counts, copy_rows, follow, stored_settings
from rematch.reporting.exporters.run_tail import RunTail
from rematch.reporting.result import Block, Printable, Table
from rematch.reporting.text import count_of
from rematch.storage.atomic_files import os_errors_as_run_error
from rematch.verbs.arguments import MOST_SEED, check_integer, folder_of
from rematch.verbs.exact_runs import claims


@dataclass(frozen=True, repr=False)
class ExportedPolicies(Printable):
    """The files that were written: weights, a JSON file for each, and ONNX files and C headers on request."""

    policies: tuple[Path, ...]
    onnx: tuple[Path, ...] = ()
    headers: tuple[Path, ...] = ()

    @property
    def files(self) -> list[Path]:
        """Every file that was written, policies first."""
        metadata = (path.with_suffix(".json") for path in self.policies)
        return [*self.policies, *metadata, *self.onnx, *self.headers]

    def blocks(self) -> Iterator[Block]:
        rows = [(str(path), f"{path.stat().st_size:,}") for path in self.files]
        yield Table([("file", "bytes"), *rows], right=(1,))

    def to_dict(self) -> dict[str, Any]:
        return {"policies": list(map(str, self.policies)), "files": list(map(str, self.files))}


def export(
    run: Path | str,
    out: Path | str,
    *,
    onnx: bool = False,
    c_header: bool = False,
    games: int = 0,
    seed: int = 0,
) -> ExportedPolicies:
    """Write a run's newest policies to `out` (several roles: OUT-ROLE).

    The files can be named as players: rematch.tournament, rematch play, rematch train --from. With `onnx` and
    `c_header` each policy is also written for use without Rematch: an .onnx file, a C99 header. With `games`
    each policy plays that many games against every scripted opponent, and its card (the JSON file) claims the
    result of each game: `rematch verify` checks them.
    """
    check_integer("games", games, 0, claims.MOST_CLAIMED)
    check_integer("seed", seed, 0, MOST_SEED)
    folder, target = folder_of(run), policy_file(Path(out))
    trained = api.load(folder)
    networks = networks_of(trained.policies)
    check_formats(networks, onnx, c_header)
    if not networks:
        raise ConfigError(f"{folder}: its players plan with the rules of the world; a policy file cannot")
    metadata = {
        role: policy_metadata(trained.config, policy, trained.iteration) for role, policy in networks.items()
    }
    if games:
        for role in PROGRESS.each(list(metadata)):
            card = claims.make_claims(trained.config, role, trained.policies[role], games, seed)
            metadata[role] |= {claims.CLAIMS: card}
    paths = policy_export.export(networks, metadata, target)
    files = list(zip(networks.values(), metadata.values(), paths))
    graphs = [onnx_export.write(policy, exported, path.with_suffix(".onnx"))
              for policy, exported, path in files if onnx]
    headers = [write_header(policy, exported, path.with_suffix(".h"))
               for policy, exported, path in files if c_header]
    return ExportedPolicies(tuple(paths), tuple(graphs), tuple(headers))


def networks_of(players: dict[str, Any]) -> dict[str, Policy]:
    """role -> network of its player; players that search have none."""
    policies = {role: player.policy if isinstance(player, QPlayer) else player
                for role, player in players.items()}  # fmt: skip
    return {role: policy for role, policy in policies.items() if isinstance(policy, Policy)}


def check_formats(networks: dict[str, Policy], onnx: bool, header: bool) -> None:
    """Errors before any file is written."""
    if onnx:
        onnx_export.check()
    if header:
        check_header(networks.values())


def policy_file(out: Path) -> Path:
    """The file to write, with its suffix; ConfigError where it cannot be written."""
    suffix = policy_export.SUFFIX
    out = out.with_suffix(suffix) if out.name and not out.suffix and not out.is_dir() else out
    if out.suffix != suffix or not out.parent.is_dir():
        raise ConfigError(f"--out = {str(out)!r}: expected a name that ends in {suffix}, in a folder that "
                          "exists")
    return out


# --- curves -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class CopiedCurves(Printable):
    """The numbers of copied rows and of damaged lines, and the command that shows the copy."""

    iterations: int
    evaluations: int
    show: str
    damaged: int = 0

    def blocks(self) -> Iterator[Block]:
        if self.damaged:
            yield f"PROBLEM: {count_of(self.damaged, 'line')} of metrics.jsonl could not be read"
        rows = f"{count_of(self.iterations, 'iteration')} and {count_of(self.evaluations, 'evaluation')}"
        yield f"{rows}; show them with:"
        yield self.show

    def to_dict(self) -> dict[str, Any]:
        return vars(self).copy()


def curves(
    run: Path | str, to: str, *, out: Path | str | None = None, live: bool = False
) -> CopiedCurves:
    """Copy the curves of a run to "tensorboard" or "wandb" (offline), into the folder `out`.

    With `live` rows are copied while the run trains, until it ends. The run folder is only read.
    """
    folder = folder_of(run)
    make = log_writers.writer_class(to)
    settings = stored_settings(folder)
    target = Path(log_writers.FOLDERS[to] if out is None else out)
    if target.exists() and not target.is_dir():
        raise ConfigError(f"--out = {str(target)!r}: expected a folder")
    with os_errors_as_run_error(f"{target} cannot be written"):
        writer = make(target, folder.resolve().name, settings)
        counts, tail = Counts(), RunTail(folder)
        try:
            (follow if live else copy_rows)(tail, writer, counts)
        finally:
            show = writer.close()
    return CopiedCurves(counts.iterations, counts.evaluations, show, tail.damaged)
