"""Who learns when.

`together`: all roles learn from the same games. `alternate`: S0, a cold start in which the last role learns
against a scripted player; then phases S1, S2 ... in which one role learns and the others stay as they are.
`micro`: the same with phases as short as one rollout. What holds in an iteration follows from its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from rematch.config import ConfigError, knob, nearest


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
        needs="kind=alternate|micro",
    )
    cold_start_rival: str = knob("random", "who plays the other roles in S0", needs="cold_start_steps")
    phase_steps: int = knob(500_000, "steps of a phase, at least an iteration", low=1, needs="kind=alternate")
    max_phases: int = knob(
        0, "the run ends after so many phases, S0 not counted; 0: no limit", low=0, needs="kind=alternate"
    )
    micro_phase_steps: int = knob(
        0, "steps of a micro-phase; up to an iteration's: one rollout", low=0, needs="kind=micro"
    )
    convergence_consecutive: int = knob(
        0,
        "the run ends when the gap's upper bound is below eta in so many evaluations in a row, S0's not "
        "counted, and the pair does not lose to scripted players; 0: never",
        low=0,
    )
    eta: float = knob(
        0.10, "gap below which a pair is balanced", low=0, high=1, needs="convergence_consecutive"
    )

    def iterations(self, steps: int) -> int | None:
        """Iterations of `steps` steps after which `max_phases` are over; None: no limit."""
        if self.kind != "alternate" or not self.max_phases:
            return None
        return -(-(self.cold_start_steps + self.max_phases * max(self.phase_steps, steps)) // steps)


def check_schedule(config: ScheduleConfig, module: ModuleType, roles: Sequence[str]) -> None:
    """Refuse what a world with these roles and scripted players cannot do."""
    many = f"{len(roles)} roles" if len(roles) > 1 else "one role"
    if config.kind != "together" and len(roles) < 2:
        raise ConfigError(
            f"schedule.kind = {config.kind!r}: roles learn in turn, the world has {many}; expected together"
        )
    if config.convergence_consecutive and len(roles) != 2:
        raise ConfigError(
            f"schedule.convergence_consecutive = {config.convergence_consecutive}: a gap is between two "
            f"roles, and the world has {many}; expected 0"
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
    """What holds in an iteration: which phase it is (0: the cold start), and the roles that learn."""

    number: int
    roles: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"S{self.number}"


class Schedule:
    """Names the phase of each iteration of `steps` steps (all games together)."""

    def __init__(self, config: ScheduleConfig, roles: Sequence[str], steps: int) -> None:
        self.config, self.roles, self.steps = config, tuple(roles), steps
        self.apart = config.kind != "together"  # whether roles learn apart from each other
        self.cold = config.cold_start_steps if self.apart else 0
        # A phase begins with the first iteration at or after its step: it cannot be shorter than one.
        wanted = {"alternate": config.phase_steps, "micro": config.micro_phase_steps}.get(config.kind, 0)
        self.length = max(steps, wanted)

    def phase(self, iteration: int) -> Phase:
        if not self.apart:
            return Phase(1, self.roles)
        since = iteration * self.steps - self.cold
        if since < 0:
            return Phase(0, self.roles[-1:])
        turn = since // self.length
        return Phase(1 + turn, (self.roles[turn % len(self.roles)],))

    def learning(self, iteration: int) -> tuple[str, ...]:
        return self.phase(iteration).roles

    def learnt(self, first: int, last: int) -> set[str]:
        """The roles that learnt in any of the iterations first .. last - 1."""
        every = range(max(first, 0), last) if self.apart else range(1)
        return {role for iteration in every for role in self.learning(iteration)}

    def rests(self, iteration: int) -> bool:
        """Whether a phase has just ended that is followed by an evaluation: S0, or any of `alternate`."""
        before, now = self.phase(iteration - 1), self.phase(iteration)
        return before != now and (self.config.kind == "alternate" or before.number == 0)
