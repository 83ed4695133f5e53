"""For the Game Boy tests: the tiny cartridge, its solution, small worlds. Without PyBoy they are skipped."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.worlds.gameboy import titles
from rematch.worlds.gameboy.cartridge import compiler, world_generator
from rematch.worlds.gameboy.cartridge.compiler import Cartridge


def need_pyboy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pyboy", reason="PyBoy is not installed")


def tiny() -> Cartridge:
    return titles.cartridge("tiny", 0)


def red_cartridge(folder: Path) -> Path:
    """The tiny world on a cartridge that is read as Pokémon Red: its title, its address of the text box."""
    file = folder / "red.gb"
    text = world_generator.generate("tiny", 0)
    file.write_bytes(compiler.compile_world(text, "tiny", 0, *compiler.RED).rom)
    return file


def world(games: int = 1, **changes: Any) -> Any:
    need_pyboy()
    from rematch.worlds.gameboy.config import Config
    from rematch.worlds.gameboy.world import GameboyWorld

    return GameboyWorld(Config(**{"cartridge": "tiny", "max_steps": 300} | changes), games)


def press(world: Any, *actions: int) -> Any:
    """One action per game, or one for all of them."""
    pressed = np.array(actions * world.games if len(actions) == 1 else actions, np.int32)
    return world.step({"joypad": pressed[:, None]})


def follow(world: Any, count: int, start: int = 0) -> float:
    """`count` actions of the solution in every game; the rewards of game 0."""
    total = 0.0
    for action in tiny().solution[start : start + count]:
        total += float(press(world, action).reward[0, 0])
    return total
