"""The settings of a PettingZoo world: which game, and how its numbers are scaled."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.config import knob
from rematch.worlds.gymnasium_spaces import read_options, reward_scale_setting, scale_setting

from . import factory


@dataclass(frozen=True, kw_only=True)
class Config:
    """A PettingZoo game: its module, and the scale of observations and rewards."""

    id: str = knob(
        "classic.tictactoe_v3", "module of the game: FAMILY.NAME of PettingZoo (classic.connect_four_v3), or "
        "the module of another installed package (mpe2.simple_tag_v3)",
    )  # fmt: skip
    options: tuple[str, ...] = knob((), "keyword arguments of the game, as name=value")
    max_steps: int = knob(
        500, "steps after which a game is cut off; in a turn-based game each move is a step", unit="steps",
        low=1, high=100_000,
    )  # fmt: skip
    scale: str = scale_setting()
    reward_scale: float = reward_scale_setting()

    def check(self) -> None:
        read_options(self.options)
        if factory.installed():  # else making the world reports that it is missing
            factory.find(self.id)

    def describe(self) -> factory.GameDescription:
        """Agents, spaces, masks and reproducibility of the game under these settings."""
        return factory.describe(self.id, self.options, self.max_steps, self.scale)
