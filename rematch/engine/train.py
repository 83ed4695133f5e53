"""THE loop, and the parts it turns. Read `train` first: it is the table of contents of training."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from rematch import keys, worlds
from rematch.config import ConfigError, knob, part
from rematch.engine.evaluate import EvaluationConfig, best_scripted, check_rivals, evaluate, set_beside
from rematch.engine.learners.ppo import Ppo, PpoConfig
from rematch.engine.policy import NetworkConfig, Policy
from rematch.engine.rivals.league import League, LeagueConfig, Roster
from rematch.engine.rivals.schedule import Schedule, ScheduleConfig
from rematch.engine.rollout import Rollout, Table
from rematch.engine.run import Run
from rematch.engine.scoreboard import Scoreboard
from rematch.engine.tape import Tape
from rematch.engine.verdict import verdict
from rematch.show.words import evaluation_lines
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
    save_every: int = knob(20, "iterations between checkpoints", low=1)
    world: Any = field(default=None)
    network: NetworkConfig = part(NetworkConfig)
    ppo: PpoConfig = part(PpoConfig)
    league: LeagueConfig = part(LeagueConfig)
    schedule: ScheduleConfig = part(ScheduleConfig)
    evaluation: EvaluationConfig = part(EvaluationConfig)

    @property
    def iterations(self) -> int:
        return -(-self.total_steps // (self.games * self.steps))

    def check(self) -> None:
        module = worlds.find(self.game)
        check_rivals(module, self.league.scripted, "league.scripted")
        check_rivals(module, self.evaluation.rivals, "evaluation.rivals")
        need = self.games * self.steps * 4 * 64
        if need > 64 * 2**30:
            raise ConfigError(
                f"games = {self.games}: a tape of {need / 2**30:.0f} GiB; expected fewer games or steps"
            )


class Show(Protocol):
    """Where numbers go while a run trains (show/console.py)."""

    def line(self, text: str) -> None: ...

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...


class Session:
    """Everything mutable of one run, built from its config; `state` and `restore` cover all of it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.module: ModuleType = worlds.find(config.game)
        self.world = self.make(config.games, 0, config.seed)
        self.spec = self.world.spec
        self.policies = {}
        self.learners = {}
        tables, rosters = {}, {}
        for r, (role, about) in enumerate(self.spec.roles.items()):
            policy = Policy(about, config.network, f"{role} (learnt)")
            policy.initialise(config.seed << 8 | r)
            slots = 1 + (config.league.slots if config.league.history else 0)
            tables[role] = Table(policy, slots)
            names = [name for name in config.league.scripted if name in self.module.BOTS[role]]
            rosters[role] = Roster(
                policy, tables[role], config.league, [self.module.bot(n, role) for n in names]
            )
            self.policies[role] = policy
            self.learners[role] = Ppo(policy, config.ppo, config.seed << 8 | r, config.threads)
        # Roles learn side by side, each on its own threads: nothing is shared, so nothing waits. Torch's
        # number of threads belongs to the whole process: there they learn one after the other.
        side_by_side = min(config.threads, len(self.learners)) if config.ppo.gradient == "native" else 1
        self.pool = ThreadPoolExecutor(side_by_side)
        self.tables = tables
        self.league = League(config.league, rosters, config.seed)
        self.schedule = Schedule(config.schedule, list(self.spec.roles))
        self.rollout = Rollout(self.world, tables, config.steps, config.threads, config.seed)
        self.scoreboard = Scoreboard(self.make, config.seed, config.threads)
        self.iteration = self.learner_steps = self.finished = 0

    def make(self, games: int, first: int, seed: int) -> World:
        """The one builder of worlds: training, evaluation and films all come through here."""
        world: World = self.module.make(self.config.world, games, first, seed)
        return world

    @property
    def step(self) -> int:
        return self.iteration * self.config.games * self.config.steps

    def stagger(self) -> None:
        """Play unlearnt games first, each beginning anew at its own time: no tape is all openings then."""
        config, world = self.config, self.world
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
        roles = self.schedule.learning(self.iteration)
        jobs = {}
        for role in roles:
            learner = self.learners[role]
            if learner.config.gradient == "native":
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
                if (slot == 0).any():
                    metrics[f"rollout/win_{role}"] = float(outcome[slot == 0].mean())
        return metrics

    def seat(self) -> None:
        for role, table in self.tables.items():
            table.place(0, self.policies[role].weights)
        self.league.seat(self.world, self.iteration)

    def evaluate(self, last: bool) -> dict[str, Any]:
        """A history row. The last one stands beside what the best scripted players reach."""
        c = self.config.evaluation
        ask = (c.games, c.rivals, self.iteration << 12)
        row: dict[str, Any] = {
            "iteration": self.iteration,
            "step": self.step,
            "phase": self.iteration,
            "role": "both",
        }
        row |= evaluate(self.scoreboard, self.module, self.spec, self.policies, ask)
        for role, name in getattr(self.module, "RATE_NAMES", {}).items():
            row[name] = row["rates"][role]["rate"]
        row["rollbacks"] = 0
        if last:
            ask = (c.games, c.rivals, 1 << 60)
            set_beside(row, best_scripted(self.scoreboard, self.module, self.spec, ask))
        return row

    def state(self) -> dict[str, Tree]:
        world, rows = self.world, np.arange(self.config.games, dtype=np.int32)
        parts: dict[str, Tree] = {
            "session": {
                "iteration": self.iteration,
                "learner_steps": self.learner_steps,
                "finished": self.finished,
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
        session.stagger()
    while session.iteration < config.iterations:
        started = time.perf_counter()
        session.seat()
        tape = session.rollout.collect(session.iteration)
        before = session.learner_steps
        metrics = session.learn(tape)
        session.league.report(tape)
        session.iteration += 1
        row = {"iteration": session.iteration, "step": session.step, "games": session.finished} | metrics
        run.log(row)
        for name in session.league.snapshot(session.iteration):
            run.log_line(f"Pool: {name} joined")
        if session.iteration == 1:
            note_sight(run, show, tape)
        seconds = time.perf_counter() - started
        rate = (session.learner_steps - before) / seconds
        run.timing({"iteration": session.iteration, "seconds": seconds, "learner_steps_per_second": rate})
        show.progress(session.step, config.games * config.steps / seconds, row)
        last = session.iteration == config.iterations
        if last or session.iteration % config.evaluation.every == 0:
            note_evaluation(session, run, show, last)
        halt, due = stop(), last or session.iteration % config.save_every == 0
        if due or halt:
            run.save(session.iteration, session.state(), fingerprint(config), passing=not due)
        if halt:
            break
    return session.iteration >= config.iterations


def note_evaluation(session: Session, run: Run, show: Show, last: bool) -> None:
    row = session.evaluate(last)
    row["verdict"] = verdict([*run.history, row], session.config.evaluation)
    run.append_history(row)
    for line in [*evaluation_lines(row), f"Verdict: {row['verdict']}"]:
        run.log_line(line)
    show.evaluation(row)
    counted = [f"{name} {count}" for name, count in session.world.counters.items() if count]
    if counted:
        run.log_line(f"World: {', '.join(counted)}")
        show.line(f"World: {', '.join(counted)}")


def note_sight(run: Run, show: Show, tape: Tape) -> None:
    """Save what every seat saw in the first rollout; warn of columns that never changed."""
    seen: dict[str, Any] = {}
    for role, track in tape.tracks.items():
        rows = track.sight.reshape(-1, track.role.size)
        low, high, mean = rows.min(0), rows.max(0), rows.mean(0, dtype=np.float64)
        seen[role] = [
            {
                "column": name,
                "min": float(low[i]),
                "max": float(high[i]),
                "mean": float(mean[i]),
                "constant": bool(low[i] == high[i]),
            }
            for i, name in enumerate(track.role.columns)
        ]
        dull = [entry["column"] for entry in seen[role] if entry["constant"]]
        text = f"Sight {role}: {len(seen[role])} numbers: {', '.join(track.role.columns)}"
        run.log_line(text)
        if dull:
            warning = f"Sight {role}: warning: never changed in the first rollout: {', '.join(dull)}"
            run.log_line(warning)
            show.line(warning)
        if track.role.hidden:
            run.log_line(f"Sight {role}: hidden: {', '.join(track.role.hidden)}")
    run.write_file("sight.json", json.dumps(seen, indent=1).encode())


def fingerprint(config: Config) -> dict[str, str]:
    """What bit-exactness is promised on. The native path does not depend on the number of threads."""
    from rematch import stale
    from rematch.engine.nets import fused

    out = {"numpy": np.__version__, "core": fused.BUILD, "processor": stale.processor()}
    if build := getattr(worlds.find(config.game), "BUILD", ""):  # a world whose rules are compiled
        out["world"] = build
    if config.ppo.gradient == "torch":
        import torch

        out |= {"torch": torch.__version__, "threads": str(config.threads)}
    return out
