"""The game `gameboy`: what it offers to the rest of Rematch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rematch.core.spec import Spec
from rematch.worlds.capabilities import (
    Benchmark,
    Defaults,
    FindPlayer,
    Human,
    Place,
    Renderer,
    Row,
    Savestates,
    WorldMap,
)
from rematch.worlds.game import Game
from rematch.worlds.numpy_world import ScriptedPlayer

from . import titles
from .bots import BOTS, bot
from .cartridge import ram_addresses
from .cartridge.constants import TICKS
from .config import Config
from .emulator import hang_watch, pyboy_emulator
from .savestates import Bundle, unpack
from .world import NAME, GameboyWorld, make_spec

if TYPE_CHECKING:
    from PIL.Image import Image


def draw(world: GameboyWorld, row: int, trail: list[Any]) -> Image:
    """The screen of one game with its score."""
    from .render import picture  # pillow is only loaded where pictures are made

    return picture(world, row, trail)


def short(config: Config) -> Config:
    """The same cartridge with episodes of at most 24 actions and at most one worker process."""
    workers = 1 if config.workers else 0
    return dataclasses.replace(config, max_steps=min(config.max_steps, 24), workers=workers)


def play(words: Sequence[str], find_player: FindPlayer) -> int:
    """A person plays alone."""
    from .human_play import play as play_in_terminal

    return play_in_terminal(words)


def play_settings() -> Any:
    from .human_play import play_settings as settings_of_a_person

    return settings_of_a_person()


def map_names(config: Config) -> Mapping[int, str]:
    return titles.find(config.rom, config.cartridge, config.cartridge_seed)[1].maps


def follow(
    world: GameboyWorld, start: Any, inputs: Sequence[int], before_input: Callable[[], None]
) -> list[Place]:
    """The places of inputs from a savestate (None: power-on), played on an emulator beside the games."""
    emulator = pyboy_emulator.acquire(world.shared.rom)
    try:
        if start is not None:
            emulator.load(world.library.emulator(start))
        places = [ram_addresses.place(emulator.memory)]
        for action in inputs:
            before_input()
            with hang_watch.limited():
                emulator.press(action)
            places.append(ram_addresses.place(emulator.memory))
        return places
    finally:
        pyboy_emulator.release({0: emulator})


def measure(seconds: float) -> tuple[Row, list[str]]:
    """The speed of the world and of PyBoy alone: a record, and lines to print."""
    from . import bench

    result = bench.measure(seconds)
    return result, bench.lines(result)


class GameboyGame(Game):
    """Role-playing cartridges on an emulated Game Boy: the included ones, or Pokémon Red from a file."""

    name = NAME
    Config = Config
    bots = BOTS
    build = pyboy_emulator.pyboy_version()
    renderer = Renderer(draw=draw, steps_per_second=lambda config: 60.0 / TICKS)  # real time
    savestates = Savestates(explorer="wander", pack=Bundle.pack, unpack=unpack)
    world_map = WorldMap(columns=("map", "y", "x"), names=map_names, follow=follow)
    human = Human(play=play, settings=play_settings)
    benchmark = Benchmark(measure=measure, recipe=("small", 1000.0))
    defaults = Defaults(
        short=short,
        indifferent=("workers", "patience"),  # they do not change the game
        random=False,
        slow_bots=("wander",),  # for exploration; plays in evaluations only if it is named
        evaluation_games=100,  # episodes are long
        evaluation_steps=131_072,  # minutes; a thousand games of an untrained player would take an hour
        processes=lambda config: int(config.processes),
        longest_game=lambda config: int(config.max_steps),
    )

    def spec(self, config: Any) -> Spec:
        return make_spec(config)

    def make(self, config: Any, games: int, first: int = 0, seed: int = 0) -> GameboyWorld:
        return GameboyWorld(config, games, first, seed)

    def bot(self, name: str, role: str) -> ScriptedPlayer:
        return bot(name, role)


GAME = GameboyGame()
