"""Makes PettingZoo games by name, with one-line errors, and describes their seats, roles and spaces.

Agents whose names differ only in a number at the end (player_0, player_1) and whose spaces are equal play
one role; each other agent has a role of its own. A game that cannot be a world is refused in one line.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import packages_distributions
from typing import Any

import numpy as np

from rematch.core.config import nearest
from rematch.core.errors import ConfigError, NotInstalled
from rematch.worlds.gymnasium_spaces import (
    ActionDecoder,
    ObservationEncoder,
    action_decoder,
    installed_version,
    observation_encoder,
    one_line,
    read_options,
)

from .match import AecMatch, ParallelMatch, legal

LIBRARY = "pettingzoo"
FAMILIES = ("classic", "butterfly", "atari", "mpe", "sisl")
MOST_AGENTS = 32
TRIALS = 8  # random games that are played to describe a game
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def installed() -> str:
    """The installed version of PettingZoo: an exact resume needs the same version."""
    return installed_version(LIBRARY)


def find(name: str) -> Any:
    """The module of a game: of PettingZoo (classic.tictactoe_v3, tictactoe_v3) or of an installed package.

    Only installed packages are imported: the name may come from an untrusted run folder with any files.
    """
    if not installed():
        raise NotInstalled("PettingZoo", "pettingzoo")
    if not MODULE.fullmatch(name):
        raise ConfigError(f"id = {name!r}: expected the module of a game, such as classic.tictactoe_v3")
    path = module_path(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing and missing not in (LIBRARY, path.partition(".")[0]):
            raise NotInstalled(f"id = {name!r} needs {missing}, which", missing) from None
        raise unknown(name) from None
    except Exception as error:
        raise ConfigError(f"id = {name!r}: cannot import {path}: {one_line(error)}") from None
    if not callable(getattr(module, "env", None)) and not callable(getattr(module, "parallel_env", None)):
        raise ConfigError(f"id = {name!r}: the module has neither env nor parallel_env; expected a game")
    return module


def module_path(name: str) -> str:
    """The dotted name of the module; ConfigError where no installed package has it."""
    head, dot, _ = name.partition(".")
    if not dot:
        families = [family for family in FAMILIES if name in games_of(family)]
        if not families:
            raise unknown(name)
        return f"{LIBRARY}.{families[0]}.{name}"
    if head in FAMILIES:
        return f"{LIBRARY}.{name}"
    if head not in packages_distributions():
        raise unknown(name)
    return name


def games_of(family: str) -> list[str]:
    """The names of the games of a family, without importing them."""
    try:
        spec = importlib.util.find_spec(f"{LIBRARY}.{family}")
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec is not None else None
    names = [module.name for module in pkgutil.iter_modules(places or [])]
    return [name for name in names if re.fullmatch(r"\w+_v[0-9]+", name)]


def unknown(name: str) -> ConfigError:
    known = [f"{family}.{game}" for family in FAMILIES for game in games_of(family)]
    near = nearest(name, known) or nearest(name, [game.partition(".")[2] for game in known])
    return ConfigError(f"id = {name!r}: expected the module of a PettingZoo game, such as "
                       "classic.tictactoe_v3" + (f"; nearest: {near}" if near else ""))


# --- description --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoleDescription:
    """A role: its seats, and how observations and actions are converted."""

    name: str
    seats: tuple[int, ...]
    encoder: ObservationEncoder
    decoder: ActionDecoder


@dataclass(frozen=True)
class GameDescription:
    """What a world needs to know about a game."""

    id: str
    options: tuple[str, ...]
    max_steps: int
    agents: tuple[str, ...]  # by seat
    roles: tuple[RoleDescription, ...]
    masked: bool = False
    zero_sum: bool = True  # in all trial games
    reproducible: bool = True  # whether the seed and the actions determine the game

    def make(self) -> AecMatch | ParallelMatch:
        env, parallel = make_env(self.id, self.options)
        return ParallelMatch(env, self.agents) if parallel else AecMatch(env, self.agents)

    def role_of(self, seat: int) -> RoleDescription:
        return next(role for role in self.roles if seat in role.seats)


def make_env(name: str, options: tuple[str, ...]) -> tuple[Any, bool]:
    """The environment, and whether it has the parallel interface."""
    module = find(name)
    parallel = callable(getattr(module, "parallel_env", None))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make = module.parallel_env if parallel else module.env
            return make(**read_options(options)), parallel
    except Exception as error:
        raise ConfigError(f"world.id = {name!r}: PettingZoo cannot make it: {one_line(error)}") from None


@functools.lru_cache(maxsize=32)
def describe(name: str, options: tuple[str, ...], max_steps: int, scale: str) -> GameDescription:
    """The description of a game; ConfigError where it cannot be a world."""
    env, _ = make_env(name, options)
    try:
        agents = tuple(getattr(env, "possible_agents", ()))
        if not 1 <= len(agents) <= MOST_AGENTS or len(set(agents)) < len(agents):
            raise ConfigError(f"it has {len(agents)} possible agents; expected a fixed list of 1 to "
                              f"{MOST_AGENTS}")
        description = GameDescription(name, options, max_steps, agents, describe_roles(env, agents, scale))
        return trials(description)
    except ConfigError as error:
        raise ConfigError(f"world.id = {name!r}: {error}") from None
    except Exception as error:
        raise ConfigError(f"world.id = {name!r}: it failed in a trial game: {one_line(error)}") from None


def describe_roles(env: Any, agents: Sequence[str], scale: str) -> tuple[RoleDescription, ...]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for seat, agent in enumerate(agents):
        kind = re.sub(r"_?[0-9]+$", "", str(agent)) or "player"
        key = (kind, str(env.observation_space(agent)), str(env.action_space(agent)))
        groups.setdefault(key, []).append(seat)
    names = [kind for kind, _, _ in groups]
    roles = []
    for (kind, _, _), seats in groups.items():
        agent = agents[seats[0]]
        name = kind if names.count(kind) == 1 else str(agent)
        name = re.sub(r"\W", "_", name)
        encoder = observation_encoder(inner_space(env.observation_space(agent)), scale)
        roles.append(RoleDescription(name, tuple(seats), encoder, action_decoder(env.action_space(agent))))
    return tuple(roles)


def inner_space(space: Any) -> Any:
    """The space of the numbers in a Dict of an observation and a mask; any other space itself."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, dict) and "observation" in parts and set(parts) <= {"observation", "action_mask"}:
        return parts["observation"]
    return space


def trials(description: GameDescription) -> GameDescription:
    """The description with what trial games show: masks, rewards that add up to zero, equal repetitions."""
    used, fresh = description.make(), description.make()
    masked, zero_sum = False, len(description.agents) > 1
    for seed in range(TRIALS):
        _, has_mask, sums = trace(description, used, seed)
        masked |= has_mask
        zero_sum = zero_sum and all(abs(value) < 1e-6 for value in sums)
    reproducible = trace(description, used, TRIALS)[0] == trace(description, fresh, TRIALS)[0]
    return replace(description, masked=masked, zero_sum=zero_sum, reproducible=reproducible)


def trace(description: GameDescription, match: Any, seed: int) -> tuple[list[bytes], bool, list[float]]:
    """The bytes of a game of random legal actions, whether it has masks, and the sums of its rewards."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    match.reset(seed)
    out, masked, sums = list[bytes](), False, list[float]()
    for _ in range(description.max_steps):
        actions = {}
        for seat in match.acting():
            role = description.role_of(seat)
            observation, mask = match.seen(seat)
            masked |= mask is not None
            out.append(np.asarray(observation).tobytes())
            actions[seat] = random_action(role, mask, generator)
        if not actions:
            break
        rewards, ended = match.step(actions)
        out.append(np.asarray(rewards).tobytes())
        sums.append(sum(rewards))
        if ended:
            break
    return out, masked, sums


def random_action(role: RoleDescription, mask: Any, generator: np.random.Generator) -> Any:
    size = role.decoder.actions.size
    uniform = generator.random(size)
    if role.decoder.discrete:
        chosen = np.where(legal(mask, size) > 0, uniform, -1.0).argmax()
        return role.decoder.decode(role.decoder.to_stored(np.array([chosen])))[0]
    return role.decoder.decode(role.decoder.to_stored(2 * uniform[None] - 1))[0]
