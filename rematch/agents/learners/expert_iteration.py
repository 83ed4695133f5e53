"""Expert iteration (Anthony et al. 2017): a network learns from a search in the positions that it reaches.

Some decisions of a rollout are searched: the world estimates the value Q of each action. The network then
minimises, over a replay buffer of such positions,

    KL(pi || softmax(Q / tau)) + value_weight * (v - sum_a pi_old(a) Q(a))^2

The first term is -E_pi[Q] / tau minus the entropy of pi. It is linear in Q, and so is the value target: the
noise of few playouts per position averages out over many positions. A cross-entropy with the distribution of
the search would not have this property. The gradient is that of PPO's magnet and value terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learner import AgentSet, Ask, Learner, MakeWorld, Regularizer, TermInfo
from rematch.agents.learners.ppo import Batch, Ppo, PpoConfig
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Bytes, Floats, Tree, part_edges, stored_array, stored_int, stored_text
from rematch.core.component import Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.player import RngKey
from rematch.core.spec import Spec
from rematch.core.stepping import concat_fields
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.worlds.game import Game
from rematch.worlds.registry import find

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

CHUNK = 128  # positions per thread and call


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """Expert iteration: a network learns from the results of a search."""

    lr: float = knob(1e-3, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end; the change is linear", low=0, high=10)
    completions: int = knob(
        8, "playouts per action of a searched position", unit="playouts", low=1, high=10_000
    )
    plies: int = knob(
        -1, "turns of a playout before the value network evaluates it; -1: play to the end of the game",
        unit="turns", low=-1, high=1000,
    )  # fmt: skip
    playouts: str = knob(
        "bot", "players of the playouts; bot: a scripted player in all seats; policy: the learner's policy "
        "in all seats; seated: that policy, against the scripted player that had the other seat in the game",
        choices=("bot", "policy", "seated"),
    )  # fmt: skip
    bot_fraction: float = knob(
        0.0, "first fraction of the run in which bots play the playouts", unit="fraction", low=0, high=1,
        needs="playouts=policy|seated",
    )  # fmt: skip
    positions: int = knob(4096, "positions of a rollout that are searched, at most", unit="positions", low=1)
    replay_size: int = knob(1 << 17, "capacity of the replay buffer", unit="positions", low=1, high=1 << 26)
    replay_ratio: float = knob(
        4.0, "mean number of times that each searched position is trained on", low=0.01, high=100
    )
    minibatch_size: int = knob(2048, "positions per gradient step", unit="positions", low=1)
    tau: float = knob(
        0.1, "temperature of the policy target softmax(Q / tau); small: nearly greedy", low=1e-6
    )
    value_weight: float = knob(1.0, "weight of the value loss (squared error)", low=0)
    max_grad_norm: float = knob(
        1.0, "largest norm of a gradient; longer gradients are scaled to it; 0: no limit", low=0
    )


def check_search(game: Game) -> None:
    """Refuse a game without a search."""
    if game.search is None:
        raise ConfigError(f"learner = expert: {game.name} has no `search`; expected ppo")


def check_plies(config: ExpertConfig, game: Game, seats: int, critic: str) -> None:
    """ConfigError where the value network cannot evaluate the end of a playout."""
    can_stop = game.search is not None and game.search.leaf_values
    if config.playouts != "bot" and (game.search is None or game.search.bot_numbers is None):
        raise ConfigError(f"expert.playouts = {config.playouts}: a policy cannot play the playouts of "
                          f"{game.name}; expected bot")
    if config.plies >= 0 and (critic != "own" or seats != 2 or not can_stop):
        raise ConfigError(f"expert.plies = {config.plies}: the value network evaluates playouts only in "
                          "games of two seats, with network.critic own and a search with `leaf_values`; "
                          "expected -1")


class ExpertIteration(Learner):
    """The learner of one role. Its state: that of its student, and the replay buffer."""

    name = "expert"
    Config = ExpertConfig
    columns = frozenset({"states"})
    trains_policy = True

    def __init__(
        self, policy: Policy, config: ExpertConfig, seed: int, threads: int, make: MakeWorld
    ) -> None:
        self.policy, self.config, self.seed, self.threads = policy, config, seed, threads
        self.rate = 1.0
        self.regularizers: list[Regularizer] = []
        self.student = self.make_student(PpoConfig(
            value_weight=config.value_weight, magnet_weight=1.0, max_grad_norm=config.max_grad_norm
        ))
        self.native = self.student.native
        self.bot_numbers: Callable[[Sequence[str]], list[int]] = lambda names: [-1] * len(names)
        self.scratch: Any = make(max(config.positions, config.minibatch_size), 0, 0)
        size = self.scratch.save(np.zeros(1, np.int32)).shape[1]
        self.states = np.zeros((config.replay_size, size), np.uint8)
        actions = policy.role.actions.size
        self.q_targets: Floats = np.zeros((config.replay_size, actions), np.float32)  # Q / tau
        self.value_targets: Floats = np.zeros(config.replay_size, np.float32)
        self.count = 0  # positions searched so far
        self.playouts = config.playouts  # those of this iteration
        self.processes = 0  # that search its positions, asked by `ask`; 0: this one does
        self.ask: Ask = lambda shared, requests: []

    def make_student(self, terms: PpoConfig) -> Ppo:
        """What computes the gradient and steps of Adam."""
        return Ppo(self.policy, terms, self.seed, self.threads)

    @classmethod
    def needs_cpu(cls, config: RunConfig, spec: Spec) -> str:
        from rematch.agents.networks.torch_network import half_can_compute

        search = find(config.game).cuda
        if search is None or search.search is None:
            return f"the search of {config.game} has no CUDA kernels"
        if not half_can_compute(config.network):
            return ("expert iteration on the GPU computes networks of kind mlp with shared layers, without "
                    "encoder, table and fourier")
        return "ewc.weight is not 0, and its penalty is computed on the CPU" if config.ewc.weight else ""

    @classmethod
    def gpu_acting(cls, config: RunConfig, spec: Spec) -> Any:
        from rematch.agents.networks.torch_acting import TorchRoleActing

        return TorchRoleActing

    @classmethod
    def check(cls, config: ExpertConfig, setup: Setup) -> None:
        check_search(setup.game)
        check_plies(config, setup.game, setup.spec.seats, setup.config.network.critic)

    @classmethod
    def memory_bytes(cls, config: ExpertConfig, setup: Setup) -> int:
        state = int(setup.make_world(1, 0, 0).save(np.zeros(1, np.int32)).shape[1])
        replay = config.replay_size * (state + 4 * setup.spec.role_of(0).actions.size + 4)
        return replay + int(setup.config.games * setup.config.steps * state)

    @classmethod
    def shrink(cls, config: ExpertConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"completions": min(config.completions, 2), "positions": min(config.positions, 64),
                "replay_size": min(config.replay_size, 256), "minibatch_size": min(config.minibatch_size, 64)}

    @classmethod
    def build(
        cls, config: RunConfig, spec: Spec, make: MakeWorld, terms: Sequence[TermInfo] = ()
    ) -> AgentSet:
        kind, learners, game = cls.on_device(config), dict[str, Learner](), find(config.game)
        for r, (name, role) in enumerate(spec.roles.items()):
            policy = Policy(role, config.network, f"{name} (learnt)")
            policy.initialise(config.seed << 8 | r)
            learner = kind(policy, config.expert, config.seed << 8 | r, config.threads, make)
            if game.search is not None and game.search.bot_numbers is not None:
                learner.bot_numbers = game.search.bot_numbers
            learner.prepare(config)
            learners[name] = learner
        policies = {role: learner.policy for role, learner in learners.items()}
        return AgentSet(learners=learners, players=dict(policies), networks=policies)

    @classmethod
    def on_device(cls, config: RunConfig) -> type[ExpertIteration]:
        """The class of the learners: of the CPU, or of the GPU."""
        if config.device == "cpu":
            return cls
        from rematch.agents.learners.cuda_expert import CudaExpert

        return CudaExpert

    def prepare(self, config: RunConfig) -> None:
        """Before the first iteration, with the settings of the run."""

    def load_weights(self, policy: Policy) -> None:
        self.student.load_weights(policy)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        role = self.policy.role.name
        rows = [row for row in record.metrics if row.get(f"{role}/replay")]
        count = sum(row[f"{role}/decisions"] for row in rows)
        steps = max((row["step"] for row in record.metrics), default=0)
        yield Evidence(f"search of {role}", f"{count:,.0f} positions of {steps:,} steps" if rows else "")

    def state_dict(self) -> Tree:
        n = min(self.count, self.config.replay_size)
        replay = {name: array[:n] for name, array in self._replay_arrays().items()}
        return self.student.state_dict() | replay | {"count": self.count}

    def load_state_dict(self, tree: Tree) -> None:
        self.student.load_state_dict(tree)
        self.count = stored_int(tree, "count")
        for name, array in self._replay_arrays().items():
            array[: len(tree[name])] = tree[name]

    def _replay_arrays(self) -> dict[str, NDArray[Any]]:
        return {"states": self.states, "q_targets": self.q_targets, "value_targets": self.value_targets}

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """One iteration: search some decisions of the rollout, then train on the replay buffer."""
        c = self.config
        lr = anneal("linear", c.lr, c.lr_final, progress) * self.rate
        self.playouts = c.playouts if progress >= c.bot_fraction else "bot"
        out = self.search_positions(rollout, iteration)
        filled = min(self.count, c.replay_size)
        if filled == 0:
            return out
        updates = max(1, round(out["decisions"] * c.replay_ratio / c.minibatch_size))
        out |= self._train(updates, filled, lr, iteration)
        return out | {"lr": lr, "updates": float(updates), "replay": float(filled)}

    def _train(self, updates: int, filled: int, lr: float, iteration: int) -> dict[str, float]:
        """Train on minibatches of the `filled` positions of the replay buffer; mean metrics."""
        out: dict[str, float] = {}
        for update in range(updates):
            generator = rng.generator(self.seed, rng.SHUFFLE, update, iteration)
            batch = self.batch(generator.integers(0, filled, min(self.config.minibatch_size, filled)))
            self.student.threads = self.threads
            grad, means = self.student.gradient(batch, np.arange(len(batch["logp"])), 0.0)
            for regularizer in self.regularizers:
                penalty, penalty_grad = regularizer.penalty(self.policy)
                grad = grad + penalty_grad
                out[f"{regularizer.name}_penalty"] = penalty
            norms = self.student.step(grad, lr)
            if not norms:
                raise LearnError(f"{self.policy.role.name}: the gradient is not finite")
            means |= norms
            for name in ("value_loss", "entropy", "magnet_kl", "grad_norm_pre_clip", "grad_norm_post_clip"):
                out[name] = out.get(name, 0.0) + means[name] / updates
        if not np.isfinite(self.policy.weights).all():
            raise LearnError(f"{self.policy.role.name}: weights are not finite")
        return out

    def search_positions(self, rollout: RolloutBuffer, iteration: int) -> dict[str, float]:
        """Search decisions of the learner and store the results; metrics of the search."""
        c, role_rollout = self.config, rollout[self.policy.role.name]
        decisions = np.argwhere((role_rollout.host("slot") == 0) & (role_rollout.host("acted") != 0))
        order = rng.generator(self.seed, rng.EXPERT, 0, iteration).permutation(len(decisions))
        decisions = decisions[np.sort(order[: c.positions])]
        if not len(decisions):
            return {"decisions": 0.0}
        rows = np.arange(len(decisions), dtype=np.int32)
        states = rollout.host("states")[decisions[:, 0], decisions[:, 1]]
        self.scratch.load(rows, states)
        values = self._search(rows, states, self._players(rollout, decisions), iteration)
        legal = np.isfinite(values)
        values[~legal] = 0.0
        logits = self.policy.forward(*self._observe(rows)[:2])[0].astype(np.float64)
        logits[~legal] = -np.inf
        probs = np.exp(logits - logits.max(1, keepdims=True))
        probs /= probs.sum(1, keepdims=True)
        expected = (probs * values).sum(1)
        index = (self.count + rows) % c.replay_size
        self.states[index], self.q_targets[index] = states, values / c.tau
        self.value_targets[index] = expected.clip(-1, 1)
        self.count += len(rows)
        best = np.where(legal, values, -np.inf).max(1)
        means = {"search_value": expected.mean(), "search_gain": (best - expected).mean()}
        return {name: float(mean) for name, mean in means.items()} | {"decisions": float(len(rows))}

    def _players(self, rollout: RolloutBuffer, decisions: NDArray[np.int64]) -> NDArray[np.int32]:
        """[n, k] who plays the playouts of these decisions: the number of a bot, or -1 for the policy."""
        role_rollout = rollout[self.policy.role.name]
        if self.playouts != "seated":
            return np.full((len(decisions), len(self.policy.role.seats)), -1, np.int32)
        numbers = np.array(self.bot_numbers(rollout.players[self.policy.role.name]), np.int32)
        seated: NDArray[np.int32] = numbers[role_rollout.host("slot")[decisions[:, 0], decisions[:, 1]]]
        return seated

    def _search(
        self, rows: NDArray[np.int32], states: Bytes, players: NDArray[np.int32], iteration: int
    ) -> NDArray[np.float64]:
        """[n, A] action values of positions, searched here or in the processes that play the games."""
        if not self.processes:
            return self.values(rows, self._key(iteration), players)
        shared: Tree = {"iteration": iteration, "playouts": self.playouts, "weights": self.policy.weights}
        requests: list[Tree] = []
        for low, high in pairwise(part_edges(len(rows), self.processes)):
            requests.append({"first": low, "states": states[low:high], "players": players[low:high]})
        actions, values = self.policy.role.actions.size, []
        try:
            for request, reply in zip(requests, self.ask(shared, requests)):
                values.append(stored_array(reply, "values", np.zeros((len(request["states"]), actions))))
        except (KeyError, ValueError) as error:
            raise ConfigError(f"a reply is no search of this run's positions: {error}") from None
        return np.concatenate(values)

    def share_work(self, processes: int, ask: Ask) -> None:
        self.processes, self.ask = processes, ask

    def answer(self, shared: Tree, request: Tree, count: Callable[[], None]) -> Tree:
        """Search some of the positions of an iteration, which keep their numbers."""
        self.policy.set(stored_array(shared, "weights", self.policy.weights))
        self.playouts = stored_text(shared, "playouts", ("bot", "policy", "seated"))
        states, first = request["states"], stored_int(request, "first")
        rows = np.arange(first, first + len(states), dtype=np.int32)
        seats = len(self.policy.role.seats)
        players = stored_array(request, "players", np.zeros((len(rows), seats), np.int32))
        self.scratch.load(rows, states)
        values, rng_key = [], self._key(stored_int(shared, "iteration"))
        for at in range(0, len(rows), CHUNK):
            part = slice(at, at + CHUNK)
            values.append(self.values(rows[part], rng_key, players[part]))
            count()
        return {"values": np.concatenate(values)}

    def _key(self, iteration: int) -> RngKey:
        return RngKey(rng.key(self.seed, rng.EXPERT, 1), rng.BOT, iteration)

    def values(
        self, rows: NDArray[np.int32], rng_key: RngKey, players: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """[n, A] action values by the search, for these games of the scratch world; players [n, k]."""
        c = self.config
        if self.playouts == "bot" and c.plies < 0:
            values: NDArray[np.float64]
            values = self.scratch.action_values(rows, c.completions, rng_key, self.threads)
            return values
        budget = (c.completions, c.plies)

        def search(part: slice) -> NDArray[np.float64]:
            values: NDArray[np.float64]
            if self.playouts == "bot":
                values = self.scratch.leaf_values(rows[part], budget, rng_key, None, self._leaf_values)
            else:
                values = self.scratch.policy_values(rows[part], budget, rng_key, players[part], self._play)
            return values

        parts = [slice(at, at + CHUNK) for at in range(0, len(rows), CHUNK)]
        with ThreadPoolExecutor(self.threads) as pool:
            return np.concatenate(list(pool.map(search, parts)))

    def _play(self, obs: Floats) -> tuple[Floats, Floats]:
        logits, values = self.policy.forward(obs)[:2]
        return logits, values

    def _leaf_values(self, obs: Floats) -> Floats:
        return self.policy.forward(obs)[1]

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """A PPO batch of stored positions: no advantage, the results of the search as magnet."""
        games = np.arange(len(rows), dtype=np.int32)
        self.scratch.load(games, self.states[rows])
        obs, mask, privileged = self._observe(games)
        zeros = np.zeros(len(rows), np.float32)
        batch: Batch = {
            "obs": obs, "mask": mask, "magnet": self.q_targets[rows], "target": self.value_targets[rows],
            "logp": zeros, "advantage": zeros, "value": zeros, "action": mask.argmax(1).astype(np.int32),
        }  # fmt: skip
        if privileged is not None:
            batch["privileged"] = privileged
        return batch

    def _observe(self, rows: NDArray[np.int32]) -> tuple[Floats, NDArray[np.uint8], Floats | None]:
        """Observation, action mask and privileged observation of the acting seat, in these scratch games."""
        view, role = self.scratch.view, self.policy.role
        seat = view.acting[rows].argmax(1)
        obs = concat_fields(role, view[role.name])[rows, seat]
        privileged = None
        if self.policy.config.reads_privileged:
            fields = concat_fields(role, view[role.name], privileged=True)
            privileged = np.ascontiguousarray(fields[rows, seat])
        return np.ascontiguousarray(obs), np.ascontiguousarray(view.mask[role.name][rows, seat]), privileged
