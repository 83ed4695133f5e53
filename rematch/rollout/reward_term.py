"""Reward terms: reward that the world did not give, one named column per source.

A term scores the observations of a rollout for each role that receives it. Learners add the weighted column:
PPO before the advantages, Q-learning when it takes a sequence from its replay, so every term works with
every learner that learns from rewards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, checked_state
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.rollout.rollout_buffer import Credit, RewardTerm, RolloutBuffer


class Scorer(Protocol):
    """What a term knows of one role."""

    def score(self, rollout: RolloutBuffer, iteration: int) -> NDArray[np.floating[Any]]:
        """[T, N, k] what each observation of the rollout is worth, unweighted. Learns from it."""

    def state_dict(self) -> Tree: ...

    def load_state_dict(self, tree: Tree) -> None: ...

    def copy_from(self, other: Any) -> None:
        """Take over what `other` of the same kind has learned; where its own games stand stays its own."""


class RewardTermComponent(Component):
    """A named reward term. Override `make_scorer`, and `off` where a setting switches it off."""

    credit: ClassVar[Credit] = "arrival"  # which decision earns it: rollout_buffer.RewardTerm
    needs = "learner=ppo|dqn"

    def __init__(self, config: Any, setup: Setup) -> None:
        super().__init__(config, setup)
        games, seed = setup.world.games, setup.config.seed
        self.scorers = {role.name: self._checked(self.make_scorer(config, role, games, seed << 8 | i))
                        for i, role in self.receivers(config, setup)}
        self.logged: Metrics = {}
        self.largest = 0.0  # mean absolute value per step of a rollout, unweighted: the largest so far

    @classmethod
    def off(cls, config: Any, setup: Setup) -> str:
        return "" if config.weight else f"{cls.name}.weight is 0"

    @classmethod
    def receivers(cls, config: Any, setup: Setup) -> list[tuple[int, Role]]:
        """(number, role) of the roles that receive the term."""
        return list(enumerate(setup.spec.roles.values()))

    @classmethod
    def make_scorer(cls, config: Any, role: Role, games: int, seed: int) -> Scorer:
        raise ConfigError(f"class {cls.__name__} has no method make_scorer(config, role, games, seed): it "
                          "returns the object that scores observations (docs/how_to/own_components.md)")

    @classmethod
    def _checked(cls, scorer: Scorer) -> Scorer:
        """The scorer; ConfigError where it lacks a method or its state is no dict."""
        missing = [name for name in ("score", "state_dict", "load_state_dict", "copy_from")
                   if not callable(getattr(scorer, name, None))]
        if missing:
            raise ConfigError(f"make_scorer of {cls.name} returned a {type(scorer).__name__} without "
                              f"{', '.join(missing)}")
        checked_state(scorer.state_dict(), f"{type(scorer).__name__} of {cls.name}")
        return scorer

    @classmethod
    def _checked_values(cls, values: Any, shape: tuple[int, ...]) -> NDArray[np.floating[Any]]:
        """What `score` returned; ConfigError unless it is an array of this shape with finite numbers."""
        if not isinstance(values, np.ndarray):
            raise ConfigError(f"{cls.name}: score returned {type(values).__name__}, expected an array")
        if values.shape != shape:
            raise ConfigError(f"{cls.name}: score returned an array {list(values.shape)}, expected "
                              f"{list(shape)}: steps, games, seats of the role")
        if not np.isfinite(values).all():
            raise ConfigError(f"{cls.name}: score returned a value that is not finite")
        return values

    @property
    def weight(self) -> float:
        return float(self.config.weight)

    def film_scorer(self, role: Role) -> Scorer:
        """A scorer for one game beside the training, which knows what the run's own has learned."""
        scorer = self.make_scorer(self.config, role, 1, self.setup.config.seed << 8)
        scorer.copy_from(self.scorers[role.name])
        return scorer

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        self.logged = {}
        for role, scorer in self.scorers.items():
            if role in clock.phase.roles:
                values = self._checked_values(scorer.score(rollout, clock.iteration),
                                              rollout[role].reward.shape)
                rollout[role].reward_terms[self.name] = RewardTerm(values, self.weight, self.credit)
                self.largest = max(self.largest, float(np.abs(values).mean(dtype=np.float64)))
                numbers = self.numbers(rollout, role)
                self.logged |= {f"{role}/{name}": value for name, value in numbers.items()}

    def numbers(self, rollout: RolloutBuffer, role: str) -> Metrics:
        """Numbers for the log, of one role; by default the mean weighted reward per observation."""
        values = rollout[role].reward_terms[self.name].values
        return {f"{self.name}_per_step": self.weight * float(values.mean(dtype=np.float64))}

    def metrics(self) -> Metrics:
        return self.logged

    def evidence(self, record: Record) -> Iterable[Evidence]:
        paid = f"up to {self.largest:.3g} per step, weight {self.weight:g}"
        yield Evidence(self.name, paid if self.largest > 0 else "")

    def state_dict(self) -> Tree:
        return {role: scorer.state_dict() for role, scorer in self.scorers.items()}

    def load_state_dict(self, tree: Tree) -> None:
        for role, scorer in self.scorers.items():
            scorer.load_state_dict(tree[role])
