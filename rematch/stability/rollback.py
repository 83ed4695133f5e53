"""Rollback: a learning role that wins too rarely or too often is restored from a rolling checkpoint.

A rolling checkpoint contains the state of all roles (weights, optimiser, magnet); the first one is stored
before the first iteration. Rolling checkpoints are deleted in time; the policies of milestones (the end of a
phase, a step of the curriculum) stay in the run folder. Win rates are those of the learning role's training
games, against all opponents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematch.agents.learner import Learner
from rematch.agents.networks.layout import network_bytes
from rematch.core.arrays import Tree, stored_float, stored_int, stored_list, stored_texts
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
                              f"keep = {self.keep}")


def check_rollback(config: RollbackConfig, kind: str, roles: Sequence[str]) -> None:
    """ConfigError where rollbacks cannot work; kind: schedule.kind."""
    problem = ""
    if kind == "micro":
        problem = "micro phases are too short to compute a win rate"
    elif len(roles) < 2:
        problem = "win rates compare roles, and the world has one role"
    if config.checkpoints_back and problem:
        raise ConfigError(f"rollback.checkpoints_back = {config.checkpoints_back}: {problem}; expected 0")


def copy_arrays(tree: Tree) -> Tree:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in tree.items()}


class CollapseGuard:
    """Stores rolling checkpoints of all roles, and checks the learning roles after every iteration."""

    def __init__(self, config: RollbackConfig, learners: Mapping[str, Learner]) -> None:
        self.config, self.learners = config, learners
        self.rolling: list[Tree] = []  # oldest first: {"step": ..., "roles": {role: learner.state_dict()}}
        self.results: dict[str, list[list[float]]] = {}  # learning role -> [wins, games] of whole iterations
        self.low_entropy: list[str] = []  # roles whose entropy was below the floor in their last iteration
        self.saved_step = self.cooldown_end = 0
        self.unreported = self.count = 0  # rollbacks since the last report; all rollbacks
        if config.checkpoints_back:
            self.store_checkpoint(0)

    def state_dict(self) -> Tree:
        results = {role: [list(row) for row in rows] for role, rows in self.results.items()}
        return {"rolling": list(self.rolling), "judged": results, "saved": self.saved_step,
                "until": self.cooldown_end, "untold": self.unreported, "count": self.count,
                "dim": list(self.low_entropy)}

    def load_state_dict(self, tree: Tree) -> None:
        rolling = stored_list(tree, "rolling")
        if bool(rolling) != bool(self.config.checkpoints_back) or len(rolling) > self.config.keep:
            raise ValueError(f"rolling has {len(rolling)} entries: expected 1 to {self.config.keep} where "
                             "rollbacks are on, else none")
        for checkpoint in rolling:
            stored_int(checkpoint, "step")
            self._check_loads(checkpoint["roles"])
        self.rolling, self.results = rolling, self._stored_results(tree["judged"])
        self.saved_step, self.cooldown_end = stored_int(tree, "saved"), stored_int(tree, "until")
        self.unreported, self.count = stored_int(tree, "untold"), stored_int(tree, "count")
        self.low_entropy = stored_texts(tree, "dim", self.learners)

    def _check_loads(self, roles: Mapping[str, Tree]) -> None:
        """Load a rolling checkpoint once: a rollback must not fail hours later."""
        for role, learner in self.learners.items():
            present = copy_arrays(learner.state_dict())
            try:
                learner.load_state_dict(roles[role])
            finally:
                learner.load_state_dict(present)

    def _stored_results(self, stored: Mapping[str, Any]) -> dict[str, list[list[float]]]:
        results: dict[str, list[list[float]]] = {}
        for role in stored:
            if role not in self.learners:
                raise ValueError(f"judged: unknown role {role!r:.60}")
            rows = [dict(zip(("wins", "games"), row, strict=True)) for row in stored_list(stored, role)]
            results[role] = [[stored_float(row, "wins", 0), stored_float(row, "games", 0)] for row in rows]
        return results

    def _checkpoint(self, step: int) -> Tree:
        roles = {role: copy_arrays(learner.state_dict()) for role, learner in self.learners.items()}
        return {"step": step, "roles": roles}

    def store_checkpoint(self, step: int) -> None:
        """Store a rolling checkpoint of all roles."""
        self.rolling = [*self.rolling, self._checkpoint(step)][-self.config.keep :]
        self.saved_step = step

    def start_over(self, step: int) -> None:
        """Replace all rolling checkpoints by the present state: after the warm-up or loaded policies."""
        if self.config.checkpoints_back:
            self.rolling = []
            self.store_checkpoint(step)

    def check(
        self, rollout: RolloutBuffer, metrics: Mapping[str, Any], step: int, learning_roles: Sequence[str],
        warmup: bool,
    ) -> list[str]:
        """Check the learning roles after an iteration; returns log lines.

        In the warm-up the opponents are scripted: win rates mean little, and only entropy is checked.
        """
        lines, causes = self._check_entropy(metrics, learning_roles)
        if not self.config.checkpoints_back:
            return lines
        if not warmup:
            causes = self._check_win_rates(rollout, learning_roles) | causes
        if causes and step >= self.cooldown_end:
            return [*lines, self._roll_back(causes, step)]
        if step - self.saved_step >= self.config.every:
            self.store_checkpoint(step)
        return lines

    def _check_entropy(
        self, metrics: Mapping[str, Any], learning_roles: Sequence[str]
    ) -> tuple[list[str], dict[str, str]]:
        """A log line for each role that fell below the floor; role -> cause of a rollback."""
        lines, causes, floor = [], {}, self.config.entropy_floor
        for role in learning_roles:
            entropy = metrics.get(f"{role}/entropy")
            if entropy is None or self.learners[role].policy.role.actions.kind != "continuous":
                continue
            low = entropy < floor
            if low:
                causes[role] = f"{role} has entropy {entropy:.3g}, below {floor:g}"
                if role not in self.low_entropy:
                    lines.append(f"Entropy: {causes[role]}: it hardly explores")
            others = [name for name in self.low_entropy if name != role]
            self.low_entropy = [*others, role] if low else others
        return lines, causes

    def _check_win_rates(self, rollout: RolloutBuffer, learning_roles: Sequence[str]) -> dict[str, str]:
        """role -> cause of a rollback, by its win rate."""
        c, causes = self.config, {}
        if set(self.results) != set(learning_roles):
            self.results = {role: [] for role in learning_roles}  # a new phase
        for role, rows in self.results.items():
            slot, outcome = rollout.results(role)
            learner_outcomes = outcome[slot == 0]
            rows.append([float(learner_outcomes.sum(dtype=np.float64)), float(len(learner_outcomes))])
            # Whole iterations: among games that start together, undecided ones end last.
            while sum(games for _, games in rows[1:]) >= c.episodes:
                del rows[0]
            wins, games = (sum(column) for column in zip(*rows))
            if games >= c.episodes and not c.min_win_rate < wins / games < c.max_win_rate:
                too_low = wins / games <= c.min_win_rate
                bound = f"<= {c.min_win_rate:g}" if too_low else f">= {c.max_win_rate:g}"
                share = f"{wins:g} of its last {games:g} training games ({wins / games:.3f} {bound})"
                causes[role] = f"{role} won {share}"
        return causes

    def _roll_back(self, causes: Mapping[str, str], step: int) -> str:
        index = max(0, len(self.rolling) - self.config.checkpoints_back)
        del self.rolling[index + 1 :]  # later ones led to the collapse
        checkpoint = self.rolling[index]
        roles = list(self.learners) if self.config.bilateral else list(causes)
        for role in roles:
            self.learners[role].load_state_dict(checkpoint["roles"][role])
        self.results, self.low_entropy = {}, []
        self.saved_step, self.cooldown_end = step, step + self.config.cooldown
        self.unreported, self.count = self.unreported + 1, self.count + 1
        restored = " and ".join(roles)
        return (
            f"ROLLBACK {self.count} at step {step:,}: {'; '.join(causes.values())}: "
            f"{restored} back to step {checkpoint['step']:,}"
        )


class Rollback(Component):
    """Restores collapsed roles, and stores the policies of milestones in the run folder."""

    name = "rollback"
    Config = RollbackConfig
    needs = "learner=ppo|expert"
    copies_setting = "keep"

    def __init__(self, config: RollbackConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.milestones: list[str] = []  # names of the phases and levels that ended in this iteration

    @classmethod
    def check(cls, config: RollbackConfig, setup: Setup) -> None:
        check_rollback(config, setup.config.schedule.kind, list(setup.spec.roles))

    @classmethod
    def memory_bytes(cls, config: RollbackConfig, setup: Setup) -> int:
        copies = 4 * config.keep if config.checkpoints_back else 0
        return copies * sum(network_bytes(role, setup.config) for role in setup.spec.roles.values())

    @classmethod
    def shrink(cls, config: RollbackConfig, small: SmallRun) -> Mapping[str, Any]:
        """A rolling checkpoint at every iteration; any win rate counts as a collapse."""
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
        for line in self.guard.check(rollout, metrics, clock.step, phase.roles, warmup):
            self.setup.log.line(line)
        if clock.iteration >= phase.last:
            # Level warm-ups can repeat and need the step in their name; phases never repeat.
            self.milestones.append(f"{phase.name} step {clock.step}" if phase.level_warmup else phase.name)
            if warmup:
                self.guard.start_over(clock.step)

    def evaluation_fields(self, clock: Clock) -> Mapping[str, Any]:
        return {"rollbacks": self.guard.unreported}  # since the last evaluation

    def after_evaluation(self, evaluation: Any, rollout: RolloutBuffer, clock: Clock) -> None:
        self.guard.unreported = 0
        if evaluation.row.get("moved", 0) > 0:
            self.milestones.append(f"level {evaluation.row['level'] + 1} step {clock.step}")

    def end_iteration(self, clock: Clock) -> None:
        """Store the policies of milestones, if rollbacks are on."""
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
