"""Who learns when."""

from __future__ import annotations

import pytest

from rematch.config import ConfigError, validate
from rematch.engine.rivals.schedule import Schedule, ScheduleConfig


def test_together_means_everybody_always() -> None:
    schedule = Schedule(ScheduleConfig(), ["pursuer", "evader"])
    assert all(schedule.learning(i) == ("pursuer", "evader") for i in (0, 1, 7, 10**9))


def test_other_schedules_are_refused() -> None:
    with pytest.raises(ConfigError, match="kind = 'turns': expected one of together"):
        validate(ScheduleConfig(kind="turns"))
