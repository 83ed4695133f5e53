"""Learners as one component: the learners of all roles, their seats and their thread pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from rematch.agents.build import LEARNERS
from rematch.agents.learner import Learner, TermInfo
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout, network_bytes
from rematch.core.arrays import Floats, Tree, stored_array
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, PlayState, Record, Setup, SmallRun
from rematch.core.errors import ConfigError
from rematch.core.world import Next
from rematch.rollout.collector import episode_starts
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import RoleSeating
from rematch.training.device import check_settings

MLP_SETTINGS = ("hidden", "activation", "shared", "fourier")
ACTING = "acting"  # key in a checkpoint of a run with a lag
ALL_ROLES = ("grad_norm_pre_clip", "grad_norm_post_clip")  # also logged as the largest of all roles


class LearnersPlayState(PlayState):
    """The play states of the learners of all roles."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.states = {role: learner.play_state() for role, learner in learners.items()}

    def shared(self) -> Tree:
        return {role: state.shared() for role, state in self.states.items()}

    def load_shared(self, tree: Tree) -> None:
        for role, state in self.states.items():
            state.load_shared(tree[role])

    def inputs(self, games: slice) -> Tree:
        return {role: state.inputs(games) for role, state in self.states.items()}

    def load_inputs(self, tree: Tree, games: slice) -> None:
        for role, state in self.states.items():
            state.load_inputs(tree[role], games)

    def results(self, games: slice) -> Tree:
        return {role: state.results(games) for role, state in self.states.items()}

    def load_results(self, tree: Tree, games: slice) -> None:
        for role, state in self.states.items():
            state.load_results(tree[role], games)


class Learners(Component):
    """Builds the learners, seats their policies in slot 0, and lets the roles learn in parallel."""

    name = "learners"
    Config = NetworkConfig
    in_play = True

    def __init__(self, config: None, setup: Setup) -> None:
        super().__init__(config, setup)
        c = setup.config
        terms = [TermInfo(term.name, term.weight) for term in setup.all(RewardTermComponent)]
        self.agents = setup.agents = setup.learner_class.build(c, setup.spec, setup.make_world, terms)
        self.learners = self.agents.learners
        if self.learners:
            type(next(iter(self.learners.values()))).join(self.learners.values())
        for role in setup.spec.roles:
            learner = self.learners.get(role) or next(iter(self.learners.values()))
            behaviour = self.agents.behaviour.get(role)
            seating = setup.seating[role] = RoleSeating(learner.policy, 0 if behaviour else 1)
            seating.learner_weights = learner.device_weights
            if behaviour:
                seating.seat_player(behaviour)
        self.started: set[str] = set()  # roles whose update has begun
        self.acting: dict[str, Floats] = {}  # role -> weights in slot 0 of the newest submitted rollout
        # Roles learn in parallel, each on its own threads, and share nothing. With torch gradients they learn
        # one after the other, each on all threads, to save memory.
        native = all(learner.native for learner in self.learners.values())
        self.pool = ThreadPoolExecutor(min(c.threads, len(self.learners)) if native else 1)
        self.initial_weights = {role: learner.policy.weights.copy()
                                for role, learner in self.learners.items()}

    # --- settings: of the network and of every learner ---

    @classmethod
    def configs(cls) -> Mapping[str, tuple[type[Any], str]]:
        sections = {name: (kind.Config, f"learner={name}") for name, kind in LEARNERS.items()}
        return {"network": (NetworkConfig, "learner=ppo|lookahead|expert"), **sections}

    @classmethod
    def check(cls, config: None, setup: Setup) -> None:
        c, network = setup.config, setup.config.network
        setup.learner_class.check(getattr(c, c.learner), setup)
        check_settings(setup)
        cls._check_lag(setup)
        if (network.encoder, network.critic, network.table, network.module) != ("mlp", "own", False, ""):
            for role in setup.spec.roles.values():
                layout(role, network)  # ConfigError if the network does not fit the role

    @classmethod
    def _check_lag(cls, setup: Setup) -> None:
        c, lag, learner = setup.config, setup.config.lag, setup.learner_class
        if lag and not learner.plays_ahead:
            raise ConfigError(f"lag = {lag}: the players of {learner.name} read its network while it learns; "
                              "expected 0")
        devices = {"device": c.device, "network.device": c.network.device,
                   f"{c.learner}.device": getattr(getattr(c, c.learner), "device", "cpu")}
        for setting, device in devices.items():
            if lag and device == "cuda":
                raise ConfigError(f"lag = {lag}: a network on the GPU acts and learns in turns; expected 0 "
                                  f"with {setting} cuda")

    @classmethod
    def no_effect(cls, key: str, config: None, setup: Setup) -> str:
        roles = setup.spec.roles.values()
        if setup.config.network.module and key.removeprefix("network.") in MLP_SETTINGS:
            return "network.module replaces the layers"
        if key == "network.fourier" and all(all(role.categories) for role in roles):
            return "players observe categories only, no numbers"
        if key.startswith("network.log_std") and all(role.actions.kind == "discrete" for role in roles):
            return "all actions are discrete"
        return ""

    @classmethod
    def memory_bytes(cls, config: None, setup: Setup) -> int:
        c, total = setup.config, 0
        for role in setup.spec.roles.values():
            copies = 8 + c.threads  # weights, packed, two moments, magnet, gradient, one per thread, scratch
            copies += 2 * 4  # a checkpoint before it is written: arrays and their bytes
            copies += 3 if c.ppo.average_fraction else 0
            total += copies * network_bytes(role, c)
        return total + int(setup.learner_class.memory_bytes(getattr(c, c.learner), setup))

    @classmethod
    def shrink(cls, config: None, small: SmallRun) -> Mapping[str, Any]:
        c = small.config
        changes: dict[str, Any] = {
            "run:network.hidden": tuple(min(width, 64) for width in c.network.hidden),
            "run:network.width": min(c.network.width, 4 * c.network.heads),
            "run:network.layers": min(c.network.layers, 2),
        }
        for name, kind in LEARNERS.items():
            smaller = kind.shrink(getattr(c, name), small)
            changes |= {f"run:{name}.{key}": value for key, value in smaller.items()}
        return changes

    # --- training ---

    def before_rollout(self, clock: Clock, next: Next) -> None:
        for role, seating in self.setup.seating.items():
            if len(seating.packed) and seating.learner_weights is None:
                self.acting[role] = self.learners[role].acting(clock.progress)
                seating.place(0, self.acting[role])
        if self.setup.config.lag:
            self.acting = {role: weights.copy() for role, weights in self.acting.items()}
            new = np.flatnonzero(episode_starts(self.setup.world))
            for learner in self.learners.values():
                learner.freeze_player(new)

    def start_update(self, rollout: RolloutBuffer, clock: Clock) -> None:
        self.started = set()
        for role in self._learning(clock):
            if self.learners[role].start(rollout, clock.progress, clock.iteration):
                self.started.add(role)

    def _learning(self, clock: Clock) -> list[str]:
        """The roles that learn now; their learners get their rate and threads."""
        roles = [role for role in clock.phase.roles if role in self.learners]
        for role in roles:
            learner = self.learners[role]
            learner.rate = clock.learning_rate_factor
            if learner.native:
                learner.threads = max(1, self.setup.config.threads // len(roles))
        return roles

    def update(self, rollout: RolloutBuffer, clock: Clock) -> Metrics:
        metrics: Metrics = {}
        roles, jobs = self._learning(clock), {}
        for role in roles:
            if role not in self.started:
                job = self.pool.submit(self.learners[role].learn, rollout, clock.progress, clock.iteration)
                jobs[role] = job.result
        for role in roles:
            result = jobs[role]() if role in jobs else self.learners[role].result()
            metrics |= {f"{role}/{name}": value for name, value in result.items()}
            clock.learner_steps += int(metrics[f"{role}/decisions"])
        for name in ALL_ROLES:
            norms = [metrics[f"{role}/{name}"] for role in roles if f"{role}/{name}" in metrics]
            if norms:
                metrics[f"train/{name}"] = max(norms)
        return metrics

    def finish(self, clock: Clock) -> None:
        for learner in self.learners.values():
            if line := learner.finish():
                self.setup.log.line(line)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        rows, config = record.metrics, getattr(self.setup.config, self.setup.config.learner)
        constant = getattr(config, "anneal", "") == "none"
        zero_rate = config.lr == 0 and (config.lr_final == 0 or constant)
        no_learning = f"{self.setup.config.learner}.lr is 0" if zero_rate else ""
        lines: dict[str, Evidence] = {}  # by name: a line about the whole run appears once
        for role, learner in self.learners.items():
            updates = sum(row.get(f"{role}/updates", 0) for row in rows)
            moved = float(np.abs(learner.policy.weights - self.initial_weights[role]).max())
            undone = any(row.get("rollbacks") for row in record.evaluations) and not moved
            result = "undone by the last rollback" if undone else f"weights moved by up to {moved:.2g}"
            proof = f"{updates:.0f} updates, {result}" if updates and (moved or undone) else ""
            learning = Evidence(f"learning of {role}", proof, no_learning)
            lines |= {line.name: line for line in (learning, *learner.evidence(record))}
        yield from lines.values()
        yield from self._critic_evidence()

    def _critic_evidence(self) -> Iterable[Evidence]:
        parts = self.setup.collector.rollout.tracks
        read = {role: part.host("privileged") for role, part in parts.items() if part.privileged is not None}
        sizes = [f"{role} {column.shape[-1]} numbers" for role, column in read.items() if column.any()]
        critic = self.setup.config.network.critic
        yield Evidence(
            "centralized critic",
            f"privileged observations of {', '.join(sizes)}" if sizes else "",
            "" if critic == "centralized" else f"network.critic is {critic}",
        )

    def play_state(self) -> PlayState:
        return LearnersPlayState(self.learners)

    def state_dict(self) -> Tree:
        state: Tree = {role: learner.state_dict() for role, learner in self.learners.items()}
        if self.setup.config.lag and self.acting:
            state[ACTING] = self.acting
        return state

    def load_state_dict(self, tree: Tree) -> None:
        for role, learner in self.learners.items():
            learner.load_state_dict(tree[role])
        for role in tree.get(ACTING, {}):
            weights = stored_array(tree[ACTING], role, self.learners[role].policy.weights)
            self.acting[role] = weights.copy()
            self.setup.seating[role].place(0, weights)
