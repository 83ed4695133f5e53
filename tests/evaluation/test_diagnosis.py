"""Likely causes: each rule speaks where its number is there, and is silent where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from rematch import api
from rematch.core.config import replace
from rematch.evaluation.diagnosis import Evidence, floor, likely

GAP = {"kind": "gap", "first": 1000, "last": 3000, "role": None, "text": ""}
SWING = GAP | {"kind": "swing", "role": "pursuer"}
STEPS = (0, 1000, 2000, 3000, 4000)


def run(game: str = "pursuit", rows: dict[str, Any] | None = None, **changes: Any) -> Evidence:
    """A healthy run of five iterations and evaluations, but for `rows` (of every iteration) and settings."""
    config = replace(api.default(game), {key.replace("__", "."): value for key, value in changes.items()})
    spec = api.builder(config)(1, 0, 0).spec
    usual: dict[str, Any] = {"rollout/length": 50.0}
    for role in spec.roles:
        usual |= {f"{role}/kl": 0.01, f"{role}/lr": 1e-3, f"{role}/updates": 8.0, f"{role}/entropy": 1.5}
    metrics = [{"step": step} | usual | (rows or {}) for step in STEPS]
    history: list[dict[str, Any]] = []
    for i, step in enumerate(STEPS):
        rates = {"pursuer": {"rate": 0.2 + 0.15 * i}, "evader": {"rate": 0.8 - 0.15 * i}}
        history.append({"step": step, "phase": f"S{i}", "role": "pursuer", "rates": rates})
    return Evidence(config=config, spec=spec, metrics=metrics, history=history)


def test_a_healthy_run_has_none() -> None:
    assert likely(GAP, run()) == [] and likely(SWING, run()) == []


def test_a_role_that_does_not_learn() -> None:
    (said,) = likely(GAP, run(rows={"evader/lr": 0.0, "evader/kl": 0.0}))
    assert said == ("evader was not learning: learning rate 0, mean KL of its updates 0.0e+00 over 3 "
                    "iterations")
    (said,) = likely(GAP, run(rows={"evader/updates": 0.0}))
    assert "none of 3 iterations updated it" in said


def test_rewards_that_favour_one_role() -> None:
    lopsided = run(world__survival_bonus=0.5)
    assert not lopsided.spec.zero_sum
    for row in lopsided.history:
        row["returns"] = {"pursuer": {"mean": -2.0}, "evader": {"mean": 88.0}}  # type: ignore[index]
    (said,) = likely(GAP, lopsided)
    assert said == ("reward asymmetry: evader earns +1.76 per step, pursuer -0.04 (44-fold), over 3 "
                    "evaluations")
    for row in lopsided.history:
        row["returns"]["pursuer"]["mean"] = -40.0
    assert likely(GAP, lopsided) == []


def test_roles_that_learn_in_turn() -> None:
    apart = run(schedule__kind="alternate")
    (said,) = likely(SWING, apart)
    assert said == ("best-response dynamics: schedule.kind is alternate and only pursuer learnt in phase S3; "
                    "its share went from 0.350 to 0.650")
    (said,) = likely(GAP, apart)
    assert "of 3 evaluations in this time the role that had just learnt was pursuer at 3" in said


def test_entropy_at_its_floor() -> None:
    role = run().spec.roles["pursuer"]
    low, _ = floor(role, run().config)
    (said,) = likely(GAP, run(rows={"pursuer/entropy": low + 0.01}))
    assert said.startswith("pursuer's entropy is at its floor:")
    board = run("lattice", rows={"pursuer/entropy": 0.01})
    assert floor(board.spec.roles["pursuer"], board.config)[0] == 0.0
    assert any("entropy is at its floor: 0.010 nats" in said for said in likely(GAP, board))


def test_updates_that_are_too_large() -> None:
    (said,) = likely(GAP, run(rows={"evader/kl": 0.2}))
    assert said.startswith("evader's updates are large: mean KL 0.200 nats")


def test_columns_that_never_change() -> None:
    seen = run()
    dull = [{"column": f"obstacle {i}", "constant": i < 6} for i in range(7)]
    blind = Evidence(config=seen.config, spec=seen.spec, metrics=seen.metrics, history=seen.history,
                     sight={"evader": dull})
    (said,) = likely(GAP, blind)
    assert "evader may be blind to something: 6 of 7 numbers" in said and "and 2 more" in said


def test_nobody_from_the_past() -> None:
    assert likely(SWING, run(league__history=0.0)) == ["no past selves in training: league.history is 0"]


@pytest.mark.parametrize("step", [0, 4000])
def test_only_the_time_of_the_alarm_is_looked_at(step: int) -> None:
    seen = run()
    for row in seen.metrics:
        if row["step"] == step:
            row["evader/kl"] = 50.0  # type: ignore[index]
    assert likely(GAP, seen) == []
