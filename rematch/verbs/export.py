"""Export a run's newest policies as policy files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch import api
from rematch.agents import policy_export
from rematch.agents.learners.q_policy import QPlayer
from rematch.agents.policy import Policy
from rematch.core.errors import ConfigError
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.past_policies import policy_metadata
from rematch.reporting.result import Block, Printable, Table
from rematch.verbs.arguments import MOST_SEED, check_integer, folder_of
from rematch.verbs.exact_runs import claims


@dataclass(frozen=True, repr=False)
class ExportedPolicies(Printable):
    """The files that were written: weights, a JSON file for each, and ONNX files on request."""

    policies: tuple[Path, ...]
    onnx: tuple[Path, ...] = ()

    @property
    def files(self) -> list[Path]:
        """Every file that was written, policies first."""
        return [*self.policies, *(path.with_suffix(".json") for path in self.policies), *self.onnx]

    def blocks(self) -> Iterator[Block]:
        rows = [(str(path), f"{path.stat().st_size:,}") for path in self.files]
        yield Table([("file", "bytes"), *rows], right=(1,))

    def to_dict(self) -> dict[str, Any]:
        return {"policies": list(map(str, self.policies)), "files": list(map(str, self.files))}


def export(
    run: Path | str, out: Path | str, *, onnx: bool = False, games: int = 0, seed: int = 0
) -> ExportedPolicies:
    """Write a run's newest policies to `out` (several roles: OUT-ROLE); with `onnx` also as ONNX files.

    The files can be named as players: rematch.tournament, rematch play, rematch train --from. With `games`
    each policy plays that many games against every scripted opponent, and its card (the JSON file) claims the
    result of each game: `rematch verify` checks them.
    """
    check_integer("games", games, 0, claims.MOST_CLAIMED)
    check_integer("seed", seed, 0, MOST_SEED)
    folder, target = folder_of(run), policy_file(Path(out))
    trained = api.load(folder)
    players = trained.policies
    policies = {role: player.policy if isinstance(player, QPlayer) else player
                for role, player in players.items()}  # fmt: skip
    networks = {role: policy for role, policy in policies.items() if isinstance(policy, Policy)}
    if onnx:
        policy_export.check_onnx(networks.values())
    if not networks:
        raise ConfigError(f"{folder}: its players plan with the rules of the world; a policy file cannot")
    metadata = {
        role: policy_metadata(trained.config, policy, trained.iteration) for role, policy in networks.items()
    }
    if games:
        for role in PROGRESS.each(list(metadata)):
            card = claims.make_claims(trained.config, role, players[role], games, seed)
            metadata[role] |= {claims.CLAIMS: card}
    paths = policy_export.export(networks, metadata, target)
    converted = [policy_export.export_onnx(policy, path.with_suffix(".onnx"))
                 for policy, path in zip(networks.values(), paths) if onnx]
    return ExportedPolicies(tuple(paths), tuple(converted))


def policy_file(out: Path) -> Path:
    """The file to write, with its suffix; ConfigError where it cannot be written."""
    suffix = policy_export.SUFFIX
    out = out.with_suffix(suffix) if out.name and not out.suffix and not out.is_dir() else out
    if out.suffix != suffix or not out.parent.is_dir():
        raise ConfigError(f"--out = {str(out)!r}: expected a name that ends in {suffix}, in a folder that "
                          "exists")
    return out
