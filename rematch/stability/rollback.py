"""Rollback: when a learning role collapses, or runs away from the others, it goes back to what it was.

All roles are kept together, weights, optimiser and magnet, from before the first iteration on: every role
always has something to go back to. These rolling checkpoints come and go; milestones (a phase's end, a step
of the curriculum) stay for good, as policies in the run's folder. What is judged are the learning role's
training games, against whoever sat opposite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematch.agents.build import Learner
from rematch.core.arrays import Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.rollout.rollout_buffer import Tape


@dataclass(frozen=True, kw_only=True)
class RollbackConfig:
    """When learning is undone, and how far. Steps are of all games."""

    back: int = knob(0, "rolling checkpoints that a rollback goes back; 0: there is no rollback", low=0)
    every: int = knob(
        10_000, "steps between rolling checkpoints; at most one per iteration", low=1, needs="back"
    )
    keep: int = knob(15, "rolling checkpoints kept", low=1, high=1000, needs="back")
    episodes: int = knob(
        200, "at least so many training games are judged, of whole iterations", low=1, needs="back"
    )
    low: float = knob(
        0.02, "a learning role that wins this share or less is rolled back", low=0, high=1, needs="back"
    )
    high: float = knob(
        0.98, "a learning role that wins this share or more is rolled back", low=0, high=1, needs="back"
    )
    cooldown: int = knob(50_000, "steps after a rollback without another", low=0, needs="back")
    bilateral: bool = knob(False, "a rollback restores all roles, not only who learns", needs="back")
    entropy_floor: float = knob(
        -2.0, "entropy of Gaussian play below which a line warns, and a rollback comes where there are any"
    )

    def check(self) -> None:
        if self.low >= self.high:
            raise ConfigError(f"low = {self.low:g}: expected less than high = {self.high:g}")
        if self.back > self.keep:
            raise ConfigError(f"back = {self.back}: expected at most keep = {self.keep}, there are no others")


def check_rollback(config: RollbackConfig, kind: str, roles: Sequence[str]) -> None:
    """Refuse rollbacks where they cannot work: kind is schedule.kind."""
    why = ""
    if kind == "micro":
        why = "micro-phases are shorter than any judgement of them"
    elif len(roles) < 2:
        why = "a role that wins always has collapsed only against another role, and the world has one"
    if config.back and why:
        raise ConfigError(f"rollback.back = {config.back}: {why}; expected 0")


def copied(tree: Tree) -> Tree:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in tree.items()}


class Rollback:
    """Keeps what all roles were, and judges the ones that learn after every iteration."""

    def __init__(self, config: RollbackConfig, learners: Mapping[str, Learner]) -> None:
        self.config, self.learners = config, learners
        self.rolling: list[Tree] = []  # oldest first, each {"step": ..., "roles": {role: learner.state()}}
        self.judged: dict[str, list[list[float]]] = {}  # learning role -> [wins, games] of whole iterations
        self.dim: list[str] = []  # roles whose entropy was below the floor when they last learnt
        self.saved = self.until = self.untold = self.count = 0
        if config.back:
            self.keep(0)

    def state(self) -> Tree:
        judged = {role: [list(row) for row in rows] for role, rows in self.judged.items()}
        lists = {"rolling": list(self.rolling), "judged": judged}
        numbers = {name: getattr(self, name) for name in ("saved", "until", "untold", "count")}
        return lists | numbers | {"dim": list(self.dim)}

    def restore(self, tree: Tree) -> None:
        for name in self.state():
            setattr(self, name, tree[name])

    def _now(self, step: int) -> Tree:
        roles = {role: copied(learner.state()) for role, learner in self.learners.items()}
        return {"step": step, "roles": roles}

    def keep(self, step: int) -> None:
        """A rolling checkpoint of all roles."""
        self.rolling = [*self.rolling, self._now(step)][-self.config.keep :]
        self.saved = step

    def start_over(self, step: int) -> None:
        """The cold start is over: nothing before it is gone back to."""
        if self.config.back:
            self.rolling = []
            self.keep(step)

    def told(self) -> int:
        """How many rollbacks there were since this was last asked."""
        count, self.untold = self.untold, 0
        return count

    def judge(
        self, tape: Tape, metrics: Mapping[str, Any], step: int, learnt: Sequence[str], cold: bool
    ) -> list[str]:
        """After an iteration in which the roles `learnt` did: what happened, as lines for people.

        In the cold start winning is no sign of anything: the rival is scripted. Only entropy is judged then.
        """
        lines, causes = self._entropies(metrics, learnt)
        if not self.config.back:
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

    def _shares(self, tape: Tape, learnt: Sequence[str]) -> dict[str, str]:
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
            if games >= c.episodes and not c.low < won / games < c.high:
                bound = f"<= {c.low:g}" if won / games <= c.low else f">= {c.high:g}"
                share = f"{won:g} of its last {games:g} training games ({won / games:.3f} {bound})"
                causes[role] = f"{role} won {share}"
        return causes

    def _go_back(self, causes: Mapping[str, str], step: int) -> str:
        at = max(0, len(self.rolling) - self.config.back)
        del self.rolling[at + 1 :]  # what came after it led here
        then = self.rolling[at]
        roles = list(self.learners) if self.config.bilateral else list(causes)
        for role in roles:
            self.learners[role].restore(then["roles"][role])
        self.judged, self.dim = {}, []
        self.saved, self.until = step, step + self.config.cooldown
        self.untold, self.count = self.untold + 1, self.count + 1
        who = " and ".join(roles)
        return (
            f"ROLLBACK {self.count} at step {step:,}: {'; '.join(causes.values())}: "
            f"{who} back to step {then['step']:,}"
        )
