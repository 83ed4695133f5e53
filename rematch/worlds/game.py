"""Game: what a world folder offers, in its file `game.py` under the name GAME."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.core.world import World
from rematch.worlds.capabilities import (
    Benchmark,
    Cuda,
    Defaults,
    Human,
    Levels,
    Renderer,
    Savestates,
    Search,
    Solver,
    WorldMap,
)


class Game(ABC):
    """A game: its settings, spec, worlds, bots and optional capabilities.

    The first line of a subclass's docstring is what `rematch worlds` prints.
    """

    name: str
    Config: type[Any]  # its settings, a frozen dataclass
    bots: Mapping[str, Sequence[str]]  # role -> names of its bots
    build: str = ""  # digest of compiled rules, or version of a library: an exact resume needs the same

    renderer: Renderer | None = None
    levels: Levels | None = None
    savestates: Savestates | None = None
    world_map: WorldMap | None = None
    search: Search | None = None
    solver: Solver | None = None
    human: Human | None = None
    benchmark: Benchmark | None = None
    cuda: Cuda | None = None
    defaults: Defaults = Defaults()

    @abstractmethod
    def spec(self, config: Any) -> Spec:
        """Roles, observation fields and actions under these settings, without building a world."""

    @abstractmethod
    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> World:
        """A world of `games` copies, numbered from `first`; the key of game i is (seed, first + i)."""

    @abstractmethod
    def bot(self, name: str, role: str) -> Player:
        """The bot `name` of a role; ConfigError where there is none."""

    def bot_names(self, role: str) -> Sequence[str]:
        """The names of the bots of a role; a game needs none."""
        return self.bots.get(role, ())

    def role_count(self, config: Any) -> int:
        """The number of roles under these settings."""
        return max(1, len(self.bots))

    def random(self, config: Any) -> bool:
        """Whether chance or random starts make games differ under these settings, whatever the players do."""
        return self.defaults.random is not False

    @property
    def summary(self) -> str:
        """One line that describes the game."""
        return first_line(type(self).__doc__)


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def check_bot(bots: Mapping[str, Sequence[str]], name: str, role: str) -> None:
    """ConfigError for a role or a bot that the game does not have."""
    if role not in bots:
        raise ConfigError(f"role = {role}: expected one of {', '.join(bots)}")
    if name not in bots[role]:
        near = nearest(name, list(bots[role]))
        raise ConfigError(f"{role} = {name}: expected one of {', '.join(bots[role])}"
                          + (f"; nearest: {near}" if near else ""))
