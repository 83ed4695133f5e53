"""Who plays, by name: scripted players, runs, policy files, bots of one's own. What is no player is refused.

heuristic  search:200  search:5ms       a world's own
mine+search:100                         a learnt one that guides the world's search
runs/mine  mine  agent.safetensors      learnt, under the rules that it learnt
mymodule:MyBot                          yours, where the world takes them (`guest`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch import api
from rematch.agents import policy_export
from rematch.core import config as settings
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.worlds import registry

SUFFIX, GUIDES = policy_export.SUFFIX, "+search"


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """A run or a policy file: under which rules it learnt, and who plays which role."""

    name: str
    rules: Any
    players: Mapping[str, Any]
    indifferent: Sequence[str] = ()  # settings that a world changes without making it another game

    def refuse_other(self, rules: Any, whose: str = "the match has") -> None:
        """Refuse other rules than those it learnt under, naming both."""
        for key, _, value in settings.leaves(self.rules):
            if value != settings.get(rules, key) and key not in self.indifferent:
                raise ConfigError(
                    f"{self.name} learnt under other rules: {key} = {value}, {whose} "
                    f"{settings.get(rules, key)}; expected the same"
                )


def learnt(name: str, world: str) -> Learnt | None:
    """The run or policy file of this name; None where there is none."""
    name = name.partition(GUIDES)[0]
    path = Path(name)
    if name.endswith(SUFFIX):
        return from_file(path, world)
    if not path.is_dir() and not (path := Path("runs") / name).is_dir():
        return None
    trained = api.load(path)
    if trained.config.game != world:
        raise ConfigError(f"{name} is a run of {trained.config.game}, not of {world}")
    free = getattr(registry.find(world), "INDIFFERENT", ())
    return Learnt(name=name, rules=trained.config.world, players=trained.policies, indifferent=free)


def from_file(path: Path, world: str) -> Learnt:
    """A policy as a run or an export leaves it: weights, and beside them NAME.json that vouches for them."""
    found = policy_export.read(path)
    if found.game != world:
        raise ConfigError(f"{path} is a policy of {found.game}; expected one of {world}")
    free = getattr(registry.find(world), "INDIFFERENT", ())
    players = {found.policy.role.name: found.player}
    return Learnt(name=str(path), rules=found.world, players=players, indifferent=free)


def rules_of(names: Sequence[str], world: str, given: Mapping[str, Any]) -> Any:
    """The rules of a match: those that its runs learnt under, which must be the same; else the world's own.

    What is `given` goes over them, and must not make them others than a run's.
    """
    module = registry.find(world)
    scripted = {bot for bots in module.BOTS.values() for bot in bots}
    others = [name for name in dict.fromkeys(names) if name.partition(":")[0] not in scripted]
    found = [about for name in others if (about := learnt(name, world))]
    for other in found[1:]:
        other.refuse_other(found[0].rules, f"{found[0].name} under")
    basis = found[0].rules if found else module.Config()
    rules = settings.apply(basis, given, "command line", text=True, prefix="world.")
    settings.validate(rules)
    settings.refuse_inert(rules, list(given), "command line")
    for about in found:
        about.refuse_other(rules)
    return rules


def entrant(name: str, world: str, rules: Any, role: str, seconds: float = 0.0) -> Player:
    """The player of this name in a world of these rules; `seconds` a move for bots of one's own."""
    module = registry.find(world)
    if name.partition(":")[0] in module.BOTS[role]:
        scripted: Player = module.bot(name, role)
        return scripted
    if found := learnt(name, world):
        found.refuse_other(rules)
        if role not in found.players:
            raise ConfigError(f"{name} plays {', '.join(found.players)}; expected {role}")
        player: Player = found.players[role]
        _, guides, budget = name.partition(GUIDES)
        if guides and not hasattr(module, "guided"):
            raise ConfigError(f"{name}: {world} has no search for a policy to guide")
        if guides:
            player = module.guided(player, budget.removeprefix(":"))
        player.name = name
        return player
    if ":" in name and all(part.isidentifier() for part in name.replace(":", ".").split(".")):
        if not hasattr(module, "guest"):
            raise ConfigError(f"{name}: {world} does not take bots of one's own")
        own: Player = module.guest(name, rules, seconds)
        return own
    if name.isdigit():
        raise ConfigError(f"{name} is no name; how many sit at a table is --world.players {name}")
    near, known = nearest(name, module.BOTS[role]), ", ".join(module.BOTS[role])
    own_too = ", or module:Class of your own" if hasattr(module, "guest") else ""
    raise ConfigError(
        f"no {role} called {name!r}: expected one of {known}, a run or a {SUFFIX} file"
        f"{own_too}" + (f"; nearest: {near}" if near else "")
    )
