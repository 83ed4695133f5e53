"""Numbers and tables as text: straight columns, three significant digits, no forged lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evaluation_rows import entry, evaluated, match_row, return_row

from rematch.evaluation.text import clean, evaluation_lines, human, number, percent, standing
from rematch.reporting.text import (
    BALANCE,
    aligned,
    duration,
    learning_sentence,
    roles_in,
    scoreboard_lines,
    weakest_first,
)


def test_scoreboard_has_straight_columns_and_intervals() -> None:
    lines = scoreboard_lines(evaluated())
    table = lines[2:5]
    at = table[0].index("score")
    assert [line[at:at + 5] for line in table[1:]] == ["0.931", "0.400"]
    assert all("1000" in line and "[" in line for line in table[1:])
    assert table[1].endswith("above") and table[2].endswith("below")
    assert BALANCE in lines and "Verdict: IMPROVING" in lines


def test_standing_needs_intervals_that_do_not_overlap() -> None:
    assert standing(entry(low=0.91)) == "above"
    assert standing(entry(low=0.89)) == "level"
    assert standing(entry(low=0.7, high=0.85)) == "below"
    assert standing(entry(best_bot_low=None)) == standing({}) == "-"


def test_evaluation_lines_have_one_line_per_match_up_and_no_clock() -> None:
    lines = evaluation_lines(evaluated())
    assert len(lines) == 3 and all(line.startswith("Eval") for line in lines)
    assert lines == evaluation_lines(evaluated())
    assert lines[0] == (
        "Eval at step 1.00 M, iteration 1: SR_P 0.520, SR_E 0.480, pursuer wins 0.520 [0.489, 0.551] of 1000 "
        "games, evader wins 0.480 [0.449, 0.511] of 1000 games, NE-GAP 0.040 (upper bound 0.102)")
    assert lines[1] == ("Eval pursuer (learnt) against flee_straight: score 0.931 [0.913, 0.945] over 1000 "
                        "games; baseline pure_pursuit 0.880: above")


def test_evaluation_lines_name_the_level_of_a_curriculum() -> None:
    line = evaluation_lines(evaluated(level=1, level_name="2-5.5 m, 2 obstacles"))[0]
    assert line.startswith("Eval at step 1.00 M, iteration 1, level 2 (2-5.5 m, 2 obstacles): SR_P 0.520")


def test_evaluation_lines_of_one_role_have_the_mean_score() -> None:
    """Head to head there is nothing to tell: both seats play the same policy."""
    table = [match_row("player", "x", 0.7), match_row("player", "y", 0.5)]
    row = {"step": 65_536, "phase": 1, "rates": {}, "table": table}
    head = "Eval at step 65.5 K, iteration 1: "
    line = evaluation_lines(row)[0]
    assert line == f"{head}mean score 0.600 [0.579, 0.621] against 2 scripted opponents"
    assert evaluation_lines(row | {"table": []}) == [f"{head}no scripted opponents"]


def test_evaluation_lines_leave_out_an_unknown_baseline() -> None:
    bare = {key: value for key, value in entry().items() if not key.startswith("best_bot")}
    line = evaluation_lines(evaluated(table=[bare]))[1]
    assert line == "Eval pursuer (learnt) against flee_straight: score 0.931 [0.913, 0.945] over 1000 games"
    assert weakest_first(evaluated(table=[bare]))[0] == (
        "player", "opponent", "games", "score", "95 % interval")  # no columns of "-"


def test_evaluation_lines_and_scoreboard_of_returns() -> None:
    bot = {"best_bot": "random", "best_bot_mean": 60.0, "best_bot_low": 55.0, "best_bot_high": 65.0}
    row = return_row(50, 3, success=0.25, success_low=0.1, success_high=0.5, **bot)
    (line,) = evaluation_lines(row)
    assert "player mean return 50.000 [47.000, 53.000] over 20 games, success rate 0.250 [0.100, 0.5" in line
    board = "\n".join(scoreboard_lines(row))
    assert "scripted opponents" not in board and "random" in board and "below" in board
    assert "[-, -]" in "\n".join(scoreboard_lines(return_row(4, None)))


@given(st.floats(min_value=0, max_value=1e15))
def test_human_has_three_significant_digits(value: float) -> None:
    text = human(value)
    scale = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    amount, _, letter = text.partition(" ")
    assert float(amount) < 1000.5
    assert float(amount) * scale[letter] == pytest.approx(value, rel=0.0051, abs=0.5)


def test_numbers_at_the_edges() -> None:
    assert [human(v) for v in (0, 999, 999.6, 99_950, 512_345, 999_600)] == [
        "0", "999", "1.00 K", "100 K", "512 K", "1.00 M"]
    assert [number(v) for v in (0, 0.5, 1e-5, 123456.0, float("nan"), None, True)] == [
        "0.000", "0.500", "1.0e-05", "1.2e+05", "-", "-", "-"]
    assert [duration(v) for v in (0, 59.6, 3700, float("inf"), -1)] == ["0:00", "1:00", "1:01:40", "-", "-"]


def test_percent_shows_a_difference_from_the_ends() -> None:
    assert [percent(v) for v in (0, 0.004, 0.152, 0.98, 0.996, 1)] == ["0", "0.4", "15", "98", "99.6", "100"]


@given(st.text())
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable() and len(clean(text)) == len(text)


def test_aligned_accepts_no_rows() -> None:
    assert aligned([]) == []


def test_roles_in_leaves_out_metrics_of_components() -> None:
    metrics = {"iteration": 1, "player/kl": 0.1, "player/updates": 8.0, "mine/count": 2,
               "train/grad_norm_pre_clip": 0.5, "other/entropy": 0.2}
    assert roles_in(metrics) == ["player", "other"]


def learned(*roles: str) -> dict[str, float]:
    return {f"{role}/updates": 8.0 for role in roles}


def test_learning_sentence_of_micro_phases_names_the_share_of_both_roles() -> None:
    warmup, turns = [learned("evader")] * 4, [learned("pursuer"), learned("evader")] * 3
    assert learning_sentence(warmup + turns) == (
        "learning in 10 iterations: evader in 7 (70 %), pursuer in 3 (30 %); iterations of the newest "
        "phases: pursuer 1, evader 1, pursuer 1, evader 1")
    long = [learned("evader")] * 2 + [learned("pursuer")] * 5
    assert learning_sentence(long).endswith("iterations of the newest phases: evader 2, pursuer 5")
    assert learning_sentence([learned("evader", "pursuer")] * 3) == "", "all roles learn in every iteration"
    assert learning_sentence([learned("player")]) == learning_sentence([]) == ""
