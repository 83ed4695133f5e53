"""Who learns when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematch.config import knob


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """`together`: all roles learn from the same games, at the same time."""

    kind: str = knob("together", "which roles learn in an iteration", choices=("together",))


class Schedule:
    """Names the roles that learn in each iteration."""

    def __init__(self, config: ScheduleConfig, roles: Sequence[str]) -> None:
        self.config, self.roles = config, tuple(roles)

    def learning(self, iteration: int) -> tuple[str, ...]:
        assert self.config.kind == "together"
        return self.roles
