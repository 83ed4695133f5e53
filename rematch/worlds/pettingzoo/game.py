"""The game `pettingzoo`: its settings, spec, worlds and bot."""

from __future__ import annotations

import dataclasses
from typing import Any

from rematch.core.spec import Spec
from rematch.worlds.capabilities import Defaults
from rematch.worlds.game import Game, check_bot

from . import factory
from .bots import BOTS, RandomPlayer
from .config import Config
from .world import NAME, PettingZooWorld


def short(config: Config) -> Config:
    """The same game, cut off after at most 24 steps."""
    return dataclasses.replace(config, max_steps=min(config.max_steps, 24))


class PettingZooGame(Game):
    """Any PettingZoo game, turn-based or parallel: `--world.id classic.tictactoe_v3`."""

    name = NAME
    Config = Config
    bots = BOTS
    build = factory.installed()
    defaults = Defaults(short=short)

    def spec(self, config: Any) -> Spec:
        return PettingZooWorld.make_spec(config)

    def role_count(self, config: Any) -> int:
        return len(self.spec(config).roles)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> PettingZooWorld:
        return PettingZooWorld(config, games, first, seed)

    def bot(self, name: str, role: str) -> RandomPlayer:
        check_bot(self.bots, name, role)
        return RandomPlayer()


GAME = PettingZooGame()
