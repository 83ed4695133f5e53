"""Rollback: when a learning role collapses, or runs away from the others, it goes back to what it was.

All roles are kept together, weights, optimiser and magnet, from before the first iteration on: every role
always has something to go back to. These rolling checkpoints come and go; milestones (a phase's end, a step
of the curriculum) stay for good, as policies in the run's folder. What is judged are the learning role's
training games, against whoever sat opposite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematch.agents.learner import Learner
from rematch.agents.networks.layout import network_bytes
from rematch.core.arrays import Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.rollout.rollout_buffer import RolloutBuffer


@dataclass(frozen=True, kw_only=True)
class RollbackConfig:
    """Collapse guard: a role that wins too rarely or too often is restored from a checkpoint."""

    checkpoints_back: int = knob(
        0, "rolling checkpoints that a rollback goes back; 0: no rollbacks", unit="checkpoints", low=0
    )
    every: int = knob(
        10_000, "steps between rolling checkpoints; at most one per iteration", unit="steps", low=1,
        needs="checkpoints_back",
    )  # fmt: skip
    keep: int = knob(
        15, "rolling checkpoints that are stored", unit="checkpoints", low=1, high=1000,
        needs="checkpoints_back",
    )  # fmt: skip
    episodes: int = knob(
        200, "smallest number of training games, from whole iterations, from which a win rate is computed",
        unit="games", low=1, needs="checkpoints_back",
    )  # fmt: skip
    min_win_rate: float = knob(
        0.02, "win rate of a learning role at or below which it is rolled back", unit="fraction", low=0,
        high=1, needs="checkpoints_back",
    )  # fmt: skip
    max_win_rate: float = knob(
        0.98, "win rate of a learning role at or above which it is rolled back", unit="fraction", low=0,
        high=1, needs="checkpoints_back",
    )  # fmt: skip
    cooldown: int = knob(
        50_000, "steps after a rollback before the next one", unit="steps", low=0, needs="checkpoints_back"
    )
    bilateral: bool = knob(
        False, "a rollback restores all roles; false: only the role that learns", needs="checkpoints_back"
    )
    entropy_floor: float = knob(
        -2.0, "entropy of a Gaussian policy below which a warning is printed and, if rollbacks are on, the "
        "role is rolled back", unit="nats",
    )  # fmt: skip

    def check(self) -> None:
        if self.min_win_rate >= self.max_win_rate:
            raise ConfigError(f"min_win_rate = {self.min_win_rate:g}: expected less than "
                              f"max_win_rate = {self.max_win_rate:g}")
        if self.checkpoints_back > self.keep:
            raise ConfigError(f"checkpoints_back = {self.checkpoints_back}: expected at most "
                              f"keep = {self.keep}, there are no others")


def check_rollback(config: RollbackConfig, kind: str, roles: Sequence[str]) -> None:
    """Refuse rollbacks where they cannot work: kind is schedule.kind."""
    why = ""
    if kind == "micro":
        why = "micro-phases are shorter than any judgement of them"
    elif len(roles) < 2:
        why = "a role that wins always has collapsed only against another role, and the world has one"
    if config.checkpoints_back and why:
        raise ConfigError(f"rollback.checkpoints_back = {config.checkpoints_back}: {why}; expected 0")


def copied(tree: Tree) -> Tree:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in tree.items()}


class CollapseGuard:
    """Stores what all roles were, and judges the ones that learn after every iteration."""

    def __init__(self, config: RollbackConfig, learners: Mapping[str, Learner]) -> None:
        self.config, self.learners = config, learners
        self.rolling: list[Tree] = []  # oldest first, each {"step": ..., "roles": {role: learner.state()}}
        self.judged: dict[str, list[list[float]]] = {}  # learning role -> [wins, games] of whole iterations
        self.dim: list[str] = []  # roles whose entropy was below the floor when they last learnt
        self.saved = self.until = self.untold = self.count = 0
        if config.checkpoints_back:
            self.keep(0)

    def state_dict(self) -> Tree:
        judged = {role: [list(row) for row in rows] for role, rows in self.judged.items()}
        lists = {"rolling": list(self.rolling), "judged": judged}
        numbers = {name: getattr(self, name) for name in ("saved", "until", "untold", "count")}
        return lists | numbers | {"dim": list(self.dim)}

    def load_state_dict(self, tree: Tree) -> None:
        for name in self.state_dict():
            setattr(self, name, tree[name])

    def _now(self, step: int) -> Tree:
        roles = {role: copied(learner.state_dict()) for role, learner in self.learners.items()}
        return {"step": step, "roles": roles}

    def keep(self, step: int) -> None:
        """A rolling checkpoint of all roles."""
        self.rolling = [*self.rolling, self._now(step)][-self.config.keep :]
        self.saved = step

    def start_over(self, step: int) -> None:
        """The cold start is over: nothing before it is gone back to."""
        if self.config.checkpoints_back:
            self.rolling = []
            self.keep(step)

    def pop_rollback_count(self) -> int:
        """How many rollbacks there were since this was last asked."""
        count, self.untold = self.untold, 0
        return count

    def judge(
        self, tape: RolloutBuffer, metrics: Mapping[str, Any], step: int, learnt: Sequence[str], cold: bool
    ) -> list[str]:
        """After an iteration in which the roles `learnt` did: what happened, as lines for people.

        In the cold start winning is no sign of anything: the rival is scripted. Only entropy is judged then.
        """
        lines, causes = self._entropies(metrics, learnt)
        if not self.config.checkpoints_back:
            return lines
        if not cold:
            causes = self._shares(tape, learnt) | causes
        if causes and step >= self.until:
            return [*lines, self._go_back(causes, step)]
        if step - self.saved >= self.config.every:
            self.keep(step)
        return lines

    def _entropies(
        self, metrics: Mapping[str, Any], learnt: Sequence[str]
    ) -> tuple[list[str], dict[str, str]]:
        """A line for each role that has fallen below the floor; the causes for a rollback."""
        lines, causes, floor = [], {}, self.config.entropy_floor
        for role in learnt:
            entropy = metrics.get(f"{role}/entropy")
            if entropy is None or self.learners[role].policy.role.actions.kind != "continuous":
                continue
            low = entropy < floor
            if low:
                causes[role] = f"{role} plays with entropy {entropy:.3g}, below {floor:g}"
                if role not in self.dim:
                    lines.append(f"Entropy: {causes[role]}: it hardly tries anything any more")
            self.dim = [*(name for name in self.dim if name != role), *([role] if low else [])]
        return lines, causes

    def _shares(self, tape: RolloutBuffer, learnt: Sequence[str]) -> dict[str, str]:
        """Why a learning role should go back, by its share of wins."""
        c, causes = self.config, {}
        if set(self.judged) != set(learnt):
            self.judged = {role: [] for role in learnt}  # a phase began: other roles, other games
        for role, rows in self.judged.items():
            slot, outcome = tape.results(role)
            mine = outcome[slot == 0]
            rows.append([float(mine.sum(dtype=np.float64)), float(len(mine))])
            # Whole iterations: of games that begin together the last ones to end are those nobody decided.
            while sum(games for _, games in rows[1:]) >= c.episodes:
                del rows[0]
            won, games = (sum(column) for column in zip(*rows))
            if games >= c.episodes and not c.min_win_rate < won / games < c.max_win_rate:
                too_low = won / games <= c.min_win_rate
                bound = f"<= {c.min_win_rate:g}" if too_low else f">= {c.max_win_rate:g}"
                share = f"{won:g} of its last {games:g} training games ({won / games:.3f} {bound})"
                causes[role] = f"{role} won {share}"
        return causes

    def _go_back(self, causes: Mapping[str, str], step: int) -> str:
        at = max(0, len(self.rolling) - self.config.checkpoints_back)
        del self.rolling[at + 1 :]  # what came after it led here
        then = self.rolling[at]
        roles = list(self.learners) if self.config.bilateral else list(causes)
        for role in roles:
            self.learners[role].load_state_dict(then["roles"][role])
        self.judged, self.dim = {}, []
        self.saved, self.until = step, step + self.config.cooldown
        self.untold, self.count = self.untold + 1, self.count + 1
        who = " and ".join(roles)
        return (
            f"ROLLBACK {self.count} at step {step:,}: {'; '.join(causes.values())}: "
            f"{who} back to step {then['step']:,}"
        )


class Rollback(Component):
    """Undoes a collapse, and keeps the policies of milestones in the run folder."""

    name = "rollback"
    Config = RollbackConfig
    needs = "learner=ppo|expert"
    copies_setting = "keep"

    def __init__(self, config: RollbackConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.milestones: list[str] = []  # names of what this iteration ended: a phase, a level

    @classmethod
    def check(cls, config: RollbackConfig, setup: Setup) -> None:
        check_rollback(config, setup.config.schedule.kind, list(setup.spec.roles))

    @classmethod
    def memory_bytes(cls, config: RollbackConfig, setup: Setup) -> int:
        copies = 4 * config.keep if config.checkpoints_back else 0
        return copies * sum(network_bytes(role, setup.config) for role in setup.spec.roles.values())

    @classmethod
    def shrink(cls, config: RollbackConfig, small: SmallRun) -> Mapping[str, Any]:
        """A rolling checkpoint at every iteration; any share of wins is a collapse, and is undone."""
        if not config.checkpoints_back:
            return {}
        per = small.steps_per_iteration
        return {"checkpoints_back": min(config.checkpoints_back, 2), "every": min(config.every, per),
                "keep": min(config.keep, 3), "episodes": 1, "min_win_rate": 0.4999, "max_win_rate": 0.5,
                "cooldown": min(config.cooldown, 2 * per)}

    def connect(self) -> None:
        self.guard = CollapseGuard(self.config, self.setup.learners)

    def policies_loaded(self, clock: Clock) -> None:
        self.guard.start_over(clock.step)

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        phase = clock.phase
        warmup = phase.number == 0
        for line in self.guard.judge(rollout, metrics, clock.step, phase.roles, warmup):
            self.setup.log.line(line)
        if clock.iteration >= phase.last:
            # Levels, and warm-ups on them, can come again; phases never do.
            self.milestones.append(f"{phase.name} step {clock.step}" if phase.level_warmup else phase.name)
            if warmup:
                self.guard.start_over(clock.step)

    def evaluation_fields(self, clock: Clock) -> Mapping[str, Any]:
        return {"rollbacks": self.guard.pop_rollback_count()}  # since the evaluation before

    def after_evaluation(self, evaluation: Any, rollout: RolloutBuffer, clock: Clock) -> None:
        if evaluation.row.get("moved", 0) > 0:
            self.milestones.append(f"level {evaluation.row['level'] + 1} step {clock.step}")

    def end_iteration(self, clock: Clock) -> None:
        """Where collapses are undone, the policies of milestones stay for good."""
        for name in self.milestones if self.config.checkpoints_back else ():
            self.setup.store_policies(clock, f"@{name.replace(' ', '-')}")
        self.milestones.clear()

    def evidence(self, record: Record) -> Iterable[Evidence]:
        count = f"{self.guard.count} times, {len(self.guard.rolling)} checkpoints stored"
        yield Evidence("rollback", count if self.guard.count else "",
                       "" if self.config.checkpoints_back else "rollback.checkpoints_back is 0")

    def state_dict(self) -> Tree:
        return self.guard.state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        self.guard.load_state_dict(tree)
