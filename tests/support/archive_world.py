"""As much of a world as a savestate archive needs."""

from __future__ import annotations

from typing import Any

from support import gameboy_worlds


class ArchiveWorld:
    """As much of a world as a swarm asks for starts."""

    def __init__(self, games: int) -> None:
        made = gameboy_worlds.world(1)
        self.spec, self.games, self.next, self.library = made.spec, games, made.next, made.library

    def set_capture_rule(self, wants: Any) -> None:
        pass

