"""Random starts: a fraction of the training games starts from a random state that the world can generate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rematch.core import rng
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.world import Next

STAGE = "anywhere"  # column of `next.stage` in worlds that can generate random states


@dataclass(frozen=True, kw_only=True)
class RandomStartsConfig:
    """Training games that start from random states."""

    fraction: float = knob(
        0.0, "fraction of training games that start from a random state, where the world can generate one",
        unit="fraction", low=0, high=1,
    )  # fmt: skip


class RandomStarts(Component):
    """Chooses which of the next episodes start from a random state."""

    name = "random_starts"
    Config = RandomStartsConfig

    def __init__(self, config: RandomStartsConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.column = setup.spec.stage.index(STAGE)
        self.random_games = 0

    @classmethod
    def check(cls, config: RandomStartsConfig, setup: Setup) -> None:
        if config.fraction and STAGE not in setup.spec.stage:
            raise ConfigError(f"random_starts.fraction = {config.fraction:g}: {setup.spec.world} cannot "
                              "start from a random state; expected 0")

    @classmethod
    def no_effect(cls, key: str, config: RandomStartsConfig, setup: Setup) -> str:
        return cls.off(config, setup)

    @classmethod
    def off(cls, config: RandomStartsConfig, setup: Setup) -> str:
        return "" if STAGE in setup.spec.stage else f"{setup.spec.world} cannot start from a random state"

    @classmethod
    def shrink(cls, config: RandomStartsConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"fraction": max(config.fraction, 0.3)} if config.fraction else {}

    def before_rollout(self, clock: Clock, next: Next) -> None:
        uniform = rng.units(self.setup.config.seed, rng.RANDOM_START, len(next.stage), clock.iteration)
        next.stage[:, self.column] = uniform < self.config.fraction
        self.random_games += int(next.stage[:, self.column].sum())

    def evidence(self, record: Record) -> Iterable[Evidence]:
        yield Evidence(self.name, f"{self.random_games} games" if self.random_games else "",
                       "" if self.config.fraction else "random_starts.fraction is 0")
