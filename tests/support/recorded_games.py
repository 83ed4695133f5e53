"""Recorded games of scripted players, one for each world."""

from __future__ import annotations

from typing import Any

from rematch.core import config as settings
from rematch.core.recording import Replay
from rematch.evaluation.replay import Match, record
from rematch.worlds import registry


def recorded(world: str, limit: int = 300, seed: int = 5, games: int = 1, **changes: Any) -> Replay:
    """The last of `games` games of the first bots of a world under some settings."""
    return all_recorded(world, limit, seed, games, **changes)[-1]


def all_recorded(
    world: str, limit: int = 300, seed: int = 5, games: int = 1, **changes: Any
) -> list[Replay]:
    game = registry.find(world)
    config = settings.apply(game.Config(), changes, "test")
    batch = game.make(config, games, 0, seed)
    roles = [batch.spec.role_of(seat).name for seat in range(batch.spec.seats)]
    players = [game.bot(game.bots[role][0], role) for role in roles]
    return record(batch, players, Match(world=world, config=config, seed=seed), limit)
