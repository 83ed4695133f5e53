"""The page of pursuit: replays of stored games."""

from __future__ import annotations

from rematch.web.world_page import WorldPage

PAGE = WorldPage(world="pursuit", title="Replays", routes=())
