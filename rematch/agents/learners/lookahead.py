"""Lookahead: a value network taught by the small game over a position's successors, played by solving it.

For two seats whose rules can be stepped from any position, with few actions and nothing hidden. In a position
the rules are asked for the successor of every joint action, and the network for seat 0's chance to win from
each. That matrix is a zero-sum game: its solution is what both seats play, its value what the network learns
for the position (Shapley 1953: iterated, this is value iteration of a stochastic game). The rules are used
while training and while playing: it is model-based, and `model_based` says so wherever players are listed.

Where one seat is `facing` us, a player who stays as it is and whose chances can be read, the other seat's
best answer takes the place of the solution: the network then learns what a best response wins.
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
from rematch.core.arrays import Bytes, Floats, Ints, Tree
from rematch.core.component import Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.player import Decision, RngKey, Seat, StochasticPlayer
from rematch.core.spec import Spec
from rematch.core.stepping import concat_fields
from rematch.core.world import World
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

MOST_ACTIONS = 16  # of a seat: native/matrix_game.h
VALUE_ALONE = (0.0, 0.0, 1.0, 0.0, 0.0)  # of the terms of agents/learners/ppo.py
CHUNK = 4096  # successors looked at together, so that they stay in the caches


@dataclass(frozen=True, kw_only=True)
class LookaheadConfig:
    """One-step lookahead with the rules of the game and a value network."""

    lr: float = knob(3e-3, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end; the change is linear", low=0)
    replay_size: int = knob(1 << 17, "capacity of the replay buffer", unit="positions", low=1, high=1 << 26)
    replay_ratio: float = knob(2.0, "mean number of times that each position is trained on", low=0.01,
                               high=100)
    minibatch_size: int = knob(2048, "positions per gradient step", unit="positions", low=1)
    explore: float = knob(0.0, "probability of a random action in training", low=0, high=1)
    max_grad_norm: float = knob(
        0.5, "largest norm of a gradient; longer gradients are scaled to it; 0: no limit", low=0
    )


def check_network(config: NetworkConfig) -> None:
    """Refuse networks that are no value of a position alone."""
    usual = {"kind": "mlp", "encoder": "mlp", "critic": "own", "table": False, "module": ""}
    for key, value, expected in ((key, getattr(config, key), usual[key]) for key in usual):
        if value != expected:
            raise ConfigError(f"network.{key} = {value}: not with learner lookahead; expected {expected}")


def check_spec(spec: Spec) -> None:
    """Refuse worlds that this cannot play, with the reason."""
    what = ""
    if spec.seats != 2:
        what = f"has {spec.seats} seats, expected 2"
    elif any(role.actions.kind != "discrete" for role in spec.roles.values()):
        what = "has continuous actions, expected a few discrete ones"
    elif max(role.actions.size for role in spec.roles.values()) > MOST_ACTIONS:
        what = f"has more than {MOST_ACTIONS} actions"
    elif hidden := [name for role in spec.roles.values() for name in role.hidden]:
        what = f"hides {', '.join(hidden)}, expected everything to be seen"
    elif not spec.zero_sum:
        what = "is not zero-sum: what one seat wins the other does not lose"
    elif spec.resume != "state":
        what = "cannot be stepped from any state"
    if what:
        raise ConfigError(f"learner = lookahead: {spec.world} {what}")


@dataclass
class Solved:
    """The small games of n positions: each seat's mixture [n, A of the seat], seat 0's chance to win [n]."""

    states: Bytes
    network: int  # which of the network's selves was asked
    mix: tuple[NDArray[np.float64], NDArray[np.float64]]
    value: NDArray[np.float64]


class Foresight:
    """Looks one joint move ahead with a value network. Shared by the players of both seats."""

    def __init__(
        self, make: MakeWorld, spec: Spec, value: Policy,
        facing: tuple[int, StochasticPlayer] | None = None,
    ) -> None:  # fmt: skip
        check_spec(spec)
        self.make, self.spec, self.value, self.facing = make, spec, value, facing
        first, second = (spec.role_of(seat).actions.size for seat in (0, 1))
        self.shape = (first, second)
        self.joint = first * second
        self.room = threading.local()  # a scratch world and the last answer, for each thread
        self.network = 0  # counts the changes of the network

    def solve(self, world: World, rows: Ints) -> Solved:
        """The games of these rows; remembered, because the other seat asks about the same ones next."""
        states = world.save(rows)
        last: Solved | None = getattr(self.room, "last", None)
        if last is not None and last.network == self.network and np.array_equal(last.states, states):
            return last
        payoff = np.empty((len(rows), *self.shape), np.float64)
        step = max(1, CHUNK // self.joint)
        for at in range(0, len(rows), step):
            part = slice(at, min(at + step, len(rows)))
            payoff[part] = self._successors(states[part])
        for seat in (0, 1):
            self._forbid(payoff, self._legal(world, rows, seat), seat)
        value = np.empty(len(rows), np.float64)
        mix = (np.empty((len(rows), self.shape[0])), np.empty((len(rows), self.shape[1])))
        if self.facing is None:
            fused.matrix_games(payoff, value, *mix)
        else:
            seat, player = self.facing
            mix[seat][:] = self._action_probs(world, rows, seat, player)
            value[:] = best_answer(payoff, seat, mix)
        solved = self.room.last = Solved(states, self.network, mix, value)
        return solved

    def forget(self) -> None:
        """The network changed: what was solved before is no longer the answer."""
        self.network += 1

    def _successors(self, states: Bytes) -> NDArray[np.float64]:
        """[n, A, B] seat 0's chance to win after each joint action: the outcome, or what the network says."""
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
            wanted = np.resize(grid[seat], scratch.games)
            some = legal.argmax(1)  # in the place of what may not be played; forbidden afterwards
            chosen = np.where(legal[np.arange(scratch.games), wanted], wanted, some)
            actions[role_spec.name][:, role_spec.seats.index(seat)] = chosen
        view = scratch.step(actions)
        role_spec = self.spec.role_of(0)
        obs = concat_fields(role_spec, view[role_spec.name])[: n * self.joint, 0]
        logit = self.value.forward(np.ascontiguousarray(obs))[1].astype(np.float64)
        won = np.where(view.ended[many] != 0, view.outcome[many, 0], 1.0 / (1.0 + np.exp(-logit)))
        return won.reshape(n, first, second)

    def _action_probs(
        self, world: World, rows: Ints, seat: int, player: StochasticPlayer
    ) -> NDArray[np.float64]:
        """[n, A] what this player draws from in this seat; who is not to move does the one thing there is."""
        role_spec, legal = self.spec.role_of(seat), self._legal(world, rows, seat)
        obs = concat_fields(role_spec, world.view[role_spec.name])[rows, role_spec.seats.index(seat)]
        mask = legal.astype(np.uint8) if role_spec.name in world.view.mask else None
        asked = Seat(role_spec, seat, world, rows, np.ascontiguousarray(obs), mask)
        action_probs = player.action_probs(asked).astype(np.float64) * legal
        return np.asarray(action_probs / action_probs.sum(1, keepdims=True))

    def _scratch(self) -> World:
        world: World | None = getattr(self.room, "world", None)
        if world is None:
            world = self.room.world = self.make(max(1, CHUNK // self.joint) * self.joint, 0, 0)
        return world

    def _legal(self, world: World, rows: Ints, seat: int) -> NDArray[np.bool_]:
        """[n, A] what this seat may do; who is not to move has one thing to do, its first."""
        role_spec = self.spec.role_of(seat)
        legal = np.ones((len(rows), role_spec.actions.size), bool)
        if role_spec.name in world.view.mask:
            legal = world.view.mask[role_spec.name][rows, role_spec.seats.index(seat)] != 0
        waiting = world.view.acting[rows, seat] == 0
        if waiting.any():
            legal = legal.copy()
            legal[waiting] = np.arange(role_spec.actions.size) == 0
        return legal

    def _forbid(self, payoff: NDArray[np.float64], legal: NDArray[np.bool_], seat: int) -> None:
        """Make what may not be played worse than everything else: no solution uses it."""
        if legal.all():
            return
        if seat == 0:
            payoff[~legal] = -1.0
        else:
            np.moveaxis(payoff, 1, 2)[~legal] = 2.0


def best_answer(
    payoff: NDArray[np.float64], facing: int, mix: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Write the best answer to the mixture of seat `facing` into the other one's; seat 0's chance to win [n].

    payoff [n, A, B] is seat 0's, whose answer is the row that wins most; seat 1's is the least of columns.
    """
    if facing == 1:
        worth = np.einsum("nab,nb->na", payoff, mix[1])
    else:
        worth = -np.einsum("nab,na->nb", payoff, mix[0])
    mix[1 - facing][:] = np.arange(worth.shape[1]) == worth.argmax(1)[:, None]
    best: NDArray[np.float64] = worth.max(1)
    return best if facing == 1 else -best


class LookaheadPlayer:
    """One role's player: draws from the solution of the game over the successors."""

    model_based = True

    def __init__(self, foresight: Foresight, role: str, explore: float = 0.0) -> None:
        self.foresight, self.explore = foresight, explore
        self.name = f"{role} (lookahead)"
        self.greedy = False

    def action_probs(self, seat: Seat) -> Floats:
        """[n, A] the mixed strategy that `act` draws from."""
        mix = self.foresight.solve(seat.world, seat.rows).mix[seat.seat]
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
        own = rng.key(rng_key.seed, rng_key.stream, seat.seat)  # each seat its own luck
        luck = rng.units(own, rng_key.stream, int(games.max(initial=-1)) + 1, rng_key.step)[games]
        total = np.cumsum(action_probs, axis=1)
        action = (total <= luck[:, None] * total[:, -1:]).sum(1)
        value = self.foresight.solve(seat.world, seat.rows).value
        return Decision(action.astype(np.int32), value=value.astype(np.float32))


class Lookahead(Learner):
    """Teaches the value network of a Foresight what the small games were worth."""

    name = "lookahead"
    Config = LookaheadConfig
    seats_opponents = False
    native = True

    def __init__(self, foresight: Foresight, config: LookaheadConfig, seed: int, threads: int) -> None:
        self.foresight, self.config, self.seed, self.threads = foresight, config, seed, threads
        self.policy = foresight.value
        self.rate = 1.0
        self.regularizers: list[Regularizer] = []
        self.adam = Adam(self.policy.weights.size)
        self.grad: Floats = np.empty_like(self.policy.weights)
        self.obs: Floats = np.zeros((config.replay_size, self.policy.role.size), np.float32)
        self.target: Floats = np.zeros(config.replay_size, np.float32)
        self.seen = 0  # positions so far; the newest `replay` of them are kept
        self.none = np.zeros(config.replay_size, np.float32)  # what a policy would have recorded
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
        foresight = Foresight(make, spec, value)
        learner = cls(foresight, config.lookahead, config.seed << 8, config.threads)
        explore = config.lookahead.explore
        return AgentSet(
            learners={spec.role_of(0).name: learner},
            players={role: LookaheadPlayer(foresight, role) for role in spec.roles},
            networks={"value": value},
            behaviour={role: LookaheadPlayer(foresight, role, explore) for role in spec.roles},
        )

    def load_weights(self, policy: Policy) -> None:
        self.policy.set(policy.weights)
        self.foresight.forget()

    def state_dict(self) -> Tree:
        kept = min(self.seen, self.config.replay_size)
        return {"weights": self.policy.weights, "obs": self.obs[:kept], "target": self.target[:kept],
                "seen": self.seen} | self.adam.state()

    def load_state_dict(self, tree: Tree) -> None:
        self.policy.set(tree["weights"])
        self.adam.restore(tree)
        self.seen = tree["seen"]
        kept = min(self.seen, self.config.replay_size)
        self.obs[:kept], self.target[:kept] = tree["obs"], tree["target"]
        self.foresight.forget()

    def learn(self, tape: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """Keep the positions met with what they were worth, then draw minibatches from all that is kept."""
        c = self.config
        obs, target = self._met(tape)
        self._keep(obs, target)
        kept, new = min(self.seen, c.replay_size), len(target)
        lr = anneal("linear", c.lr, c.lr_final, progress)
        draw = rng.generator(self.seed, rng.SHUFFLE, 0, iteration)
        updates = max(1, round(c.replay_ratio * new / c.minibatch_size))
        batch = {"obs": self.obs, "target": self.target, "value": self.none, "logp": self.none,
                 "advantage": self.none, "action": self.choice}
        total = norm = 0.0
        network = self.policy.network
        assert isinstance(network, fused.Network), "refused by check_network"
        for _ in range(updates):
            rows = draw.integers(0, kept, c.minibatch_size)
            means = network.gradient(
                self.policy.packed[0], rows, batch, VALUE_ALONE, self.threads, self.grad, cross=True)
            length, _ = self.adam.descend(self.policy, self.grad, lr, c.max_grad_norm)
            if not np.isfinite(length):
                raise LearnError(f"lookahead: the gradient is not finite at update {self.adam.updates}")
            total, norm = total + means["value_loss"], norm + length
        self.foresight.forget()
        won, lost = np.maximum(target, 1e-12), np.maximum(1 - target, 1e-12)
        floor = -float(np.mean(target * np.log(won) + (1 - target) * np.log(lost)))  # the least loss there is
        return {"value_loss": total / updates, "target_entropy": floor, "grad_norm_pre_clip": norm / updates,
                "lr": lr, "updates": float(updates), "decisions": float(new)}

    def _met(self, tape: RolloutBuffer) -> tuple[Floats, Floats]:
        """Seat 0's sight [M, F] of the positions on the tape, and the values [M] of their small games."""
        tracks = []
        for seat in (0, 1):
            role_spec = self.foresight.spec.role_of(seat)
            tracks.append((tape[role_spec.name], role_spec.seats.index(seat)))
        acted, value = (
            [getattr(track, name)[:, :, j] for track, j in tracks] for name in ("acted", "value"))
        met = (acted[0] | acted[1]) != 0
        track, j = tracks[0]
        return track.obs[:, :, j][met], np.where(acted[0] != 0, *value)[met]

    def _keep(self, obs: Floats, target: Floats) -> None:
        at = (self.seen + np.arange(len(target))) % self.config.replay_size
        newest = slice(max(0, len(target) - self.config.replay_size), None)
        self.obs[at[newest]], self.target[at[newest]] = obs[newest], target[newest]
        self.seen += len(target)
