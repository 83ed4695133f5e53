"""Replays as a component: stores games of every evaluation as data, for the page and for `rematch replay`.

The games are played beside the evaluation in worlds of their own, so the training does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rematch.core import rng
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.evaluation import replay
from rematch.evaluation.past_policies import stride
from rematch.storage import replay_files

FIRST_INDEX = 1 << 60  # of the random streams: evaluations use smaller ones


@dataclass(frozen=True, kw_only=True)
class ReplaysConfig:
    """Games that are stored as replays."""

    games: int = knob(1, "games stored at every evaluation; 0: off", unit="games", low=0, high=100)
    count: int = knob(
        50, "evaluations whose games stay stored, evenly spaced; above this number every second one is "
        "deleted",
        unit="evaluations", low=1, high=10_000, needs="games",
    )  # fmt: skip
    max_steps: int = knob(
        5000, "steps after which the recording of a game ends", unit="steps", low=1, high=100_000,
        needs="games",
    )  # fmt: skip


class Replays(Component):
    """Stores games of the current policies against each other, in replays/."""

    name = "replays"
    Config = ReplaysConfig

    def __init__(self, config: ReplaysConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.recorded = 0  # games in this process

    @classmethod
    def off(cls, config: ReplaysConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup) or ("" if config.games else "replays.games is 0")

    @classmethod
    def no_effect(cls, key: str, config: ReplaysConfig, setup: Setup) -> str:
        return "" if replay.repeatable(setup.spec) else "the world cannot repeat its games"

    @classmethod
    def shrink(cls, config: ReplaysConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"games": min(config.games, 1), "count": min(config.count, 2),
                "max_steps": min(config.max_steps, 32)} if config.games else {}  # fmt: skip

    def evaluate(self, clock: Clock, fields: Mapping[str, Any], last: bool) -> Sequence[Any]:
        """Record the games; a stop request in one of them leaves the evaluation pending."""
        setup, config = self.setup, self.setup.config
        seed = rng.key(config.seed, rng.EVALUATION, clock.iteration, FIRST_INDEX)
        world = setup.make_level(self.config.games, 0, seed)
        players = [setup.agents.players[setup.spec.role_of(seat).name] for seat in range(setup.spec.seats)]
        match = replay.Match(world=config.game, config=config.world, seed=seed, step=clock.step)
        games = replay.record(world, players, match, self.config.max_steps,
                              lambda step: setup.watch(f"replay: step {step:,}"))
        self.recorded += len(games)
        evaluated = list(dict.fromkeys([*(row["iteration"] for row in setup.log.history), clock.iteration]))
        spacing = stride(len(evaluated), self.config.count)
        keep = [*evaluated[spacing - 1 :: spacing], clock.iteration]
        setup.log.write_replays(clock.iteration, [replay_files.encode(game) for game in games], keep)
        return ()

    def evidence(self, record: Record) -> Iterable[Evidence]:
        yield Evidence(self.name, f"{self.recorded} games recorded" if self.recorded else "")
