"""The game `pursuit`: its settings, worlds, bots and capabilities."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rematch.core.spec import Spec
from rematch.worlds.capabilities import Benchmark, Defaults, Levels, Renderer
from rematch.worlds.game import Game

from . import native
from .bots import BOTS, ScriptedPlayer, bot
from .config import Config
from .cuda import CUDA
from .levels import build_levels
from .world import NAME, PursuitWorld, make, make_spec

if TYPE_CHECKING:
    from PIL.Image import Image


def draw(world: PursuitWorld, row: int, trail: list[Any]) -> Image:
    """A picture of one arena from above."""
    from .render import draw as picture  # loads pillow only when pictures are drawn

    return picture(world, row, trail)


def short(config: Config) -> Config:
    """The same rules with episodes of at most 24 steps."""
    prep = min(config.prep_steps, 8)
    return dataclasses.replace(config, max_steps=min(config.max_steps, 24), prep_steps=prep)


class PursuitGame(Game):
    """Two robots in a walled arena: one pursues, one evades; N arenas step together."""

    name = NAME
    Config = Config
    bots = BOTS
    build = native.BUILD
    renderer = Renderer(draw=draw)
    levels = Levels(build=build_levels)
    cuda = CUDA
    benchmark = Benchmark(settings={"world.n_obstacles_min": 2, "world.n_obstacles_max": 2})
    defaults = Defaults(short=short, rate_names={"pursuer": "SR_P", "evader": "SR_E"})  # success rates

    def spec(self, config: Any) -> Spec:
        return make_spec(config)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> PursuitWorld:
        return make(config, games, first, seed)

    def bot(self, name: str, role: str) -> ScriptedPlayer:
        return bot(name, role)


GAME = PursuitGame()
