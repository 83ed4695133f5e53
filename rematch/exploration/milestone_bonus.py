"""Bayesian milestones: what is reached is worth more the less surely it is reached.

An episode is a trial of every milestone m that was not set in its spawn state: a success where m is reached
within its budget of T_m steps, a failure where the budget or the episode ends before. theta_m is the chance
of success, believed to be Beta(alpha, beta). Evidence fades by a factor f with each trial, the prior stays:

    alpha_n = alpha_0 + sum_i f^(n - i) x_i        beta_n = beta_0 + sum_i f^(n - i) (1 - x_i)

r_bayes of a success is min(1, 1 - mean + deviation) of theta_m just before: more while it is uncertain, next
to nothing once it is mastered. alarm_score = P(theta_m < target). A milestone is mastered once that is at
most 1 - alarm; when it passes alarm afterwards, the milestone was lost again: alarm_triggered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats, Tree
from rematch.core.beta_posterior import Beliefs, Numbers
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
    """[M] T_m, or what is wrong with them."""
    out = np.full(len(names), config.budget, np.int64)
    for word in config.budgets:
        name, _, steps = word.partition("=")
        if name not in names or not steps.isdecimal() or not 0 < int(steps) < 2**31:
            near = nearest(name, list(names))
            hint = f"; nearest: {near}" if near and name not in names else ""
            raise ConfigError(f"milestones.budgets = {word!r}: expected NAME=STEPS of a milestone{hint}")
        out[names.index(name)] = int(steps)
    return out


class MilestonePosteriors:
    """The posteriors of a world with milestones (Role.milestones), and what reaching each is worth."""

    def __init__(self, config: MilestonesConfig, role: Role, games: int) -> None:
        self.config, self.role, self.names = config, role, role.milestones
        self.columns = [i for i, name in enumerate(role.columns) if f".{MILESTONE}" in name]
        self.number = {name: i for i, name in enumerate(self.names)}
        self.budget = budgets_of(config, self.names)
        many = len(self.names)
        self.beliefs = Beliefs(many, (config.alpha, config.beta), config.forgetting)
        self.trials = np.zeros(many, np.int64)
        self.mastered, self.alarmed = np.zeros(many, bool), np.zeros(many, bool)
        self.open = np.zeros((games, many), bool)  # trials that go on
        self.begins = np.ones(games, bool)  # whether the next sight is an episode's first
        self.owed: Floats = np.zeros(games, np.float32)  # to the sight that the last step led to
        self.lines: list[str] = []  # to be told

    @property
    def worth(self) -> Numbers:
        """[M] r_bayes of reaching each now."""
        return np.minimum(1.0, 1 - self.beliefs.mean + self.beliefs.deviation)

    def score(self, tape: RolloutBuffer, iteration: int) -> Floats:
        """The last step of an episode leads to no sight of its own: r_env alone pays it."""
        bits = tape[self.role.name].obs[:, :, 0, self.columns] > 0.5
        out: Floats = np.zeros((tape.steps, tape.games), np.float32)
        events: dict[int, list[tuple[int, int]]] = {}
        led: dict[int, list[tuple[int, int]]] = {}
        for into, found in ((events, tape.events), (led, tape.forced_events)):
            for t, game, name in found:
                into.setdefault(t, []).append((game, self.number[name]))
        before = self.trials.copy()
        for t in range(tape.steps):
            out[t], self.owed = self.owed, np.zeros_like(self.owed)
            self.open[self.begins] = ~bits[t, self.begins]
            for game, m in led.get(t, []):  # who was led to one has not tried (curriculum/demonstrations.py)
                self.open[game, m] = False
            over = tape.ended[t] != RUNNING
            late = self.open & (tape.length[t][:, None] > self.budget)
            for game, m in np.argwhere(late).tolist():
                self._judge(game, m, False)
            for game, m in events.get(t, []):
                if self.open[game, m]:
                    self.owed[game] += 0.0 if over[game] else self.worth[m]
                    self._judge(game, m, True)
            for game, m in np.argwhere(self.open & over[:, None]).tolist():
                self._judge(game, m, False)
            self.begins = over
        self._alarms(np.flatnonzero(self.trials != before).tolist())
        return out[:, :, None]

    def _judge(self, game: int, m: int, success: bool) -> None:
        self.open[game, m] = False
        self.trials[m] += 1
        self.beliefs.judge(m, success)

    def _alarms(self, changed: list[int]) -> None:
        for m in changed:
            score = self.beliefs.below(m, self.config.target)
            if score <= 1 - self.config.alarm:
                self.mastered[m], self.alarmed[m] = True, False
            elif score > self.config.alarm and self.mastered[m]:
                self.mastered[m], self.alarmed[m] = False, True
                self.lines.append(f"ALARM: {self.names[m]} was mastered and is lost: P(theta < "
                                  f"{self.config.target:g}) = {score:.3f}, theta {self.beliefs.mean[m]:.3f}")

    def numbers(self) -> dict[str, float]:
        """For the log: theta of each milestone that was tried, and how many are mastered or alarmed."""
        tried = np.flatnonzero(self.trials).tolist()
        return {f"theta_{self.names[m]}": float(self.beliefs.mean[m]) for m in tried} | {
            "mastered": float(self.mastered.sum()), "alarm_triggered": float(self.alarmed.sum())}

    def copy_from(self, other: MilestonePosteriors) -> None:
        for name in ("alpha", "beta"):
            getattr(self.beliefs, name)[:] = getattr(other.beliefs, name)

    def state_dict(self) -> Tree:
        return {"alpha": self.beliefs.alpha, "beta": self.beliefs.beta, "trials": self.trials,
                "mastered": self.mastered, "alarmed": self.alarmed, "open": self.open,
                "begins": self.begins, "owed": self.owed}

    def load_state_dict(self, tree: Tree) -> None:
        self.beliefs.alpha[:], self.beliefs.beta[:] = tree["alpha"], tree["beta"]
        self.trials[:], self.mastered[:], self.alarmed[:] = tree["trials"], tree["mastered"], tree["alarmed"]
        self.open[:], self.owed = tree["open"], tree["owed"].copy()
        self.begins = tree["begins"].copy()


class Milestones(RewardTermComponent):
    """Posteriors of milestones, where the world has one seat and tells milestones."""

    name = "milestones"
    Config = MilestonesConfig

    @classmethod
    def check(cls, config: MilestonesConfig, setup: Setup) -> None:
        role = setup.spec.role_of(0)
        if not role.milestones and config != MilestonesConfig():
            raise ConfigError(f"milestones: no effect: {setup.spec.world} has no milestones; leave its "
                              "settings out")
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
