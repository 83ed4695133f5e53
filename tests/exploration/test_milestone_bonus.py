"""Bayesian milestones: posteriors, reward and alarm against references; start states never count."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.core.beta_posterior import BetaPosteriors, incomplete_beta
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, DECIDED
from rematch.exploration.milestone_bonus import (
    MilestonePosteriors,
    Milestones,
    MilestonesConfig,
    budgets_of,
)
from rematch.rollout.rollout_buffer import RolloutBuffer

NAMES = ("town", "badge", "end")
ROLE = Role(name="joypad", fields=(Field(name="a", columns=("x", *(f"milestone_{n}" for n in NAMES))),),
            actions=Actions(kind="discrete", names=("a", "b")), seats=(0,))
SPEC = Spec(world="toy", roles={"joypad": ROLE})
LATER = MilestonesConfig(budget=10, budgets=("end=1000",), weight=1.0)


@given(st.lists(st.booleans(), max_size=60), st.floats(0, 1), st.floats(0.1, 5), st.floats(0.1, 5))
def test_posteriors_equal_the_closed_form(trials: list[bool], f: float, alpha: float, beta: float) -> None:
    posteriors = BetaPosteriors(2, (alpha, beta), f)
    for success in trials:
        posteriors.update(1, success)
    n = len(trials)
    won = sum(f ** (n - 1 - i) * x for i, x in enumerate(trials))
    lost = sum(f ** (n - 1 - i) * (not x) for i, x in enumerate(trials))
    assert posteriors.alpha[1] == pytest.approx(alpha + won)
    assert posteriors.beta[1] == pytest.approx(beta + lost)
    assert (posteriors.alpha[0], posteriors.beta[0]) == (alpha, beta)
    a, b = alpha + won, beta + lost
    assert posteriors.mean[1] == pytest.approx(a / (a + b))
    assert posteriors.deviation[1] ** 2 == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)))


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0, 1))
def test_the_incomplete_beta_function_is_a_sum_of_binomials(a: int, b: int, x: float) -> None:
    n = a + b - 1  # DLMF 8.17.5
    slow = sum(comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert incomplete_beta(x, a, b) == pytest.approx(slow, abs=1e-10)


@given(st.floats(0.05, 60), st.floats(0.05, 60), st.floats(0.001, 0.999))
def test_incomplete_beta_is_the_integral_of_the_density(a: float, b: float, x: float) -> None:
    """By its derivative, which needs no series: d/dx I = x^(a-1) (1-x)^(b-1) / B(a, b)."""
    from math import exp, lgamma, log, log1p

    h = 1e-5 * min(x, 1 - x)
    slope = (incomplete_beta(x + h, a, b) - incomplete_beta(x - h, a, b)) / (2 * h)
    density = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + (a - 1) * log(x) + (b - 1) * log1p(-x))
    assert slope == pytest.approx(density, rel=1e-3, abs=1e-3)


def test_interval_contains_its_share() -> None:
    beliefs = BetaPosteriors(1, (7.0, 3.0), 0.98)
    low, high = beliefs.interval(0)
    assert beliefs.cdf(0, low) == pytest.approx(0.025) and beliefs.cdf(0, high) == pytest.approx(0.975)


def test_reward_falls_as_a_milestone_is_mastered() -> None:
    made = MilestonePosteriors(LATER, ROLE, 1)
    seen = [made.rewards[0]]
    for _ in range(100):
        made.beliefs.update(0, True)
        seen.append(made.rewards[0])
    assert all(later < earlier for earlier, later in pairwise(seen)) and seen[-1] < 0.06
    made.beliefs.alpha[:], made.beliefs.beta[:] = [2, 20, 0.5], [2, 20, 30.0]
    sure, surer, hopeless = made.rewards
    assert sure > surer and hopeless > 0.95, "the same mean, more trials; and what nobody reaches"


def rollout_of(steps: int, games: int = 1) -> RolloutBuffer:
    rollout = RolloutBuffer(SPEC, steps, games)
    rollout.length[:] = 1 + np.arange(steps)[:, None]
    return rollout


def test_milestone_counts_once_if_not_set_at_the_start() -> None:
    made, rollout = MilestonePosteriors(LATER, ROLE, 2), rollout_of(4, 2)
    obs = rollout["joypad"].obs[:, :, 0]
    obs[:, 0, 1] = 1  # game 0 starts with the town
    obs[2:, 1, 1] = 1  # game 1 reaches it with its second step
    rollout.events[:] = [(1, 1, "town")]
    reward = made.rewards[0]
    out = made.score(rollout, 0)
    assert out[2, 1, 0] == pytest.approx(reward), "the next observation gets the reward"
    assert out.sum() == out[2, 1, 0]
    assert made.trials.tolist() == [1, 0, 0] and made.beliefs.alpha[0] == 2.0
    again = rollout_of(4, 2)
    again.length += 4
    again["joypad"].obs[:, :, 0, 1] = 1
    again.ended[3, 0] = CUT_OFF
    assert not made.score(again, 1).any()
    assert made.trials.tolist() == [1, 1, 1], "game 0 failed at badge and end, and tried no town"
    assert made.beliefs.beta.tolist() == [1.0, 2.0, 2.0]


@given(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=8), st.integers(0, 7))
def test_milestone_of_the_start_state_never_counts(when: list[tuple[int, bool]], spawned: int) -> None:
    """For all events and ends of episodes: no trial, no reward."""
    made, rollout = MilestonePosteriors(LATER, ROLE, 1), rollout_of(12)
    rollout["joypad"].obs[:, 0, 0, 1:] = [spawned >> m & 1 for m in range(3)]
    for t, cut in when:
        rollout.ended[t, 0] = CUT_OFF if cut else 0
    rollout.events[:] = sorted((t, 0, NAMES[m]) for t, _ in when for m in range(3) if spawned >> m & 1)
    assert not made.score(rollout, 0).any()
    assert not any(made.trials[m] for m in range(3) if spawned >> m & 1)


def test_failures_follow_from_budgets_and_ends() -> None:
    made, rollout = MilestonePosteriors(LATER, ROLE, 1), rollout_of(12)
    rollout.events[:] = [(10, 0, "town"), (11, 0, "end")]  # the town within 11 steps of 10: too late
    rollout.ended[11, 0] = DECIDED
    assert not made.score(rollout, 0).any(), "too late, and the last step has no next observation"
    assert made.beliefs.alpha.tolist() == [1, 1, 2] and made.beliefs.beta.tolist() == [2, 2, 1]
    assert made.episode_starts.tolist() == [True] and not made.open_trials.any()


def test_reward_across_two_rollouts_and_a_restore() -> None:
    made, rollout = MilestonePosteriors(LATER, ROLE, 1), rollout_of(2)
    rollout.events[:] = [(1, 0, "badge")]
    reward = made.rewards[1]
    assert not made.score(rollout, 0).any()
    other = MilestonePosteriors(LATER, ROLE, 1)
    other.load_state_dict(made.state_dict())
    for one in (made, other):
        following = rollout_of(2)
        following.length += 2
        assert one.score(following, 1)[:, 0, 0].tolist() == pytest.approx([reward, 0])
    assert all(np.array_equal(a, b) for a, b in zip(made.state_dict().values(), other.state_dict().values()))


def test_alarm_only_for_mastered_milestones_that_are_lost() -> None:
    made = MilestonePosteriors(LATER, ROLE, 1)

    def episodes(count: int, **reached: bool) -> list[str]:
        for _ in range(count):
            rollout = rollout_of(3)
            rollout.events[:] = [(0, 0, name) for name, reached_now in reached.items() if reached_now]
            rollout.ended[2, 0] = CUT_OFF
            made.score(rollout, 0)
        lines, made.lines = made.lines, []
        return lines

    assert not episodes(60, town=True) and made.mastered.tolist() == [True, False, False]
    assert made.numbers()["theta_town"] > 0.9 and made.numbers()["alarm_triggered"] == 0
    (line,) = episodes(60)
    assert "town" in line and "mastered" in line, "badge and end never were, and raise none"
    assert made.alarmed.tolist() == [True, False, False] and made.numbers()["alarm_triggered"] == 1
    assert not episodes(200, town=True) and not made.alarmed.any()


@pytest.mark.parametrize("word", ["town", "twon=3", "town=0", "town=-1", "town=x", "=3", f"town={2**31}"])
def test_wrong_budgets_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=r"milestones\.budgets"):
        budgets_of(MilestonesConfig(budgets=(word,)), NAMES)


def test_settings_are_refused_without_milestones() -> None:
    plain: Any = Role(name="a", fields=(Field(name="b", columns=("c",)),), actions=ROLE.actions, seats=(0,))
    setup: Any = SimpleNamespace(spec=Spec(world="toy", roles={"a": plain}))
    Milestones.check(MilestonesConfig(), setup)
    assert Milestones.off(MilestonesConfig(), setup) == "the world has no milestones"
    with pytest.raises(ConfigError, match="toy has no milestones"):
        Milestones.check(MilestonesConfig(weight=0.5), setup)


KNOBS: dict[str, Any] = {  # and `weight`: tests/rollout/test_reward_term.py
    "budget": 2, "budgets": ("town=3",), "alpha": 2.0, "beta": 2.0, "forgetting": 0.5,
    "target": 0.3, "alarm": 0.99,
}  # fmt: skip


def test_every_setting_has_an_effect() -> None:
    """All results of thirty episodes that reach the town late, and of twenty that do not."""

    def seen(config: MilestonesConfig) -> list[Any]:
        made = MilestonePosteriors(config, ROLE, 1)
        out: list[Any] = []
        for episode in range(50):
            rollout = rollout_of(12)
            rollout.events[:] = [(5, 0, "town")] if episode < 30 else []
            rollout.ended[11, 0] = CUT_OFF
            out += [made.score(rollout, episode).tolist(), made.numbers(), [*made.lines]]
        return out

    assert {"weight", *KNOBS} == {field.name for field in dataclasses.fields(MilestonesConfig)}
    for key, value in KNOBS.items():
        assert seen(dataclasses.replace(LATER, **{key: value})) != seen(LATER), key
