"""The game `lattice`: its settings, worlds, bots and capabilities."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rematch.core.spec import Spec
from rematch.worlds.capabilities import Benchmark, Defaults, Levels, Renderer, Solver
from rematch.worlds.game import Game

from . import native
from .bots import BOTS, ScriptedPlayer, bot
from .config import Config
from .cuda import CUDA
from .exploitability import nash_conv, regret_picture
from .levels import build_levels
from .solve import solve
from .world import NAME, LatticeWorld, make, make_spec

if TYPE_CHECKING:
    from PIL.Image import Image


def draw(world: LatticeWorld, row: int, trail: list[Any]) -> Image:
    """A picture of one board from above."""
    from .render import draw as picture  # loads pillow only when pictures are drawn

    return picture(world, row, trail)


def short(config: Config) -> Config:
    """The same rules with episodes of at most 6 moves."""
    return dataclasses.replace(config, horizon=min(config.horizon, 6))


class LatticeGame(Game):
    """Pursuit on a board that is small enough to be solved exactly; N boards step together."""

    name = NAME
    Config = Config
    bots = BOTS
    build = native.BUILD
    renderer = Renderer(draw=draw)
    levels = Levels(build=build_levels)
    solver = Solver(nash_conv=nash_conv, solve=solve, picture=regret_picture)
    cuda = CUDA
    benchmark = Benchmark(settings={"world.n": 9, "world.block": 3, "world.horizon": 20})
    defaults = Defaults(short=short, rate_names={"pursuer": "SR_P", "evader": "SR_E"})  # success rates

    def spec(self, config: Any) -> Spec:
        return make_spec(config)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> LatticeWorld:
        return make(config, games, first, seed)

    def bot(self, name: str, role: str) -> ScriptedPlayer:
        return bot(name, role)


GAME = LatticeGame()
