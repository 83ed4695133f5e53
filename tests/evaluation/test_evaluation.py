"""Evaluation records: history.json is written as it was read, wrong rows are refused, strength."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.evaluation_rows import entry, evaluated, match_row, return_row
from support.tiny_run import SMALL

from rematch import api
from rematch.evaluation.evaluation import Evaluation, MatchResults, read_history
from rematch.evaluation.match import Result
from rematch.evaluation.statistics import Mean, wilson

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.mark.parametrize(("world", "changes"), [
    ("pursuit", {}),
    ("pursuit", {"world.survival_bonus": 0.5, "schedule.kind": "alternating", "schedule.phase_steps": 32,
                 "schedule.warmup_steps": 0, "schedule.convergence_consecutive": 1}),
    ("lattice", {"world.n": 5, "world.horizon": 4, "curriculum.kind": "discrete"}),
    ("beasty", {}),
])
def test_history_of_a_run_is_written_as_it_was_read(
    world: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Values, keys and their order: what a run stores is what its records give back."""
    small = {key: value for key, value in SMALL.items() if world == "pursuit" or not key.startswith("world.")}
    api.train(world, small | {"evaluation.every": 1} | changes, tmp_path / "run")
    rows = json.loads((tmp_path / "run" / "history.json").read_text())
    assert len(rows) >= 2 and "best_bot" in json.dumps(rows[-1])
    assert json.dumps([record.to_json() for record in read_history(rows)]) == json.dumps(rows)


def test_history_of_a_world_with_one_seat_is_written_as_it_was_read() -> None:
    bot = {"best_bot": "random", "best_bot_mean": 3.0, "best_bot_low": None, "best_bot_high": None,
           "best_bot_games": 1}
    for row in (return_row(5.0, 1.0), return_row(5.0, None, **bot),
                return_row(1.0, 0.5, success=0.5, success_low=0.2, success_high=0.8,
                           milestones={"TOWN": {"rate": 0.5, "low": 0.1, "high": 0.9, "games": 20}})):
        record = Evaluation.from_json(row)
        assert record.judged_by_returns and record.to_json() == row


def test_unknown_keys_are_kept() -> None:
    row = evaluated(SR_X=0.25, table=[entry(new_key=[1, 2])])
    record = Evaluation.from_json(row)
    assert record.extra["SR_X"] == 0.25 and record.matches[0].extra == {"new_key": [1, 2]}
    assert record.to_json() == row


def test_match_row_equals_the_row_of_a_result() -> None:
    result = Result("me", "player", "you", 200, 150, 20, 22.5, Mean(1.0, 0.5, 1.5, 200), deals=100,
                    effective=180.0, effective_wins=190.0, margin=Mean(3.0, None, None, 1), reached={"a": 3})
    row = {"step": 0, "rates": {}, "table": [result.row()]}
    record = Evaluation.from_json(row)
    assert record.matches[0].opponent == "you" and record.matches[0].score == result.score
    assert json.dumps(record.to_json()["table"]) == json.dumps(row["table"])


@pytest.mark.parametrize("row", [
    None, [], {}, {"step": 1}, evaluated(step="x"), evaluated(step=None), evaluated(step=True),
    evaluated(table=3), evaluated(table=None), evaluated(table=[None]), evaluated(table=[{"role": []}]),
    evaluated(table=[entry(score=None)]), evaluated(table=[entry(games=1.5)]), evaluated(rates=[[]]),
    evaluated(rates={"pursuer": {"rate": 0.5}}), evaluated(returns={"pursuer": 3}), evaluated(gap="wide"),
    evaluated(verdict={}),
])  # fmt: skip
def test_row_of_another_form_is_a_value_error(row: Any) -> None:
    with pytest.raises(ValueError):
        Evaluation.from_json(row)


def test_strength_gives_every_role_the_same_weight() -> None:
    table = [match_row("pursuer", "x", 1.0), match_row("evader", "x", 0.0), match_row("evader", "y", 0.0),
             match_row("evader", "z", 0.6)]
    results = MatchResults.from_json({"table": table})
    mean, below, above = results.strength(results.match_ups)
    assert mean == pytest.approx((1.0 + 0.2) / 2)
    # a perfect score can only be lower, a score of 0 only higher; weights are 1/2 and 1/6
    perfect, nothing, (low, high) = 1 - wilson(1000, 1000)[0], wilson(0, 1000)[1], wilson(600, 1000)
    assert below == pytest.approx(math.hypot(perfect / 2, (0.6 - low) / 6))
    assert above == pytest.approx(math.hypot(nothing / 6, nothing / 6, (high - 0.6) / 6))
