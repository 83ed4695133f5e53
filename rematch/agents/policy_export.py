"""Exported policies: files with weights, and metadata with game, rules, role and network settings.

`rematch export` writes one; `rematch eval`, `play` and `train --from` read it. The metadata contains the
rules of training, so that a policy is not played under other rules unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematch.agents.learners.dqn import SHAPE_SETTINGS, DqnConfig
from rematch.agents.learners.q_policy import QPlayer, QPolicy
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.storage import migrations, policy_files
from rematch.worlds import registry

if TYPE_CHECKING:
    from rematch.core.run_config import Config

SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class ExportedPolicy:
    """A policy from a file, with its game and the rules of its training."""

    game: str
    world: Any
    policy: Policy
    iteration: int
    step: int | None  # of its run; None: not in the metadata

    @property
    def player(self) -> Any:
        """The player of this policy; a Q network acts with the epsilon of its evaluations."""
        policy = self.policy
        return QPlayer(policy, policy.config.evaluation_epsilon) if isinstance(policy, QPolicy) else policy


def read(path: Path, values: bool = False) -> ExportedPolicy:
    """A verified policy, built from its metadata.

    ConfigError where it does not fit the present game, and for the value network of lookahead, which is no
    player, unless `values` is set.
    """
    arrays, metadata = policy_files.read(path)
    try:
        game, name = registry.present_name(str(metadata["game"])), str(metadata["role"])
        rules, shape = metadata["world"], metadata["network"]
        iteration = int(metadata["iteration"])
        columns = [migrations.present_name(str(name), migrations.FIELD_NAMES) for name in metadata["columns"]]
        step = None if metadata.get("step") is None else int(metadata["step"])
        is_dqn, is_lookahead = metadata["learner"] == "dqn", metadata["learner"] == "lookahead"
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: the metadata lacks game, role, world or network; expected a policy of "
                          "`rematch export`") from None
    if is_lookahead and not values:
        raise ConfigError(f"{path}: a value network of lookahead, which cannot play without its run; "
                          "expected the run folder")
    game_object = registry.find(game)
    rules = settings.flatten(rules, str(path))
    world = settings.apply(game_object.Config(), rules, str(path), prefix="world.", notes=False)
    default: Any = DqnConfig() if is_dqn else NetworkConfig()
    prefix, shape = "dqn." if is_dqn else "network.", settings.flatten(shape, str(path))
    network = settings.apply(default, shape, str(path), prefix=prefix, notes=False)
    network = settings.replace(network, {"device": "cpu"})  # wherever it was trained, it plays on any machine
    settings.validate(network)
    roles = game_object.spec(world).roles
    if name not in roles:
        raise ConfigError(f"{path}: a policy for role {name!r}; expected one of {', '.join(roles)} ({game})")
    if list(roles[name].columns) != columns:
        raise ConfigError(f"{path}: it observes {len(columns)} columns; {name} of {game} now has "
                          f"{roles[name].size} under these rules: the world has changed since")
    label = f"{name} ({path.stem})"
    policy: Policy = (QPolicy if is_dqn else Policy)(roles[name], network, label)
    policy.load_arrays(arrays)
    return ExportedPolicy(game=game, world=world, policy=policy, iteration=iteration, step=step)


def check_matches_run(source: Path, exported: ExportedPolicy, config: Config) -> None:
    """ConfigError where game, network or rules of the policy differ from those of the run."""
    if exported.game != config.game:
        raise ConfigError(f"{source}: a policy of {exported.game}; expected one of {config.game}")
    is_dqn = isinstance(exported.policy, QPolicy)
    if is_dqn != (config.learner == "dqn"):
        learner = "dqn" if is_dqn else "another learner than dqn"
        raise ConfigError(f"{source}: trained by {learner}; the run has learner {config.learner}")
    ignored_settings = registry.find(config.game).defaults.indifferent
    network: tuple[str, Any] = ("dqn", config.dqn) if is_dqn else ("network", config.network)
    for section, exported_settings, run_settings in (("world", exported.world, config.world),
                               (network[0], exported.policy.config, network[1])):
        for key, _, value in settings.leaves(run_settings):
            if key == "device" or key in ignored_settings or (section == "dqn" and key not in SHAPE_SETTINGS):
                continue  # device and training settings do not affect the weights' meaning
            if (exported_value := settings.get(exported_settings, key)) != value:
                raise ConfigError(f"{source}: {section}.{key} is {exported_value} in the policy and {value} "
                                  "in the run; expected the same")


def initial_policies(source: Path, config: Config) -> dict[str, Policy]:
    """role -> the policy that a run starts from: from one file, or from a run folder for all its roles."""
    if source.suffix == SUFFIX:
        paths = [source]
    else:
        files = sorted((source / "policies").glob(f"*{SUFFIX}"))
        # Neither best responses nor the policies of milestones ("@"): the final ones alone.
        trained = [path for path in files if not path.stem.startswith(policy_files.RESPONSE)]
        paths = [path for path in trained if "@" not in path.stem]
        if not paths:
            raise ConfigError(f"--from = {str(source)!r}: expected a policy (*{SUFFIX}) or a finished run")
    out = {}
    for path in paths:
        exported = read(path, values=config.learner == "lookahead")
        check_matches_run(path, exported, config)
        out[exported.policy.role.name] = exported.policy
    return out


def export(
    networks: Mapping[str, Policy], metadata: Mapping[str, Mapping[str, Any]], out: Path
) -> list[Path]:
    """Write each network to OUT, or OUT-NAME where there are several."""
    paths = []
    for name, policy in networks.items():
        path = out if len(networks) == 1 else out.with_name(f"{out.stem}-{name}{SUFFIX}")
        paths.append(policy_files.write_file(path, policy.arrays(), metadata[name], replace=False))
    return paths
