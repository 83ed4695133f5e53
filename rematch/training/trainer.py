"""THE loop, and the parts it turns. Read `train` first: it is the table of contents of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType
from typing import Any, cast

import numpy as np

from rematch.agents.build import build
from rematch.agents.learners.dqn import Dqn
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Floats, Tree
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING, StagedWorld, World
from rematch.curriculum import archive_files
from rematch.curriculum.levels import Curriculum, ladder
from rematch.curriculum.random_explorers import BOT, Scouts
from rematch.curriculum.savestate_archive import Swarm
from rematch.curriculum.start_states import STAGE
from rematch.evaluation import past_policies
from rematch.evaluation.evaluator import best_scripted, evaluate, set_beside
from rematch.evaluation.match import Result, Scoreboard
from rematch.exploration.rnd import curious
from rematch.rollout.collector import Rollout, Table
from rematch.rollout.rollout_buffer import Tape
from rematch.selfplay.league import League
from rematch.selfplay.opponent_pool import LeagueConfig, Roster
from rematch.selfplay.role_schedule import Schedule
from rematch.stability.ewc import anchors
from rematch.stability.rollback import Rollback
from rematch.storage.run_folder import Run
from rematch.training.config import Config as Config
from rematch.training.episode_log import Diary
from rematch.training.exploiters import hunt
from rematch.training.fingerprint import fingerprint
from rematch.training.run_log import (
    Show,
    note_diary,
    note_evaluation,
    note_film,
    note_lines,
    note_milestones,
    note_phase,
    note_sight,
)
from rematch.worlds import registry


class Session:
    """Everything mutable of one run, built from its config; `state` and `restore` cover all of it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.module: ModuleType = registry.find(config.game)
        self.world = self.make(config.games, 0, config.seed)
        self.spec = self.world.spec
        self.curriculum: Curriculum | None = None
        if config.curriculum.kind != "none":
            levels = ladder(config.curriculum, self.module, config.world, self.spec)
            self.curriculum = Curriculum(config.curriculum, levels, self.spec, self.world.next.stage[0])
        self.swarm: Swarm | None = None
        if hasattr(self.world, "captured"):
            forgetting = config.milestones.forgetting
            self.swarm = Swarm(config.swarm, config.bands, self.world, config.seed, forgetting, config.steps)
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
        # Roles learn side by side, each on its own threads: nothing is shared, so nothing waits. Where torch
        # computes the gradient they learn one after the other, each on all threads: it needs the memory.
        native = all(learner.native for learner in self.learners.values())
        self.pool = ThreadPoolExecutor(min(config.threads, len(self.learners)) if native else 1)
        self.league = League(rivals, rosters, config.seed)
        self.schedule = Schedule(config.schedule, list(self.spec.roles), config.games * config.steps)
        self.facing = self.cold_start() if self.schedule.cold else {}
        self.rollback = Rollback(config.rollback, self.learners)
        self.anchors = anchors(config.ewc, self.learners, config.seed)
        self.bonuses = curious(config.rnd, list(self.spec.roles.values()), config.seed)
        self.rollout = Rollout(self.world, self.tables, config.steps, config.threads, config.seed)
        if any(getattr(learner, "reads_states", False) for learner in self.learners.values()):
            size = self.world.save(np.zeros(1, np.int32)).shape[1]
            self.rollout.tape.states = np.zeros((config.steps, config.games, size), np.uint8)
        found = [learner for learner in self.learners.values() if isinstance(learner, Dqn)]
        self.diary = Diary(found[0], self.world, self.minds.milestones, self.swarm) if found else None
        self.scouts = self.send_scouts() if config.swarm == "bands" and config.bands.scouts else None
        if found and self.swarm:
            found[0].practise(self.swarm.practice)
        self.scoreboard = Scoreboard(self.make_level, config.seed, config.threads)
        self.iteration, self.learner_steps, self.finished = config.start_iteration, 0, 0
        self.best: dict[str, dict[str, Result]] = {}  # by level: what the best scripted players reach
        self.ended = ""  # why it ended before its last iteration, where it did
        self.owed = False  # it was stopped before an evaluation: that comes first when it goes on
        self.milestones: list[str] = []  # what this iteration was: worth keeping where collapses are undone

    def make(self, games: int, first: int, seed: int) -> World:
        """The one builder of worlds: training, evaluation and films all come through here."""
        world: World = self.module.make(self.config.world, games, first, seed)
        return world

    def make_level(self, games: int, first: int, seed: int, level: int | None = None) -> World:
        """The same on a level, that being trained if none is named: strength is told where it was learnt."""
        world = self.make(games, first, seed)
        if self.curriculum:
            begin_on(world, self.curriculum.here if level is None else self.curriculum.start(level))
        return world

    def send_scouts(self) -> Scouts:
        """Games of their own, played by the world's bot for it."""
        c, (role,) = self.config, self.spec.roles
        assert self.swarm is not None
        table = Table(self.tables[role].policy, 0)
        table.others.append(self.module.bot(BOT, role))
        world = self.make(c.bands.scouts, 0, c.seed)
        return Scouts(c.bands, self.swarm, world, table, c.seed, c.threads)

    @property
    def step(self) -> int:
        return self.iteration * self.config.games * self.config.steps

    @property
    def progress(self) -> float:
        """Through the run, from 0 to 1: what schedules go by."""
        first, last = self.config.start_iteration, self.config.iterations
        return min(1.0, (self.iteration - first) / (last - first))

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

    def start_from(self, policies: Mapping[str, Policy]) -> None:
        """Begin with the weights of these policies, by role; all else is as new."""
        for role, policy in policies.items():
            if role not in self.learners:
                raise ConfigError(f"--from: a policy for {role}; learners are {', '.join(self.learners)}")
            second = "target" if isinstance(self.learners[role], Dqn) else "magnet"
            weights = dict.fromkeys(("weights", second), policy.weights)
            self.learners[role].restore(self.learners[role].state() | weights)
        self.rollback.start_over(self.step)  # not to be gone back behind

    def begin(self) -> None:
        """Before the first iteration: who plays the first games, and when each of them begins."""
        config, world = self.config, self.world
        self.seat()
        if self.curriculum:
            cast(StagedWorld, world).restart()
        if self.facing:
            world.slot[:] = world.next.slot  # no game has begun: nobody's opponent changes
        # Unlearnt games first, each beginning anew at its own time: no tape is all openings then.
        every = np.arange(config.games, dtype=np.int32)
        fresh = world.save(every)
        groups = -(-config.stagger // config.steps)
        group = rng.words(config.seed, rng.STAGGER, config.games) % np.uint64(groups) if groups else every
        for g in range(groups):
            self.seat()
            begin = np.flatnonzero(group == g).astype(np.int32)
            world.load(begin, fresh[begin])
            self.minds.forget(begin)
            self.rollout.collect((1 << 40) + g)  # far from the steps that training counts

    def learn(self, tape: Tape) -> dict[str, Any]:
        """Each learning role's update; the numbers of this iteration."""
        metrics: dict[str, Any] = {}
        roles = [role for role in self.schedule.phase.roles if role in self.learners]
        self.schedule.note(roles)
        jobs = {}
        for role in (role for role in roles if role in self.bonuses):
            told = self.bonuses[role].score(tape, self.iteration)
            metrics |= {f"{role}/{name}": value for name, value in told.items()}
        for role in roles:
            learner = self.learners[role]
            learner.rate = self.schedule.rate
            if learner.native:
                learner.threads = max(1, self.config.threads // len(roles))
            jobs[role] = self.pool.submit(learner.learn, tape, self.progress, self.iteration)
        for role, job in jobs.items():
            for name, value in job.result().items():
                metrics[f"{role}/{name}"] = value
            self.learner_steps += int(metrics[f"{role}/decisions"])
        for name in ("grad_norm_pre_clip", "grad_norm_post_clip"):  # the documents' names: of all roles
            norms = [metrics[f"{role}/{name}"] for role in roles if f"{role}/{name}" in metrics]
            if norms:
                metrics[f"train/{name}"] = max(norms)
        if beliefs := self.minds.milestones:
            metrics |= {f"{beliefs.role.name}/{name}": value for name, value in beliefs.told().items()}
        metrics |= self.league.metrics()
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
        if self.diary:
            metrics |= self.diary.follow(tape, self.step)
        return metrics

    def witness(self, tape: Tape, run: Run) -> tuple[dict[str, float], list[str]]:
        """What games reached in a rollout, into the run's folder at once; numbers for the log, and lines."""
        if not self.swarm:
            return {}, []
        since = len(self.swarm.starts)
        lines = self.swarm.report(tape, self.iteration)
        if self.scouts:
            lines += self.scouts.search(self.iteration, self.step + tape.steps * tape.games)
        if lines or len(self.swarm.starts) > since:
            archive_files.write(self.swarm, run, self.step + tape.steps * tape.games, since)
        return {f"rollout/{name}": value for name, value in self.swarm.told().items()}, lines

    def keep_findings(self, run: Run) -> None:
        """Before a checkpoint: the files beside it, up to date."""
        if self.swarm:
            archive_files.write(self.swarm, run, self.step, len(self.swarm.starts))

    def guard(self, tape: Tape, metrics: dict[str, Any]) -> list[str]:
        """After an iteration: a collapse is undone; what happened, in lines. A phase's end is a milestone."""
        played = self.schedule.phase
        cold = played.number == 0
        lines = self.rollback.judge(tape, metrics, self.step, played.roles, cold)
        if beliefs := self.minds.milestones:
            lines += beliefs.lines
            beliefs.lines = []
        if self.iteration >= played.last:
            # Levels, and warm starts on them, can come again; phases never do.
            self.milestones.append(f"{played.name} step {self.step}" if played.warm else played.name)
            if cold:
                self.rollback.start_over(self.step)
        return lines

    def mark(self, name: str) -> list[str]:
        """For when a curriculum advances: what was learnt until now is worth keeping. Lines about it."""
        self.milestones.append(f"{name} step {self.step}")
        lines = []
        for role, anchor in self.anchors.items():
            decisions = anchor.mark(self.rollout.tape)
            lines.append(f"EWC: {role} holds on to what it is at step {self.step:,} ({decisions} decisions)")
        return lines

    def seat(self) -> None:
        for role, table in self.tables.items():
            if len(table.packed):
                table.place(0, self.learners[role].acting(self.progress))
        phase = self.schedule.phase
        if self.curriculum:
            self.world.next.stage[:] = self.curriculum.stage(self.config.games)
        self.league.seat(self.world, self.iteration, phase.roles, {} if phase.number else self.facing)
        share, stage = self.config.anywhere, self.spec.stage
        if self.swarm:
            self.world.next.stage[:, [stage.index(name) for name in STAGE]] = self.swarm.stage(self.iteration)
        if "anywhere" in stage:
            draws = rng.units(self.config.seed, rng.RANDOM_START, self.config.games, self.iteration)
            self.world.next.stage[:, stage.index("anywhere")] = draws < share

    def snapshot(self) -> list[str]:
        """The names of those that join the league now."""
        if self.spec.seats == 1 or not self.league.due(self.iteration):  # alone, nobody would meet them
            return []
        learnt, self.schedule.learnt = self.schedule.learnt, []
        return self.league.snapshot(self.iteration, learnt)

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
            phase = self.schedule.phase  # the one that was just played
            row |= {"phase": phase.name, "role": phase.roles[0]}
        row |= evaluate(self.scoreboard, self.module, self.spec, self.policies, ask)
        for role, name in getattr(self.module, "RATE_NAMES", {}).items():
            row[name] = row["rates"][role]["rate"]
        self.league.judged(row["table"])
        row["rollbacks"] = self.rollback.told()  # since the row before
        if self.curriculum:
            row |= {"level": self.curriculum.level, "level_name": self.curriculum.name}
        if last:
            self.set_beside(row)
            row |= {"levels": self.earlier(ask)} if self.curriculum else {}
        return row

    def earlier(self, ask: tuple[int, Sequence[str], int]) -> list[dict[str, Any]]:
        """The same of every level below: whether what was learnt there is still known."""
        assert self.curriculum is not None
        out = []
        for level in range(self.curriculum.level):
            make = partial(self.make_level, level=level)
            board = Scoreboard(make, self.config.seed, self.config.threads)
            games, rivals, index = ask
            asked = (games, rivals, index | level + 1 << 50)
            found = evaluate(board, self.module, self.spec, self.policies, asked)
            out.append({"level": level, "level_name": self.curriculum.levels[level].name} | found)
        return out

    def set_beside(self, row: dict[str, Any]) -> None:
        """What the best scripted players reach, played once: it does not depend on the iteration."""
        c, level = self.config.evaluation, str(row.get("level", 0))
        if level not in self.best:
            ask = (c.games, c.rivals, 1 << 60)
            self.best[level] = best_scripted(self.scoreboard, self.module, self.spec, ask)
        set_beside(row, self.best[level])

    def state(self) -> dict[str, Tree]:
        world, rows = self.world, np.arange(self.config.games, dtype=np.int32)
        parts: dict[str, Tree] = {
            "session": {"iteration": self.iteration, "learner_steps": self.learner_steps,
                        "finished": self.finished, "ended": self.ended, "owed": self.owed},
            "world": {"states": world.save(rows), "seed": world.next.seed,
                      "slot": world.next.slot, "stage": world.next.stage},
            "league": self.league.state(),
            "schedule": self.schedule.state(),
            "rollback": self.rollback.state(),
        }
        if self.curriculum:
            parts["curriculum"] = self.curriculum.state()
        if self.diary:
            parts["diary"] = self.diary.state()
        if self.swarm:
            parts["swarm"] = self.swarm.state()
        if self.scouts:
            parts["scouts"] = self.scouts.state()
        parts |= {f"ewc.{role}": anchor.state() for role, anchor in self.anchors.items()}
        parts |= {f"rnd.{role}": bonus.state() for role, bonus in self.bonuses.items()}
        return parts | {f"learner.{role}": learner.state() for role, learner in self.learners.items()}

    def restore(self, parts: dict[str, Tree]) -> None:
        own = parts["session"]
        self.iteration, self.learner_steps = int(own["iteration"]), int(own["learner_steps"])
        self.finished, self.ended = int(own["finished"]), str(own["ended"])
        self.owed = bool(own.get("owed", False))  # not in checkpoints of before
        if self.swarm:
            self.swarm.restore(parts["swarm"])
        if self.scouts:
            self.scouts.restore(parts["scouts"])
        world = parts["world"]
        self.world.next.seed[:], self.world.next.slot[:] = world["seed"], world["slot"]
        self.world.next.stage[:] = world["stage"]
        self.world.load(np.arange(self.config.games, dtype=np.int32), world["states"])
        for role, learner in self.learners.items():
            learner.restore(parts[f"learner.{role}"])
        self.league.restore(parts["league"])
        self.schedule.restore(parts["schedule"])
        if self.curriculum:
            self.curriculum.restore(parts["curriculum"])
        if self.diary:
            self.diary.restore(parts["diary"])
        self.rollback.restore(parts["rollback"])
        for role, anchor in self.anchors.items():
            anchor.restore(parts[f"ewc.{role}"])
        for role, bonus in self.bonuses.items():
            bonus.restore(parts[f"rnd.{role}"])


def begin_on(world: World, start: Floats) -> None:
    """Begin every game of a fresh world anew, from these stage numbers."""
    world.next.stage[:] = start
    cast(StagedWorld, world).restart()


def train(session: Session, run: Run, show: Show, stop: Callable[[], bool]) -> bool:
    """Train until the config's end, or until `stop` says so; True when the run is complete."""
    config = session.config
    if session.swarm:
        for line in archive_files.settle(session.swarm, run, session.step):
            show.line(line)
    if session.iteration == config.start_iteration:
        session.begin()
    while not session.done:
        owed, session.owed = session.owed, False
        if not owed:
            iterate(session, run, show)
        last = session.iteration == config.iterations or session.schedule.over(session.iteration)
        if last:
            note_lines(run, show, session.minds.finish())
        halt, judge = stop(), last or session.evaluation_due
        session.owed = halt and judge and not (last or owed or session.curriculum)
        if judge and not session.owed:
            note_evaluation(session, run, show, last)
        past_policies.keep(session, run)
        note_milestones(session, run)
        halt, due = halt or stop(), session.done or session.iteration % config.save_every == 0
        if due or halt:
            session.keep_findings(run)
            temporary = session.owed or not due
            run.save(session.iteration, session.state(), fingerprint(config), temporary=temporary)
        if halt:
            break
    return session.done


def iterate(session: Session, run: Run, show: Show) -> None:
    """One iteration, but for what is made of it: evaluations, checkpoints."""
    config, started = session.config, time.perf_counter()
    session.schedule.turn(session.iteration)
    note_phase(session, run, show)
    session.seat()
    tape = session.rollout.collect(session.iteration)
    before = session.learner_steps
    found, lines = session.witness(tape, run)
    metrics = session.learn(tape) | found
    session.league.report(tape)
    session.iteration += 1
    row = {"iteration": session.iteration, "step": session.step, "games": session.finished} | metrics
    run.log(row)
    note_lines(run, show, [*lines, *session.guard(tape, metrics)])
    for name in session.snapshot():
        run.log_line(f"Pool: {name} joined")
    note_lines(run, show, hunt(session))
    if session.iteration == config.start_iteration + 1:
        note_sight(run, show, tape)
    seconds = time.perf_counter() - started
    rate = (session.learner_steps - before) / seconds
    run.timing({"iteration": session.iteration, "seconds": seconds, "learner_steps_per_second": rate})
    show.progress(session.step, config.games * config.steps / seconds, row)
    note_diary(session, run, show)
    note_film(session, run, show)
