"""The parts of a world that a savestate archive needs."""

from __future__ import annotations

from typing import Any

from support import gameboy_worlds


class ArchiveWorld:
    """A stand-in for a world: spec, next, library and capture rule."""

    def __init__(self, games: int) -> None:
        world = gameboy_worlds.world(1)
        self.spec, self.games = world.spec, games
        self.next, self.library = world.next, world.library

    def set_capture_rule(self, rule: Any) -> None:
        pass

