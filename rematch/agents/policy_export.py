"""Policies as files of their own: weights, and a card that says of which game, rules, role and network.

`rematch export` writes one, `rematch eval`, `play` and `train --from` read it. Whoever reads it is told the
rules it learnt under, so that nobody plays it under others without noticing.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematch.agents.learners.dqn import SHAPING, DqnConfig
from rematch.agents.learners.q_policy import QPlayer, QPolicy
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError, NotInstalled
from rematch.storage import migrations, policy_files
from rematch.worlds import registry

if TYPE_CHECKING:
    from rematch.core.run_config import Config

SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A policy from a file, with the game and the rules that it learnt."""

    game: str
    world: Any
    policy: Policy
    iteration: int
    step: int | None  # of its run, where the card says

    @property
    def player(self) -> Any:
        """Who plays it: a Q network with the share of random moves that it was judged with."""
        policy = self.policy
        return QPlayer(policy, policy.config.evaluation_epsilon) if isinstance(policy, QPolicy) else policy


def read(path: Path, values: bool = False) -> Shipped:
    """Verified, and built as its card says; what does not fit the game as it is now is refused, and so is
    lookahead's value network, which plays nothing by itself, unless `values` are asked for."""
    arrays, about = policy_files.read(path)
    try:
        game, name = registry.present_name(str(about["game"])), str(about["role"])
        rules, shape = about["world"], about["network"]
        iteration = int(about["iteration"])
        columns = [migrations.present_name(str(name), migrations.FIELD_NAMES) for name in about["columns"]]
        step = None if about.get("step") is None else int(about["step"])
        remembers, foresees = about["learner"] == "dqn", about["learner"] == "lookahead"
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: its card does not say game, role, world and network: not a policy of "
                          "`rematch export`") from None
    if foresees and not values:
        raise ConfigError(f"{path}: what lookahead thinks positions are worth, which plays only with the "
                          "rules at hand; expected its run's folder")
    played = registry.find(game)
    rules = settings.flatten(rules, str(path))
    world = settings.apply(played.Config(), rules, str(path), prefix="world.", notes=False)
    usual: Any = DqnConfig() if remembers else NetworkConfig()
    part, shape = "dqn." if remembers else "network.", settings.flatten(shape, str(path))
    network = settings.apply(usual, shape, str(path), prefix=part, notes=False)
    network = settings.replace(network, {"device": "cpu"})  # wherever it learnt, it plays on any machine
    settings.validate(network)
    roles = played.spec(world).roles
    if name not in roles:
        raise ConfigError(f"{path}: a policy for {name!r}, and {game} has {', '.join(roles)}")
    if list(roles[name].columns) != columns:
        raise ConfigError(f"{path}: it sees {len(columns)} columns, {game} shows {name} "
                          f"{roles[name].size} under these rules; the world has changed since")
    label = f"{name} ({path.stem})"
    policy: Policy = (QPolicy if remembers else Policy)(roles[name], network, label)
    policy.load_arrays(arrays)
    return Shipped(game=game, world=world, policy=policy, iteration=iteration, step=step)


def refuse_other(source: Path, shipped: Shipped, config: Config) -> None:
    """A policy of another game, network or rules than a run's is refused, naming both."""
    if shipped.game != config.game:
        raise ConfigError(f"{source}: a policy of {shipped.game}, and the run is of {config.game}")
    remembers = isinstance(shipped.policy, QPolicy)
    if remembers != (config.learner == "dqn"):
        made = "by dqn" if remembers else "by another learner than dqn"
        raise ConfigError(f"{source}: learnt {made}, and learner is {config.learner} in the run")
    free = registry.find(config.game).defaults.indifferent
    network: tuple[str, Any] = ("dqn", config.dqn) if remembers else ("network", config.network)
    for what, theirs, ours in (("world", shipped.world, config.world),
                               (network[0], shipped.policy.config, network[1])):
        for key, _, value in settings.leaves(ours):
            if key == "device" or key in free or (what == "dqn" and key not in SHAPING):
                continue  # where weights are multiplied and how they were learnt is no part of them
            if (found := settings.get(theirs, key)) != value:
                raise ConfigError(f"{source}: {what}.{key} is {found} there and {value} in the run; "
                                  "expected the same")


def starts(source: Path, config: Config) -> dict[str, Policy]:
    """role -> the policy that a run begins from: of one file, or of a run's folder for all its roles."""
    if source.suffix == SUFFIX:
        found = [source]
    else:
        found = sorted((source / "policies").glob(f"*{SUFFIX}"))
        # Milestones are not what it ended as, best responses are not its own.
        own = [path for path in found if not path.stem.startswith(policy_files.RESPONSE)]
        found = [path for path in own if "@" not in path.stem]
        if not found:
            raise ConfigError(f"--from = {str(source)!r}: expected a policy (*{SUFFIX}) or a finished run")
    out = {}
    for path in found:
        shipped = read(path, values=config.learner == "lookahead")
        refuse_other(path, shipped, config)
        out[shipped.policy.role.name] = shipped.policy
    return out


def export(networks: Mapping[str, Policy], about: Mapping[str, Mapping[str, Any]], out: Path) -> list[Path]:
    """Write each network to OUT, or OUT-NAME where there are several."""
    made = []
    for name, policy in networks.items():
        path = out if len(networks) == 1 else out.with_name(f"{out.stem}-{name}{SUFFIX}")
        made.append(policy_files.write_file(path, policy.arrays(), about[name], replace=False))
    return made


def check_onnx(networks: Iterable[Policy]) -> None:
    """Refuse where the package is missing or there is no telling, before anything is written."""
    if any(isinstance(policy, QPolicy) for policy in networks):
        raise ConfigError("--onnx: what it plays depends on what it remembers; expected a network of "
                          "another learner than dqn")
    if importlib.util.find_spec("onnx") is None:
        raise NotInstalled("--onnx: onnx", "onnx")


def onnx(policy: Policy, path: Path) -> Path:
    """The policy as an ONNX file: sight [n, F] in, means or logits [n, A] out, masks left to the caller."""
    import torch

    from rematch.agents.networks import mlp

    check_onnx([policy])
    weights, role, config = torch.from_numpy(policy.weights.copy()), policy.role, policy.config

    class Heads(torch.nn.Module):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return mlp.answer(weights, role, config, obs).play.heads

    with warnings.catch_warnings():  # of constants that become constants
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Heads(), (torch.zeros(2, role.size),), str(path), dynamo=False, input_names=["obs"],
            output_names=["heads"], dynamic_axes={"obs": {0: "n"}, "heads": {0: "n"}},
        )  # fmt: skip
    return path
