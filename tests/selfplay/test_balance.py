"""Balance: the lead of a role by a slow reference, the roles that learn, and runs that are resumed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stop_and_resume import stop_and_go_on
from support.trainers import advance

from rematch import api
from rematch.core.clock import Clock, Phase
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.rehearsal.compare import differences
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import play
from rematch.reporting.text import roles_in
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.selfplay.balance import Balance, BalanceConfig
from rematch.training.trainer import Trainer
from rematch.worlds import registry

ROLES = ("pursuer", "evader")


SPEC = registry.find("pursuit").spec(api.configure("quick").world)


def component(**changes: Any) -> Balance:
    setup: Any = SimpleNamespace(spec=SimpleNamespace(roles=dict.fromkeys(ROLES)))
    return Balance(BalanceConfig(**changes), setup)


def rollout(ended: np.ndarray, slots: dict[str, np.ndarray], outcome: np.ndarray) -> RolloutBuffer:
    """A rollout [T, N] with one seat for each role."""
    buffer = RolloutBuffer(SPEC, *ended.shape)
    buffer.ended[:] = ended
    for role in ROLES:
        buffer[role].slot[:], buffer[role].outcome[:] = slots[role][:, :, None], outcome
    return buffer


def learning_roles(part: Balance, iteration: int = 0) -> tuple[str, ...]:
    clock = Clock(1, 0, 10, Phase(1, ROLES), iteration)
    part.before_rollout(clock, None)  # type: ignore[arg-type]
    return clock.phase.roles


@pytest.mark.parametrize(("rate", "roles"), [
    (0.5, ROLES), (0.55, ROLES), (0.551, ("evader",)), (1.0, ("evader",)), (0.45, ROLES),
    (0.449, ("pursuer",))])
def test_leading_role_does_not_learn(rate: float, roles: tuple[str, ...]) -> None:
    part = component(threshold=0.1 + 1e-9)
    part.rate = rate
    assert learning_roles(part) == roles


def test_both_roles_learn_after_until() -> None:
    part = component(threshold=0.1, until=0.5)
    part.rate = 1.0
    roles = [learning_roles(part, iteration) for iteration in range(10)]
    assert roles == [("evader",)] * 5 + [ROLES] * 5


@given(st.integers(0, 2**31), st.integers(1, 50))
def test_rate_counts_finished_games_of_the_newest_policies(seed: int, games: int) -> None:
    """By a slow reference: a draw between all games that ended, whose seats all have slot 0."""
    rng, part = np.random.default_rng(seed), component(threshold=0.2, games=games)
    ended = rng.integers(0, 3, (6, 5))
    slots = {role: rng.integers(0, 2, (6, 5)) for role in ROLES}
    outcome = rng.choice([0.0, 0.5, 1.0], (6, 5, 1))
    scores = [outcome[t, n, 0] for t in range(6) for n in range(5)
              if ended[t, n] and not slots["pursuer"][t, n] and not slots["evader"][t, n]]  # fmt: skip
    part.after_rollout(rollout(ended, slots, outcome), Clock(1, 0, 10, Phase(1, ROLES)))
    expected = 0.5
    for _ in scores:  # each game moves the average towards the mean of this rollout
        expected += (np.mean(scores) - expected) / games
    assert part.rate == pytest.approx(expected)


def small(**changes: Any) -> Config:
    return shrink(api.configure("quick", changes={"balance.threshold": 0.1, **changes}))


def test_held_role_keeps_its_weights() -> None:
    trainer = Trainer(small())
    part = trainer.setup.get(Balance)
    assert part is not None
    advance(trainer, 1)
    part.rate = 1.0
    before = {role: learner.policy.weights.copy() for role, learner in trainer.setup.learners.items()}
    advance(trainer, 1)
    changed = {role: (learner.policy.weights != before[role]).any()
               for role, learner in trainer.setup.learners.items()}
    assert changed == {"pursuer": False, "evader": True}


def test_progress_line_names_the_roles_only() -> None:
    (row,) = advance(Trainer(small()), 1)
    assert "balance/rate" in row and roles_in(row) == list(ROLES)


@pytest.mark.parametrize("at", [1, 3])
def test_balanced_run_resumes_to_the_same_bytes(at: int, tmp_path: Path) -> None:
    config = small()
    play(config, tmp_path / "whole")
    stop_and_go_on(config, tmp_path / "cut", at)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.parametrize(("recipe", "reason"), [("ra1", "schedule.kind"), ("beasty", "two roles")])
def test_balance_without_effect_is_refused(recipe: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Trainer(api.configure(recipe, flags=["--balance.threshold", "0.1"]))
