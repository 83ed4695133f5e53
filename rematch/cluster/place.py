"""Where the training games of a run are played: in parts, by players in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rematch.cluster.rollout_worker import work_order
from rematch.core.errors import ConfigError
from rematch.core.world import World
from rematch.rollout.remote_collector import PartPlayers, RemoteCollector
from rematch.training.setup import RunSetup
from rematch.worlds.remote_world import RemoteWorld

MakePlayers = Callable[[RunSetup, Sequence[bytes]], PartPlayers]  # one work order for each part


class RemotePlace:
    """A rematch.training.setup.Place: the games in `parts` parts."""

    def __init__(self, make_players: MakePlayers, parts: int) -> None:
        self.make_players, self.parts = make_players, parts
        self.players: PartPlayers | None = None

    def close(self) -> None:
        """End the players of the newest run: those of another run need their processors."""
        if self.players is not None:
            self.players.close()
        self.players = None

    def world(self, world: World) -> Any:
        return RemoteWorld(world)

    def collector(self, setup: RunSetup) -> RemoteCollector:
        config, form = setup.config, setup.game.savestates
        if config.device != "cpu":
            raise ConfigError(f"device = {config.device}: --cluster plays games on processors; expected cpu")
        collector = RemoteCollector(setup.world, setup.seating, config.steps, self.parts, config.seed)
        collector.before_step = setup.check_stop
        states = {part.name: part.play_state() for part in setup.built if part.in_play}

        def make_players(games: Sequence[slice]) -> PartPlayers:
            self.players = self.make_players(setup, [work_order(setup, rows) for rows in games])
            return self.players

        collector.connect(make_players, states, form.unpack if form is not None else _no_savestates)
        for role, learner in setup.learners.items():
            learner.share_work(len(collector.rows), partial(collector.work, role))
        return collector


def _no_savestates(data: bytes) -> Any:
    raise ValueError("a savestate of a world without savestates")
