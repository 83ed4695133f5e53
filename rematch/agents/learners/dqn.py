"""Deep Q-learning for one seat: sequences from a replay, with the memory that stood before them.

DQN (Mnih et al. 2015) with double and dueling Q, over sequences with stored memory and burn-in (Kapturowski
et al. 2019), games on a ladder of epsilons (Horgan et al. 2018). What is learnt from is

    r_total = r_env + sum over the run's reward terms of weight * term

each term kept as it was when it was met, its weight applied once, when a sequence is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learner import AgentSet, Learner, MakeWorld, Regularizer, TermInfo
from rematch.agents.learners.adam import Adam
from rematch.agents.learners.q_policy import Explorer, QPlayer, QPolicy
from rematch.agents.learners.replay_buffer import ENV, Plan, Replay, reward_column, row_bytes
from rematch.agents.networks.observation_codec import Senses
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats, Tree
from rematch.core.component import Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.spec import Role, Spec
from rematch.core.world import RUNNING
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

# Channels of the eye, and the width of each memory.
SIZES: dict[str, tuple[tuple[int, int, int], int]] = {
    "slim": ((16, 32, 64), 128), "large": ((32, 64, 128), 256),
}  # fmt: skip
SHAPING = ("size", "gru", "lstm", "ssm")  # settings that say how many weights there are, and which
HISTORY = 2  # pictures before a sequence that its first step sees: agents/networks/q_network.py
MOST_TERMS = 5  # reward terms that the memory estimate reckons with
MOST_ACTIONS = 256  # a byte each in the replay
EAGER = 0.9  # share of the largest TD error in a sequence's priority, beside the mean (Kapturowski et al.)


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
        "cpu", "device of the network; cpu: the processor; cuda: the NVIDIA GPU", choices=("cpu", "cuda")
    )
    lr: float = knob(3e-4, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end; the change is linear", low=0)
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
    reads_privileged = False  # what a table asks of a network's settings

    @property
    def channels(self) -> tuple[int, int, int]:
        return SIZES[self.size][0]

    @property
    def width(self) -> int:
        return SIZES[self.size][1]

    @property
    def memory(self) -> int:
        """Numbers that the memories carry on: GRU, LSTM (output and cell), SSM (complex ones have two)."""
        return self.width * (self.gru + 2 * self.lstm + {"off": 0, "real": 1, "complex": 2}[self.ssm])

    @property
    def stride(self) -> int:
        """Steps of a sequence that are learnt from; sequences overlap by the others: each counts once."""
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
    """Refuse worlds that this cannot play, and replays that hold no sequence, with the reason."""
    what, roles = "", list(spec.roles.values())
    if spec.seats != 1:
        what = f"has {spec.seats} seats, expected 1"
    elif roles[0].actions.kind != "discrete":
        what = "has continuous actions, expected discrete ones"
    elif roles[0].actions.size > MOST_ACTIONS:
        what = f"has {roles[0].actions.size} actions, expected at most {MOST_ACTIONS}"
    if what:
        raise ConfigError(f"learner = dqn: {spec.world} {what}")
    if config.start_iteration:
        raise ConfigError(f"start_iteration = {config.start_iteration}: a replay begins with the run; "
                          "expected 0 with learner dqn")
    c = config.dqn
    need = config.games * (max(config.steps, c.sequence) + c.sequence + HISTORY + c.stride)
    if c.replay_size < need:
        raise ConfigError(f"dqn.replay_size = {c.replay_size}: expected at least {need} with "
                          f"games = {config.games}, steps = {config.steps}, dqn.sequence = {c.sequence}")


def plan(config: RunConfig, role: Role, terms: Sequence[TermInfo]) -> Plan:
    """Chunks on disk end where regular checkpoints do, so that those have nothing else to write."""
    c, each = config.dqn, config.steps * config.save_every
    made = Plan(steps=c.replay_size, games=config.games, sequence=c.sequence, stride=c.stride,
                history=HISTORY,
                chunk=0, memory=c.memory, actions=role.actions.size, terms=tuple(term.name for term in terms))
    return made if each > made.rows else Plan(**vars(made) | {"chunk": each})


class Dqn(Learner):
    """One role's learner; `explorer` plays in training, `online` (for others: `policy`) is what is learnt."""

    name = "dqn"
    Config = DqnConfig
    seats_opponents = False
    learns_forced_actions = True
    short_steps = (4, 16)  # its network is large
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
        self.replay = Replay(plan(config, role, terms), self.online.senses)
        self.rate = 1.0
        self.regularizers: list[Regularizer] = []
        rungs = np.arange(config.games) / max(1, config.games - 1)
        self.explorer = Explorer(self.online, config.games, config.steps, c.stride,
                                 1 + c.epsilon_exponent * rungs)
        self.explorer.epsilon = c.epsilon
        self.term_weights = {term.name: term.weight for term in terms}
        rows = self.replay.plan.rows // c.stride
        self.priority: Floats = np.zeros((rows if c.priority else 0, config.games), np.float32)

    @classmethod
    def check(cls, config: DqnConfig, setup: Setup) -> None:
        check_dqn(setup.config, setup.spec)

    @classmethod
    def memory_bytes(cls, config: DqnConfig, setup: Setup) -> int:
        (role,) = setup.spec.roles.values()
        made = plan(setup.config, role, [TermInfo("", 0.0)] * MOST_TERMS)
        return made.rows * made.games * row_bytes(made, Senses(role))

    @classmethod
    def shrink(cls, config: DqnConfig, small: SmallRun) -> Mapping[str, Any]:
        """Short sequences, so that there are some soon, and a ring that is written over before the end."""
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
            behaviour={role.name: learner.explorer},
            forget=learner.explorer.forget,
        )

    def load_weights(self, policy: Policy) -> None:
        self.online.set(policy.weights)
        self.target.set(policy.weights)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        replay, c = self.replay, self.config
        off = "" if c.replay_ratio else "dqn.replay_ratio is 0"
        over = ", the oldest written over" if replay.head > replay.plan.rows else ""
        size = f"{replay.size:,} steps in {replay.nbytes:,} bytes, {len(replay.chunks)} chunks on disk{over}"
        yield Evidence("replay", size if replay.size and self.adam.updates else "", off)
        copies = self.adam.updates // c.target_every
        yield Evidence("target network", f"copied {copies} times" if copies else "", off)

    def state_dict(self) -> Tree:
        held, senses, e = self.online.hidden, self.online.senses, self.explorer
        past = np.rint(e.recurrent_state[:, held:] * 3).astype(np.uint8)  # the last pictures, a byte a pixel
        return {"weights": self.online.weights, "target": self.target.weights, "replay": self.replay.state(),
                "memory": e.recurrent_state[:, :held], "past": past if senses.picture else past[:, :0],
                "epsilon": e.epsilon, "priority": self.priority} | self.adam.state()

    def load_state_dict(self, tree: Tree) -> None:
        self.online.set(tree["weights"])
        self.target.set(tree["target"])
        self.adam.restore(tree)
        self.replay.restore(tree["replay"])
        e, held = self.explorer, self.online.hidden
        e.recurrent_state[:, :held] = tree["memory"]
        e.recurrent_state[:, held:] = tree["past"].astype(np.float32) / np.float32(3)
        e.epsilon, self.priority[:] = tree["epsilon"], tree["priority"]

    def learn(self, tape: RolloutBuffer, progress: float, iteration: int) -> dict[str, float]:
        """Store the rollout; then as many updates as `replay_ratio` asks for its steps."""
        c, new = self.config, tape.steps * tape.games
        reward = self._store(tape)
        lr = self.rate * anneal("linear", c.lr, c.lr_final, progress)
        sums, updates = dict.fromkeys(("loss", "td_error", "q_mean", "grad_norm_pre_clip"), 0.0), 0
        starts = self.replay.beginnings()
        fed = max(0, self.replay.head * tape.games - c.warmup)  # steps that are owed `replay_ratio` each
        due = int(c.replay_ratio * fed / (c.batch * c.stride)) - self.adam.updates if len(starts) else 0
        for _ in range(due):
            for name, value in self._update(starts, lr).items():
                sums[name] += value
            updates += 1
        if not np.isfinite(self.online.weights).all():
            raise LearnError(f"dqn: weights are not finite after update {self.adam.updates}")
        told = {f"r_{name}": float(column.mean(dtype=np.float64)) for name, column in reward.items()}
        weights = np.array([1.0, *self.term_weights.values()], np.float32)  # as targets are computed
        told["r_total"] = float(np.array(list(told.values())) @ weights)
        told |= {name: value / updates for name, value in sums.items() if updates}
        told |= {"epsilon": self.explorer.epsilon, "epsilon_mean": float(self.explorer.explore_rates.mean()),
                 "lr": lr, "replay": float(self.replay.size), "updates": float(updates),
                 "decisions": float(new)}
        share = min(1.0, progress / c.epsilon_fraction) if c.epsilon_fraction else 1.0
        self.explorer.epsilon = anneal("linear", c.epsilon, c.epsilon_final, share)
        self.explorer.forget(np.flatnonzero(tape.ended[-1] != RUNNING))
        return told

    def _store(self, tape: RolloutBuffer) -> dict[str, Floats]:
        """Put the rollout into the replay; the columns of its reward [T, N] by name."""
        track, head = tape[self.role.name], self.replay.head
        reward: dict[str, Floats] = {ENV: track.reward[:, :, 0]}
        for name in self.term_weights:
            reward[name] = track.reward_terms[name].values[:, :, 0].astype(np.float32)
        legal = np.ones((tape.steps, tape.games, self.role.actions.size), np.uint8)
        if track.mask is not None:
            legal = track.mask[:, :, 0]
        columns = self.online.senses.pack(track.obs[:, :, 0])
        columns |= {"action": track.action[:, :, 0], "ended": tape.ended,
                    "legal": np.packbits(legal != 0, axis=-1)}
        columns |= {reward_column(name): values for name, values in reward.items()}
        notes = self.explorer.notes(head, head + tape.steps)
        self.replay.add(columns, notes)
        if self.config.priority:  # what is new comes first
            at = (-(-head // self.config.stride) + np.arange(len(notes))) % len(self.priority)
            self.priority[at] = max(1.0, float(self.priority.max()))
        return reward

    def _update(self, starts: NDArray[np.int64], lr: float) -> dict[str, float]:
        from rematch.agents.learners import q_targets

        c = self.config
        draw = rng.generator(self.seed, rng.REPLAY_SAMPLE, 0, self.adam.updates)
        start, game, weight = self._sample(starts, draw)
        batch = self.replay.take(start, game)
        reward = q_targets.paid(batch.reward, batch.ended, self.term_weights)[:, c.burn_in :]
        total, follow, known = q_targets.returns(reward, batch.ended[:, c.burn_in :], c.n_step, c.gamma)
        counts = (known * weight[:, None] / max(1, int(known.sum()))).astype(np.float32)
        lesson = q_targets.Lesson(batch, total, follow, counts)
        grad, error, told = q_targets.gradient(self.online, self.target, lesson, c, self.threads)
        length, _ = self.adam.descend(self.online, grad, lr, c.max_grad_norm)
        if not np.isfinite(length):
            raise LearnError(f"dqn: the gradient is not finite at update {self.adam.updates}")
        if c.priority:
            seen = error * known
            mean = seen.sum(1) / np.maximum(1, known.sum(1))
            at = start // c.stride % len(self.priority)
            self.priority[at, game] = EAGER * seen.max(1) + (1 - EAGER) * mean
        if self.adam.updates % c.target_every == 0:
            self.target.set(self.online.weights)
        return told | {"grad_norm_pre_clip": length}

    def _sample(
        self, starts: NDArray[np.int64], draw: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """(start, game, weight) of a batch, each [B]: uniform, or by priority (Schaul et al. 2016)."""
        c, games = self.config, self.replay.plan.games
        if not c.priority:
            which = draw.integers(0, len(starts) * games, c.batch)
            return starts[which // games], which % games, np.ones(c.batch, np.float32)
        errors = self.priority[starts // c.stride % len(self.priority)].astype(np.float64).reshape(-1)
        odds = (errors + 1e-6) ** c.priority
        total = np.cumsum(odds)
        which = np.searchsorted(total, draw.random(c.batch) * total[-1], side="right")
        which = which.clip(max=total.size - 1)
        weight = (odds[which] * total.size / total[-1]) ** -c.priority_beta
        return starts[which // games], which % games, (weight / weight.max()).astype(np.float32)
