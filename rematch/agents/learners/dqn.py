"""Deep Q-learning for one seat: sequences from a replay, with the memory that stood before them.

DQN (Mnih et al. 2015) with double and dueling Q, over sequences with stored memory and burn-in (Kapturowski
et al. 2019), games on a ladder of epsilons (Horgan et al. 2018). What is learnt from is

    r_total = r_env + w_rnd r_rnd + w_novel r_novel + w_bayes r_bayes + w_way r_way

each component kept as it was when it was met, its weight applied once, when a sequence is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learners.adam import Adam
from rematch.agents.learners.ppo import Guard
from rematch.agents.learners.q_policy import Explorer, QPolicy
from rematch.agents.learners.replay_buffer import COMPONENTS, Plan, Replay, row_bytes
from rematch.agents.networks.observation_codec import Senses
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.annealing import anneal
from rematch.core.arrays import Floats, Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError, LearnError
from rematch.core.spec import Role, Spec
from rematch.core.world import RUNNING
from rematch.curriculum.demo_progress import Way
from rematch.curriculum.demonstrations import Practice
from rematch.rollout.rollout_buffer import Tape

if TYPE_CHECKING:
    from rematch.training.trainer import Config

# Channels of the eye, and the width of each memory.
SIZES: dict[str, tuple[tuple[int, int, int], int]] = {
    "slim": ((16, 32, 64), 128), "large": ((32, 64, 128), 256),
}  # fmt: skip
SHAPING = ("size", "gru", "lstm", "ssm")  # settings that say how many weights there are, and which
HISTORY = 2  # pictures before a sequence that its first step sees: agents/networks/q_network.py
MOST_ACTIONS = 256  # a byte each in the replay
EAGER = 0.9  # share of the largest TD error in a sequence's priority, beside the mean (Kapturowski et al.)


@dataclass(frozen=True, kw_only=True)
class DqnConfig:
    """How Q is learnt, and the network that says it."""

    size: str = knob("slim", "channels 16/32/64, memories of 128; or twice that", choices=("slim", "large"))
    gru: bool = knob(True, "the short memory")
    lstm: bool = knob(True, "the middle memory")
    ssm: str = knob(
        "real", "the long memory: real or complex decays, or none", choices=("real", "complex", "off")
    )
    device: str = knob("cpu", "where the network is computed", choices=("cpu", "cuda"))
    lr: float = knob(3e-4, "learning rate at the start", low=0)
    lr_final: float = knob(1e-4, "learning rate at the end, reached in a straight line", low=0)
    max_grad_norm: float = knob(10.0, "longer gradients are scaled down to this length; 0 is off", low=0)
    gamma: float = knob(0.997, "discount of a step", low=0, high=1)
    n_step: int = knob(1, "rewards summed before Q says the rest", low=1, high=100)
    trace: float = knob(
        0.0, "lambda: how far returns follow a sequence beyond one step; needs n_step 1", low=0, high=1
    )
    trace_while: str = knob(
        "best", "they go on while moves were the best known; or turned out better, for games without chance",
        choices=("best", "better", "always"), needs="trace",
    )  # fmt: skip
    gap: float = knob(
        0.0, "advantage learning: gaps between actions are 1 / (1 - gap) as wide; 0 is off", low=0, high=0.99
    )
    double: bool = knob(True, "the online network names the next action, the target's says its worth")
    target_every: int = knob(400, "updates after which the target network is the online one again", low=1)
    replay: int = knob(500_000, "steps kept, of all games together", low=1)
    sequence: int = knob(40, "steps of a sequence", low=2, high=10_000)
    burn_in: int = knob(8, "its first steps, which only bring the memory up to date", low=0)
    batch: int = knob(16, "sequences in one update", low=1, high=65_536)
    replay_ratio: float = knob(1.0, "how often a step is learnt from, on average", low=0, high=1000)
    warmup: int = knob(10_000, "steps before the first update", low=0)
    priority: float = knob(
        0.0, "how far sequences with larger errors are preferred; 0: uniform", low=0, high=1
    )
    priority_beta: float = knob(0.5, "how far that is weighed out again", low=0, high=1, needs="priority")
    epsilon: float = knob(1.0, "share of moves at random at the start", low=0, high=1)
    epsilon_final: float = knob(0.4, "share of moves at random later", low=0, high=1)
    epsilon_share: float = knob(0.1, "part of the run in which it goes from one to the other", low=0, high=1)
    ladder: float = knob(
        7.0, "game i of N uses epsilon to the power 1 + ladder i / (N - 1); 0: all alike", low=0, high=100
    )
    epsilon_play: float = knob(0.01, "share of moves at random in evaluations", low=0, high=1)
    reads_aside = False  # what a table asks of a network's settings

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
        if self.trace and self.n_step != 1:
            raise ConfigError(f"n_step = {self.n_step}: expected 1 where trace = {self.trace:g}")
        if self.stride < 1:
            raise ConfigError(
                f"sequence = {self.sequence}: expected more than burn_in {self.burn_in} and n_step "
                f"{self.n_step} together"
            )


def check_dqn(config: Config, spec: Spec) -> None:
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
    if c.replay < need:
        raise ConfigError(f"dqn.replay = {c.replay}: expected at least {need} with games = {config.games}, "
                          f"steps = {config.steps}, dqn.sequence = {c.sequence}")


def replay_bytes(config: Config, role: Role) -> int:
    """What the replay of such a run takes."""
    made = plan(config, role)
    return made.rows * made.games * row_bytes(made, Senses(role))


class Bonus(Protocol):
    """Reward that the world did not give, of one of COMPONENTS (rematch/exploration/)."""

    name: str
    weight: float  # applied when a sequence is taken, nowhere else

    def score(self, tape: Tape, iteration: int) -> Floats:
        """[T, N] what each sight on the tape is worth: the step that led there is paid. Learns from it."""

    def state(self) -> Tree: ...

    def restore(self, tree: Tree) -> None: ...

    def take_over(self, other: Any) -> None:
        """Know what `other` of the same kind has learnt; how its games stand is its own business."""


def plan(config: Config, role: Role) -> Plan:
    """Chunks on disk end where regular checkpoints do, so that those have nothing else to write."""
    c, each = config.dqn, config.steps * config.save_every
    made = Plan(steps=c.replay, games=config.games, sequence=c.sequence, stride=c.stride, history=HISTORY,
                chunk=0, memory=c.memory, actions=role.actions.size)
    return made if each > made.rows else Plan(**vars(made) | {"chunk": each})


class Dqn:
    """One role's learner; `explorer` plays in training, `online` (for others: `policy`) is what is learnt."""

    native, rate = True, 1.0
    guard: Guard | None = None  # none is offered for it

    def __init__(self, config: Config, role: Role, bonuses: Sequence[Bonus]) -> None:
        c = self.config = config.dqn
        self.role, self.threads, self.seed = role, config.threads, config.seed << 8
        names = (f"{role.name} (learnt)", f"{role.name} (target)")
        self.online, self.target = (QPolicy(role, c, name) for name in names)
        self.policy: Policy = self.online
        self.online.initialise(self.seed)
        self.target.set(self.online.weights)
        self.adam = Adam(self.online.weights.size)
        self.replay = Replay(plan(config, role), self.online.senses)
        rungs = np.arange(config.games) / max(1, config.games - 1)
        self.explorer = Explorer(self.online, config.games, config.steps, c.stride, 1 + c.ladder * rungs)
        self.explorer.epsilon = c.epsilon
        self.bonuses = list(bonuses)
        self.reward: Floats = np.zeros((0, config.games, len(COMPONENTS)), np.float32)  # of the last tape
        self.weights: Floats = np.zeros(len(COMPONENTS), np.float32)
        self.weights[0] = 1.0
        for bonus in self.bonuses:
            self.weights[COMPONENTS.index(bonus.name)] = bonus.weight
        rows = self.replay.plan.rows // c.stride
        self.priority: Floats = np.zeros((rows if c.priority else 0, config.games), np.float32)

    def practise(self, practice: Practice | None) -> None:
        """Some games are led from now on, if anybody leads them; a reward for the way asks where they are."""
        self.explorer.practice = practice
        for bonus in self.bonuses:
            if isinstance(bonus, Way):
                bonus.practice = practice

    def state(self) -> Tree:
        held, senses, e = self.online.hidden, self.online.senses, self.explorer
        past = np.rint(e.memory[:, held:] * 3).astype(np.uint8)  # the last pictures, a byte a pixel
        return {"weights": self.online.weights, "target": self.target.weights, "replay": self.replay.state(),
                "memory": e.memory[:, :held], "past": past if senses.picture else past[:, :0],
                "epsilon": e.epsilon, "priority": self.priority,
                "bonuses": {bonus.name: bonus.state() for bonus in self.bonuses}} | self.adam.state()

    def restore(self, tree: Tree) -> None:
        self.online.set(tree["weights"])
        self.target.set(tree["target"])
        self.adam.restore(tree)
        self.replay.restore(tree["replay"])
        e, held = self.explorer, self.online.hidden
        e.memory[:, :held] = tree["memory"]
        e.memory[:, held:] = tree["past"].astype(np.float32) / np.float32(3)
        e.epsilon, self.priority[:] = tree["epsilon"], tree["priority"]
        for bonus in self.bonuses:
            bonus.restore(tree["bonuses"][bonus.name])

    def acting(self, progress: float) -> Floats:
        """Its explorer plays the weights as they are."""
        return self.online.weights

    def learn(self, tape: Tape, progress: float, iteration: int) -> dict[str, float]:
        """Keep the tape, each bonus scored once; then as many updates as its steps are owed."""
        c, new = self.config, tape.steps * tape.games
        reward = self.reward = self._keep(tape, iteration)
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
        means = reward.reshape(-1, len(COMPONENTS)).mean(0, dtype=np.float64)
        told = {f"r_{name}": float(mean) for name, mean in zip(COMPONENTS, means)}
        told["r_total"] = float(means @ self.weights)
        told |= {name: value / updates for name, value in sums.items() if updates}
        told |= {"epsilon": self.explorer.epsilon, "epsilon_mean": float(self.explorer.chances.mean()),
                 "lr": lr, "replay": float(self.replay.size), "updates": float(updates),
                 "decisions": float(new)}
        share = min(1.0, progress / c.epsilon_share) if c.epsilon_share else 1.0
        self.explorer.epsilon = anneal("linear", c.epsilon, c.epsilon_final, share)
        self.explorer.forget(np.flatnonzero(tape.ended[-1] != RUNNING))
        return told

    def _keep(self, tape: Tape, iteration: int) -> Floats:
        """Put the tape into the replay; the reward's components [T, N, C]."""
        track, head = tape[self.role.name], self.replay.head
        reward = np.zeros((tape.steps, tape.games, len(COMPONENTS)), np.float32)
        reward[:, :, 0] = track.reward[:, :, 0]
        for bonus in self.bonuses:
            reward[:, :, COMPONENTS.index(bonus.name)] = bonus.score(tape, iteration)
        legal = np.ones((*reward.shape[:2], self.role.actions.size), np.uint8)
        if track.mask is not None:
            legal = track.mask[:, :, 0]
        columns = self.online.senses.pack(track.sight[:, :, 0])
        columns |= {"action": track.action[:, :, 0], "ended": tape.ended, "reward": reward,
                    "legal": np.packbits(legal != 0, axis=-1)}
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
        reward = q_targets.paid(batch.reward, batch.ended, self.weights)[:, c.burn_in :]
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
