"""The game `beasty`: its settings, spec, worlds, bots and capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.worlds.capabilities import (
    Benchmark,
    CardGameSpeed,
    Defaults,
    FindPlayer,
    Human,
    Renderer,
    Search,
)
from rematch.worlds.game import Game

from . import native
from .best_responses import best_known
from .bots import BOTS, bot, bot_numbers, guided_search
from .config import Config
from .cuda import CUDA
from .world import NAME, BeastyWorld, make, make_spec

if TYPE_CHECKING:
    from PIL.Image import Image


def draw(world: BeastyWorld, row: int, trail: list[Any]) -> Image:
    """A picture of one game."""
    from .render import draw as picture  # loads Pillow only where pictures are made

    return picture(world, row, trail)


def short(config: Config) -> Config:
    """The same rules: games have at most 23 turns (47 with four players)."""
    return config


def play(words: Sequence[str], find_player: FindPlayer) -> int:
    """A game in the terminal."""
    from .terminal import play as play_in_terminal

    return play_in_terminal(words, find_player)


def play_settings() -> Any:
    """The settings of a game in the terminal."""
    from .terminal import PlaySettings

    return PlaySettings()


def user_bot(name: str, config: Config, seconds: float) -> Player:
    """A bot that a user wrote, `module:Class`, in its own process."""
    from .user_bots import MOVE_SECONDS, UserBotPlayer

    return UserBotPlayer(name, config, seconds or MOVE_SECONDS)


def speed() -> CardGameSpeed:
    """What `rematch bench beasty` times."""
    from . import bench

    return CardGameSpeed(
        subjects=bench.subjects(), targets=bench.TARGETS, two_threads=bench.TWO_THREADS
    )


class BeastyGame(Game):
    """Beasty Bar for two to four players; N games step together."""

    name = NAME
    Config = Config
    bots = BOTS
    build = native.BUILD
    renderer = Renderer(draw=draw)
    search = Search(guide=guided_search, leaf_values=True, bot_numbers=bot_numbers)
    human = Human(play=play, settings=play_settings, user_bot=user_bot, best_known=best_known)
    cuda = CUDA
    benchmark = Benchmark(card_game=speed)
    defaults = Defaults(short=short, indifferent=("first",), slow_bots=("search",))

    def spec(self, config: Any) -> Spec:
        return make_spec(config)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> BeastyWorld:
        return make(config, games, first, seed)

    def bot(self, name: str, role: str) -> Player:
        return bot(name, role)


GAME = BeastyGame()
