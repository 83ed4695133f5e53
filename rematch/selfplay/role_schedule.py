"""Who learns when.

`together`: all roles learn from the same games. `alternate`: S0, a cold start in which the last role learns
against a scripted player; then phases S1, S2 ... in which one role learns and the others stay as they are.
`micro`: the same with phases as short as one rollout. Phases take turns, unless an evaluation says otherwise:
options let the losing role, or at a new level of the curriculum the last role, learn next.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from rematch.core.arrays import Tree
from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError

APART = "kind=alternate|micro"
LEAST_RATE = 0.1  # of the learning rate that damping leaves


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Which roles learn in an iteration, and when a balanced pair may end the run. Steps are of all games."""

    kind: str = knob(
        "together", "which roles learn in an iteration", choices=("together", "alternate", "micro")
    )
    cold_start_steps: int = knob(
        200_000,
        "S0: so many steps the last role learns against cold_start_rival; 0: none",
        low=0,
        needs=APART,
    )
    cold_start_rival: str = knob("random", "who plays the other roles in S0", needs="cold_start_steps")
    phase_steps: int = knob(500_000, "steps of a phase, at least an iteration", low=1, needs="kind=alternate")
    phase_warmup: tuple[int, ...] = knob(
        (),
        "shorter phases at first: steps of the phases of the first round of roles, of the second, ...",
        low=1,
        needs="kind=alternate",
    )
    last_multiplier: float = knob(
        1.0, "phases of the last role are so many times as long", low=0.01, high=100, needs=APART
    )
    last_first: bool = knob(
        False, "at a new level of the curriculum the last role learns first", needs=APART
    )
    warm_start_steps: int = knob(
        0,
        "at a new level of the curriculum the last role learns so many steps before the next phase; 0: none",
        low=0,
        needs=APART,
    )
    adaptive_threshold: float = knob(
        0.0,
        "after an evaluation with a larger gap the losing role has the next adaptive_phases phases; 0: never",
        low=0,
        high=1,
        needs=APART,
    )
    adaptive_phases: int = knob(20, "phases in a row for the losing role", low=1, needs="adaptive_threshold")
    force_switch_steps: int = knob(
        0, "no role learns longer than so many steps while the others wait; 0: no limit", low=0, needs=APART
    )
    dampen_threshold: float = knob(
        0.0,
        "below this gap the learning rate shrinks with it, down to a tenth; 0: never",
        low=0,
        high=1,
    )
    max_phases: int = knob(
        0, "the run ends after so many phases, S0 not counted; 0: no limit", low=0, needs="kind=alternate"
    )
    micro_phase_steps: int = knob(
        0, "steps of a micro-phase; up to an iteration's: one rollout", low=0, needs="kind=micro"
    )
    convergence_consecutive: int = knob(
        0,
        "the run ends when the gap's upper bound is below eta in so many evaluations in a row, S0's not "
        "counted, on a curriculum's last level, and the pair does not lose to scripted players; 0: never",
        low=0,
    )
    eta: float = knob(
        0.10, "gap below which a pair is balanced", low=0, high=1, needs="convergence_consecutive"
    )

    def length(self, number: int, last: bool, roles: int, steps: int) -> int:
        """Steps of phase `number` (from 1) of one of so many roles, at least an iteration of `steps`."""
        wanted = self.phase_steps if self.kind == "alternate" else self.micro_phase_steps
        turn = (number - 1) // roles
        if turn < len(self.phase_warmup):
            wanted = min(wanted, self.phase_warmup[turn])
        wanted = max(steps, wanted)
        return max(steps, round(wanted * self.last_multiplier)) if last else wanted

    def iterations(self, roles: int, steps: int) -> int | None:
        """Iterations after which `max_phases` are over; None: no limit, or it depends on what happens."""
        turns = self.last_first or self.adaptive_threshold > 0
        depends = self.warm_start_steps or self.force_switch_steps or (self.last_multiplier != 1 and turns)
        if self.kind != "alternate" or not self.max_phases or depends:
            return None
        phases = range(1, self.max_phases + 1)
        total = sum(self.length(number, number % roles == 0, roles, steps) for number in phases)
        return -(-(self.cold_start_steps + total) // steps)


def check_schedule(config: ScheduleConfig, module: ModuleType, roles: Sequence[str]) -> None:
    """Refuse what a world with these roles and scripted players cannot do."""
    many = f"{len(roles)} roles" if len(roles) > 1 else "one role"
    if config.kind != "together" and len(roles) < 2:
        raise ConfigError(
            f"schedule.kind = {config.kind!r}: roles learn in turn, the world has {many}; expected together"
        )
    for name in ("convergence_consecutive", "adaptive_threshold", "dampen_threshold"):
        if getattr(config, name) and len(roles) != 2:
            raise ConfigError(
                f"schedule.{name} = {getattr(config, name):g}: a gap is between two roles, and the world has "
                f"{many}; expected 0"
            )
    if config.kind == "together" or not config.cold_start_steps:
        return
    for role in roles[:-1]:
        known = module.BOTS.get(role, ())
        if config.cold_start_rival not in known:
            near = nearest(config.cold_start_rival, known)
            raise ConfigError(
                f"schedule.cold_start_rival = {config.cold_start_rival!r}: expected a scripted {role}: "
                f"{', '.join(known) or 'there is none, so cold_start_steps 0'}"
                + (f"; nearest: {near}" if near else "")
            )


@dataclass(frozen=True)
class Phase:
    """Iterations `first` .. `last` - 1, in which these roles learn. 0 is the cold start."""

    number: int
    roles: tuple[str, ...]
    first: int
    last: int
    warm: bool = False  # a warm start before the next phase: it has that one's number

    @property
    def name(self) -> str:
        return f"S{self.number}{'w' if self.warm else ''}"


class Schedule:
    """The phase that is played and, from what was reported, the next one. An iteration is `steps` steps."""

    def __init__(self, config: ScheduleConfig, roles: Sequence[str], steps: int) -> None:
        self.config, self.roles, self.steps = config, tuple(roles), steps
        self.apart = config.kind != "together"  # whether roles learn apart from each other
        self.cold = config.cold_start_steps if self.apart else 0
        self.until = 0  # step at which the phase ends; it takes the whole iteration that this falls into
        self.upcoming = self.roles[0]  # whose turn is next
        self.boosted, self.boosts = "", 0  # the losing role, and how many of the next phases are its own
        self.warm = False  # whether a warm start comes next
        self.streak = 0  # steps for which the present role has learnt while the others waited
        self.rate = 1.0  # of the learning rate
        self.learnt: list[str] = []  # the roles that learnt since the newest snapshots
        self.phase = Phase(1, self.roles, 0, sys.maxsize)
        if self.apart:
            self.phase = Phase(0, self.roles[-1:], 0, 0)
            self.phase = self._lasting(0, self.roles[-1], self.cold)
            self.turn(0)

    def turn(self, iteration: int) -> None:
        """Before an iteration: the next phase begins where the last one is over."""
        while iteration >= self.phase.last:
            self.phase = self._next()

    def _next(self) -> Phase:
        c, now, n = self.config, self.phase, len(self.roles)
        number = now.number if now.warm else now.number + 1
        if self.warm:
            self.warm = False
            return self._lasting(number, self.roles[-1], c.warm_start_steps, warm=True)
        role = self.upcoming
        if self.boosts:
            role, self.boosts = self.boosted, self.boosts - 1
        streak = self.streak if now.number and now.roles == (role,) else 0
        if c.force_switch_steps and streak + self.steps > c.force_switch_steps:
            role, self.boosts, streak = self._after(role), 0, 0
        length = c.length(number, role == self.roles[-1], n, self.steps)
        if c.force_switch_steps:
            length = max(self.steps, min(length, c.force_switch_steps - streak))
        self.upcoming = self._after(role)
        return self._lasting(number, role, length)

    def _after(self, role: str) -> str:
        return self.roles[(self.roles.index(role) + 1) % len(self.roles)]

    def _lasting(self, number: int, role: str, steps: int, warm: bool = False) -> Phase:
        """The phase of so many steps after the present one."""
        first = self.phase.last
        goes_on = self.phase.number > 0 and self.phase.roles == (role,)
        self.streak = steps + (self.streak if goes_on else 0)
        self.until += steps
        return Phase(number, (role,), first, max(-(-self.until // self.steps), first), warm)

    def note(self, roles: Sequence[str]) -> None:
        """These roles have just learnt."""
        self.learnt = [role for role in self.roles if role in self.learnt or role in roles]

    def rests(self, iteration: int) -> bool:
        """Whether a phase has just ended that is followed by an evaluation: S0, or any of `alternate`."""
        ended = iteration >= self.phase.last and not self.phase.warm
        return ended and (self.config.kind == "alternate" or self.phase.number == 0)

    def over(self, iteration: int) -> bool:
        """Whether all the phases there may be have been played."""
        limit = self.config.max_phases if self.config.kind == "alternate" else 0
        return bool(limit) and self.phase.number >= limit and self.rests(iteration)

    def report(self, row: Mapping[str, Any], moved: int) -> None:
        """An evaluation, and by how many levels the curriculum has moved after it."""
        c, gap = self.config, float(row.get("gap", 1.0))
        if c.dampen_threshold:
            self.rate = max(LEAST_RATE, min(1.0, gap / c.dampen_threshold))
        if c.adaptive_threshold and self.phase.number:
            scores = {role: rate["rate"] for role, rate in row["rates"].items()}
            self.boosted = min(scores, key=lambda role: scores[role])
            self.boosts = c.adaptive_phases if gap > c.adaptive_threshold else 0
        if moved > 0 and self.apart:
            self.warm = bool(c.warm_start_steps)
            if c.last_first:
                self.upcoming, self.boosts = self.roles[-1], 0

    def state(self) -> Tree:
        names = ("until", "upcoming", "boosted", "boosts", "warm", "streak", "rate", "learnt")
        return {name: getattr(self, name) for name in names} | {"phase": asdict(self.phase)}

    def restore(self, tree: Tree) -> None:
        for name in self.state():
            setattr(self, name, tree[name])
        self.phase = Phase(**tree["phase"] | {"roles": tuple(tree["phase"]["roles"])})
