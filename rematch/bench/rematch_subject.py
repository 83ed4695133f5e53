"""Rematch's own side of the benchmark: the world alone, training, and a check that what is timed learns."""

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

LONG = 10**12  # steps of a run whose end, and with it annealing, is out of reach
MARGIN = 0.1  # a score must rise by more than this over the control's to count as learning
SNAPSHOTS = 4  # snapshots in the pool of each role before the clock starts

# The pinned set-up: recipe `pursuit` as a 64 x 64 shared trunk, 4 epochs, 30 % of games against history.
PINNED: dict[str, Any] = {
    "games": 2048, "steps": 32, "total_steps": LONG,
    "network.hidden": [64, 64], "network.activation": "tanh", "network.shared": True, "network.fourier": 0,
    "ppo.epochs": 4, "ppo.minibatch_size": 8192, "ppo.gradient": "native",
    "league.opponent_share": 0.3, "league.bots": [],
}  # fmt: skip

# The hyper-parameters of the documents that asked for this: few games, small minibatches, wide networks.
DOCUMENTS: dict[str, Any] = PINNED | {
    "games": 4, "steps": 512, "network.hidden": [256, 256], "network.shared": False,
    "ppo.epochs": 10, "ppo.minibatch_size": 256, "league.opponent_share": 0.0, "stagger": 0,
}  # fmt: skip


def configure(world: str, threads: int, pins: dict[str, Any]) -> Config:
    """The recipe of this name (or the world's own settings) with `pins` over it."""
    asked = registry.find(world).benchmark or Benchmark()
    changes = {**asked.settings, **pins, "threads": threads}
    out = settings.apply(api.configure(world), changes, "bench")
    settings.validate(out)
    return out


def shown(c: Config) -> dict[str, Any]:
    """The settings that a speed depends on."""
    common = {"world": c.game, "games": c.games, "steps": c.steps}
    return common | learner_class(c).speed_settings(c)


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
        whole = registry.find(world).make(config.world, games)
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


class OneRoleLearns(Component):
    """One role learns alone, against a bot: what Stable-Baselines3 does."""

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
    """Whole iterations of training/loop.py without logs, evaluations and checkpoints.

    With `alone`, that role alone learns, against a bot.
    """

    unit = "learner steps"

    def __init__(self, name: str, config: Config, alone: str = "") -> None:
        kinds = list(components_of(config))
        if alone:
            kinds.append(type("One", (OneRoleLearns,), {"role": alone}))
        self.trainer = trainer = Trainer(config, kinds)
        self.name, self.threads, self.alone = name, config.threads, alone
        roles = trainer.setup.spec.roles
        self.settings = shown(config) | {"learning": [alone] if alone else list(roles)}
        one_role, league = trainer.setup.get(OneRoleLearns), trainer.setup.get(League)
        if one_role is not None:
            self.settings["rival"] = one_role.opponent
        elif league is not None:
            self._fill_league(league)

    def _fill_league(self, league: League) -> None:
        """Snapshots in the pools, and opponents in running games: what a run has after its first minute."""
        trainer, config = self.trainer, self.trainer.config
        for i in range(SNAPSHOTS):
            self.iterate()
            league.matchmaker.snapshot(i * config.league.snapshot_every)
        trainer.before_rollout()
        left = np.ones(trainer.world.games, bool)
        actions = [random_actions(trainer.world, s) for s in range(4)]
        for step in range(100_000):
            left &= trainer.world.step(actions[step % 4]).ended == RUNNING
            if not left.any():
                break
        trainer.before_rollout()
        trainer.each("start", lambda part: part.start(trainer.clock))  # games are staggered

    def rivals_share(self) -> float:
        """Of all seats of the last rollout, those in which an opponent sat."""
        tracks = self.trainer.setup.collector.rollout.tracks.values()
        return float(np.mean([(track.slot != 0).mean() for track in tracks]))

    def iterate(self) -> int:
        """One iteration; the decisions that entered an update."""
        before = self.trainer.clock.learner_steps
        iterate(self.trainer)
        return self.trainer.clock.learner_steps - before

    def run(self, seconds: float) -> int:
        until, done = time.perf_counter() + seconds, 0
        while True:
            done += self.iterate()
            if time.perf_counter() >= until:
                return done


ALONE = {"savestates.mode": "off", "stagger": 0, "episode_video.interval": 0}


def trained(recipe: str) -> Training:
    """A recipe of Q-learning as it acts and learns: all games from power-on, no explorers, replay warm."""
    config = api.configure(recipe, changes=ALONE)
    training = Training(f"training, recipe {recipe}, {config.games} games, no explorers", config)
    training.trainer.start()
    while training.trainer.clock.step <= config.dqn.warmup:
        training.iterate()
    return training


def score(trainer: Trainer, index: int, games: int) -> dict[str, float]:
    """role -> mean score of its policy against every bot, `games` games each."""
    out, setup = {}, trainer.setup
    board = Scoreboard(setup.make_level, trainer.config.seed, trainer.config.threads)
    for role, player in trainer.agents.players.items():
        results = []
        for other in opposing_roles(setup.spec, role):
            for rival in bots_for(setup.game, other, ()):
                seats = versus(setup.spec, player, role, rival)
                results.append(board.results(seats, games, index)[seats.index(player)].score)
                index += 1
        out[role] = float(np.mean(results))
    return out


def learning(world: str, threads: int, seconds: float, games: int) -> dict[str, Any]:
    """Scores before, midway and after `seconds` of the pinned set-up, and of its control at rate zero."""
    pins = PINNED | {"seed": 1}
    timed = Training("learning", configure(world, threads, pins))
    trainer = timed.trainer
    curve = [{"learner_steps": trainer.clock.learner_steps, "seconds": 0.0} | score(trainer, 0, games)]
    spent, first = 0.0, trainer.clock.iteration
    for part in (0.3, 0.7):
        started = time.perf_counter()
        timed.run(part * seconds)
        spent += time.perf_counter() - started
        point = {"learner_steps": trainer.clock.learner_steps, "seconds": spent}
        curve.append(point | score(trainer, len(curve) << 8, games))
    iterations = trainer.clock.iteration - first

    control = Training("control", configure(world, threads, pins | {"ppo.lr": 0.0, "ppo.lr_final": 0.0}))
    before = {role: digest(policy.weights) for role, policy in control.trainer.agents.players.items()}
    for _ in range(iterations):
        control.iterate()
    same = before == {role: digest(policy.weights) for role, policy in control.trainer.agents.players.items()}
    after, still = curve[-1], score(control.trainer, 1 << 16, games)
    return {
        "games_per_rival": games, "iterations": iterations, "curve": curve, "control_weights_unchanged": same,
        "control": {"learner_steps": control.trainer.clock.learner_steps} | still,
        "learns": same and max(after[role] - still[role] for role in still) > MARGIN,
    }  # fmt: skip
