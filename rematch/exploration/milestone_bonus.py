"""Bayesian milestones: the reward of reaching a milestone is larger the less certain its success is.

An episode is a trial of every milestone m that is not set in its start state: a success where m is reached
within its budget of T_m steps, a failure where the budget or the episode ends before. theta_m is the
probability of success, with posterior Beta(alpha, beta). Old trials are discounted by a factor f per new
trial, the prior is not:

    alpha_n = alpha_0 + sum_i f^(n - i) x_i        beta_n = beta_0 + sum_i f^(n - i) (1 - x_i)

The reward of a success is min(1, 1 - mean + deviation) of theta_m before the trial: large while theta_m is
uncertain, near 0 once the milestone is mastered. A milestone is mastered once P(theta_m < target) is at most
1 - alarm; if this probability exceeds alarm later, the milestone was lost: alarm_triggered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats, Tree
from rematch.core.beta_posterior import BetaPosteriors, Numbers
from rematch.core.clock import Clock
from rematch.core.component import Evidence, Metrics, Record, Setup
from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError
from rematch.core.spec import MILESTONE, Role
from rematch.core.world import RUNNING
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer


@dataclass(frozen=True, kw_only=True)
class MilestonesConfig:
    """Success probabilities of milestones (Beta posteriors), and intrinsic reward for reaching them."""

    weight: float = knob(
        0.0, "weight of the reward term; 0: no reward, the posteriors are only logged", low=0
    )
    budget: int = knob(
        2048, "steps of an episode within which a milestone counts as a success", unit="steps", low=1
    )
    budgets: tuple[str, ...] = knob((), "different budgets for single milestones, as NAME=STEPS")
    alpha: float = knob(1.0, "alpha of the Beta prior: number of assumed successes", low=1e-3, high=1e6)
    beta: float = knob(1.0, "beta of the Beta prior: number of assumed failures", low=1e-3, high=1e6)
    forgetting: float = knob(
        0.98, "discount factor of older trials per new trial; 1: no forgetting", low=0, high=1
    )
    target: float = knob(
        0.8, "target success probability; a milestone is mastered once P(theta < target) is at most 1 - "
        "alarm", low=0, high=1,
    )  # fmt: skip
    alarm: float = knob(
        0.9, "posterior probability P(theta < target) above which a mastered milestone raises an alarm",
        low=0.5, high=1,
    )  # fmt: skip


# --- the bonus --------------------------------------------------------------------------------------


def budgets_of(config: MilestonesConfig, names: tuple[str, ...]) -> NDArray[np.int64]:
    """[M] the budgets T_m; ConfigError for an unknown name or a wrong number."""
    out = np.full(len(names), config.budget, np.int64)
    for setting in config.budgets:
        name, _, steps = setting.partition("=")
        if name not in names or not steps.isdecimal() or not 0 < int(steps) < 2**31:
            nearest_name = nearest(name, list(names))
            hint = f"; nearest: {nearest_name}" if nearest_name and name not in names else ""
            raise ConfigError(f"milestones.budgets = {setting!r}: expected NAME=STEPS of a milestone{hint}")
        out[names.index(name)] = int(steps)
    return out


class MilestonePosteriors:
    """The posteriors of the milestones of a role, and the rewards of reaching them."""

    def __init__(self, config: MilestonesConfig, role: Role, games: int) -> None:
        self.config, self.role, self.names = config, role, role.milestones
        self.columns = [i for i, name in enumerate(role.columns) if f".{MILESTONE}" in name]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.budget = budgets_of(config, self.names)
        count = len(self.names)
        self.beliefs = BetaPosteriors(count, (config.alpha, config.beta), config.forgetting)
        self.trials = np.zeros(count, np.int64)
        self.mastered, self.alarmed = np.zeros(count, bool), np.zeros(count, bool)
        self.open_trials = np.zeros((games, count), bool)  # trials without a result so far
        self.episode_starts = np.ones(games, bool)  # whether the next observation is the first of an episode
        self.pending_reward: Floats = np.zeros(games, np.float32)  # reward of the next observation
        self.lines: list[str] = []  # for the log

    @property
    def rewards(self) -> Numbers:
        """[M] the reward of reaching each milestone now."""
        return np.minimum(1.0, 1 - self.beliefs.mean + self.beliefs.deviation)

    def score(self, rollout: RolloutBuffer, iteration: int) -> Floats:
        """[T, N, 1] rewards; the last step of an episode has no next observation, and no reward."""
        bits = rollout[self.role.name].host("obs")[:, :, 0, self.columns] > 0.5
        out: Floats = np.zeros((rollout.steps, rollout.games), np.float32)
        events: dict[int, list[tuple[int, int]]] = {}
        forced: dict[int, list[tuple[int, int]]] = {}
        for by_step, recorded in ((events, rollout.events), (forced, rollout.forced_events)):
            for t, game, name in recorded:
                by_step.setdefault(t, []).append((game, self.index[name]))
        before = self.trials.copy()
        for t in range(rollout.steps):
            out[t] = self.pending_reward
            self.pending_reward = np.zeros_like(self.pending_reward)
            self.open_trials[self.episode_starts] = ~bits[t, self.episode_starts]
            for game, m in forced.get(t, []):  # reached by forced actions: no trial
                self.open_trials[game, m] = False
            ended = rollout.host("ended")[t] != RUNNING
            timed_out = self.open_trials & (rollout.host("length")[t][:, None] > self.budget)
            for game, m in np.argwhere(timed_out).tolist():
                self._add_trial(game, m, False)
            for game, m in events.get(t, []):
                if self.open_trials[game, m]:
                    self.pending_reward[game] += 0.0 if ended[game] else self.rewards[m]
                    self._add_trial(game, m, True)
            for game, m in np.argwhere(self.open_trials & ended[:, None]).tolist():
                self._add_trial(game, m, False)
            self.episode_starts = ended
        self._alarms(np.flatnonzero(self.trials != before).tolist())
        return out[:, :, None]

    def _add_trial(self, game: int, m: int, success: bool) -> None:
        self.open_trials[game, m] = False
        self.trials[m] += 1
        self.beliefs.update(m, success)

    def _alarms(self, changed: list[int]) -> None:
        for m in changed:
            score = self.beliefs.cdf(m, self.config.target)
            if score <= 1 - self.config.alarm:
                self.mastered[m], self.alarmed[m] = True, False
            elif score > self.config.alarm and self.mastered[m]:
                self.mastered[m], self.alarmed[m] = False, True
                self.lines.append(f"ALARM: {self.names[m]} was mastered and is lost: P(theta < "
                                  f"{self.config.target:g}) = {score:.3f}, theta {self.beliefs.mean[m]:.3f}")

    def numbers(self) -> dict[str, float]:
        """Metrics: theta of each milestone with trials, numbers of mastered and of alarmed ones."""
        tried = np.flatnonzero(self.trials).tolist()
        return {f"theta_{self.names[m]}": float(self.beliefs.mean[m]) for m in tried} | {
            "mastered": float(self.mastered.sum()), "alarm_triggered": float(self.alarmed.sum())}

    def copy_from(self, other: MilestonePosteriors) -> None:
        for name in ("alpha", "beta"):
            getattr(self.beliefs, name)[:] = getattr(other.beliefs, name)

    def state_dict(self) -> Tree:
        return {"alpha": self.beliefs.alpha, "beta": self.beliefs.beta, "trials": self.trials,
                "mastered": self.mastered, "alarmed": self.alarmed, "open": self.open_trials,
                "begins": self.episode_starts, "owed": self.pending_reward}

    def load_state_dict(self, tree: Tree) -> None:
        self.beliefs.alpha[:], self.beliefs.beta[:] = tree["alpha"], tree["beta"]
        self.trials[:], self.mastered[:], self.alarmed[:] = tree["trials"], tree["mastered"], tree["alarmed"]
        self.open_trials[:], self.pending_reward = tree["open"], tree["owed"].copy()
        self.episode_starts = tree["begins"].copy()


class Milestones(RewardTermComponent):
    """Posteriors of milestones, for worlds that have milestones."""

    name = "milestones"
    Config = MilestonesConfig

    @classmethod
    def check(cls, config: MilestonesConfig, setup: Setup) -> None:
        role = setup.spec.role_of(0)
        if not role.milestones and config != MilestonesConfig():
            raise ConfigError(f"milestones: no effect: {setup.spec.world} has no milestones; expected no "
                              "such settings")
        budgets_of(config, role.milestones)

    @classmethod
    def no_effect(cls, key: str, config: MilestonesConfig, setup: Setup) -> str:
        return "" if setup.spec.role_of(0).milestones else "the world has no milestones"

    @classmethod
    def off(cls, config: MilestonesConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup)

    @classmethod
    def make_scorer(cls, config: MilestonesConfig, role: Role, games: int, seed: int) -> MilestonePosteriors:
        return MilestonePosteriors(config, role, games)

    @property
    def posteriors(self) -> MilestonePosteriors:
        (scorer,) = self.scorers.values()
        assert isinstance(scorer, MilestonePosteriors)
        return scorer

    def numbers(self, rollout: RolloutBuffer, role: str) -> Metrics:
        return self.posteriors.numbers()

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        for line in self.posteriors.lines:
            self.setup.log.line(line)
        self.posteriors.lines.clear()

    def load_state_dict(self, tree: Tree) -> None:
        if tree:  # version 0 had no posteriors with PPO
            super().load_state_dict(tree)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        p = self.posteriors
        trials = f"{p.trials.sum()} trials of {len(p.names)} milestones, weight {self.weight:g}"
        yield Evidence(self.name, trials if p.trials.any() else "")
