"""Effects of evaluations on a schedule: the next role, the length of its phases, the learning rate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schedules import ROLES, run_through

from rematch.selfplay.role_schedule import Schedule, ScheduleConfig


def evaluation_row(gap: float, loser: str = "evader") -> dict[str, Any]:
    other = {"pursuer": "evader", "evader": "pursuer"}[loser]
    return {"gap": gap, "rates": {loser: {"rate": (1 - gap) / 2}, other: {"rate": (1 + gap) / 2}}}


def alternating(**changes: Any) -> Schedule:
    config = ScheduleConfig(**{"kind": "alternating", "warmup_steps": 0, "phase_steps": 100} | changes)
    return Schedule(config, ROLES, 100)


def test_last_role_warms_up_and_learns_first_on_a_new_level() -> None:
    schedule = alternating(last_first=True, level_warmup_steps=150)
    run_through(schedule, 2)  # S1 pursuer, S2 evader
    schedule.record_evaluation(evaluation_row(0.1), 1)
    after = []
    for i in range(2, 8):
        schedule.advance(i)
        phase = schedule.phase
        after.append((phase.name, phase.roles[0], schedule.phase_ended(phase.last)))
    # 150 steps end inside the second iteration; later phases keep to the steps
    assert after[:3] == [("S3w", "evader", False), ("S3w", "evader", False), ("S3", "evader", True)]
    assert [role for _, role, _ in after[3:]] == ["pursuer", "evader", "pursuer"]
    plain = alternating(level_warmup_steps=100)
    run_through(plain, 1)
    plain.record_evaluation(evaluation_row(0.1), 1)
    assert [(p.name, *p.roles) for p in run_through(plain, 4)[1:]] == [
        ("S2w", "evader"), ("S2", "evader"), ("S3", "pursuer")]  # fmt: skip
    plain.record_evaluation(evaluation_row(0.1), -1)  # no new level: the next in turn
    plain.advance(4)
    assert plain.phase.roles == ("evader",) and not plain.phase.level_warmup


def test_losing_role_gets_the_next_phases_while_the_gap_is_large() -> None:
    schedule = alternating(adaptive_threshold=0.3, adaptive_phases=3)
    schedule.advance(0)
    schedule.record_evaluation(evaluation_row(0.5, "pursuer"), 0)
    roles = [phase.roles[0] for phase in run_through(schedule, 6)[1:]]
    assert roles == ["pursuer"] * 3 + ["evader", "pursuer"]
    schedule.record_evaluation(evaluation_row(0.5, "evader"), 0)
    schedule.advance(6)
    schedule.record_evaluation(evaluation_row(0.2, "evader"), 0)  # small again: the boost is over
    assert schedule.phase.roles == ("evader",)
    schedule.advance(7)
    assert schedule.phase.roles == ("pursuer",)


def test_no_role_learns_longer_than_force_switch_steps() -> None:
    schedule = alternating(adaptive_threshold=0.3, adaptive_phases=20, force_switch_steps=300)
    schedule.advance(0)
    schedule.record_evaluation(evaluation_row(0.9, "pursuer"), 0)
    roles = [phase.roles[0] for phase in run_through(schedule, 12)]
    assert roles[:4] == ["pursuer"] * 3 + ["evader"]
    long = alternating(force_switch_steps=40)
    assert [phase.last - phase.first for phase in run_through(long, 3)] == [1, 1, 1]  # never less than one
    cut = alternating(phase_steps=1000, force_switch_steps=250)
    assert [phase.roles[0] for phase in run_through(cut, 6)] == ["pursuer"] * 3 + ["evader"] * 2 + ["pursuer"]


def test_learning_rate_is_damped_near_balance() -> None:
    schedule = Schedule(ScheduleConfig(dampen_threshold=0.2), ROLES, 100)
    for gap, rate in ((0.5, 1.0), (0.2, 1.0), (0.1, 0.5), (0.001, 0.1)):
        schedule.record_evaluation(evaluation_row(gap), 0)
        assert schedule.rate_factor == pytest.approx(rate)


@given(st.integers(0, 30), st.data())
def test_schedule_continues_from_its_state(iterations: int, data: st.DataObject) -> None:
    changes: dict[str, Any] = {
        "last_first": True, "level_warmup_steps": 130, "adaptive_threshold": 0.3, "adaptive_phases": 2,
        "force_switch_steps": 500, "short_phases": (50, 70), "last_multiplier": 1.7,
    }  # fmt: skip
    one, two = alternating(**changes), alternating(**changes)
    for i in range(iterations):
        one.advance(i)
        if data.draw(st.booleans()):
            row = evaluation_row(data.draw(st.sampled_from((0.1, 0.6))), data.draw(st.sampled_from(ROLES)))
            one.record_evaluation(row, data.draw(st.sampled_from((-1, 0, 1))))
    two.load_state_dict(one.state_dict())
    rest = range(iterations, iterations + 20)
    for i in rest:
        one.advance(i)
        two.advance(i)
        assert one.phase == two.phase
    assert one.state_dict() == two.state_dict()
