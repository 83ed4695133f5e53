"""A stand-in for a curriculum that climbs a level after every iteration, for the parts that act on a new
level."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rematch.core.clock import Clock
from rematch.core.component import Component
from rematch.stability.ewc import Ewc
from rematch.stability.rollback import Rollback


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ewc, "check", classmethod(lambda cls, config, setup: None))
    for kind in (Rollback, Ewc):
        climb_after_update(kind, monkeypatch)


def climb_after_update(kind: type[Component], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this part hears after every iteration that an evaluation moved the run one level up."""
    after_update = kind.after_update

    def and_climb(part: Component, rollout: Any, metrics: dict[str, float], clock: Clock) -> None:
        after_update(part, rollout, metrics, clock)
        evaluation = SimpleNamespace(row={"moved": 1, "level": clock.iteration - 1}, lines=[])
        part.after_evaluation(evaluation, rollout, clock)
        for line in evaluation.lines:
            part.setup.log.line(line)

    monkeypatch.setattr(kind, "after_update", and_climb)
