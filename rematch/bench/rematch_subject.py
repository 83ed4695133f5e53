"""Rematch's own side of the benchmark: the world alone, training, and a check that what is timed learns."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch import api
from rematch.agents.policy import digest
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING, World
from rematch.evaluation.evaluator import bots_for, opponents, versus
from rematch.training.trainer import Config, Session
from rematch.worlds import registry

LONG = 10**12  # steps of a run whose end, and with it annealing, is out of reach
MARGIN = 0.1  # a score must rise by more than this over the control's to count as learning
SNAPSHOTS = 4  # rivals on each role's roster before the clock starts

# The pinned set-up: recipe `pursuit` as a 64 x 64 shared trunk, 4 epochs, 30 % of games against history.
PINNED: dict[str, Any] = {
    "games": 2048, "steps": 32, "total_steps": LONG,
    "network.hidden": [64, 64], "network.activation": "tanh", "network.shared": True, "network.fourier": 0,
    "ppo.epochs": 4, "ppo.minibatch": 8192, "ppo.gradient": "native",
    "league.history": 0.3, "league.scripted": [],
}  # fmt: skip

# The hyper-parameters of the documents that asked for this: few games, small minibatches, wide networks.
DOCUMENTS: dict[str, Any] = PINNED | {
    "games": 4, "steps": 512, "network.hidden": [256, 256], "network.shared": False,
    "ppo.epochs": 10, "ppo.minibatch": 256, "league.history": 0.0, "stagger": 0,
}  # fmt: skip

# What is pinned of a world itself.
WORLDS: dict[str, dict[str, Any]] = {
    "pursuit": {"world.n_obstacles_min": 2, "world.n_obstacles_max": 2},
    "lattice": {"world.n": 9, "world.block": 3, "world.horizon": 20},
}


def configure(world: str, threads: int, pins: dict[str, Any]) -> Config:
    """The recipe of this name (or the world's own settings) with `pins` over it."""
    changes = WORLDS.get(world, {}) | pins | {"threads": threads}
    out = settings.apply(api.configure(world), changes, "bench")
    settings.validate(out)
    return out


def shown(c: Config) -> dict[str, Any]:
    """The settings that a speed depends on."""
    if c.learner == "dqn":
        layers = {"gru": c.dqn.gru, "lstm": c.dqn.lstm, "ssm": c.dqn.ssm}
        return {"world": c.game, "games": c.games, "steps": c.steps, "network": c.dqn.size, **layers,
                "sequence": c.dqn.sequence, "batch": c.dqn.batch, "replay_ratio": c.dqn.replay_ratio}
    return {
        "world": c.game, "games": c.games, "steps": c.steps, "network": list(c.network.hidden),
        "activation": c.network.activation, "shared_trunk": c.network.shared, "fourier": c.network.fourier,
        "epochs": c.ppo.epochs, "batch": c.ppo.minibatch, "history": c.league.history,
    }  # fmt: skip


def random_actions(world: World, seed: int) -> dict[str, NDArray[Any]]:
    """role -> [N, k, A] uniform in [-1, 1], or [N, k] choices."""
    if world.view.mask or not world.view.acting.all():
        raise ConfigError(f"bench: {world.spec.world} is turn-based or masks actions; expected free moves")
    draw = rng.generator(seed, rng.ACT)
    out: dict[str, NDArray[Any]] = {}
    for name, role in world.spec.roles.items():
        shape: tuple[int, ...] = (world.games, len(role.seats))
        if role.actions.kind == "continuous":
            out[name] = draw.uniform(-1, 1, (*shape, role.actions.size)).astype(np.float32)
        else:
            out[name] = draw.integers(0, role.actions.size, shape, np.int32)
    return out


class WorldAlone:
    """Steps with actions given, observations written and resets included; each thread steps its own part."""

    unit = "arena-steps"
    SETS = 4  # of actions, made beforehand

    def __init__(self, world: str, threads: int, games: int = 2048) -> None:
        config = configure(world, threads, {})
        self.name, self.threads = "the world alone", threads
        self.settings = {"world": world, "games": games}
        whole: World = registry.find(world).make(config.world, games)
        self.parts = whole.parts(threads)
        self.actions = [[random_actions(part, s) for s in range(self.SETS)] for part in self.parts]
        self.pool = ThreadPoolExecutor(threads)

    def run(self, seconds: float) -> int:
        until = time.perf_counter() + seconds
        jobs = [self.pool.submit(self._loop, i, until) for i in range(self.threads)]
        return sum((job.result() for job in jobs), start=0)

    def _loop(self, i: int, until: float) -> int:
        part, actions, done = self.parts[i], self.actions[i], 0
        while True:
            for _ in range(8):
                for given in actions:
                    part.step(given)
            done += 8 * self.SETS * part.games
            if time.perf_counter() >= until:
                return done


class Training:
    """Whole iterations of the loop in training/trainer.py without logs, evaluations and checkpoints.

    With `alone`, that role alone learns, against a scripted rival: what Stable-Baselines3 does.
    """

    unit = "learner steps"

    def __init__(self, name: str, config: Config, alone: str = "") -> None:
        self.session = session = Session(config)
        self.name, self.threads, self.alone = name, config.threads, alone
        self.settings = shown(config) | {"learning": [alone] if alone else list(session.spec.roles)}
        if alone:
            rival = rival_of(session, alone)
            for other in opponents(session.spec, alone):
                session.tables[other].others[:] = [session.module.bot(rival, other)]
            self.settings["rival"] = rival
        elif session.league.config.history:
            self._fill_league()

    def _fill_league(self) -> None:
        """Snapshots on the rosters, and rivals in running games: what a run has after its first minute."""
        session = self.session
        for i in range(SNAPSHOTS):
            self.iterate()
            session.league.snapshot(i * session.config.league.snapshot_every)
        session.seat()
        left = np.ones(session.world.games, bool)
        actions = [random_actions(session.world, s) for s in range(4)]
        for step in range(100_000):
            left &= session.world.step(actions[step % 4]).ended == RUNNING
            if not left.any():
                break
        session.begin()

    def rivals_share(self) -> float:
        """Of all seats on the last tape, those in which a rival sat."""
        tracks = self.session.rollout.tape.tracks.values()
        return float(np.mean([(track.slot != 0).mean() for track in tracks]))

    def iterate(self) -> int:
        """One iteration; the decisions that entered an update."""
        session, before = self.session, self.session.learner_steps
        session.seat()
        if self.alone:
            for other in opponents(session.spec, self.alone):
                seats = list(session.spec.roles[other].seats)
                session.world.next.slot[:, seats] = len(session.tables[other].packed)
        tape = session.rollout.collect(session.iteration)
        if self.alone:
            metrics = session.learners[self.alone].learn(tape, 0.0, session.iteration)
            session.learner_steps += int(metrics["decisions"])
        else:
            session.learn(tape)
        session.league.report(tape)
        session.iteration += 1
        session.league.snapshot(session.iteration)
        return session.learner_steps - before

    def run(self, seconds: float) -> int:
        until, done = time.perf_counter() + seconds, 0
        while True:
            done += self.iterate()
            if time.perf_counter() >= until:
                return done


ALONE = {"bands.scouts": 0, "stagger": 0}  # scouts search in the first fifth of a run


def trained(recipe: str) -> Training:
    """A recipe of Q-learning as it acts and learns: all games from power-on, no scouts, replay warm."""
    config = api.configure(recipe, changes=ALONE)
    training = Training(f"training, recipe {recipe}, {config.games} games, no scouts", config)
    training.session.begin()
    while training.session.step <= config.dqn.warmup:
        training.iterate()
    return training


def rival_of(session: Session, role: str) -> str:
    """The first scripted player of the role that faces `role`."""
    other = opponents(session.spec, role)[0]
    return str(session.module.BOTS[other][0])


def score(session: Session, index: int, games: int) -> dict[str, float]:
    """role -> mean score of its policy against every scripted rival, `games` games each."""
    out = {}
    for role, player in session.policies.items():
        results = []
        for other in opponents(session.spec, role):
            for rival in bots_for(session.module, other, ()):
                seats = versus(session.spec, player, role, rival)
                results.append(session.scoreboard.results(seats, games, index)[seats.index(player)].score)
                index += 1
        out[role] = float(np.mean(results))
    return out


def learning(world: str, threads: int, seconds: float, games: int) -> dict[str, Any]:
    """Scores before, midway and after `seconds` of the pinned set-up, and of its control at rate zero."""
    pins = PINNED | {"seed": 1}
    timed = Training("learning", configure(world, threads, pins))
    session = timed.session
    curve = [{"learner_steps": session.learner_steps, "seconds": 0.0} | score(session, 0, games)]
    spent, first = 0.0, session.iteration
    for part in (0.3, 0.7):
        started = time.perf_counter()
        timed.run(part * seconds)
        spent += time.perf_counter() - started
        point = {"learner_steps": session.learner_steps, "seconds": spent}
        curve.append(point | score(session, len(curve) << 8, games))
    iterations = session.iteration - first

    control = Training("control", configure(world, threads, pins | {"ppo.lr": 0.0, "ppo.lr_final": 0.0}))
    before = {role: digest(policy.weights) for role, policy in control.session.policies.items()}
    for _ in range(iterations):
        control.iterate()
    same = before == {role: digest(policy.weights) for role, policy in control.session.policies.items()}
    after, still = curve[-1], score(control.session, 1 << 16, games)
    return {
        "games_per_rival": games, "iterations": iterations, "curve": curve, "control_weights_unchanged": same,
        "control": {"learner_steps": control.session.learner_steps} | still,
        "learns": same and max(after[role] - still[role] for role in still) > MARGIN,
    }  # fmt: skip
