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

from dataclasses import dataclass
from math import exp, lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats, Tree
from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError
from rematch.core.spec import MILESTONE, Role
from rematch.core.world import RUNNING
from rematch.rollout.rollout_buffer import Tape

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MilestonesConfig:
    """Beliefs about milestones, and the bonus for reaching them."""

    weight: float = knob(0.0, "weight of r_bayes; 0: nothing is paid, beliefs are told all the same", low=0)
    budget: int = knob(2048, "T_m: steps of an episode within which a milestone is to be reached", low=1)
    budgets: tuple[str, ...] = knob((), "other budgets of some milestones: NAME=STEPS")
    alpha: float = knob(1.0, "successes believed before the first trial", low=1e-3, high=1e6)
    beta: float = knob(1.0, "failures believed before the first trial", low=1e-3, high=1e6)
    forgetting: float = knob(0.98, "by which older trials fade with each new one", low=0, high=1)
    target: float = knob(0.8, "chance of success that is to be kept", low=0, high=1)
    alarm: float = knob(
        0.9, "P(theta < target) above which a mastered milestone raises an alarm", low=0.5, high=1
    )


# --- Beta beliefs -----------------------------------------------------------------------------------


class Beliefs:
    """Beta(alpha, beta) of some chances of success, each [M]; see the top of this file."""

    def __init__(self, count: int, prior: tuple[float, float], forgetting: float) -> None:
        self.prior, self.forgetting = prior, forgetting
        self.alpha, self.beta = (np.full(count, value, np.float64) for value in prior)

    def judge(self, which: int, success: bool) -> None:
        """A trial."""
        for counts, prior, new in zip((self.alpha, self.beta), self.prior, (success, not success)):
            counts[which] = prior + self.forgetting * (counts[which] - prior) + new

    def grow(self) -> None:
        """One more chance, of which nothing is known."""
        self.alpha = np.append(self.alpha, self.prior[0])
        self.beta = np.append(self.beta, self.prior[1])

    @property
    def mean(self) -> Numbers:
        return self.alpha / (self.alpha + self.beta)

    @property
    def deviation(self) -> Numbers:
        total = self.alpha + self.beta
        return np.sqrt(self.alpha * self.beta / (total + 1)) / total

    def below(self, which: int, x: float) -> float:
        """P(theta < x)."""
        return incomplete_beta(x, float(self.alpha[which]), float(self.beta[which]))

    def interval(self, which: int, share: float = 0.95) -> tuple[float, float]:
        """The middle `share` of the belief, by bisection."""
        bounds = []
        for goal in ((1 - share) / 2, (1 + share) / 2):
            low, high = 0.0, 1.0
            for _ in range(40):
                middle = (low + high) / 2
                low, high = (middle, high) if self.below(which, middle) < goal else (low, middle)
            bounds.append((low + high) / 2)
        return bounds[0], bounds[1]


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function (DLMF 8.17.22, by Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction converges slowly: DLMF 8.17.4
        return 1 - incomplete_beta(1 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    tiny, c, d, found = 1e-300, 1.0, 0.0, 1.0
    for k in range(1000):
        m = k // 2
        if k == 0:
            term = 1.0
        elif k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        found *= c * d
        if k and abs(c * d - 1) < 1e-15:
            break
    return min(1.0, max(0.0, front * (found - 1)))


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


def check_milestones(config: MilestonesConfig, role: Role, world: str) -> None:
    if not role.milestones and config != MilestonesConfig():
        raise ConfigError(f"milestones: no effect: {world} tells no milestones; leave its settings out")
    budgets_of(config, role.milestones)


class Milestones:
    """The bonus of a world that tells milestones (Role.milestones), and what is believed of them."""

    name = "bayes"

    def __init__(self, config: MilestonesConfig, role: Role, games: int) -> None:
        self.config, self.weight, self.role, self.names = config, config.weight, role, role.milestones
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

    def score(self, tape: Tape, iteration: int) -> Floats:
        """The last step of an episode leads to no sight of its own: r_env alone pays it."""
        bits = tape[self.role.name].sight[:, :, 0, self.columns] > 0.5
        out: Floats = np.zeros((tape.steps, tape.games), np.float32)
        events: dict[int, list[tuple[int, int]]] = {}
        led: dict[int, list[tuple[int, int]]] = {}
        for into, found in ((events, tape.events), (led, tape.led)):
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
        return out

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

    def told(self) -> dict[str, float]:
        """For the log: theta of each milestone that was tried, and how many are mastered or alarmed."""
        tried = np.flatnonzero(self.trials).tolist()
        return {f"theta_{self.names[m]}": float(self.beliefs.mean[m]) for m in tried} | {
            "mastered": float(self.mastered.sum()), "alarm_triggered": float(self.alarmed.sum())}

    def take_over(self, other: Milestones) -> None:
        for name in ("alpha", "beta"):
            getattr(self.beliefs, name)[:] = getattr(other.beliefs, name)

    def state(self) -> Tree:
        return {"alpha": self.beliefs.alpha, "beta": self.beliefs.beta, "trials": self.trials,
                "mastered": self.mastered, "alarmed": self.alarmed, "open": self.open,
                "begins": self.begins, "owed": self.owed}

    def restore(self, tree: Tree) -> None:
        self.beliefs.alpha[:], self.beliefs.beta[:] = tree["alpha"], tree["beta"]
        self.trials[:], self.mastered[:], self.alarmed[:] = tree["trials"], tree["mastered"], tree["alarmed"]
        self.open[:], self.owed = tree["open"], tree["owed"].copy()
        self.begins = tree["begins"].copy()
