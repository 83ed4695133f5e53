"""Metrics of every rollout: lengths, win rates and rewards of its games, and the world's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record
from rematch.core.world import RUNNING
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.training.components.world_state import NoSettings


class RolloutMetrics(Component):
    """Counts the games that ended and averages over them."""

    name = "rollout"
    Config = NoSettings
    logged: Metrics

    @classmethod
    def configs(cls) -> Mapping[str, tuple[type, str]]:
        return {}

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        spec, ended = self.setup.spec, rollout.ended != RUNNING
        self.logged = dict(self.setup.world.counters)
        clock.finished_games += int(ended.sum())
        if not ended.any():
            return
        self.logged["length"] = float(rollout.length[ended].mean())
        for role in spec.roles:
            slot, outcome = rollout.results(role)
            if (slot == 0).any() and (spec.seats > 1 or (outcome != 0.5).any()):
                self.logged[f"win_{role}"] = float(outcome[slot == 0].mean())
            if spec.seats == 1:  # per step; a task for one player may have no winner
                reward = float(rollout[role].reward.mean()) / spec.reward_scale
                self.logged[f"reward_{role}"] = reward

    def metrics(self) -> Metrics:
        return self.logged

    def evidence(self, record: Record) -> Iterable[Evidence]:
        last = record.metrics[-1]
        yield Evidence("rollout", f"{last['step']:,} steps, {last['games']} games ended")
