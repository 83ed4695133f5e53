"""Benchmark subjects of Rematch: stepping a world, training, and a check that the timed training learns."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch import api
from rematch.agents.build import learner_class
from rematch.agents.policy import digest
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.clock import Clock
from rematch.core.component import Component
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.world import RUNNING, Next, World
from rematch.evaluation.evaluator import bots_for, opposing_roles, versus
from rematch.evaluation.match import Scoreboard
from rematch.selfplay.league import League
from rematch.training.config import components_of
from rematch.training.loop import iterate
from rematch.training.trainer import Trainer
from rematch.worlds import registry
from rematch.worlds.capabilities import Benchmark

ENDLESS = 10**12  # total steps: so many that annealing has no effect
MARGIN = 0.1  # minimum score above the control run that counts as learning
SNAPSHOTS = 4  # snapshots in each opponent pool before the measurement starts

# The pinned settings: recipe `pursuit` with a shared 64 x 64 trunk, 4 epochs, 30 % of games against the pool.
PINNED: dict[str, Any] = {
    "games": 2048, "steps": 32, "total_steps": ENDLESS,
    "network.hidden": [64, 64], "network.activation": "tanh", "network.shared": True, "network.fourier": 0,
    "ppo.epochs": 4, "ppo.minibatch_size": 8192, "ppo.gradient": "native",
    "league.opponent_share": 0.3, "league.bots": [],
}  # fmt: skip

# The hyper-parameters of the earlier project: few games, small minibatches, wide networks.
EARLIER_PROJECT: dict[str, Any] = PINNED | {
    "games": 4, "steps": 512, "network.hidden": [256, 256], "network.shared": False,
    "ppo.epochs": 10, "ppo.minibatch_size": 256, "league.opponent_share": 0.0, "stagger": 0,
}  # fmt: skip


def configure(world: str, threads: int, overrides: dict[str, Any]) -> Config:
    """Config of the world's recipe, with the benchmark settings of the world and then `overrides`."""
    benchmark = registry.find(world).benchmark or Benchmark()
    changes = {**benchmark.settings, **overrides, "threads": threads}
    config = settings.apply(api.configure(world), changes, "bench")
    settings.validate(config)
    return config


def speed_settings(c: Config) -> dict[str, Any]:
    """Settings that the speed depends on."""
    common = {"world": c.game, "games": c.games, "steps": c.steps}
    return common | learner_class(c).speed_settings(c)


def random_actions(world: World, seed: int) -> dict[str, NDArray[Any]]:
    """role -> uniform random actions: [N, k, A] in [-1, 1], or [N, k] indices."""
    if world.view.mask or not world.view.acting.all():
        raise ConfigError(
            f"bench: {world.spec.world} is turn-based or masks actions; "
            "expected simultaneous, unmasked actions"
        )
    generator = rng.generator(seed, rng.ACT)
    actions: dict[str, NDArray[Any]] = {}
    for name, role in world.spec.roles.items():
        shape: tuple[int, ...] = (world.games, len(role.seats))
        if role.actions.kind == "continuous":
            actions[name] = generator.uniform(-1, 1, (*shape, role.actions.size)).astype(np.float32)
        else:
            actions[name] = generator.integers(0, role.actions.size, shape, np.int32)
    return actions


class WorldStepping:
    """Steps a world with prepared actions, including observations and resets; each thread has its part."""

    unit = "arena-steps"
    SETS = 4  # prepared sets of actions

    def __init__(self, world: str, threads: int, games: int = 2048) -> None:
        config = configure(world, threads, {})
        self.name, self.threads = "the world alone", threads
        self.settings = {"world": world, "games": games}
        whole = registry.find(world).make(config.world, games)
        self.parts = whole.parts(threads)
        self.actions = [[random_actions(part, s) for s in range(self.SETS)] for part in self.parts]
        self.pool = ThreadPoolExecutor(threads)

    def run(self, seconds: float) -> int:
        end = time.perf_counter() + seconds
        jobs = [self.pool.submit(self._loop, i, end) for i in range(self.threads)]
        return sum((job.result() for job in jobs), start=0)

    def _loop(self, i: int, end: float) -> int:
        part, actions, steps = self.parts[i], self.actions[i], 0
        while True:
            for _ in range(8):
                for action in actions:
                    part.step(action)
            steps += 8 * self.SETS * part.games
            if time.perf_counter() >= end:
                return steps


class OneRoleLearns(Component):
    """One role learns against a bot, as in Stable-Baselines3."""

    name = "one_role_learns"
    role = ""

    def connect(self) -> None:
        spec, game = self.setup.spec, self.setup.game
        self.opponent = str(game.bots[opposing_roles(spec, self.role)[0]][0])
        self.slots = {other: self.setup.seating[other].seat_player(game.bot(self.opponent, other))
                      for other in opposing_roles(spec, self.role)}  # fmt: skip

    def before_rollout(self, clock: Clock, next: Next) -> None:
        clock.phase = replace(clock.phase, roles=(self.role,))
        for other, slot in self.slots.items():
            next.slot[:, list(self.setup.spec.roles[other].seats)] = slot


class Training:
    """Iterations of training/loop.py without logs, evaluations and checkpoints.

    With `learning_role`, only that role learns, against a bot.
    """

    unit, device = "learner steps", "cpu"

    def __init__(self, name: str, config: Config, learning_role: str = "") -> None:
        kinds = list(components_of(config))
        if learning_role:
            kinds.append(type("One", (OneRoleLearns,), {"role": learning_role}))
        self.trainer = trainer = Trainer(config, kinds)
        self.name, self.threads, self.learning_role = name, config.threads, learning_role
        roles = trainer.setup.spec.roles
        self.settings = speed_settings(config) | {
            "learning": [learning_role] if learning_role else list(roles)
        }
        one_role, league = trainer.setup.get(OneRoleLearns), trainer.setup.get(League)
        if one_role is not None:
            self.settings["rival"] = one_role.opponent
        elif league is not None:
            self._fill_league(league)

    def _fill_league(self, league: League) -> None:
        """Fills the opponent pools and seats opponents, as in a run after its first minute."""
        trainer, config = self.trainer, self.trainer.config
        for i in range(SNAPSHOTS):
            self.iterate()
            league.matchmaker.snapshot(i * config.league.snapshot_every)
        trainer.setup.queue.drop()
        trainer.before_rollout()
        unfinished = np.ones(trainer.world.games, bool)
        actions = [random_actions(trainer.world, s) for s in range(4)]
        for step in range(100_000):
            unfinished &= trainer.world.step(actions[step % 4]).ended == RUNNING
            if not unfinished.any():
                break
        trainer.before_rollout()
        trainer.each("start", lambda part: part.start(trainer.clock))  # games are staggered

    def opponent_seat_share(self) -> float:
        """Fraction of seats in the last rollout that an opponent played."""
        tracks = self.trainer.setup.collector.rollout.tracks.values()
        return float(np.mean([(track.slot != 0).mean() for track in tracks]))

    def iterate(self) -> int:
        """Runs one iteration; returns the number of decisions that entered an update."""
        before = self.trainer.clock.learner_steps
        iterate(self.trainer)
        return self.trainer.clock.learner_steps - before

    def run(self, seconds: float) -> int:
        end, steps = time.perf_counter() + seconds, 0
        while True:
            steps += self.iterate()
            if time.perf_counter() >= end:
                return steps


WITHOUT_EXPLORERS = {"savestates.mode": "off", "stagger": 0, "episode_video.interval": 0}


def warmed_up_training(recipe: str) -> Training:
    """Training of a Q-learning recipe after its warm-up: games from the initial state, no explorers."""
    config = api.configure(recipe, changes=WITHOUT_EXPLORERS)
    training = Training(f"training, recipe {recipe}, {config.games} games, no explorers", config)
    training.trainer.start()
    while training.trainer.clock.step <= config.dqn.warmup:
        training.iterate()
    return training


def score(trainer: Trainer, index: int, games: int) -> dict[str, float]:
    """role -> mean score of its policy against every bot, `games` games each."""
    scores, setup = {}, trainer.setup
    scoreboard = Scoreboard(setup.make_level, trainer.config.seed, trainer.config.threads)
    for role, player in trainer.agents.players.items():
        results = []
        for other in opposing_roles(setup.spec, role):
            for bot in bots_for(setup.game, other, ()):
                seats = versus(setup.spec, player, role, bot)
                results.append(scoreboard.results(seats, games, index)[seats.index(player)].score)
                index += 1
        scores[role] = float(np.mean(results))
    return scores


def opposing_bot(world: str, role: str) -> str:
    """The first scripted player of the role that plays against this one."""
    game = registry.find(world)
    spec = game.spec(configure(world, 1, {}).world)
    return str(game.bots[opposing_roles(spec, role)[0]][0])


def learning(
    world: str, threads: int, seconds: float, games: int, kind: type[Training] = Training
) -> dict[str, Any]:
    """Scores before, during and after `seconds` of pinned training, and of a control with learning rate 0.

    `kind` trains on the GPU, or on the processor.
    """
    overrides = PINNED | {"seed": 1, "device": kind.device}
    timed = kind("learning", configure(world, threads, overrides))
    trainer = timed.trainer
    curve = [{"learner_steps": trainer.clock.learner_steps, "seconds": 0.0} | score(trainer, 0, games)]
    elapsed, first = 0.0, trainer.clock.iteration
    for part in (0.3, 0.7):
        started = time.perf_counter()
        timed.run(part * seconds)
        elapsed += time.perf_counter() - started
        point = {"learner_steps": trainer.clock.learner_steps, "seconds": elapsed}
        curve.append(point | score(trainer, len(curve) << 8, games))
    iterations = trainer.clock.iteration - first

    control = kind("control", configure(world, threads, overrides | {"ppo.lr": 0.0, "ppo.lr_final": 0.0}))
    digests = {role: digest(policy.weights) for role, policy in control.trainer.agents.players.items()}
    for _ in range(iterations):
        control.iterate()
    weights_unchanged = digests == {
        role: digest(policy.weights) for role, policy in control.trainer.agents.players.items()
    }
    after, control_scores = curve[-1], score(control.trainer, 1 << 16, games)
    gain = max(after[role] - control_scores[role] for role in control_scores)
    return {
        "games_per_rival": games, "iterations": iterations, "curve": curve,
        "control_weights_unchanged": weights_unchanged,
        "control": {"learner_steps": control.trainer.clock.learner_steps} | control_scores,
        "learns": weights_unchanged and gain > MARGIN,
    }  # fmt: skip
