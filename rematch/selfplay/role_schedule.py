"""The schedule of learning roles.

`simultaneous`: all roles learn from the same games. `alternating`: S0, a warm-up in which the last role
learns against a bot; then phases S1, S2 ... in which one role learns and the others stay as they are.
`micro`: the same with phases as short as one rollout. The roles take turns. With some settings an evaluation
changes the order: the losing role learns next, or the last role on a new level of the curriculum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rematch.core.arrays import Tree, stored_bool, stored_float, stored_int, stored_text, stored_texts
from rematch.core.clock import Clock, Phase, Request
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError
from rematch.core.world import Next
from rematch.evaluation.verdict import alarms, below_baseline, count_balanced
from rematch.selfplay.league import League
from rematch.worlds.game import Game

MICRO = 10  # micro-phases per line of the log
ALTERNATING = "kind=alternating|micro"
MIN_LEARNING_RATE_FACTOR = 0.1  # the least to which damping reduces it


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Roles that learn in each iteration, and the end of a balanced run. Steps count all games."""

    kind: str = knob(
        "simultaneous", "roles that learn; simultaneous: all roles in every iteration; alternating: one role "
        "per phase, with an evaluation after each phase; micro: one role per short phase, without these "
        "evaluations", choices=("simultaneous", "alternating", "micro"),
    )  # fmt: skip
    warmup_steps: int = knob(
        200_000, "length of the warm-up phase S0, in which the last role learns against a bot; 0: no warm-up",
        unit="steps", low=0, needs=ALTERNATING,
    )  # fmt: skip
    warmup_opponent: str = knob(
        "random", "bot that plays the other roles in the warm-up phase", needs="warmup_steps"
    )
    phase_steps: int = knob(
        500_000, "length of a phase, at least one iteration", unit="steps", low=1, needs="kind=alternating"
    )
    short_phases: tuple[int, ...] = knob(
        (), "lengths of shorter phases at the start: of the first round of roles, of the second round, and "
        "so on", unit="steps", low=1, needs="kind=alternating",
    )  # fmt: skip
    last_multiplier: float = knob(
        1.0, "factor on the length of the last role's phases", low=0.01, high=100, needs=ALTERNATING
    )
    last_first: bool = knob(
        False, "on a new level of the curriculum, the last role learns first", needs=ALTERNATING
    )
    level_warmup_steps: int = knob(
        0, "length of an additional phase of the last role on each new level of the curriculum; 0: none",
        unit="steps", low=0, needs=ALTERNATING,
    )  # fmt: skip
    adaptive_threshold: float = knob(
        0.0, "gap between the roles' win rates above which the losing role gets the next phases; 0: never",
        unit="fraction", low=0, high=1, needs=ALTERNATING,
    )  # fmt: skip
    adaptive_phases: int = knob(
        20, "consecutive phases that the losing role gets", unit="phases", low=1, needs="adaptive_threshold"
    )
    force_switch_steps: int = knob(
        0, "largest number of steps that one role learns without a phase of another role; 0: no limit",
        unit="steps", low=0, needs=ALTERNATING,
    )  # fmt: skip
    dampen_threshold: float = knob(
        0.0, "gap between the roles' win rates below which the learning rate is reduced in proportion to "
        "it, down to a tenth; 0: never", unit="fraction", low=0, high=1,
    )  # fmt: skip
    max_phases: int = knob(
        0, "phases after which the run ends, the warm-up phase not included; 0: no limit", unit="phases",
        low=0, needs="kind=alternating",
    )  # fmt: skip
    micro_phase_steps: int = knob(
        0, "length of a micro-phase, at least one iteration", unit="steps", low=0, needs="kind=micro"
    )
    convergence_consecutive: int = knob(
        0, "consecutive balanced evaluations after which the run ends: the gap's upper bound is below eta, "
        "on the last level of the curriculum, outside the warm-up, and no role loses to its bots; 0: never",
        unit="evaluations", low=0,
    )  # fmt: skip
    eta: float = knob(
        0.10, "gap between the roles' win rates below which they count as balanced", unit="fraction", low=0,
        high=1, needs="convergence_consecutive",
    )  # fmt: skip

    def length(self, number: int, last: bool, roles: int, steps: int) -> int:
        """Steps of phase `number` (from 1), at least the `steps` of an iteration; `last`: the last role."""
        length = self.phase_steps if self.kind == "alternating" else self.micro_phase_steps
        round_index = (number - 1) // roles
        if round_index < len(self.short_phases):
            length = min(length, self.short_phases[round_index])
        length = max(steps, length)
        return max(steps, round(length * self.last_multiplier)) if last else length

    def iterations(self, roles: int, steps: int) -> int | None:
        """Iterations after which `max_phases` have ended; None: no limit, or it depends on evaluations."""
        reordered = self.last_first or self.adaptive_threshold > 0
        depends = (self.level_warmup_steps or self.force_switch_steps
                   or (self.last_multiplier != 1 and reordered))
        if self.kind != "alternating" or not self.max_phases or depends:
            return None
        phases = range(1, self.max_phases + 1)
        total = sum(self.length(number, number % roles == 0, roles, steps) for number in phases)
        return -(-(self.warmup_steps + total) // steps)


def check_schedule(config: ScheduleConfig, game: Game, roles: Sequence[str]) -> None:
    """ConfigError for a schedule that does not fit the roles and bots of the game."""
    count = f"{len(roles)} roles" if len(roles) > 1 else "one role"
    if config.kind != "simultaneous" and len(roles) < 2:
        raise ConfigError(
            f"schedule.kind = {config.kind!r}: roles learn in turn, the world has {count}; "
            "expected simultaneous"
        )
    for name in ("convergence_consecutive", "adaptive_threshold", "dampen_threshold"):
        if getattr(config, name) and len(roles) != 2:
            raise ConfigError(
                f"schedule.{name} = {getattr(config, name):g}: a gap is between two roles, and the world has "
                f"{count}; expected 0"
            )
    if config.kind == "simultaneous" or not config.warmup_steps:
        return
    for role in roles[:-1]:
        bots = game.bot_names(role)
        if config.warmup_opponent not in bots:
            near = nearest(config.warmup_opponent, bots)
            hint = f"; nearest: {near}" if near else ""
            raise ConfigError(
                f"schedule.warmup_opponent = {config.warmup_opponent!r}: expected a scripted {role}: "
                f"{', '.join(bots) or 'there is none, so warmup_steps 0'}{hint}"
            )


# key in a checkpoint -> attribute of Schedule
STATE = {"until": "end_step", "upcoming": "next_role", "boosted": "boosted", "boosts": "boosts",
         "warm": "level_warmup_next", "streak": "streak", "rate": "rate_factor"}


class Schedule:
    """The present phase, and the next one by the evaluations so far. An iteration has `steps` steps."""

    def __init__(self, config: ScheduleConfig, roles: Sequence[str], steps: int) -> None:
        self.config, self.roles, self.steps = config, tuple(roles), steps
        self.alternates = config.kind != "simultaneous"  # whether one role learns at a time
        self.warmup_steps = config.warmup_steps if self.alternates else 0
        self.end_step = 0  # step at which the phase ends; the phase includes the whole iteration of this step
        self.next_role = self.roles[0]
        self.boosted, self.boosts = "", 0  # the losing role, and the number of next phases that it gets
        self.level_warmup_next = False  # whether the next phase is a warm-up on a new level
        self.streak = 0  # steps that the present role has learned without a phase of another role
        self.rate_factor = 1.0  # factor on the learning rate
        self.phase = Phase(1, self.roles, 0, sys.maxsize)
        if self.alternates:
            self.phase = Phase(0, self.roles[-1:], 0, 0)
            self.phase = self._phase_of(0, self.roles[-1], self.warmup_steps)
            self.advance(0)

    def advance(self, iteration: int) -> None:
        """Before an iteration: start the next phase if the present one has ended."""
        while iteration >= self.phase.last:
            self.phase = self._next()

    def _next(self) -> Phase:
        c, present, n = self.config, self.phase, len(self.roles)
        number = present.number if present.level_warmup else present.number + 1
        if self.level_warmup_next:
            self.level_warmup_next = False
            return self._phase_of(number, self.roles[-1], c.level_warmup_steps, level_warmup=True)
        role = self.next_role
        if self.boosts:
            role, self.boosts = self.boosted, self.boosts - 1
        streak = self.streak if present.number and present.roles == (role,) else 0
        if c.force_switch_steps and streak + self.steps > c.force_switch_steps:
            role = self._role_after(role)
            self.boosts = streak = 0
        length = c.length(number, role == self.roles[-1], n, self.steps)
        if c.force_switch_steps:
            length = max(self.steps, min(length, c.force_switch_steps - streak))
        self.next_role = self._role_after(role)
        return self._phase_of(number, role, length)

    def _role_after(self, role: str) -> str:
        return self.roles[(self.roles.index(role) + 1) % len(self.roles)]

    def _phase_of(self, number: int, role: str, steps: int, level_warmup: bool = False) -> Phase:
        """The phase of this role and length, after the present one."""
        first = self.phase.last
        same_role = self.phase.number > 0 and self.phase.roles == (role,)
        self.streak = steps + (self.streak if same_role else 0)
        self.end_step += steps
        return Phase(number, (role,), first, max(-(-self.end_step // self.steps), first), level_warmup)

    def phase_ended(self, iteration: int) -> bool:
        """Whether a phase has just ended that an evaluation follows: S0, or any phase of `alternating`."""
        ended = iteration >= self.phase.last and not self.phase.level_warmup
        return ended and (self.config.kind == "alternating" or self.phase.number == 0)

    def finished(self, iteration: int) -> bool:
        """Whether `max_phases` have ended."""
        limit = self.config.max_phases if self.config.kind == "alternating" else 0
        return bool(limit) and self.phase.number >= limit and self.phase_ended(iteration)

    def record_evaluation(self, row: Mapping[str, Any], moved: int) -> None:
        """Read an evaluation, after which the curriculum moved by `moved` levels."""
        c, gap = self.config, float(row.get("gap", 1.0))
        if c.dampen_threshold:
            self.rate_factor = max(MIN_LEARNING_RATE_FACTOR, min(1.0, gap / c.dampen_threshold))
        if c.adaptive_threshold and self.phase.number:
            scores = {role: rate["rate"] for role, rate in row["rates"].items()}
            self.boosted = min(scores, key=lambda role: scores[role])
            self.boosts = c.adaptive_phases if gap > c.adaptive_threshold else 0
        if moved > 0 and self.alternates:
            self.level_warmup_next = bool(c.level_warmup_steps)
            if c.last_first:
                self.next_role, self.boosts = self.roles[-1], 0

    def state_dict(self) -> Tree:
        state = {key: getattr(self, attribute) for key, attribute in STATE.items()}
        return state | {"phase": asdict(self.phase)}

    def load_state_dict(self, tree: Tree) -> None:
        self.end_step, self.streak = stored_int(tree, "until"), stored_int(tree, "streak")
        self.next_role = stored_text(tree, "upcoming", self.roles)
        self.boosts = stored_int(tree, "boosts")
        self.boosted = stored_text(tree, "boosted", self.roles if self.boosts else ("", *self.roles))
        self.level_warmup_next = stored_bool(tree, "warm")
        self.rate_factor = stored_float(tree, "rate", MIN_LEARNING_RATE_FACTOR, 1.0)
        self.phase = self._stored_phase(tree["phase"])

    def _stored_phase(self, tree: Tree) -> Phase:
        roles = tuple(stored_texts(tree, "roles", self.roles))
        if len(roles) != 1 if self.alternates else roles != self.roles:
            raise ValueError(f"phase: roles = {roles!r:.60}: expected other ones with schedule.kind = "
                             f"{self.config.kind}")
        first = stored_int(tree, "first")
        return Phase(stored_int(tree, "number"), roles, first, stored_int(tree, "last", first),
                     stored_bool(tree, "level_warmup"))


class RoleSchedule(Component):
    """Chooses the roles that learn, seats the bot of the warm-up, and ends a run that is balanced."""

    name = "schedule"
    Config = ScheduleConfig
    needs = "learner=ppo|expert"
    in_play = True

    def __init__(self, config: ScheduleConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        steps = setup.config.games * setup.config.steps
        self.schedule = Schedule(config, list(setup.spec.roles), steps)
        self.slots: dict[str, int] = {}  # role -> slot of the bot in the warm-up
        self.announced: Phase | None = None

    @classmethod
    def check(cls, config: ScheduleConfig, setup: Setup) -> None:
        check_schedule(config, setup.game, list(setup.spec.roles))
        if setup.config.lag and config.kind != "simultaneous":
            raise ConfigError(f"lag = {setup.config.lag}: with schedule.kind = {config.kind} an iteration "
                              "decides which role learns in the next one, whose rollout would be played "
                              "already; expected 0, or schedule.kind simultaneous")
        if setup.config.curriculum.kind == "none" and (config.last_first or config.level_warmup_steps):
            name = "last_first" if config.last_first else "level_warmup_steps"
            raise ConfigError(
                f"schedule.{name} = {getattr(config, name)}: without a curriculum there is no new level; "
                "expected curriculum.kind discrete or smooth"
            )

    @classmethod
    def no_effect(cls, key: str, config: ScheduleConfig, setup: Setup) -> str:
        short = config.short_phases
        if key == "short_phases" and short and min(short) >= config.phase_steps:
            return f"none of it is shorter than schedule.phase_steps = {config.phase_steps}"
        return ""

    @classmethod
    def shrink(cls, config: ScheduleConfig, small: SmallRun) -> Mapping[str, Any]:
        return shrunken_settings(config, small)

    def connect(self) -> None:
        for role in self.schedule.roles[:-1] if self.schedule.warmup_steps else ():
            bot = self.setup.game.bot(self.config.warmup_opponent, role)
            self.slots[role] = self.setup.seating[role].seat_player(bot)
        self.league = self.setup.get(League)

    def start(self, clock: Clock) -> None:
        if self.slots:
            self.setup.collector.seat_running_games(self.setup.world.next.slot)  # no game has started yet

    def before_rollout(self, clock: Clock, next: Next) -> None:
        """The learners have all seats; in the warm-up the bot plays the other roles."""
        self.schedule.advance(clock.iteration)
        phase = clock.phase = self.schedule.phase
        clock.learning_rate_factor = self.schedule.rate_factor
        clock.fixed_slots = {} if phase.number else self.slots
        next.fix_slots(self.setup.spec.slots_of(clock.fixed_slots))
        self._announce(clock)

    def _announce(self, clock: Clock) -> None:
        """A line when a phase starts; for micro-phases, when every MICRO-th starts."""
        schedule, phase = self.schedule, self.schedule.phase
        if not schedule.alternates or clock.iteration != phase.first or self.announced == phase:
            return
        self.announced = phase
        opponent = "" if phase.number else f" against {self.config.warmup_opponent}"
        text = f"Phase {phase.name}: {phase.roles[0]} learns{opponent}, from step {clock.step:,}"
        if phase.level_warmup:
            text += f"; a warm-up on the new level, until step {phase.last * schedule.steps:,}"
        elif phase.number and (phase.number - 1) // len(schedule.roles) < len(schedule.config.short_phases):
            text += f"; WARMUP: only {(phase.last - phase.first) * schedule.steps:,} steps"
        if schedule.config.kind == "micro" and phase.number and not phase.level_warmup:
            if phase.number % MICRO != 1:
                return
            turns = f"{' and '.join(schedule.roles)} learn in turn"
            text = f"{text}; micro {phase.number}{self._pool_sizes()}; {turns}"
        self.setup.log.line(text)

    def _pool_sizes(self) -> str:
        if self.league is None:
            return ""
        pools = self.league.matchmaker.pools
        return f", Pool: {', '.join(f'{len(pool.snapshots)} {role}' for role, pool in pools.items())}"

    def requests(self, clock: Clock) -> Iterable[Request]:
        if self.schedule.finished(clock.iteration):
            yield Request.END
        if self.schedule.phase_ended(clock.iteration):
            yield Request.EVALUATE

    def evaluation_fields(self, clock: Clock) -> Mapping[str, Any]:
        if not self.schedule.alternates:
            return {"phase": clock.iteration, "role": "both"}
        return {"phase": self.schedule.phase.name, "role": self.schedule.phase.roles[0]}

    def after_evaluation(self, evaluation: Any, rollout: Any, clock: Clock) -> None:
        c, row = self.config, evaluation.row
        if c.convergence_consecutive:
            row["balanced"] = count_balanced(evaluation.records(), c.eta)
            # Balance on a lower level of the curriculum does not end the run.
            if evaluation.on_last_level and row["balanced"] >= c.convergence_consecutive:
                evaluation.attach_best_bots()
                history = evaluation.records()
                raised = alarms(history, self.setup.config.evaluation)
                row["converged"] = not (raised or below_baseline(history[-1]))
                clock.end_reason = "converged" if row["converged"] else ""
        self.schedule.record_evaluation(row, row.get("moved", 0))
        if self.schedule.finished(clock.iteration) and clock.iteration < clock.last:
            clock.end_reason = "phases"

    def evidence(self, record: Record) -> Iterable[Evidence]:
        yield from evidence_lines(self, record)

    def state_dict(self) -> Tree:
        return self.schedule.state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        self.schedule.load_state_dict(tree)


def shrunken_settings(c: ScheduleConfig, small: SmallRun) -> dict[str, Any]:
    """A warm-up of two iterations and phases of one, so that each kind of phase is played.

    `max_phases` ends the run in the last iteration of the trial, because `total_steps` is larger. Any gap
    below 1 counts as balanced, and all evaluations must be: a pair can converge in the last iteration only.
    """
    per = small.steps_per_iteration
    warmup = 2 * per if c.warmup_steps else 0
    changes: dict[str, Any] = {
        "warmup_steps": warmup, "phase_steps": min(c.phase_steps, per),
        "micro_phase_steps": min(c.micro_phase_steps, per),
        "short_phases": tuple(min(steps, per) for steps in c.short_phases),
        "level_warmup_steps": min(c.level_warmup_steps, per),
        "adaptive_threshold": min(c.adaptive_threshold, 1e-9), "adaptive_phases": 1,
        "force_switch_steps": min(c.force_switch_steps, 2 * per),
        "dampen_threshold": 1.0 if c.dampen_threshold else 0.0,
    }  # fmt: skip
    after_warmup = small.iterations - (warmup // per if c.kind != "simultaneous" else 0)  # iterations
    if c.kind == "alternating" and c.max_phases:
        depends = c.iterations(2, per) is None  # then the step at which the phases end is not known
        changes["max_phases"] = after_warmup
        changes["run:total_steps"] = (4 if depends else 2) * small.iterations * per
    if c.convergence_consecutive:
        changes["eta"] = 1.0
        changes["convergence_consecutive"] = after_warmup if c.kind == "alternating" else after_warmup // 2
    return changes


def evidence_lines(part: RoleSchedule, record: Record) -> Iterable[Evidence]:
    """Lines of `rematch check` about phases, convergence and damping."""
    c, schedule, roles = part.config, part.schedule, list(part.setup.spec.roles)
    simultaneous = "" if schedule.alternates else "schedule.kind is simultaneous"
    bots = [f"{name} made {count:,} decisions" for role in part.slots
            for name, count in record.decisions.get(role, {}).items() if name == c.warmup_opponent]
    learned = record.phases.get("S0") == roles[-1]
    warmup = f"{', '.join(bots)}, {roles[-1]} learned" if learned and bots else ""
    no_warmup = "" if c.warmup_steps else "schedule.warmup_steps is 0"
    yield Evidence("warm-up", warmup, simultaneous or no_warmup)
    phases = {name: role for name, role in record.phases.items() if name != "S0"}
    phase_text = ", ".join(f"{name} {role}" for name, role in phases.items())
    yield Evidence("phases", phase_text if set(phases.values()) == set(roles) else "", simultaneous)
    no_limit = simultaneous or ("" if c.kind == "alternating" else f"schedule.kind is {c.kind}")
    remaining = part.setup.config.total_steps - max((row["step"] for row in record.metrics), default=0)
    limited = schedule.phase.number == c.max_phases and remaining > 0
    ended = f"ended after S{c.max_phases} with {remaining:,} steps left" if limited else ""
    yield Evidence("phase limit", ended, no_limit or ("" if c.max_phases else "schedule.max_phases is 0"))
    warmups = ", ".join(name for name in record.phases if name.endswith("w"))
    none = "" if c.level_warmup_steps else "schedule.level_warmup_steps is 0"
    yield Evidence("level warm-up", warmups, simultaneous or none)
    counts = [row["balanced"] for row in record.evaluations if "balanced" in row]
    yield Evidence("convergence", f"judged {len(counts)} times" if counts else "",
                   "" if c.convergence_consecutive else "schedule.convergence_consecutive is 0")
    gaps = {max(MIN_LEARNING_RATE_FACTOR, min(1.0, row.get("gap", 1.0) / (c.dampen_threshold or 1)))
            for row in record.evaluations}  # fmt: skip
    factors = ", ".join(f"{factor:.2f}" for factor in sorted(record.rate_factors))
    followed = bool(gaps) and record.rate_factors <= gaps | {1.0}
    yield Evidence("damping", f"factors of the learning rate: {factors}" if followed else "",
                   "" if c.dampen_threshold else "schedule.dampen_threshold is 0")
