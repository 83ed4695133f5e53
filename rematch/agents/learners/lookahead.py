"""Lookahead: one-step planning with the rules of the game and a value network.

For games of two seats, with few actions, perfect information and rules that can step from any state. In each
position the rules give the successor of every joint action, and the network the probability that seat 0 wins
from there. This matrix is a zero-sum game: both seats play its solution, and the network learns its value
(Shapley 1953: iterated, this is value iteration of a stochastic game). The rules are needed in training and
in play: the learner is model-based, and lists of players mark it with `model_based`.

With a `fixed_opponent` in one seat, whose action probabilities can be queried, the other seat plays the best
response to it instead of the solution: the network then learns the value of a best response.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learner import AgentSet, Learner, MakeWorld, Regularizer, TermInfo
from rematch.agents.learners.adam import Adam
from rematch.agents.networks import fused
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Bytes, Floats, Ints, Tree, stored_array, stored_int
from rematch.core.component import PlayState, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.player import Decision, RngKey, Seat, StochasticPlayer
from rematch.core.spec import Spec
from rematch.core.stepping import concat_fields
from rematch.core.world import World
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

MAX_ACTIONS = 16  # per seat: native/matrix_game.h
VALUE_TERM_ONLY = (0.0, 0.0, 1.0, 0.0, 0.0)  # coefficients of the loss of agents/learners/ppo.py
CHUNK = 4096  # successors per forward pass: they fit into the CPU caches


@dataclass(frozen=True, kw_only=True)
class LookaheadConfig:
    """One-step lookahead with the rules of the game and a value network."""

    lr: float = knob(3e-3, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end; the change is linear", low=0, high=10)
    replay_size: int = knob(1 << 17, "capacity of the replay buffer", unit="positions", low=1, high=1 << 26)
    replay_ratio: float = knob(2.0, "mean number of times that each position is trained on", low=0.01,
                               high=100)
    minibatch_size: int = knob(2048, "positions per gradient step", unit="positions", low=1)
    explore: float = knob(0.0, "probability of a random action in training", low=0, high=1)
    max_grad_norm: float = knob(
        0.5, "largest norm of a gradient; longer gradients are scaled to it; 0: no limit", low=0
    )


def check_network(config: NetworkConfig) -> None:
    """ConfigError for networks that do not compute the value of one observation alone."""
    expected_values = {"kind": "mlp", "encoder": "mlp", "critic": "own", "table": False, "module": ""}
    for key, expected in expected_values.items():
        value = getattr(config, key)
        if value != expected:
            raise ConfigError(f"network.{key} = {value}: not with learner lookahead; expected {expected}")


def check_spec(spec: Spec) -> None:
    """ConfigError for worlds that lookahead cannot play."""
    problem = ""
    if spec.seats != 2:
        problem = f"has {spec.seats} seats, expected 2"
    elif any(role.actions.kind != "discrete" for role in spec.roles.values()):
        problem = "has continuous actions, expected a few discrete ones"
    elif max(role.actions.size for role in spec.roles.values()) > MAX_ACTIONS:
        problem = f"has more than {MAX_ACTIONS} actions"
    elif hidden := [name for role in spec.roles.values() for name in role.hidden]:
        problem = f"hides {', '.join(hidden)}, expected no hidden fields"
    elif not spec.zero_sum:
        problem = "is not zero-sum"
    elif spec.resume != "state":
        problem = "cannot be stepped from any state"
    if problem:
        raise ConfigError(f"learner = lookahead: {spec.world} {problem}")


@dataclass
class Solution:
    """The matrix games of n positions: mixed strategies [n, A] of both seats, P(seat 0 wins) [n]."""

    states: Bytes
    network: int  # version of the network
    mix: tuple[NDArray[np.float64], NDArray[np.float64]]
    value: NDArray[np.float64]


class SuccessorSolver:
    """Solves the matrix game over the successors of a position. Shared by the players of both seats."""

    def __init__(
        self, make: MakeWorld, spec: Spec, value: Policy,
        fixed_opponent: tuple[int, StochasticPlayer] | None = None,
    ) -> None:  # fmt: skip
        check_spec(spec)
        self.make, self.spec, self.value, self.fixed_opponent = make, spec, value, fixed_opponent
        first, second = (spec.role_of(seat).actions.size for seat in (0, 1))
        self.shape = (first, second)
        self.joint = first * second
        self.cache = threading.local()  # per thread: a scratch world and the last solution
        self.network = 0  # version: number of changes of the network

    def solve(self, world: World, rows: Ints) -> Solution:
        """The games of these rows; the last solution is cached, because the other seat queries it next."""
        states = world.save(rows)
        last: Solution | None = getattr(self.cache, "last", None)
        if last is not None and last.network == self.network and np.array_equal(last.states, states):
            return last
        payoff = np.empty((len(rows), *self.shape), np.float64)
        step = max(1, CHUNK // self.joint)
        for at in range(0, len(rows), step):
            cut = slice(at, min(at + step, len(rows)))
            payoff[cut] = self._successors(states[cut])
        for seat in (0, 1):
            self._exclude_illegal(payoff, self._legal(world, rows, seat), seat)
        value = np.empty(len(rows), np.float64)
        mix = (np.empty((len(rows), self.shape[0])), np.empty((len(rows), self.shape[1])))
        if self.fixed_opponent is None:
            fused.matrix_games(payoff, value, *mix)
        else:
            seat, player = self.fixed_opponent
            mix[seat][:] = self._action_probs(world, rows, seat, player)
            value[:] = best_response(payoff, seat, mix)
        solution = self.cache.last = Solution(states, self.network, mix, value)
        return solution

    def clear_cache(self) -> None:
        """Discard stored solutions: the network has changed."""
        self.network += 1

    def _successors(self, states: Bytes) -> NDArray[np.float64]:
        """[n, A, B] P(seat 0 wins) after each joint action: the outcome, or the output of the network."""
        n, (first, second) = len(states), self.shape
        scratch = self._scratch()
        many = np.arange(n * self.joint, dtype=np.int32)
        scratch.load(many, np.repeat(states, self.joint, axis=0))
        roles = self.spec.roles
        actions = {role: np.zeros((scratch.games, len(roles[role].seats)), np.int32) for role in roles}
        grid = np.indices((first, second)).reshape(2, -1)
        for seat in (0, 1):
            role_spec = self.spec.role_of(seat)
            legal = self._legal(scratch, np.arange(scratch.games, dtype=np.int32), seat)
            requested = np.resize(grid[seat], scratch.games)
            first_legal = legal.argmax(1)  # replaces illegal actions, which are excluded afterwards
            chosen = np.where(legal[np.arange(scratch.games), requested], requested, first_legal)
            actions[role_spec.name][:, role_spec.seats.index(seat)] = chosen
        view = scratch.step(actions)
        role_spec = self.spec.role_of(0)
        obs = concat_fields(role_spec, view[role_spec.name])[: n * self.joint, 0]
        logit = self.value.forward(np.ascontiguousarray(obs))[1].astype(np.float64)
        win_probability = np.where(view.ended[many] != 0, view.outcome[many, 0], 1.0 / (1.0 + np.exp(-logit)))
        return win_probability.reshape(n, first, second)

    def _action_probs(
        self, world: World, rows: Ints, seat: int, player: StochasticPlayer
    ) -> NDArray[np.float64]:
        """[n, A] action probabilities of this player; a seat that does not act has one legal action."""
        role_spec, legal = self.spec.role_of(seat), self._legal(world, rows, seat)
        obs = concat_fields(role_spec, world.view[role_spec.name])[rows, role_spec.seats.index(seat)]
        mask = legal.astype(np.uint8) if role_spec.name in world.view.mask else None
        seated = Seat(role_spec, seat, world, rows, np.ascontiguousarray(obs), mask)
        action_probs = player.action_probs(seated).astype(np.float64) * legal
        return np.asarray(action_probs / action_probs.sum(1, keepdims=True))

    def _scratch(self) -> World:
        world: World | None = getattr(self.cache, "world", None)
        if world is None:
            world = self.cache.world = self.make(max(1, CHUNK // self.joint) * self.joint, 0, 0)
        return world

    def _legal(self, world: World, rows: Ints, seat: int) -> NDArray[np.bool_]:
        """[n, A] legal actions of this seat; the first action alone where the seat does not act."""
        role_spec = self.spec.role_of(seat)
        legal = np.ones((len(rows), role_spec.actions.size), bool)
        if role_spec.name in world.view.mask:
            legal = world.view.mask[role_spec.name][rows, role_spec.seats.index(seat)] != 0
        waiting = world.view.acting[rows, seat] == 0
        if waiting.any():
            legal = legal.copy()
            legal[waiting] = np.arange(role_spec.actions.size) == 0
        return legal

    def _exclude_illegal(self, payoff: NDArray[np.float64], legal: NDArray[np.bool_], seat: int) -> None:
        """Give illegal actions a payoff worse than all others: no solution uses them."""
        if legal.all():
            return
        if seat == 0:
            payoff[~legal] = -1.0
        else:
            np.moveaxis(payoff, 1, 2)[~legal] = 2.0


def best_response(
    payoff: NDArray[np.float64], fixed_opponent: int, mix: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Write the best response to seat `fixed_opponent` into `mix`; returns P(seat 0 wins) [n].

    payoff [n, A, B] is that of seat 0, whose response maximises it; seat 1 minimises it.
    """
    if fixed_opponent == 1:
        values = np.einsum("nab,nb->na", payoff, mix[1])
    else:
        values = -np.einsum("nab,na->nb", payoff, mix[0])
    mix[1 - fixed_opponent][:] = np.arange(values.shape[1]) == values.argmax(1)[:, None]
    best: NDArray[np.float64] = values.max(1)
    return best if fixed_opponent == 1 else -best


class LookaheadPlayer:
    """The player of one role: it samples from the solution of the matrix game over the successors."""

    model_based = True

    def __init__(self, solver: SuccessorSolver, role: str, explore: float = 0.0) -> None:
        self.solver, self.explore = solver, explore
        self.name = f"{role} (lookahead)"
        self.greedy = False

    def action_probs(self, seat: Seat) -> Floats:
        """[n, A] the mixed strategy from which `act` samples."""
        mix = self.solver.solve(seat.world, seat.rows).mix[seat.seat]
        if self.greedy:
            return np.asarray(np.arange(mix.shape[1]) == mix.argmax(1)[:, None], np.float32)
        return mix.astype(np.float32)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        action_probs = self.action_probs(seat).astype(np.float64)
        if self.explore > 0:
            legal = np.ones(action_probs.shape) if seat.mask is None else seat.mask.astype(np.float64)
            uniform = legal / legal.sum(1, keepdims=True)
            action_probs = (1 - self.explore) * action_probs + self.explore * uniform
        games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
        seat_key = rng.key(rng_key.seed, rng_key.stream, seat.seat)  # each seat has its own random numbers
        uniform = rng.units(seat_key, rng_key.stream, int(games.max(initial=-1)) + 1, rng_key.step)[games]
        total = np.cumsum(action_probs, axis=1)
        action = (total <= uniform[:, None] * total[:, -1:]).sum(1)
        value = self.solver.solve(seat.world, seat.rows).value
        return Decision(action.astype(np.int32), value=value.astype(np.float32))


class ValueNetwork(PlayState):
    """The network that the players of both seats read."""

    def __init__(self, solver: SuccessorSolver) -> None:
        self.solver = solver

    def shared(self) -> Tree:
        return {"weights": self.solver.value.weights}

    def load_shared(self, tree: Tree) -> None:
        self.solver.value.set(stored_array(tree, "weights", self.solver.value.weights))
        self.solver.clear_cache()


class Lookahead(Learner):
    """Trains the value network of a SuccessorSolver on the values of its matrix games."""

    name = "lookahead"
    Config = LookaheadConfig
    seats_opponents = False
    plays_ahead = False
    native = True

    def __init__(self, solver: SuccessorSolver, config: LookaheadConfig, seed: int, threads: int) -> None:
        self.solver, self.config, self.seed, self.threads = solver, config, seed, threads
        self.policy = solver.value
        self.rate = 1.0
        self.regularizers: list[Regularizer] = []
        self.adam = Adam(self.policy.weights.size)
        self.grad: Floats = np.empty_like(self.policy.weights)
        self.obs: Floats = np.zeros((config.replay_size, self.policy.role.size), np.float32)
        self.target: Floats = np.zeros(config.replay_size, np.float32)
        self.count = 0  # positions so far; the newest `replay_size` of them are stored
        self.zeros = np.zeros(config.replay_size, np.float32)  # unused inputs of the PPO loss
        self.choice = np.zeros(config.replay_size, np.int32)

    @classmethod
    def check(cls, config: LookaheadConfig, setup: Setup) -> None:
        check_network(setup.config.network)
        check_spec(setup.spec)

    @classmethod
    def memory_bytes(cls, config: LookaheadConfig, setup: Setup) -> int:
        return 4 * config.replay_size * (setup.spec.role_of(0).size + 3)

    @classmethod
    def shrink(cls, config: LookaheadConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"replay_size": min(config.replay_size, 4096),
                "minibatch_size": min(config.minibatch_size, 256)}

    @classmethod
    def build(
        cls, config: RunConfig, spec: Spec, make: MakeWorld, terms: Sequence[TermInfo] = ()
    ) -> AgentSet:
        value = Policy(spec.role_of(0), config.network, "value")
        value.initialise(config.seed << 8)
        solver = SuccessorSolver(make, spec, value)
        learner = cls(solver, config.lookahead, config.seed << 8, config.threads)
        explore = config.lookahead.explore
        return AgentSet(
            learners={spec.role_of(0).name: learner},
            players={role: LookaheadPlayer(solver, role) for role in spec.roles},
            networks={"value": value},
            behaviour={role: LookaheadPlayer(solver, role, explore) for role in spec.roles},
        )

    def load_weights(self, policy: Policy) -> None:
        self.policy.set(policy.weights)
        self.solver.clear_cache()

    def play_state(self) -> PlayState:
        return ValueNetwork(self.solver)

    def state_dict(self) -> Tree:
        stored = min(self.count, self.config.replay_size)
        return {"weights": self.policy.weights, "obs": self.obs[:stored], "target": self.target[:stored],
                "seen": self.count} | self.adam.state()

    def load_state_dict(self, tree: Tree) -> None:
        self.policy.set(tree["weights"])
        self.adam.restore(tree)
        self.count = stored_int(tree, "seen")
        stored = min(self.count, self.config.replay_size)
        self.obs[:stored], self.target[:stored] = tree["obs"], tree["target"]
        self.solver.clear_cache()

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """Store the positions of the rollout with their values, then train on minibatches of stored ones."""
        c = self.config
        obs, target = self._positions(rollout)
        self._store(obs, target)
        stored, new = min(self.count, c.replay_size), len(target)
        lr = anneal("linear", c.lr, c.lr_final, progress)
        generator = rng.generator(self.seed, rng.SHUFFLE, 0, iteration)
        updates = max(1, round(c.replay_ratio * new / c.minibatch_size))
        batch = {"obs": self.obs, "target": self.target, "value": self.zeros, "logp": self.zeros,
                 "advantage": self.zeros, "action": self.choice}
        total = norm = 0.0
        network = self.policy.network
        assert isinstance(network, fused.Network), "check_network refuses others"
        for _ in range(updates):
            rows = generator.integers(0, stored, c.minibatch_size)
            means = network.gradient(
                self.policy.packed[0], rows, batch, VALUE_TERM_ONLY, self.threads, self.grad, cross=True)
            norm_before, _ = self.adam.clipped_step(self.policy, self.grad, lr, c.max_grad_norm)
            if not np.isfinite(norm_before):
                raise LearnError(f"lookahead: the gradient is not finite at update {self.adam.updates}")
            total, norm = total + means["value_loss"], norm + norm_before
        self.solver.clear_cache()
        win, loss = np.maximum(target, 1e-12), np.maximum(1 - target, 1e-12)
        floor = -float(np.mean(target * np.log(win) + (1 - target) * np.log(loss)))  # lower bound of the loss
        return {"value_loss": total / updates, "target_entropy": floor, "grad_norm_pre_clip": norm / updates,
                "lr": lr, "updates": float(updates), "decisions": float(new)}

    def _positions(self, rollout: RolloutBuffer) -> tuple[Floats, Floats]:
        """Observations [M, F] of seat 0 in the positions of the rollout, and the values [M] of the games."""
        role_rollouts = []
        for seat in (0, 1):
            role_spec = self.solver.spec.role_of(seat)
            role_rollouts.append((rollout[role_spec.name], role_spec.seats.index(seat)))
        acted = [role_rollout.host("acted")[:, :, j] for role_rollout, j in role_rollouts]
        value = [role_rollout.host("value")[:, :, j] for role_rollout, j in role_rollouts]
        acted_rows = (acted[0] | acted[1]) != 0
        role_rollout, j = role_rollouts[0]
        return role_rollout.host("obs")[:, :, j][acted_rows], np.where(acted[0] != 0, *value)[acted_rows]

    def _store(self, obs: Floats, target: Floats) -> None:
        at = (self.count + np.arange(len(target))) % self.config.replay_size
        newest = slice(max(0, len(target) - self.config.replay_size), None)
        self.obs[at[newest]], self.target[at[newest]] = obs[newest], target[newest]
        self.count += len(target)
