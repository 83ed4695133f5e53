"""The game `openspiel`: its settings, spec, worlds, bot and exact solver."""

from __future__ import annotations

from typing import Any

from rematch.core.spec import Spec
from rematch.worlds.capabilities import Solver
from rematch.worlds.game import Game
from rematch.worlds.numpy_world import ScriptedPlayer

from . import games
from .bots import BOTS, bot
from .config import Config
from .exploitability import nash_conv
from .world import NAME, SpielWorld


class OpenSpielGame(Game):
    """Any two-player game of OpenSpiel, with hidden information too: `--world.game kuhn_poker`."""

    name = NAME
    Config = Config
    bots = BOTS
    build = games.version()
    solver = Solver(nash_conv=nash_conv)

    def spec(self, config: Any) -> Spec:
        return SpielWorld.make_spec(config)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> SpielWorld:
        return SpielWorld(config, games, first, seed)

    def random(self, config: Any) -> bool:
        return bool(config.load().chance)

    def bot(self, name: str, role: str) -> ScriptedPlayer:
        return bot(name, role)


GAME = OpenSpielGame()
