"""Players by name: bots of the world, runs, policy files, bots from a Python module.

heuristic  search:200  search:5ms         bots of the world
my_run+search:100                         a trained policy that guides the world's search
runs/my_run  my_run  agent.safetensors    a trained policy, under the rules that it was trained with
my_run@120                                the policies of an earlier iteration, from past/
@beasty  @small                           an agent that comes with Rematch
mymodule:MyBot                            a class of the user, if the world accepts one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch.agents import policy_export
from rematch.core import config as settings
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.evaluation import past_policies
from rematch.storage.run_folder import Run
from rematch.training.recipes import stored_config
from rematch.training.trained_run import load_run, with_available_device, world_builder
from rematch.worlds import registry
from rematch.worlds.shipped_agents import FILES, agent_file, is_short_name

SUFFIX, WITH_SEARCH = policy_export.SUFFIX, "+search"


@dataclass(frozen=True, kw_only=True)
class TrainedPlayers:
    """A run or a policy file: the rules of its training, and its player of each role."""

    name: str
    rules: Any
    players: Mapping[str, Any]
    free_settings: Sequence[str] = ()  # settings that may differ: they change no rule

    def different_rules(self, rules: Any, other: str = "the match has") -> list[str]:
        """A sentence, with both values, for each rule that differs from those of the training."""
        return [
            f"{self.name} was trained with other rules: {key} = {value}, {other} {settings.get(rules, key)}"
            for key, _, value in settings.leaves(self.rules)
            if value != settings.get(rules, key) and key not in self.free_settings
        ]

    def require_rules(self, rules: Any, other: str = "the match has") -> None:
        """ConfigError if the rules differ from those of the training."""
        for sentence in self.different_rules(rules, other):
            raise ConfigError(f"{sentence}; expected the same")

    def require_network(self, world: str, rules: Any) -> None:
        """ConfigError if observations or actions under these rules are not those of the networks."""
        roles = registry.find(world).spec(rules).roles
        for name, player in self.players.items():
            role, own_role = roles.get(name), player.role
            if role is None or (role.columns, role.actions) != (own_role.columns, own_role.actions):
                raise ConfigError(f"{self.name}: the observations or actions of {name} are others under the "
                                  "rules of the match; expected rules with the same ones")


def find_trained(name: str, world: str) -> TrainedPlayers | None:
    """The run or policy file of this name; None if there is none."""
    name = name.partition(WITH_SEARCH)[0]
    if is_short_name(name):
        return load_policy_file(agent_file(name), world, name)
    path = Path(name)
    if name.endswith(SUFFIX):
        return load_policy_file(path, world, str(path))
    if (run := _run_folder(name)) is None:
        folder, at, iteration = name.rpartition("@")
        past = _run_folder(folder) if at and iteration.isdecimal() else None
        return None if past is None else load_past(past, world, int(iteration))
    trained = load_run(run)
    if trained.config.game != world:
        raise ConfigError(f"{name} is a run of {trained.config.game}, not of {world}")
    free = registry.find(world).defaults.indifferent
    return TrainedPlayers(name=name, rules=trained.config.world, players=trained.policies, free_settings=free)


def _run_folder(name: str) -> Path | None:
    """The folder of a run, from its path or its name in runs/."""
    return next((path for path in (Path(name), Path("runs") / name) if name and path.is_dir()), None)


def load_past(folder: Path, world: str, iteration: int) -> TrainedPlayers:
    """The policies that a run had after an iteration; ConfigError names the stored ones."""
    with Run.open(folder, write=False) as run:
        config = stored_config(run)
    if config.game != world:
        raise ConfigError(f"{folder} is a run of {config.game}, not of {world}")
    stored = past_policies.stored_iterations(folder)
    if iteration not in stored:
        names = ", ".join(map(str, stored)) or "one that past/ has; it is empty"
        raise ConfigError(f"{folder}@{iteration}: past/ has no policies of this iteration; expected {names}")
    config = with_available_device(config)
    past = past_policies.load_iteration(folder, config, world_builder(config), iteration)
    free = registry.find(world).defaults.indifferent
    return TrainedPlayers(name=f"{folder}@{iteration}", rules=config.world, players=past.players,
                          free_settings=free)


def load_policy_file(path: Path, world: str, name: str) -> TrainedPlayers:
    """The policy in a file of a run or an export, with its metadata in NAME.json beside it."""
    exported = policy_export.read(path)
    if exported.game != world:
        raise ConfigError(f"{name} is a policy of {exported.game}; expected one of {world}")
    free = registry.find(world).defaults.indifferent
    players = {exported.policy.role.name: exported.player}
    return TrainedPlayers(name=name, rules=exported.world, players=players, free_settings=free)


def trained_players(names: Sequence[str], world: str) -> list[TrainedPlayers]:
    """The runs and policy files among the names of a match."""
    scripted = {bot for bots in registry.find(world).bots.values() for bot in bots}
    others = [name for name in dict.fromkeys(names) if name.partition(":")[0] not in scripted]
    return [players for name in others if (players := find_trained(name, world))]


def match_rules(
    names: Sequence[str], world: str, changes: Mapping[str, Any], other_rules: bool = False
) -> Any:
    """The rules of a match: those of its trained players, which must be equal, or the world's defaults.

    `changes` are applied to them, and must leave the rules of trained players as they are. With
    `other_rules` the rules may differ in what changes neither observations nor actions.
    """
    game = registry.find(world)
    trained = trained_players(names, world)
    for players in trained[1:]:
        if not other_rules:
            players.require_rules(trained[0].rules, f"{trained[0].name} with")
    basis = trained[0].rules if trained else game.Config()
    rules = settings.apply(basis, changes, "command line", text=True, prefix="world.")
    settings.validate(rules)
    settings.refuse_inert(rules, list(changes), "command line")
    for players in trained:
        if other_rules:
            players.require_network(world, rules)
        else:
            players.require_rules(rules)
    return rules


def find_player(
    name: str, world: str, rules: Any, role: str, seconds: float = 0.0, other_rules: bool = False
) -> Player:
    """The player of this name for a world with these rules; `seconds` per move limit the user's bots.

    With `other_rules` a trained policy may have learned under other rules (see `match_rules`).
    """
    game = registry.find(world)
    user_bot = game.human.user_bot if game.human is not None else None
    if name.partition(":")[0] in game.bot_names(role):
        return game.bot(name, role)
    if trained := find_trained(name, world):
        if not other_rules:
            trained.require_rules(rules)
        if role not in trained.players:
            raise ConfigError(f"{name} plays {', '.join(trained.players)}; expected {role}")
        player: Player = trained.players[role]
        _, search, budget = name.partition(WITH_SEARCH)
        if search:
            if game.search is None:
                raise ConfigError(f"{name}: {world} has no search for a policy to guide")
            player = game.search.guide(player, budget.removeprefix(":"))
        player.name = name
        return player
    if ":" in name and all(part.isidentifier() for part in name.replace(":", ".").split(".")):
        if user_bot is None:
            raise ConfigError(f"{name}: {world} does not accept bots of your own")
        return user_bot(name, rules, seconds)
    if name.isdigit():
        raise ConfigError(f"{name} is not the name of a player; --world.players {name} sets their number")
    near = nearest(name, game.bot_names(role))
    hint = f"; nearest: {near}" if near else ""
    expected = [*game.bot_names(role), "a run", f"a {SUFFIX} file"]
    user_class = ", or module:Class of your own" if user_bot is not None else ""
    raise ConfigError(f"no {role} called {name!r}: expected one of {', '.join(expected)}, an agent of "
                      f"Rematch ({', '.join(FILES)}){user_class}{hint}")
