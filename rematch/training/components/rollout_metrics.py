"""Metrics of every rollout: lengths, win rates and rewards of its games, and the world's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record
from rematch.rollout.rollout_buffer import RolloutBuffer, Tally
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
        self.logged = dict(rollout.counters)
        if rollout.tally is not None:
            self._count(rollout.tally, clock)
            return
        spec, games = self.setup.spec, rollout.finished()
        clock.finished_games += len(games.length)
        if not len(games.length):
            return
        self.logged["length"] = float(games.length.mean())
        for role in spec.roles:
            slot, outcome = games.slot[role].reshape(-1), games.outcome[role].reshape(-1)
            if (slot == 0).any() and (spec.seats > 1 or (outcome != 0.5).any()):
                self.logged[f"win_{role}"] = float(outcome[slot == 0].mean())
            if spec.seats == 1:  # per step; a task for one player may have no winner
                reward = float(rollout[role].host("reward").mean()) / spec.reward_scale
                self.logged[f"reward_{role}"] = reward

    def _count(self, tally: Tally, clock: Clock) -> None:
        """As `after_rollout`, of games that were counted on a GPU."""
        clock.finished_games += tally.games
        if not tally.games:
            return
        self.logged["length"] = tally.length / tally.games
        for role, (games, score) in tally.learner.items():
            if games:
                self.logged[f"win_{role}"] = score / games

    def metrics(self) -> Metrics:
        return self.logged

    def evidence(self, record: Record) -> Iterable[Evidence]:
        last = record.metrics[-1]
        yield Evidence("rollout", f"{last['step']:,} steps, {last['games']} games ended")
        ahead = self.setup.queue.ahead
        yield Evidence("lag", f"{ahead} rollouts played ahead of the learner" if ahead else "",
                       "" if self.setup.config.lag else "lag is 0")
