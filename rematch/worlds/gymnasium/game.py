"""The game `gymnasium`: its settings, spec, worlds and bot."""

from __future__ import annotations

import dataclasses
from typing import Any

from rematch.core.spec import Spec
from rematch.worlds.capabilities import Defaults
from rematch.worlds.game import Game

from . import factory
from .bots import BOTS, RandomPlayer, bot
from .config import Config
from .world import NAME, GymnasiumWorld


def short(config: Config) -> Config:
    """The same environment with episodes of at most 24 steps."""
    return dataclasses.replace(config, max_steps=min(config.describe().max_steps, 24))


class GymnasiumGame(Game):
    """Any Gymnasium environment with one player: `--world.id CartPole-v1`."""

    name = NAME
    Config = Config
    bots = BOTS
    build = factory.installed()
    defaults = Defaults(short=short)

    def spec(self, config: Any) -> Spec:
        return GymnasiumWorld.make_spec(config)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> GymnasiumWorld:
        return GymnasiumWorld(config, games, first, seed)

    def bot(self, name: str, role: str) -> RandomPlayer:
        return bot(name, role)


GAME = GymnasiumGame()
