"""Imitation: before the first iteration every role learns to play as scripted players do.

The games of the imitation are between the learner and all scripted opponents, and between learners. In the
first round the teachers play in the learner's place; in the later rounds it plays itself and the teachers
only say what they would have done (DAgger, Ross et al. 2011), so that it also learns how to come back from
its own mistakes. After each round the policy is fitted to the teachers' actions of all rounds. The last fit
also trains the value function, on the returns of these games.

The maximum-likelihood gradient is the policy gradient with advantage 1 and ratio 1, so that the learner's own
gradient computes it for all networks and kinds of actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.learners.ppo import Batch, Ppo
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Floats, Tree, stored_bool
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.spec import Role
from rematch.core.stepping import SeatedPlayers, concat_fields, empty_actions
from rematch.core.world import RUNNING, Next, World

GAMES = 256  # at most, so that a game has time to end
ROUNDS = 8
MINIBATCH = 1024  # decisions
FINAL_LR = 0.05  # of the last gradient step, as a fraction of `lr`
VALUE_EPOCHS = 2  # the last fit is this many times as long as the others


@dataclass(frozen=True, kw_only=True)
class ImitationConfig:
    """Imitation of scripted players before the first iteration."""

    steps: int = knob(
        0, "steps of the games that are played for imitation; they are part of total_steps; 0: off",
        unit="steps", low=0,
    )  # fmt: skip
    teachers: tuple[str, ...] = knob(
        (), "scripted players to imitate, at least one for each role; NAME: against all opponents; "
        "NAME:OPPONENT: against this scripted opponent", needs="steps",
    )  # fmt: skip
    epochs: int = knob(8, "passes over the decisions of a round, in each round", unit="epochs", low=1,
                       needs="steps")
    lr: float = knob(0.002, "learning rate of the imitation at its start", low=0, high=1, needs="steps")
    log_std: float = knob(
        -2.0, "log standard deviation of continuous actions during and after the imitation", low=-5, high=2,
        needs="steps",
    )  # fmt: skip
    rise: int = knob(
        10, "iterations after the imitation in which the learning rate rises from 0 to its full value",
        unit="iterations", low=0, needs="steps",
    )  # fmt: skip
    anchored: tuple[str, ...] = knob(
        (), "roles whose magnet stays at the policy that imitates, so that they do not forget it",
        needs="steps",
    )  # fmt: skip
    anchor_weight: float = knob(
        0.3, "ppo.magnet_weight of the anchored roles", low=0, high=1000, needs="anchored"
    )


@dataclass(frozen=True)
class Teaching:
    """What a role imitates: a teacher for all opponents, and others for opponents with these names."""

    default: str
    against: Mapping[str, str]  # scripted opponent -> teacher

    def teacher(self, opponent: str) -> str:
        return self.against.get(opponent, self.default)


def teachings(config: ImitationConfig, setup: Setup) -> dict[str, Teaching]:
    """role -> what it imitates; ConfigError for names that the game does not have."""
    roles = list(setup.spec.roles)
    bots = {role: setup.game.bot_names(role) for role in roles}
    defaults: dict[str, str] = {}
    against: dict[str, dict[str, str]] = {role: {} for role in roles}
    for entry in config.teachers:
        name, _, opponent = entry.partition(":")
        taught = [role for role in roles if name in bots[role]]
        if opponent:
            taught = [role for role in taught if any(opponent in bots[o] for o in opposing(role, roles))]
        if not taught:
            raise ConfigError(f"imitation.teachers = {entry}: expected NAME or NAME:OPPONENT with scripted "
                              f"players of {setup.game.name}: {names_of(bots)}")
        for role in taught:
            if opponent:
                against[role][opponent] = name
            else:
                defaults.setdefault(role, name)
    for role in roles:
        if role not in defaults:
            raise ConfigError(f"imitation.teachers = {','.join(config.teachers) or 'none'}: expected a "
                              f"scripted {role}: {', '.join(bots[role])}")
    return {role: Teaching(defaults[role], against[role]) for role in roles}


def opposing(role: str, roles: Sequence[str]) -> list[str]:
    return [other for other in roles if other != role] or [role]


def names_of(bots: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(dict.fromkeys(name for names in bots.values() for name in names))


@dataclass
class Decisions:
    """The decisions of a role's learners in one round, [T, N, k, ...]."""

    role: Role
    obs: list[Floats] = field(default_factory=list)
    privileged: list[Floats] = field(default_factory=list)
    mask: list[NDArray[Any]] = field(default_factory=list)
    label: list[NDArray[Any]] = field(default_factory=list)
    learns: list[NDArray[np.bool_]] = field(default_factory=list)
    reward: list[Floats] = field(default_factory=list)
    ended: list[NDArray[np.bool_]] = field(default_factory=list)


def opponents_of(role: str, setup: Setup) -> list[str]:
    """The scripted players of a role that learners meet: those of the league, by default all of the game."""
    every = setup.game.bot_names(role)
    return [name for name in every if name in setup.config.league.bots] or list(every)


class ImitationGames:
    """Games of the learners against every scripted opponent and against each other, with their teachers.

    Each game keeps its players: in game i the seat i mod seats is a learner's, and the other seats take the
    scripted players of their role, and the learner, in turn.
    """

    def __init__(self, world: World, policies: Mapping[str, Policy], setup: Setup, seed: int) -> None:
        self.world, self.policies, self.check_stop = world, policies, setup.check_stop
        self.step = 0
        self.teachings = teachings(setup.config.imitation, setup)
        spec, rows = world.spec, np.arange(world.games)
        names = np.full((world.games, spec.seats), "", object)  # "": a learner
        for seat in range(spec.seats):
            options = ["", *opponents_of(spec.role_of(seat).name, setup)]
            names[:, seat] = np.array(options, object)[(rows // spec.seats + seat) % len(options)]
        names[rows, rows % spec.seats] = ""
        self.learns = names == ""
        self.bots: list[tuple[SeatedPlayers, NDArray[np.bool_]]] = []
        self.teachers: list[tuple[SeatedPlayers, NDArray[np.bool_]]] = []
        self.students: list[tuple[SeatedPlayers, NDArray[np.bool_]]] = []

        def seated(player: Player, seat: int) -> SeatedPlayers:
            return SeatedPlayers({seat: player}, {seat: seed}, rng.IMITATION)

        for seat in range(spec.seats):
            role, learner_mask = spec.role_of(seat).name, self.learns[:, seat]
            opponents = names[:, (seat + 1) % spec.seats]
            taught_by = np.array([self.teachings[role].teacher(name) for name in opponents], object)
            for chairs, players, where in ((self.bots, names[:, seat], ~learner_mask),
                                           (self.teachers, taught_by, learner_mask)):
                for name in dict.fromkeys(players[where]):
                    chairs.append((seated(setup.game.bot(name, role), seat), where & (players == name)))
            self.students.append((seated(policies[role], seat), learner_mask))

    def play(self, steps: int, by_teachers: bool) -> dict[str, Decisions]:
        """Play on for some steps; role -> its learners' decisions with the teachers' actions."""
        world, spec = self.world, self.world.spec
        played = {name: Decisions(role) for name, role in spec.roles.items()}
        for _ in range(steps):
            self.check_stop()
            labels, actions = empty_actions(world), empty_actions(world)
            for chairs, target in ((self.teachers, labels), (self.bots, actions),
                                   ([] if by_teachers else self.students, actions)):
                for players, games in chairs:
                    players.act(world, target, self.step, games)
            for name, decisions in played.items():
                seats = list(decisions.role.seats)
                if by_teachers:
                    learner_mask = self.learns[:, seats]
                    actions[name][learner_mask] = labels[name][learner_mask]
                self._record(decisions, labels[name])
            view = world.step(actions)
            ended = view.ended != RUNNING
            for decisions in played.values():
                decisions.reward.append(view.reward[:, list(decisions.role.seats)].copy())
                decisions.ended.append(ended.copy())
            for players, _ in (*self.bots, *self.teachers, *self.students):
                players.clear(ended)
            self.step += 1
        return played

    def _record(self, decisions: Decisions, label: NDArray[Any]) -> None:
        role, view = decisions.role, self.world.view
        seats = list(role.seats)
        decisions.obs.append(np.array(concat_fields(role, view[role.name])))
        if self.policies[role.name].config.reads_privileged:
            decisions.privileged.append(np.array(concat_fields(role, view[role.name], privileged=True)))
        if role.name in view.mask:
            decisions.mask.append(view.mask[role.name].copy())
        decisions.label.append(label)
        decisions.learns.append((view.acting[:, seats] != 0) & self.learns[:, seats])


class Cloning:
    """The fit of one role's policy to all decisions so far."""

    def __init__(self, policy: Policy, setup: Setup, number: int) -> None:
        config, run = setup.config.imitation, setup.config
        ppo = replace(run.ppo, value_weight=0.0, value_clip=0.0, magnet_weight=0.0, max_grad_norm=1.0,
                      temperature=1.0, temperature_final=1.0)
        seed = rng.key(run.seed, rng.IMITATION, number)
        self.learner = Ppo(policy, ppo, seed, run.threads)
        self.policy, self.gamma, self.check_stop = policy, run.ppo.gamma, setup.check_stop
        self.rounds: list[tuple[NDArray[Any], ...]] = []  # learns, reward, ended
        self.rows: Batch = {}
        self.errors: list[float] = []  # negative log-likelihood of the teachers' actions after each round
        log_std = self._log_std(policy.weights)
        if log_std is not None:
            log_std[:] = config.log_std
            policy.set(policy.weights)

    def _log_std(self, flat: Floats) -> Floats | None:
        return weight_views(flat, self.policy.layout).get("policy.log_std")

    def add(self, decisions: Decisions) -> int:
        """Add a round; the number of its decisions."""
        learns = np.array(decisions.learns)
        self.rounds.append((learns, np.array(decisions.reward), np.array(decisions.ended)))
        names = ("obs", "privileged", "mask", "label")
        new = {name: np.array(getattr(decisions, name))[learns] for name in names if getattr(decisions, name)}
        self.rows = {name: np.concatenate([self.rows[name], rows]) if self.rows else rows
                     for name, rows in new.items()}
        return int(learns.sum())

    def fit(self, updates: int, rates: tuple[float, float], number: int) -> None:
        """`updates` gradient steps on random decisions; the learning rate goes from one to the other."""
        size = len(self.rows["label"])
        chosen = rng.generator(self.learner.seed, rng.IMITATION, 0, number).integers(
            size, size=(updates, min(MINIBATCH, size)))
        total = 0.0
        for i, rows in enumerate(chosen):
            self.check_stop()
            total += self._step(rows, rates[0] + (rates[1] - rates[0]) * i / updates)
        self.errors.append(total / max(1, updates))

    def _step(self, rows: NDArray[np.int64], lr: float) -> float:
        """One gradient step; the negative log-likelihood before it."""
        data = {name: column[rows] for name, column in self.rows.items()}
        heads, value = self.policy.forward(data["obs"], data.get("mask"), data.get("privileged"))
        logp = self._log_likelihood(heads, data["label"], data.get("mask"))
        batch: Batch = data | {"action": data["label"], "logp": logp, "value": value,
                               "advantage": np.ones_like(logp), "target": value}
        if "target" in data:  # nan: the game had not ended
            batch["target"] = np.where(np.isnan(data["target"]), value, data["target"])
        del batch["label"]
        grad, _ = self.learner.gradient(batch, np.arange(len(rows)), 0.0)
        log_std = self._log_std(grad)
        if log_std is not None:
            log_std[:] = 0.0
        self.learner.step(grad, lr)
        return -float(logp.mean())

    def _log_likelihood(self, heads: Floats, label: NDArray[Any], mask: NDArray[Any] | None) -> Floats:
        """[n] of the teachers' actions."""
        log_std = self._log_std(self.policy.weights)
        if log_std is not None:
            z = (label - heads) * np.exp(-log_std)
            return np.asarray((-0.5 * z * z - log_std - 0.5 * np.log(2 * np.pi)).sum(-1), np.float32)
        logits = heads if mask is None else np.where(mask != 0, heads, np.float32(-np.inf))
        logits = logits - logits.max(1, keepdims=True)
        chosen = np.take_along_axis(logits, label[:, None].astype(np.int64), 1)[:, 0]
        return np.asarray(chosen - np.log(np.exp(logits).sum(1)), np.float32)

    def add_returns(self) -> None:
        """From now on the value function learns too: the discounted returns of games that have ended."""
        learns, reward, ended = (np.concatenate(columns) for columns in zip(*self.rounds))
        target = discounted_returns(reward, ended, learns, self.gamma)[learns]
        variance = float(np.nanvar(target)) if np.isfinite(target).any() else 0.0
        self.rows["target"] = target
        config = replace(self.learner.config, value_weight=0.5 / max(variance, 1e-6))
        self.learner.config = config


def discounted_returns(
    reward: Floats, ended: NDArray[np.bool_], learns: NDArray[np.bool_], gamma: float
) -> Floats:
    """[T, N, k] returns, discounted per decision; nan where the game had not ended after the last step."""
    out = np.empty_like(reward)
    after = np.full(reward.shape[1:], np.nan, np.float32)
    for t in reversed(range(len(reward))):
        after = np.where(ended[t][:, None], 0.0, after) + reward[t]
        out[t] = after
        after = np.where(learns[t], np.float32(gamma), np.float32(1.0)) * after
    return out


def iterations_of(config: ImitationConfig, run: Any) -> int:
    """Iterations whose steps the imitation takes; run: all settings."""
    return -(-config.steps // int(run.games * run.steps))


class Imitation(Component):
    """Fits the policies of all roles to scripted players before the first iteration."""

    name = "imitation"
    Config = ImitationConfig
    needs = "learner=ppo"

    def __init__(self, config: ImitationConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.loaded = False  # the run starts from other policies: nothing to imitate
        self.lines: dict[str, str] = {}  # role -> what it did

    @classmethod
    def off(cls, config: ImitationConfig, setup: Setup) -> str:
        return "" if config.steps else "imitation.steps is 0"

    @classmethod
    def check(cls, config: ImitationConfig, setup: Setup) -> None:
        if not config.steps:
            return
        run = setup.config
        teachings(config, setup)
        if run.schedule.kind != "simultaneous":
            raise ConfigError(f"imitation.steps = {config.steps}: with schedule.kind {run.schedule.kind} the "
                              "roles learn in turns; expected schedule.kind simultaneous")
        if run.start_iteration + iterations_of(config, run) >= run.iterations:
            raise ConfigError(f"imitation.steps = {config.steps}: expected less than total_steps = "
                              f"{run.total_steps} by one iteration at least")
        if unknown := [role for role in config.anchored if role not in setup.spec.roles]:
            raise ConfigError(f"imitation.anchored = {unknown[0]}: expected roles of {setup.game.name}: "
                              f"{', '.join(setup.spec.roles)}")
        low, high = run.network.log_std_low, run.network.log_std_high
        if not low <= config.log_std <= high:
            raise ConfigError(f"imitation.log_std = {config.log_std:g}: expected between network.log_std_low "
                              f"{low:g} and network.log_std_high {high:g}")

    @classmethod
    def no_effect(cls, key: str, config: ImitationConfig, setup: Setup) -> str:
        discrete = all(role.actions.kind == "discrete" for role in setup.spec.roles.values())
        return "all actions are discrete" if key == "log_std" and discrete else ""

    @classmethod
    def memory_bytes(cls, config: ImitationConfig, setup: Setup) -> int:
        """All decisions, as steps of all games and as rows."""
        numbers = sum(len(role.seats) * (role.size + role.privileged_size + 2 * role.actions.size + 4)
                      for role in setup.spec.roles.values())
        return 8 * numbers * config.steps

    @classmethod
    def shrink(cls, config: ImitationConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"steps": small.steps_per_iteration, "rise": min(config.rise, 1), "epochs": 1} \
            if config.steps else {}

    def connect(self) -> None:
        for role in self.config.anchored:
            learner: Any = self.setup.learners[role]
            learner.config = replace(
                learner.config, magnet_weight=self.config.anchor_weight, magnet_decay=1.0
            )

    @property
    def iterations(self) -> int:
        return iterations_of(self.config, self.setup.config)

    def policies_loaded(self, clock: Clock) -> None:
        self.loaded = True

    def start(self, clock: Clock) -> None:
        if self.loaded:
            self.setup.log.line("Imitation: left out, the run starts from other policies")
            return
        config, setup = self.config, self.setup
        roles, seed = list(setup.spec.roles), rng.key(setup.config.seed, rng.IMITATION) >> 1
        policies = {role: setup.learners[role].policy for role in roles}
        games = min(GAMES, setup.config.games)
        play = ImitationGames(setup.make_level(games, 0, seed), policies, setup, seed)
        clones = {role: Cloning(policies[role], setup, r) for r, role in enumerate(roles)}
        total = self.iterations * setup.config.games * setup.config.steps // games
        rounds = min(ROUNDS, total)
        for i in range(rounds):
            end = total * (i + 1) // rounds
            played = play.play(end - play.step, by_teachers=i == 0)
            clock.finished_games += int(np.array(played[roles[0]].ended).sum())
            for role, clone in clones.items():
                setup.watch(f"imitation: round {i + 1} of {rounds}, {role}")
                decisions = clone.add(played[role])
                clock.learner_steps += decisions
                last = i == rounds - 1
                if last:
                    clone.add_returns()
                updates = -(-config.epochs * decisions * (VALUE_EPOCHS if last else 1) // MINIBATCH)
                rates = [config.lr * (1 + (FINAL_LR - 1) * (i + j) / rounds) for j in (0, 1)]
                clone.fit(updates, (rates[0], rates[1]), i)
        for role, clone in clones.items():
            setup.learners[role].load_weights(policies[role])
            self._report(role, clone, play.teachings[role])
        clock.iteration += self.iterations

    def _report(self, role: str, clone: Cloning, teaching: Teaching) -> None:
        special = "".join(f", {name} against {opponent}" for opponent, name in teaching.against.items())
        first, last = clone.errors[0], clone.errors[-1]
        self.lines[role] = (f"{teaching.default}{special}: {len(clone.rows['label']):,} decisions, negative "
                            f"log-likelihood {first:.3f} in the first round, {last:.3f} in the last")
        self.setup.log.line(f"Imitation: {role} learned from {self.lines[role]}")

    def before_rollout(self, clock: Clock, next: Next) -> None:
        done = clock.iteration - clock.first - self.iterations
        if not self.loaded and 0 <= done < self.config.rise:
            clock.learning_rate_factor *= (done + 1) / (self.config.rise + 1)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        for role in self.setup.spec.roles:
            yield Evidence(f"imitation by {role}", self.lines.get(role, ""))

    def state_dict(self) -> Tree:
        return {"loaded": self.loaded}

    def load_state_dict(self, tree: Tree) -> None:
        self.loaded = stored_bool(tree, "loaded")
