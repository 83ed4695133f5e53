"""Expert iteration (Anthony et al. 2017): a network learns from a search in the positions that it reaches.

Some decisions of a rollout are searched: the world estimates the value Q of each action. The network then
minimises, over a replay buffer of such positions,

    KL(pi || softmax(Q / tau)) + value_weight * (v - sum_a pi_old(a) Q(a))^2

The first term is -E_pi[Q] / tau minus the entropy of pi. It is linear in Q, and so is the value target: the
noise of few playouts per position averages out over many positions. A cross-entropy with the distribution of
the search would not have this property. The gradient is that of PPO's magnet and value terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learner import AgentSet, Learner, MakeWorld, Regularizer, TermInfo
from rematch.agents.learners.ppo import Batch, Ppo, PpoConfig
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats, Tree, stored_int
from rematch.core.component import Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.player import RngKey
from rematch.core.spec import Spec
from rematch.core.stepping import concat_fields
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.worlds.game import Game

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
        terms = PpoConfig(value_weight=config.value_weight, magnet_weight=1.0,
                          max_grad_norm=config.max_grad_norm)
        self.student = Ppo(policy, terms, seed, threads)
        self.native = self.student.native
        self.scratch: Any = make(max(config.positions, config.minibatch_size), 0, 0)
        size = self.scratch.save(np.zeros(1, np.int32)).shape[1]
        self.states = np.zeros((config.replay_size, size), np.uint8)
        actions = policy.role.actions.size
        self.q_targets: Floats = np.zeros((config.replay_size, actions), np.float32)  # Q / tau
        self.value_targets: Floats = np.zeros(config.replay_size, np.float32)
        self.count = 0  # positions searched so far

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
        learners: dict[str, Learner] = {}
        for r, (name, role) in enumerate(spec.roles.items()):
            policy = Policy(role, config.network, f"{name} (learnt)")
            policy.initialise(config.seed << 8 | r)
            learners[name] = cls(policy, config.expert, config.seed << 8 | r, config.threads, make)
        policies = {role: learner.policy for role, learner in learners.items()}
        return AgentSet(learners=learners, players=dict(policies), networks=policies)

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
        replay = {"states": self.states[:n], "found": self.q_targets[:n], "worth": self.value_targets[:n]}
        return self.student.state_dict() | replay | {"count": self.count}

    def load_state_dict(self, tree: Tree) -> None:
        self.student.load_state_dict(tree)
        self.count = stored_int(tree, "count")
        stored: dict[str, NDArray[Any]]
        stored = {"states": self.states, "found": self.q_targets, "worth": self.value_targets}
        for name, array in stored.items():
            array[: len(tree[name])] = tree[name]

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """One iteration: search some decisions of the rollout, then train on the replay buffer."""
        c = self.config
        lr = anneal("linear", c.lr, c.lr_final, progress) * self.rate
        out = self.search_positions(rollout, iteration)
        filled = min(self.count, c.replay_size)
        if filled == 0:
            return out
        updates = max(1, round(out["decisions"] * c.replay_ratio / c.minibatch_size))
        for update in range(updates):
            generator = rng.generator(self.seed, rng.SHUFFLE, update, iteration)
            batch = self.batch(generator.integers(0, filled, min(c.minibatch_size, filled)))
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
        return out | {"lr": lr, "updates": float(updates), "replay": float(filled)}

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
        rng_key = RngKey(rng.key(self.seed, rng.EXPERT, 1), rng.BOT, iteration)
        values = self.values(rows, rng_key)
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

    def values(self, rows: NDArray[np.int32], rng_key: RngKey) -> NDArray[np.float64]:
        """[n, A] action values by the search, for these games of the scratch world."""
        c = self.config
        if c.plies < 0:
            values: NDArray[np.float64]
            values = self.scratch.action_values(rows, c.completions, rng_key, self.threads)
            return values
        budget = (c.completions, c.plies)
        parts = [rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)]
        search = partial(
            self.scratch.leaf_values, budget=budget, rng_key=rng_key, candidates=None,
            value_function=self._leaf_values,
        )
        with ThreadPoolExecutor(self.threads) as pool:
            return np.concatenate(list(pool.map(search, parts)))

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
