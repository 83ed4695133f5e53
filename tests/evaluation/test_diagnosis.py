"""Likely causes of alarms and of weak play: each rule finds its cause, and finds nothing in a healthy run."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.evaluation_rows import match_row, rate_row

from rematch import api
from rematch.core.config import replace
from rematch.evaluation.diagnosis import Evidence, entropy_floor, likely_causes, verdict_causes
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.verdict import Alarm

GAP = Alarm(kind="gap", first=1000, last=3000, text="")
SWING = Alarm(kind="swing", first=1000, last=3000, role="pursuer", text="")
STEPS = (0, 1000, 2000, 3000, 4000)


def evidence(
    game: str = "pursuit", rows: dict[str, Any] | None = None, returns: dict[str, float] | None = None,
    observations: dict[str, Any] | None = None, **changes: Any,
) -> Evidence:
    """A healthy run of five iterations and evaluations; `rows` changes every iteration."""
    config = replace(api.default(game), {key.replace("__", "."): value for key, value in changes.items()})
    spec = api.world_builder(config)(1, 0, 0).spec
    usual: dict[str, Any] = {"rollout/length": 50.0}
    for role in spec.roles:
        usual |= {f"{role}/kl": 0.01, f"{role}/lr": 1e-3, f"{role}/updates": 8.0, f"{role}/entropy": 1.5}
    metrics = [{"step": step} | usual | (rows or {}) for step in STEPS]
    means = {role: {"mean": mean, "low": None, "high": None, "games": 1}
             for role, mean in (returns or {}).items()}
    history = []
    for i, step in enumerate(STEPS):
        rates = {"pursuer": rate_row(0.2 + 0.15 * i), "evader": rate_row(0.8 - 0.15 * i)}
        row = {"step": step, "phase": f"S{i}", "role": "pursuer", "rates": rates, "returns": means}
        history.append(Evaluation.from_json(row | {"table": []}))
    return Evidence(config=config, spec=spec, metrics=metrics, history=history,
                    observations=observations or {})


def test_healthy_run_has_no_cause() -> None:
    assert likely_causes(GAP, evidence()) == [] and likely_causes(SWING, evidence()) == []


def test_cause_role_that_does_not_learn() -> None:
    (text,) = likely_causes(GAP, evidence(rows={"evader/lr": 0.0, "evader/kl": 0.0}))
    assert text == ("evader did not learn: learning rate 0, mean KL of its updates 0.0e+00 over 3 "
                    "iterations. To try: check its learning rate.")
    (text,) = likely_causes(GAP, evidence(rows={"evader/updates": 0.0}))
    assert "none of 3 iterations updated it" in text


def test_cause_role_that_does_not_improve() -> None:
    run = evidence()
    scores = {"pursuer": (0.2, 0.2), "evader": (0.5, 0.9)}
    history = [replace_table(entry, scores, int(i > 0)) for i, entry in enumerate(run.history)]
    (text,) = likely_causes(GAP, dataclasses.replace(run, history=history))
    assert text == ("pursuer did not improve: mean score against scripted opponents 0.200 at step 0, 0.200 "
                    "at step 3,000. To try: train longer.")
    single = dataclasses.replace(run, history=history[:1])
    assert not any("did not improve" in cause for cause in verdict_causes("weak: x", single))
    assert likely_causes(SWING, dataclasses.replace(run, history=history)) == []


def replace_table(entry: Evaluation, scores: dict[str, tuple[float, float]], index: int) -> Evaluation:
    table = [match_row(role, "x", score[index]) for role, score in scores.items()]
    return Evaluation.from_json(entry.to_json() | {"table": table})


def test_cause_reward_asymmetry() -> None:
    lopsided = evidence(world__survival_bonus=0.5, returns={"pursuer": -2.0, "evader": 88.0})
    assert not lopsided.spec.zero_sum
    (text,) = likely_causes(GAP, lopsided)
    assert text == ("reward asymmetry: evader earns +1.76 per step, pursuer -0.04 (a factor of 44), over 3 "
                    "evaluations. To try: scale the rewards of the world to the same size.")
    even = evidence(world__survival_bonus=0.5, returns={"pursuer": -40.0, "evader": 88.0})
    assert likely_causes(GAP, even) == []


def test_cause_roles_that_learn_in_turn() -> None:
    alternating = evidence(schedule__kind="alternating")
    (text,) = likely_causes(SWING, alternating)
    assert text == ("best-response dynamics: schedule.kind is alternating and only pursuer learned in phase "
                    "S3; its win rate went from 0.350 to 0.650. To try: set schedule.kind to simultaneous.")
    (text,) = likely_causes(GAP, alternating)
    assert "role that learned before each of the 3 evaluations: pursuer in 3" in text


def test_cause_lowest_entropy() -> None:
    role = evidence().spec.roles["pursuer"]
    low, _ = entropy_floor(role, evidence().config)
    (text,) = likely_causes(GAP, evidence(rows={"pursuer/entropy": low + 0.01}))
    assert text.startswith("entropy of pursuer is at its lowest:")
    board = evidence("lattice", rows={"pursuer/entropy": 0.01})
    assert entropy_floor(board.spec.roles["pursuer"], board.config)[0] == 0.0
    assert any("is at its lowest: 0.010 nats" in text for text in likely_causes(GAP, board))


def test_cause_large_updates() -> None:
    (text,) = likely_causes(GAP, evidence(rows={"evader/kl": 0.2}))
    assert text.startswith("updates of evader are large: mean KL 0.200 nats")


def test_cause_constant_columns() -> None:
    columns = [{"column": f"obstacle {i}", "constant": i < 6} for i in range(7)]
    (text,) = likely_causes(GAP, evidence(observations={"evader": columns}))
    assert "evader may lack information: 6 of 7 observation columns" in text and "and 2 more" in text


def test_cause_no_past_policies() -> None:
    assert likely_causes(SWING, evidence(league__opponent_share=0.0)) == [
        "no past policies among the opponents in training: league.opponent_share is 0. To try: set "
        "league.opponent_share to 0.3."]


def test_weak_verdict_has_causes_over_the_whole_run() -> None:
    changes: dict[str, Any] = {"ppo__magnet_weight": 0.0, "league__bots": (), "schedule__kind": "alternating"}
    run = evidence(**changes)
    for number, row in enumerate(run.metrics):
        row["games"] = 3 * number  # type: ignore[index]
    causes = verdict_causes("weak: loses to scripted baselines in 2 of 2 match-ups", run)
    assert [cause.partition(":")[0] for cause in causes] == [
        "best-response dynamics", "no regularizer keeps old skills",
        "no scripted players among the opponents in training", "few games"]
    assert "few games: 3.0 games end in an iteration" in causes[-1]
    assert all(". To try: " in cause for cause in causes)
    assert verdict_causes("improving: mean score against scripted opponents 0.1 at first, 0.5 now", run) == []
    assert not any("regularizer" in cause for cause in likely_causes(GAP, run)), "a gap needs no magnet"


def test_weak_verdict_names_no_setting_without_effect() -> None:
    run = evidence("lattice", learner="lookahead")
    causes = verdict_causes("weak: loses to scripted baselines in 2 of 2 match-ups", run)
    assert not any("ppo." in cause for cause in causes)


@pytest.mark.parametrize("step", [0, 4000])
def test_causes_come_from_the_time_of_the_alarm(step: int) -> None:
    run = evidence()
    for row in run.metrics:
        if row["step"] == step:
            row["evader/kl"] = 50.0  # type: ignore[index]
    assert likely_causes(GAP, run) == []
