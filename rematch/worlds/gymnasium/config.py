"""The settings of a Gymnasium world: which environment, and how its numbers are scaled."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.config import knob
from rematch.worlds.gymnasium_spaces import read_options, reward_scale_setting, scale_setting

from . import factory


@dataclass(frozen=True, kw_only=True)
class Config:
    """A Gymnasium environment: its id, and the scale of observations and rewards."""

    id: str = knob("CartPole-v1", "id of the environment; package:Id-v0 imports an installed package first")
    options: tuple[str, ...] = knob((), "keyword arguments of the environment, as name=value")
    max_steps: int = knob(
        0, "steps after which an episode is truncated; 0: the limit of the environment", unit="steps", low=0,
        high=1_000_000,
    )  # fmt: skip
    scale: str = scale_setting()
    reward_scale: float = reward_scale_setting()

    def check(self) -> None:
        read_options(self.options)
        if factory.present():  # else making the world reports that it is missing
            factory.find(self.id)

    def describe(self) -> factory.EnvDescription:
        """Spaces, step limit and reproducibility of the environment under these settings."""
        return factory.describe(self.id, self.options, self.max_steps, self.scale)
