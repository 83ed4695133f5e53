"""Recurrent deep Q-learning for one seat, from replayed sequences with stored recurrent states.

DQN (Mnih et al. 2015) with double and dueling Q, over sequences with stored state and burn-in (Kapturowski et
al. 2019); each game has its own epsilon (Horgan et al. 2018). The reward is

    r_total = r_env + sum over the run's reward terms of weight * term

The replay buffer stores the terms unweighted; the weights apply when a sequence is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learner import AgentSet, Learner, MakeWorld, Regularizer, TermInfo
from rematch.agents.learners.adam import Adam
from rematch.agents.learners.q_policy import EpsilonGreedyPlayer, EpsilonGreedyState, Frozen, QPlayer, QPolicy
from rematch.agents.learners.replay_buffer import ENV, Replay, ReplayShape, reward_column, row_bytes
from rematch.agents.networks.observation_codec import ObservationCodec
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats, Tree
from rematch.core.component import Evidence, PlayState, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.spec import Role, Spec
from rematch.core.world import RUNNING
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

# size -> (channels of the CNN, width of each recurrent layer)
SIZES: dict[str, tuple[tuple[int, int, int], int]] = {
    "slim": ((16, 32, 64), 128), "large": ((32, 64, 128), 256),
}  # fmt: skip
SHAPE_SETTINGS = ("size", "gru", "lstm", "ssm")  # settings that determine the weights of the network
HISTORY = 2  # frames before a sequence that its first step reads: agents/networks/q_network.py
MAX_TERMS = 5  # number of reward terms in the memory estimate
MAX_ACTIONS = 256  # the replay buffer stores an action in a byte
MAX_ERROR_SHARE = 0.9  # weight of the largest TD error in a priority, beside the mean (Kapturowski)


@dataclass(frozen=True, kw_only=True)
class DqnConfig:
    """Recurrent Q-learning from replayed sequences, and its network."""

    size: str = knob(
        "slim", "size of the network; slim: 16, 32 and 64 channels, recurrent layers of width 128; large: "
        "twice that", choices=("slim", "large"),
    )  # fmt: skip
    gru: bool = knob(True, "add a GRU layer to the recurrent core")
    lstm: bool = knob(True, "add an LSTM layer to the recurrent core")
    ssm: str = knob(
        "real", "state-space layer of the recurrent core; real: real decay rates; complex: complex ones; "
        "off: no such layer", choices=("real", "complex", "off"),
    )  # fmt: skip
    device: str = knob(
        "cpu", "device of the network; cpu: the processor; cuda: the NVIDIA GPU; auto: the GPU if there "
        "is one", choices=("cpu", "cuda", "auto"),
    )  # fmt: skip
    lr: float = knob(3e-4, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end; the change is linear", low=0, high=10)
    max_grad_norm: float = knob(
        10.0, "largest norm of a gradient; longer gradients are scaled to it; 0: no limit", low=0
    )
    gamma: float = knob(0.997, "discount factor per step", low=0, high=1)
    n_step: int = knob(1, "steps of the n-step return", unit="steps", low=1, high=100)
    trace_lambda: float = knob(
        0.0, "lambda of the Q(lambda) return along a sequence; needs n_step = 1; 0: one-step targets", low=0,
        high=1,
    )  # fmt: skip
    trace_cut: str = knob(
        "best", "where the lambda-return of a sequence is cut; best: at an action that is not greedy; "
        "better: as best, unless the return exceeds the greedy value (for deterministic games); always: "
        "never cut", choices=("best", "better", "always"), needs="trace_lambda",
    )  # fmt: skip
    advantage_gap: float = knob(
        0.0, "alpha of advantage learning, which widens action gaps by 1 / (1 - alpha); 0: off", low=0,
        high=0.99,
    )  # fmt: skip
    double: bool = knob(
        True, "double Q-learning: the online network selects the next action, the target network evaluates "
        "it",
    )  # fmt: skip
    target_every: int = knob(
        400, "gradient updates between copies of the online network to the target network", unit="updates",
        low=1,
    )  # fmt: skip
    replay_size: int = knob(500_000, "capacity of the replay buffer, all games together", unit="steps", low=1)
    sequence: int = knob(
        40, "length of a replayed sequence, burn-in included", unit="steps", low=2, high=10_000
    )
    burn_in: int = knob(
        8, "first steps of a sequence that only compute the recurrent state; no loss is taken there",
        unit="steps", low=0,
    )  # fmt: skip
    batch: int = knob(16, "sequences per gradient update", unit="sequences", low=1, high=65_536)
    replay_ratio: float = knob(1.0, "mean number of times that each step is trained on", low=0, high=1000)
    warmup: int = knob(10_000, "steps in the replay buffer before the first update", unit="steps", low=0)
    priority: float = knob(
        0.0, "exponent of prioritized replay; 0: sequences are drawn uniformly", low=0, high=1
    )
    priority_beta: float = knob(
        0.5, "exponent of the importance weights that correct prioritized replay; 1: full correction", low=0,
        high=1, needs="priority",
    )  # fmt: skip
    epsilon: float = knob(
        1.0, "epsilon at the start: probability of a random action in training", low=0, high=1
    )
    epsilon_final: float = knob(0.4, "epsilon after its decay", low=0, high=1)
    epsilon_fraction: float = knob(
        0.1, "fraction of the run over which epsilon decays linearly", unit="fraction", low=0, high=1
    )
    epsilon_exponent: float = knob(
        7.0, "spread of epsilon over games: game i of N uses epsilon^(1 + value * i / (N - 1)); 0: the same "
        "epsilon in all games", low=0, high=100,
    )  # fmt: skip
    evaluation_epsilon: float = knob(0.01, "probability of a random action in evaluations", low=0, high=1)
    reads_privileged = False  # as NetworkConfig.reads_privileged

    @property
    def channels(self) -> tuple[int, int, int]:
        return SIZES[self.size][0]

    @property
    def width(self) -> int:
        return SIZES[self.size][1]

    @property
    def recurrent_size(self) -> int:
        """Numbers of the recurrent state: GRU, LSTM (output and cell), SSM (twice if complex)."""
        return self.width * (self.gru + 2 * self.lstm + {"off": 0, "real": 1, "complex": 2}[self.ssm])

    @property
    def stride(self) -> int:
        """Steps of a sequence that are trained on; sequences overlap by the others."""
        return self.sequence - self.burn_in - self.n_step

    def check(self) -> None:
        if self.trace_lambda and self.n_step != 1:
            raise ConfigError(f"n_step = {self.n_step}: expected 1 with trace_lambda = {self.trace_lambda:g}")
        if self.stride < 1:
            raise ConfigError(
                f"sequence = {self.sequence}: expected more than burn_in {self.burn_in} and n_step "
                f"{self.n_step} together"
            )


def check_dqn(config: RunConfig, spec: Spec) -> None:
    """ConfigError for worlds that DQN cannot play, and for replay buffers that are too small."""
    problem, roles = "", list(spec.roles.values())
    if spec.seats != 1:
        problem = f"has {spec.seats} seats, expected 1"
    elif roles[0].actions.kind != "discrete":
        problem = "has continuous actions, expected discrete ones"
    elif roles[0].actions.size > MAX_ACTIONS:
        problem = f"has {roles[0].actions.size} actions, expected at most {MAX_ACTIONS}"
    if problem:
        raise ConfigError(f"learner = dqn: {spec.world} {problem}")
    if config.start_iteration:
        raise ConfigError(f"start_iteration = {config.start_iteration}: the replay buffer starts empty; "
                          "expected 0 with learner dqn")
    c = config.dqn
    needed = config.games * (max(config.steps, c.sequence) + c.sequence + HISTORY + c.stride)
    if c.replay_size < needed:
        raise ConfigError(f"dqn.replay_size = {c.replay_size}: expected at least {needed} with "
                          f"games = {config.games}, steps = {config.steps}, dqn.sequence = {c.sequence}")


def replay_shape(config: RunConfig, role: Role, terms: Sequence[TermInfo]) -> ReplayShape:
    """Chunks on disk end at regular checkpoints, so that these have no other steps to write."""
    c, chunk = config.dqn, config.steps * config.save_every
    shape = ReplayShape(steps=c.replay_size, games=config.games, sequence=c.sequence, stride=c.stride,
                        history=HISTORY, chunk=0, recurrent_size=c.recurrent_size,
                        actions=role.actions.size, terms=tuple(term.name for term in terms))
    return shape if chunk > shape.rows else ReplayShape(**vars(shape) | {"chunk": chunk})


class Dqn(Learner):
    """The learner of one role; `training_player` plays in training, `online` (`policy`) is trained."""

    name = "dqn"
    Config = DqnConfig
    seats_opponents = False
    learns_forced_actions = True
    short_steps = (4, 16)  # the network is large
    native = True

    def __init__(self, config: RunConfig, role: Role, terms: Sequence[TermInfo] = ()) -> None:
        c = self.config = config.dqn
        self.role, self.threads, self.seed = role, config.threads, config.seed << 8
        names = (f"{role.name} (learnt)", f"{role.name} (target)")
        self.online, self.target = (QPolicy(role, c, name) for name in names)
        self.policy: Policy = self.online
        self.online.initialise(self.seed)
        self.target.set(self.online.weights)
        self.adam = Adam(self.online.weights.size)
        self.replay = Replay(replay_shape(config, role, terms), self.online.codec)
        self.rate = 1.0
        self.regularizers: list[Regularizer] = []
        positions = np.arange(config.games) / max(1, config.games - 1)
        player = self.training_player = EpsilonGreedyPlayer(
            self.online, config.games, (1 + config.lag) * config.steps, c.stride,
            1 + c.epsilon_exponent * positions)  # fmt: skip
        player.epsilon = c.epsilon
        if config.lag:
            player.frozen = Frozen(QPolicy(role, c, self.online.name), c.epsilon, player.recurrent_state)
        self.term_weights = {term.name: term.weight for term in terms}
        rows = self.replay.shape.rows // c.stride
        self.priority: Floats = np.zeros((rows if c.priority else 0, config.games), np.float32)

    @classmethod
    def check(cls, config: DqnConfig, setup: Setup) -> None:
        check_dqn(setup.config, setup.spec)

    @classmethod
    def memory_bytes(cls, config: DqnConfig, setup: Setup) -> int:
        (role,) = setup.spec.roles.values()
        shape = replay_shape(setup.config, role, [TermInfo("", 0.0)] * MAX_TERMS)
        return shape.rows * shape.games * row_bytes(shape, ObservationCodec(role))

    @classmethod
    def shrink(cls, config: DqnConfig, small: SmallRun) -> Mapping[str, Any]:
        """Short sequences and a small replay buffer, so that a trial samples from it and overwrites it."""
        n_step, burn_in = min(config.n_step, 3), min(config.burn_in, 2)
        rows = max(small.iterations * small.steps // 2, small.steps + 40)
        return {
            "n_step": n_step, "burn_in": burn_in, "sequence": min(config.sequence, burn_in + n_step + 5),
            "batch": min(config.batch, 8), "warmup": min(config.warmup, small.steps_per_iteration),
            "target_every": min(config.target_every, 4), "replay_size": small.games * rows,
            "replay_ratio": min(config.replay_ratio, 0.5),
        }  # fmt: skip

    @classmethod
    def uses_torch(cls, config: RunConfig) -> bool:
        return True

    @classmethod
    def deterministic_play(cls, config: RunConfig) -> bool:
        return not config.dqn.evaluation_epsilon

    @classmethod
    def speed_settings(cls, config: RunConfig) -> dict[str, Any]:
        c = config.dqn
        layers = {"gru": c.gru, "lstm": c.lstm, "ssm": c.ssm}
        return {"network": c.size, **layers, "sequence": c.sequence, "batch": c.batch,
                "replay_ratio": c.replay_ratio}

    @classmethod
    def build(
        cls, config: RunConfig, spec: Spec, make: MakeWorld, terms: Sequence[TermInfo] = ()
    ) -> AgentSet:
        (role,) = spec.roles.values()
        learner = cls(config, role, terms)
        return AgentSet(
            learners={role.name: learner},
            players={role.name: QPlayer(learner.online, config.dqn.evaluation_epsilon)},
            networks={role.name: learner.online},
            behaviour={role.name: learner.training_player},
            forget=learner.training_player.forget,
        )

    def load_weights(self, policy: Policy) -> None:
        self.online.set(policy.weights)
        self.target.set(policy.weights)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        replay, c = self.replay, self.config
        off = "" if c.replay_ratio else "dqn.replay_ratio is 0"
        overwritten = ", the oldest overwritten" if replay.head > replay.shape.rows else ""
        chunks = f"{len(replay.chunks)} chunks on disk{overwritten}"
        size = f"{replay.size:,} steps in {replay.nbytes:,} bytes, {chunks}"
        yield Evidence("replay", size if replay.size and self.adam.updates else "", off)
        copies = self.adam.updates // c.target_every
        yield Evidence("target network", f"copied {copies} times" if copies else "", off)

    def play_state(self) -> PlayState:
        return EpsilonGreedyState(self.training_player)

    def state_dict(self) -> Tree:
        size, player = self.online.recurrent_size, self.training_player
        recurrent_state, frozen = player.recurrent_state, {}
        if player.frozen is not None:
            recurrent_state = player.frozen.recurrent_state
            frozen = {"acting": player.frozen.policy.weights, "acting_epsilon": player.frozen.epsilon}
        frames = np.rint(recurrent_state[:, size:] * 3).astype(np.uint8)  # the last frames, in bytes
        frames = frames if self.online.codec.image_field else frames[:, :0]
        return {"weights": self.online.weights, "target": self.target.weights, "replay": self.replay.state(),
                "memory": recurrent_state[:, :size], "past": frames, "epsilon": player.epsilon,
                "priority": self.priority} | self.adam.state() | frozen

    def load_state_dict(self, tree: Tree) -> None:
        self.online.set(tree["weights"])
        self.target.set(tree["target"])
        self.adam.restore(tree)
        self.replay.restore(tree["replay"])
        player, size = self.training_player, self.online.recurrent_size
        player.recurrent_state[:, :size] = tree["memory"]
        player.recurrent_state[:, size:] = tree["past"].astype(np.float32) / np.float32(3)
        player.epsilon, self.priority[:] = tree["epsilon"], tree["priority"]
        if player.frozen is not None:
            player.frozen.policy.set(tree["acting"])
            player.frozen.epsilon = tree["acting_epsilon"]
            player.frozen.recurrent_state = player.recurrent_state.copy()

    def learn(self, rollout: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """Store the rollout, then do the number of updates that `replay_ratio` sets for its steps."""
        c, new_steps = self.config, rollout.steps * rollout.games
        reward = self._store(rollout)
        lr = self.rate * anneal("linear", c.lr, c.lr_final, progress)
        sums, updates = dict.fromkeys(("loss", "td_error", "q_mean", "grad_norm_pre_clip"), 0.0), 0
        starts = self.replay.sequence_starts()
        counted = max(0, self.replay.head * rollout.games - c.warmup)  # steps to be trained on
        due = int(c.replay_ratio * counted / (c.batch * c.stride)) - self.adam.updates if len(starts) else 0
        for _ in range(due):
            for name, value in self._update(starts, lr).items():
                sums[name] += value
            updates += 1
        if not np.isfinite(self.online.weights).all():
            raise LearnError(f"dqn: weights are not finite after update {self.adam.updates}")
        metrics = {f"r_{name}": float(column.mean(dtype=np.float64)) for name, column in reward.items()}
        weights = np.array([1.0, *self.term_weights.values()], np.float32)  # as targets are computed
        metrics["r_total"] = float(np.array(list(metrics.values())) @ weights)
        metrics |= {name: value / updates for name, value in sums.items() if updates}
        player = self.training_player
        metrics |= {"epsilon": player.epsilon, "epsilon_mean": float(player.epsilons.mean()), "lr": lr,
                    "replay": float(self.replay.size), "updates": float(updates),
                    "decisions": float(new_steps)}
        share = min(1.0, progress / c.epsilon_fraction) if c.epsilon_fraction else 1.0
        player.epsilon = anneal("linear", c.epsilon, c.epsilon_final, share)
        if player.frozen is None:  # else `freeze_player` did it, before the next rollout
            player.forget(np.flatnonzero(rollout.host("ended")[-1] != RUNNING))
        return metrics

    def freeze_player(self, new: NDArray[np.integer[Any]]) -> None:
        self.training_player.forget(new)
        self.training_player.freeze()

    def _store(self, rollout: RolloutBuffer) -> dict[str, Floats]:
        """Add the rollout to the replay buffer; name -> reward column [T, N]."""
        role_rollout, head = rollout[self.role.name], self.replay.head
        reward: dict[str, Floats] = {ENV: role_rollout.host("reward")[:, :, 0]}
        for name in self.term_weights:
            reward[name] = role_rollout.reward_terms[name].values[:, :, 0].astype(np.float32)
        legal = np.ones((rollout.steps, rollout.games, self.role.actions.size), np.uint8)
        if role_rollout.mask is not None:
            legal = role_rollout.host("mask")[:, :, 0]
        columns = self.online.codec.pack(role_rollout.host("obs")[:, :, 0])
        columns |= {"action": role_rollout.host("action")[:, :, 0], "ended": rollout.host("ended"),
                    "legal": np.packbits(legal != 0, axis=-1)}
        columns |= {reward_column(name): values for name, values in reward.items()}
        states_before = self.training_player.states_before(head, head + rollout.steps)
        self.replay.add(columns, states_before)
        if self.config.priority:  # new sequences get the largest priority
            index = (-(-head // self.config.stride) + np.arange(len(states_before))) % len(self.priority)
            self.priority[index] = max(1.0, float(self.priority.max()))
        return reward

    def _update(self, starts: NDArray[np.int64], lr: float) -> dict[str, float]:
        from rematch.agents.learners import q_targets

        c = self.config
        generator = rng.generator(self.seed, rng.REPLAY_SAMPLE, 0, self.adam.updates)
        start, game, weight = self._sample(starts, generator)
        sequences = self.replay.sequences(start, game)
        ended = sequences.ended
        reward = q_targets.total_reward(sequences.reward, ended, self.term_weights)[:, c.burn_in :]
        total, bootstrap, valid = q_targets.n_step_returns(reward, ended[:, c.burn_in :], c.n_step, c.gamma)
        counts = (valid * weight[:, None] / max(1, int(valid.sum()))).astype(np.float32)
        batch = q_targets.TrainingBatch(sequences, total, bootstrap, counts)
        grad, error, metrics = q_targets.gradient(self.online, self.target, batch, c, self.threads)
        length, _ = self.adam.clipped_step(self.online, grad, lr, c.max_grad_norm)
        if not np.isfinite(length):
            raise LearnError(f"dqn: the gradient is not finite at update {self.adam.updates}")
        if c.priority:
            valid_error = error * valid
            mean = valid_error.sum(1) / np.maximum(1, valid.sum(1))
            row = start // c.stride % len(self.priority)
            self.priority[row, game] = MAX_ERROR_SHARE * valid_error.max(1) + (1 - MAX_ERROR_SHARE) * mean
        if self.adam.updates % c.target_every == 0:
            self.target.set(self.online.weights)
        return metrics | {"grad_norm_pre_clip": length}

    def _sample(
        self, starts: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """(start, game, weight) of a batch, each [B]: uniform, or by priority (Schaul et al. 2016)."""
        c, games = self.config, self.replay.shape.games
        if not c.priority:
            index = generator.integers(0, len(starts) * games, c.batch)
            return starts[index // games], index % games, np.ones(c.batch, np.float32)
        errors = self.priority[starts // c.stride % len(self.priority)].astype(np.float64).reshape(-1)
        probabilities = (errors + 1e-6) ** c.priority
        total = np.cumsum(probabilities)
        index = np.searchsorted(total, generator.random(c.batch) * total[-1], side="right")
        index = index.clip(max=total.size - 1)
        weight = (probabilities[index] * total.size / total[-1]) ** -c.priority_beta
        return starts[index // games], index % games, (weight / weight.max()).astype(np.float32)
