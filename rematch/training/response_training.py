"""One best response in training: a policy that learns against the frozen agents of a run.

Training has rounds. A round anneals the learning rate from start to end; the next one starts from the best
checkpoint, and there is none after a round that did not improve. At the start of a round that begins with
trained weights the value function learns alone, then the rate rises from 0: it belongs to other opponents,
and advantages from wrong values would destroy the policy within an iteration (docs/results/LOG.md).

A fresh response first plays a course: the frozen agents' own past policies, from the earliest to the newest,
mixed with the scripted opponents of the run. Many agents cannot be beaten by chance, so that a new policy
would have nothing to learn from.

A response of the kind `selfplay` starts from a new training with the run's recipe and another seed, in which
all roles learn from each other. Skills that the run needed tens of millions of steps for are not learned in
fewer against its frozen agents alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.build import learner_class
from rematch.agents.learners.lookahead import (
    Lookahead,
    LookaheadConfig,
    LookaheadPlayer,
    SuccessorSolver,
    check_network,
    check_spec,
)
from rematch.agents.learners.ppo import Ppo
from rematch.agents.policy import Policy, digest
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.player import Player, StochasticPlayer
from rematch.core.run_config import Config
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.core.world import World
from rematch.curriculum.levels import LevelProgress, restart_on
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import RoleSeating
from rematch.training.device import collector_of, placed
from rematch.training.loop import iterate
from rematch.training.trainer import Trainer
from rematch.worlds import registry
from rematch.worlds.game import Game

FRESH, INCUMBENT, LOOKAHEAD, SELF_PLAY = "fresh", "incumbent", "ahead", "selfplay"  # kinds of responses
# (factor on the run's learning rate, entropy weight) of responses 0 and 1; response 2 has the run's settings
RESPONSE_HYPERPARAMS = ((3.0, 0.5), (1.0, 0.1))
TRAINED_HYPERPARAMS = ((1 / 3, 0.1), (1.0, 0.5))  # of responses that start from trained weights
LOW_ENTROPY = 1  # index of the hyperparameters of exploiters (training/components/exploiters.py)
RUN_RECIPE = 2  # number, modulo KINDS, of responses with the PPO settings of the run
KINDS = 3
CONTINUOUS = 0.1  # factor on the entropy weight for continuous actions: their entropy has no upper bound
EPOCHS = 4  # at least: data against frozen players does not become outdated
# Eight times the replay of the recipe `lookahead` finds more of the exact gain (docs/results/LOG.md).
LOOKAHEAD_CONFIG = LookaheadConfig(replay_ratio=32.0, explore=0.2)
ROUNDS = (0.5, 0.25, 0.25)  # shares of the budget
CHECKPOINTS = 5  # per round
MIN_IMPROVEMENT = 0.01  # of the best checkpoint's score in a round; otherwise the response is finished
TARGET_KL = 0.02
VALUE_ITERATIONS, RISING_ITERATIONS = 3, 10  # of a round from trained weights: value alone; rate from 0 to 1
COURSE_SHARE = 0.6  # of a fresh response's first round
PAST, BOT_SHARE = 8, 0.3  # past policies in a course; share of its games against scripted opponents
STAGGERED = COURSE = 1 << 40  # iteration numbers of rollouts before training, of draws of a course


@dataclass(frozen=True, kw_only=True)
class FrozenAgents:
    """The newest players of a run, which do not learn any more."""

    config: Config
    players: Mapping[str, Player]
    iteration: int
    level: LevelProgress | None = None  # responses play on the same level
    past: Sequence[Mapping[str, Player]] = ()  # earlier players of the run, oldest first
    # Weights of trainings by self-play, by seed and steps: one training serves the responses of all roles.
    trained: dict[tuple[int, int], dict[str, Floats]] = field(default_factory=dict, compare=False)

    @property
    def game(self) -> Game:
        return registry.find(self.config.game)

    def make(self, games: int, first: int, seed: int) -> World:
        world: World = self.game.make(self.config.world, games, first, seed)
        if self.level:
            restart_on(world, self.level.present_stage)
        return world

    def identity(self) -> dict[str, Any]:
        """Distinguishes these players from those of other iterations of the run."""
        weights = {role: digest(p.weights) for role, p in self.players.items() if isinstance(p, Policy)}
        level = {"level": self.level.name} if self.level else {}
        past = [{role: digest(p.weights)[:16] for role, p in players.items() if isinstance(p, Policy)}
                for players in self.past]
        return {"iteration": self.iteration, "weights": weights, "past": past} | level


def response_config(
    config: Config, budget: int, number: int, spec: Spec,
    hyperparams: tuple[tuple[float, float], ...] = RESPONSE_HYPERPARAMS,
) -> Config:  # fmt: skip
    """The run's settings, changed for one policy that learns against frozen players."""
    ppo = config.ppo
    own_lr = ppo.lr or type(ppo)().lr  # the default where a control run has the rate 0
    changed = settings.replace(settings.untracked(config), {
        "total_steps": budget, "schedule.kind": "simultaneous", "start_iteration": 0,
        "ppo.temperature": 1.0, "ppo.temperature_final": 1.0, "ppo.average_fraction": 0.0, "ppo.lr": own_lr,
    })  # fmt: skip
    if number % KINDS == RUN_RECIPE:
        return changed
    lr_factor, entropy_weight = hyperparams[number % KINDS]
    lr = lr_factor * own_lr
    discrete = all(role.actions.kind == "discrete" for role in spec.roles.values())
    return settings.replace(changed, {
        "ppo.anneal": "linear", "ppo.lr": lr, "ppo.lr_final": min(ppo.lr_final, lr / 10),
        "ppo.entropy_weight": entropy_weight * (1 if discrete else CONTINUOUS),
        "ppo.entropy_weight_final": 0.0,
        "ppo.magnet_weight": 0.0, "ppo.target_kl": 0.0,
        "ppo.epochs": max(ppo.epochs, EPOCHS),
    })


def search_config(config: Config, budget: int, response: tuple[str, int], spec: Spec) -> Config:
    """`response_config` for `rematch exploit`; response: its start and number.

    A response that starts from trained weights has a limit of the KL divergence, and the first one a lower
    learning rate: the run's own rate destroys what a long training has annealed (docs/results/LOG.md).
    Fresh responses with continuous actions all have the high entropy weight.
    """
    start, number = response
    trained = start in (INCUMBENT, SELF_PLAY)
    hyperparams = TRAINED_HYPERPARAMS if trained else RESPONSE_HYPERPARAMS
    changed = response_config(config, budget, number, spec, hyperparams)
    if number % KINDS == RUN_RECIPE:
        return changed
    if trained:
        return settings.replace(changed, {"ppo.target_kl": TARGET_KL})
    if start == FRESH and any(role.actions.kind == "continuous" for role in spec.roles.values()):
        entropy_weight = response_config(config, budget, 0, spec).ppo.entropy_weight
        changed = settings.replace(changed, {"ppo.entropy_weight": entropy_weight})
    return changed


# --- a training by self-play --------------------------------------------------------------------------------


def self_play_config(frozen: FrozenAgents, limit: int, number: int) -> Config:
    """The run's recipe for a training with another seed: as many steps as the run, `limit` at most."""
    c = frozen.config
    steps = min(limit, frozen.iteration * c.games * c.steps)
    recipe = response_config(c, steps, RUN_RECIPE, frozen.make(1, 0, 0).spec)
    seed = rng.key(c.seed, rng.EXPLOITER, number) >> 32
    return settings.replace(recipe, {"seed": seed, "curriculum.kind": "none", "exploiters.every": 0})


def self_play(
    frozen: FrozenAgents, config: Config, before_step: Callable[[], None] = lambda: None
) -> dict[str, Floats]:
    """The weights of all roles after a new training in which they learn from each other.

    It never meets the frozen agents: the run itself became as strong as it is in this way.
    """
    key = (config.seed, config.total_steps)
    if key not in frozen.trained:
        trainer = Trainer(config)
        if frozen.level:
            restart_on(trainer.world, frozen.level.present_stage)
        trainer.setup.collector.before_step = before_step
        trainer.start()
        while not trainer.clock.done:
            iterate(trainer)
            trainer.end_iteration()
            PROGRESS.report(trainer.clock.progress, "responses, self-play")
        trainer.setup.queue.drop()  # with a lag the next rollout is played already
        trainer.finish()
        networks = trainer.agents.networks
        frozen.trained[key] = {role: policy.weights.copy() for role, policy in networks.items()}
    return frozen.trained[key]


# --- one response -----------------------------------------------------------------------------------------


def fits(player: Player, policy: Policy) -> bool:
    """Whether the weights of a player can play from a slot of this policy's network."""
    return isinstance(player, Policy) and player.weights.shape == policy.weights.shape


@dataclass(frozen=True, kw_only=True)
class Course:
    """Opponents of a fresh response before the frozen players: past policies and scripted players."""

    past: Sequence[Mapping[str, Any]] = ()  # policies that play from slots, oldest first
    bots: Sequence[Mapping[str, Player]] = ()

    @classmethod
    def of(cls, frozen: FrozenAgents, config: Config, role: str) -> Course:
        spec, game = frozen.make(1, 0, 0).spec, frozen.game
        networks = {name: Policy(role_spec, config.network, name) for name, role_spec in spec.roles.items()}
        past = [players for players in frozen.past
                if all(fits(players[name], policy) for name, policy in networks.items())]
        opponents = [name for name in spec.roles if name != role or len(spec.roles) == 1]
        by_role = [{name: game.bot(bot, name) for name in opponents if bot in game.bot_names(name)}
                   for bot in config.league.bots]
        return cls(past=past, bots=[bots for bots in by_role if bots])


class Response:
    """A response in training. It plays from slot 0 of its role; the frozen players have all other seats."""

    def __init__(
        self, frozen: FrozenAgents, config: Config, role: str, seed: int, course: Course | None = None
    ) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.course = course or Course()
        self.world = placed(frozen.make(config.games, 0, seed), config, frozen.game)
        spec = self.world.spec
        policy_class = Ppo.on_device(config, spec).policy_class
        self.policy = policy_class(spec.roles[role], config.network, f"{role} (response)")
        self.policy.initialise(seed)
        self.learner = self._new_learner()
        self.seating: dict[str, RoleSeating] = {}
        self.slot: dict[str, int] = {}  # role -> slot of its frozen player
        for name, player in frozen.players.items():
            policy = self.policy if name == role else Policy(spec.roles[name], config.network, name)
            self.seating[name] = seating = RoleSeating(policy, 2 + len(self.course.past))
            for i, players in enumerate(self.course.past):
                seating.place(2 + i, players[name].weights)
            if isinstance(player, Policy) and fits(player, policy):
                seating.place(1, player.weights)
                self.slot[name] = 1
            else:
                self.slot[name] = seating.seat_player(player)
        self.bot_slots = [{name: self.seating[name].seat_player(bot) for name, bot in by_role.items()}
                          for by_role in self.course.bots]
        self.collector = collector_of(self.world, self.seating, config, seed)

    def _new_learner(self) -> Ppo:
        make = Ppo.on_device(self.config, self.world.spec)
        return make(self.policy, self.config.ppo, self.seed, self.config.threads)

    def seat(self, iteration: int, course: float = 1.0) -> None:
        """Seat the response: in all seats of its role, or in a random one if the world has one role.

        `course`: the position in its course from 0 to 1; 1: all games are against the frozen players.
        """
        world, spec = self.world, self.world.spec
        for name, role_spec in spec.roles.items():
            slots = np.full(world.games, self.slot[name])
            if course < 1:
                slots = self._course_slots(name, iteration, course)
            world.next.slot[:, list(role_spec.seats)] = slots[:, None]
        if len(spec.roles) > 1:
            world.next.slot[:, list(spec.roles[self.role].seats)] = 0
        else:
            uniforms = rng.units(self.seed, rng.SEATING, world.games, iteration)
            world.next.slot[np.arange(world.games), (uniforms * spec.seats).astype(int)] = 0
        if iteration == 0:
            self.collector.seat_running_games(world.next.slot)  # no game has started yet

    def _course_slots(self, role: str, iteration: int, course: float) -> NDArray[np.int64]:
        """[N] slots of a role's players: the policy that is due, any earlier one, or a scripted player."""
        kind, earlier, which = (
            rng.units(self.seed, rng.SEATING, self.world.games, COURSE | iteration << 2 | i) for i in range(3)
        )
        policies = np.array([*range(2, 2 + len(self.course.past)), self.slot[role]])
        due = int(course * len(policies))
        slots = policies[np.where(earlier < 0.5, due, (which * (due + 1)).astype(int))]
        if self.bot_slots:
            bots = np.array([by_role.get(role, self.slot[role]) for by_role in self.bot_slots])
            slots = np.where(kind < BOT_SHARE, bots[(which * len(bots)).astype(int)], slots)
        return slots

    def stagger(self, course: float) -> None:
        """Restart groups of games at different times, as the run does; before the first iteration."""
        config, world = self.config, self.world
        groups = -(-config.stagger // config.steps)
        self.seating[self.role].place(0, self.policy.weights)
        self.seat(0, course)
        if not groups:
            return
        rows = np.arange(config.games, dtype=np.int32)
        initial_states = world.save(rows)
        group = rng.words(self.seed, rng.STAGGER, config.games) % np.uint64(groups)
        for g in range(groups):
            restarted = np.flatnonzero(group == g).astype(np.int32)
            world.load(restarted, initial_states[restarted])
            self.collector.collect(STAGGERED + g)

    def iterate(self, iteration: int, progress: float, course: float = 1.0) -> None:
        """One rollout and one update; `progress` from 0 to 1 anneals the settings."""
        self.seating[self.role].place(0, self.policy.weights)
        self.seat(iteration, course)
        rollout = self.collector.collect(iteration)
        self.learner.learn(rollout, progress, iteration)

    def train(self) -> None:
        """All iterations against the frozen players alone, without checkpoints."""
        for iteration in range(self.config.iterations):
            self.iterate(iteration, iteration / self.config.iterations)

    def search(self, start: str, score: Callable[[Player], float]) -> int:
        """Train in rounds while `score` of the best checkpoint improves, and take that checkpoint.

        Returns the number of iterations.
        """
        checkpoints = Checkpoints(self.policy, self.policy, score)
        iteration, total = 0, self.config.iterations
        self.stagger(0.0 if start == FRESH else 1.0)
        for number, last in enumerate(round_ends(total)):
            untrained = start == FRESH and number == 0
            self.learner = self._new_learner()
            before, first = checkpoints.score, iteration
            for iteration in range(first, last):
                done = iteration - first
                course = done / (COURSE_SHARE * (last - first)) if untrained else 1.0
                self.learner.value_only = not untrained and done < VALUE_ITERATIONS
                rising = 1 + done - VALUE_ITERATIONS  # iterations of the policy, with this one
                self.learner.rate = 1.0 if untrained or rising < 1 else min(1.0, rising / RISING_ITERATIONS)
                # The iteration 0 seats running games; those of `stagger` have their players already.
                self.iterate(iteration + 1, done / (last - first), course)
                PROGRESS.report((iteration + 1) / total, f"{self.role} response, {start}")
                if is_checkpoint(done + 1, last - first):
                    checkpoints.add()
            iteration = last
            checkpoints.restore()
            if checkpoints.score < before + MIN_IMPROVEMENT:
                break
        return iteration

    @property
    def player(self) -> Player:
        return self.policy


class Checkpoints:
    """The best weights of a response so far, by the score of its player. The first are the untrained ones."""

    def __init__(self, policy: Policy, player: Player, score: Callable[[Player], float]) -> None:
        self.policy, self.player, self.measure = policy, player, score
        self.weights, self.score = policy.weights.copy(), score(player)

    def add(self) -> None:
        score = self.measure(self.player)
        if score > self.score:
            self.weights, self.score = self.policy.weights.copy(), score

    def restore(self) -> None:
        self.policy.set(self.weights)


def round_ends(iterations: int) -> list[int]:
    """The iterations after which rounds end; the last is `iterations`."""
    shares = np.cumsum(ROUNDS)
    return sorted({max(1, round(float(share) * iterations)) for share in shares})


def is_checkpoint(done: int, iterations: int) -> bool:
    """Whether a checkpoint is measured after `done` iterations of a round."""
    return done * CHECKPOINTS // iterations != (done - 1) * CHECKPOINTS // iterations


class LookaheadResponse:
    """A response that plans one joint move ahead with the rules and the frozen player's action probabilities.

    `policy` is its value network. In training some of its own moves are random.
    """

    def __init__(self, frozen: FrozenAgents, config: Config, role: str, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.world = frozen.make(config.games, 0, seed)
        spec = self.world.spec
        other = next(seat for seat in (0, 1) if spec.role_of(seat).name != role)
        player: Any = frozen.players[spec.role_of(other).name]  # it has `action_probs`: can_look_ahead
        self.policy = Policy(spec.role_of(0), config.network, f"{role} (value)")
        self.policy.initialise(seed)
        solver = SuccessorSolver(frozen.make, spec, self.policy, fixed_opponent=(other, player))
        self.learner = Lookahead(solver, LOOKAHEAD_CONFIG, seed, config.threads)
        self.player = LookaheadPlayer(solver, role)
        self.player.name = f"{role} (response)"
        seating = {name: RoleSeating(self.policy, 0) for name in spec.roles}
        for name, role_seating in seating.items():
            explore = LOOKAHEAD_CONFIG.explore if name == role else 0.0
            role_seating.others.append(LookaheadPlayer(solver, name, explore))
        self.collector = ThreadCollector(self.world, seating, config.steps, config.threads, seed)

    def search(self, start: str, score: Callable[[Player], float]) -> int:
        """Train one round and take the best checkpoint; the number of iterations."""
        checkpoints, total = Checkpoints(self.policy, self.player, score), self.config.iterations
        self.world.slot[:] = self.world.next.slot[:] = 0
        for iteration in range(total):
            rollout = self.collector.collect(iteration)
            self.learner.learn(rollout, iteration / total, iteration)
            PROGRESS.report((iteration + 1) / total, f"{self.role} response, {start}")
            if is_checkpoint(iteration + 1, total):
                checkpoints.add()
        checkpoints.restore()
        self.learner.solver.clear_cache()
        return total


def can_look_ahead(frozen: FrozenAgents, role: str) -> bool:
    """Whether lookahead works: two roles, few actions, nothing hidden, opponents with `action_probs`."""
    spec = frozen.make(1, 0, 0).spec
    try:
        check_spec(spec)
        check_network(frozen.config.network)
    except ConfigError:
        return False
    others = [player for name, player in frozen.players.items() if name != role]
    return len(spec.roles) == 2 and all(isinstance(player, StochasticPlayer) for player in others)


def start_kinds(frozen: FrozenAgents, role: str) -> list[str]:
    """The kinds of responses that are possible for a role."""
    ahead = can_look_ahead(frozen, role)
    possible = {
        INCUMBENT: isinstance(frozen.players[role], Policy),  # only a policy has weights
        SELF_PLAY: learner_class(frozen.config).trains_policy and not ahead,
        LOOKAHEAD: ahead,
    }
    return [FRESH, *(kind for kind, is_possible in possible.items() if is_possible)]


