"""THE loop, and the parts it turns. Read `train` first: it is the table of contents of training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from rematch import keys, worlds
from rematch.config import ConfigError, knob, part
from rematch.engine import past
from rematch.engine.evaluate import EvaluationConfig, best_scripted, check_rivals, evaluate, set_beside
from rematch.engine.fingerprint import fingerprint
from rematch.engine.learners.lookahead import LookaheadConfig, check_spec
from rematch.engine.learners.ppo import PpoConfig
from rematch.engine.minds import build
from rematch.engine.notes import Show, note_evaluation, note_phase, note_sight
from rematch.engine.policy import NetworkConfig
from rematch.engine.rivals.league import League, LeagueConfig, Roster
from rematch.engine.rivals.schedule import Schedule, ScheduleConfig, check_schedule
from rematch.engine.rollout import Rollout, Table
from rematch.engine.run import Run
from rematch.engine.scoreboard import Result, Scoreboard
from rematch.engine.tape import Tape
from rematch.spec import RUNNING, Tree, World


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. `world` is the chosen world's own config."""

    game: str = knob("pursuit", "which world; `rematch worlds` lists them")
    seed: int = knob(0, "everything random in the run follows from it", low=0, high=2**32 - 1)
    threads: int = knob(2, "threads; only with ppo.gradient torch do results depend on it", low=1, high=64)
    games: int = knob(2048, "games that step together", low=1, high=2**22)
    steps: int = knob(32, "steps of each game per iteration", low=1, high=2**20)
    total_steps: int = knob(10_000_000, "steps of all games together; the run ends there", low=1)
    stagger: int = knob(
        0, "steps over which the first games begin, so that they do not all end together", low=0
    )
    anywhere: float = knob(
        0.0, "share of training games that begin anywhere, where the world can start anywhere", low=0, high=1
    )
    save_every: int = knob(20, "iterations between checkpoints", low=1)
    learner: str = knob(
        "ppo", "model-free, or by looking ahead with the rules", choices=("ppo", "lookahead")
    )
    world: Any = field(default=None)
    network: NetworkConfig = part(NetworkConfig)
    ppo: PpoConfig = part(PpoConfig, needs="learner=ppo")
    lookahead: LookaheadConfig = part(LookaheadConfig, needs="learner=lookahead")
    league: LeagueConfig = part(LeagueConfig, needs="learner=ppo")
    schedule: ScheduleConfig = part(ScheduleConfig, needs="learner=ppo")
    evaluation: EvaluationConfig = part(EvaluationConfig)

    @property
    def iterations(self) -> int:
        per = self.games * self.steps
        return min(-(-self.total_steps // per), self.schedule.iterations(per) or sys.maxsize)

    def check(self) -> None:
        module = worlds.find(self.game)
        check_rivals(module, self.league.scripted, "league.scripted")
        check_rivals(module, self.evaluation.rivals, "evaluation.rivals")
        if self.anywhere and "anywhere" not in module.make(self.world, 1, 0, 0).spec.stage:
            raise ConfigError(f"anywhere = {self.anywhere:g}: {self.game} cannot begin anywhere; expected 0")
        if self.schedule.kind != "together" or self.schedule.convergence_consecutive:
            check_schedule(self.schedule, module, list(module.make(self.world, 1, 0, 0).spec.roles))
        if self.learner == "lookahead":
            check_spec(module.make(self.world, 1, 0, 0).spec)
        need = self.games * self.steps * 4 * 64
        if need > 64 * 2**30:
            raise ConfigError(
                f"games = {self.games}: a tape of {need / 2**30:.0f} GiB; expected fewer games or steps"
            )


class Session:
    """Everything mutable of one run, built from its config; `state` and `restore` cover all of it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.module: ModuleType = worlds.find(config.game)
        self.world = self.make(config.games, 0, config.seed)
        self.spec = self.world.spec
        self.minds = build(config, self.spec, self.make)
        rivals = LeagueConfig(history=0.0) if self.minds.seated else config.league
        self.learners, self.policies = self.minds.learners, self.minds.players
        self.tables: dict[str, Table] = {}
        rosters = {}
        for role in self.spec.roles:
            policy = next(iter(self.learners.values())).policy if self.minds.seated else self.policies[role]
            slots = 0 if self.minds.seated else 1 + (rivals.slots if rivals.history else 0)
            table = self.tables[role] = Table(policy, slots)
            names = [name for name in rivals.scripted if name in self.module.BOTS[role]]
            rosters[role] = Roster(policy, table, rivals, [self.module.bot(n, role) for n in names])
            if self.minds.seated:
                table.others[:] = [self.minds.seated[role]]
        # Roles learn side by side, each on its own threads: nothing is shared, so nothing waits. Torch's
        # number of threads belongs to the whole process: there they learn one after the other.
        native = all(learner.native for learner in self.learners.values())
        self.pool = ThreadPoolExecutor(min(config.threads, len(self.learners)) if native else 1)
        self.league = League(rivals, rosters, config.seed)
        self.schedule = Schedule(config.schedule, list(self.spec.roles), config.games * config.steps)
        self.facing = self.cold_start() if self.schedule.cold else {}
        self.rollout = Rollout(self.world, self.tables, config.steps, config.threads, config.seed)
        self.scoreboard = Scoreboard(self.make, config.seed, config.threads)
        self.iteration = self.learner_steps = self.finished = 0
        self.best: dict[str, Result] = {}
        self.ended = ""  # why it ended before its last iteration, where it did

    def make(self, games: int, first: int, seed: int) -> World:
        """The one builder of worlds: training, evaluation and films all come through here."""
        world: World = self.module.make(self.config.world, games, first, seed)
        return world

    @property
    def step(self) -> int:
        return self.iteration * self.config.games * self.config.steps

    @property
    def done(self) -> bool:
        return bool(self.ended) or self.iteration >= self.config.iterations

    def cold_start(self) -> dict[str, int]:
        """Seat the cold start's scripted rival at the table of every role but the last: role -> its slot."""
        slots = {}
        for role in self.schedule.roles[:-1]:
            others = self.tables[role].others
            others.append(self.module.bot(self.config.schedule.cold_start_rival, role))
            slots[role] = len(self.tables[role].packed) + len(others) - 1
        return slots

    def begin(self) -> None:
        """Before the first iteration: who plays the first games, and when each of them begins."""
        config, world = self.config, self.world
        if self.facing:
            self.seat()
            world.slot[:] = world.next.slot  # no game has begun: nobody's opponent changes
        # Unlearnt games first, each beginning anew at its own time: no tape is all openings then.
        every = np.arange(config.games, dtype=np.int32)
        fresh = world.save(every)
        groups = -(-config.stagger // config.steps)
        group = keys.words(config.seed, keys.STAGGER, config.games) % np.uint64(groups) if groups else every
        for g in range(groups):
            self.seat()
            begin = np.flatnonzero(group == g).astype(np.int32)
            world.load(begin, fresh[begin])
            self.rollout.collect((1 << 40) + g)  # far from the steps that training counts

    def learn(self, tape: Tape) -> dict[str, Any]:
        """Each learning role's update; the numbers of this iteration."""
        progress = self.iteration / self.config.iterations
        metrics: dict[str, Any] = {}
        roles = [role for role in self.schedule.learning(self.iteration) if role in self.learners]
        jobs = {}
        for role in roles:
            learner = self.learners[role]
            if learner.native:
                learner.threads = max(1, self.config.threads // len(roles))
            jobs[role] = self.pool.submit(learner.learn, tape, progress, self.iteration)
        for role, job in jobs.items():
            for name, value in job.result().items():
                metrics[f"{role}/{name}"] = value
            self.learner_steps += int(metrics[f"{role}/decisions"])
        metrics |= {f"rollout/{name}": count for name, count in self.world.counters.items()}
        ended = tape.ended != RUNNING
        self.finished += int(ended.sum())
        if ended.any():
            metrics["rollout/length"] = float(tape.length[ended].mean())
            for role in self.spec.roles:
                slot, outcome = tape.results(role)
                if (slot == 0).any() and (self.spec.seats > 1 or (outcome != 0.5).any()):
                    metrics[f"rollout/win_{role}"] = float(outcome[slot == 0].mean())
                if self.spec.seats == 1:  # per step; a task for one has no winner, or not only
                    paid = float(tape[role].reward.mean()) / self.spec.reward_scale
                    metrics[f"rollout/reward_{role}"] = paid
        return metrics

    def seat(self) -> None:
        for role, table in self.tables.items():
            if len(table.packed):
                table.place(0, self.learners[role].policy.weights)
        phase = self.schedule.phase(self.iteration)
        self.league.seat(self.world, self.iteration, phase.roles, {} if phase.number else self.facing)
        share, stage = self.config.anywhere, self.spec.stage
        if "anywhere" in stage:
            draws = keys.units(self.config.seed, keys.ANYWHERE, self.config.games, self.iteration)
            self.world.next.stage[:, stage.index("anywhere")] = draws < share

    def snapshot(self) -> list[str]:
        """The names of those that join the league now."""
        if self.spec.seats == 1 or not self.league.due(self.iteration):  # alone, nobody would meet them
            return []
        since = self.iteration - self.league.config.snapshot_every
        return self.league.snapshot(self.iteration, self.schedule.learnt(since, self.iteration))

    @property
    def evaluation_due(self) -> bool:
        every = self.config.evaluation.every
        return self.iteration % every == 0 or self.schedule.rests(self.iteration)

    def evaluate(self, last: bool) -> dict[str, Any]:
        """A history row. The last one stands beside what the best scripted players reach."""
        c = self.config.evaluation
        ask = (c.games, c.rivals, self.iteration << 12)
        row: dict[str, Any] = {"iteration": self.iteration, "step": self.step}
        row |= {"phase": self.iteration, "role": "both"}
        if self.schedule.apart:
            phase = self.schedule.phase(self.iteration - 1)  # the one that was just played
            row |= {"phase": phase.name, "role": phase.roles[0]}
        row |= evaluate(self.scoreboard, self.module, self.spec, self.policies, ask)
        for role, name in getattr(self.module, "RATE_NAMES", {}).items():
            row[name] = row["rates"][role]["rate"]
        row["rollbacks"] = 0
        if last:
            self.set_beside(row)
        return row

    def set_beside(self, row: dict[str, Any]) -> None:
        """What the best scripted players reach, played once: it does not depend on the iteration."""
        c = self.config.evaluation
        if not self.best:
            ask = (c.games, c.rivals, 1 << 60)
            self.best = best_scripted(self.scoreboard, self.module, self.spec, ask)
        set_beside(row, self.best)

    def state(self) -> dict[str, Tree]:
        world, rows = self.world, np.arange(self.config.games, dtype=np.int32)
        parts: dict[str, Tree] = {
            "session": {
                "iteration": self.iteration,
                "learner_steps": self.learner_steps,
                "finished": self.finished,
                "ended": self.ended,
            },
            "world": {
                "states": world.save(rows),
                "seed": world.next.seed,
                "slot": world.next.slot,
                "stage": world.next.stage,
            },
            "league": self.league.state(),
        }
        return parts | {f"learner.{role}": learner.state() for role, learner in self.learners.items()}

    def restore(self, parts: dict[str, Tree]) -> None:
        for name, value in parts["session"].items():
            setattr(self, name, value)
        world = parts["world"]
        self.world.next.seed[:], self.world.next.slot[:] = world["seed"], world["slot"]
        self.world.next.stage[:] = world["stage"]
        self.world.load(np.arange(self.config.games, dtype=np.int32), world["states"])
        for role, learner in self.learners.items():
            learner.restore(parts[f"learner.{role}"])
        self.league.restore(parts["league"])


def train(session: Session, run: Run, show: Show, stop: Callable[[], bool]) -> bool:
    """Train until the config's end, or until `stop` says so; True when the run is complete."""
    config = session.config
    if session.iteration == 0:
        session.begin()
    while not session.done:
        started = time.perf_counter()
        note_phase(session, run, show)
        session.seat()
        tape = session.rollout.collect(session.iteration)
        before = session.learner_steps
        metrics = session.learn(tape)
        session.league.report(tape)
        session.iteration += 1
        row = {"iteration": session.iteration, "step": session.step, "games": session.finished} | metrics
        run.log(row)
        for name in session.snapshot():
            run.log_line(f"Pool: {name} joined")
        if session.iteration == 1:
            note_sight(run, show, tape)
        seconds = time.perf_counter() - started
        rate = (session.learner_steps - before) / seconds
        run.timing({"iteration": session.iteration, "seconds": seconds, "learner_steps_per_second": rate})
        show.progress(session.step, config.games * config.steps / seconds, row)
        last = session.iteration == config.iterations
        if last or session.evaluation_due:
            note_evaluation(session, run, show, last)
        past.keep(session, run)
        halt, due = stop(), session.done or session.iteration % config.save_every == 0
        if due or halt:
            run.save(session.iteration, session.state(), fingerprint(config), passing=not due)
        if halt:
            break
    return session.done
