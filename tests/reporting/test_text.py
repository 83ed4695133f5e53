"""Words for numbers: straight columns, three figures, nothing that a name could forge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evaluation_rows import entry, evaluated

from rematch.reporting.text import (
    BALANCE,
    aligned,
    clean,
    duration,
    evaluation_lines,
    human,
    number,
    roles_in,
    scoreboard_lines,
    standing,
)

HOSTILE = "quick [red]\x1b[31m\rforged\nline"


def test_the_scoreboard_is_straight_and_honest() -> None:
    lines = scoreboard_lines(evaluated())
    table = lines[2:5]
    at = table[0].index("score")
    assert [line[at:at + 5] for line in table[1:]] == ["0.931", "0.400"]
    assert all("1000" in line and "[" in line for line in table[1:])
    assert table[1].endswith("above") and table[2].endswith("below")
    assert BALANCE in lines and "Verdict: improving" in lines


def test_standing_speaks_only_where_intervals_part() -> None:
    assert standing(entry(low=0.91)) == "above"
    assert standing(entry(low=0.89)) == "level"
    assert standing(entry(low=0.7, high=0.85)) == "below"
    assert standing(entry(best_bot_low=None)) == standing({}) == "-"


def test_evaluation_lines_hold_no_wall_clock_and_one_line_per_rival() -> None:
    lines = evaluation_lines(evaluated())
    assert len(lines) == 3 and all(line.startswith("Eval") for line in lines)
    assert lines == evaluation_lines(evaluated())


@given(st.floats(min_value=0, max_value=1e15))
def test_human_keeps_three_figures(value: float) -> None:
    text = human(value)
    scale = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    amount, _, letter = text.partition(" ")
    assert float(amount) < 1000.5
    assert float(amount) * scale[letter] == pytest.approx(value, rel=0.0051, abs=0.5)


def test_figures_at_the_edges() -> None:
    assert [human(v) for v in (0, 999, 999.6, 99_950, 512_345, 999_600)] == [
        "0", "999", "1.00 K", "100 K", "512 K", "1.00 M"]
    assert [number(v) for v in (0, 0.5, 1e-5, 123456.0, float("nan"), None, True)] == [
        "0.000", "0.500", "1.0e-05", "1.2e+05", "-", "-", "-"]
    assert [duration(v) for v in (0, 59.6, 3700, float("inf"), -1)] == ["0:00", "1:00", "1:01:40", "-", "-"]


@given(st.text())
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable() and len(clean(text)) == len(text)


def test_aligned_copes_with_nothing() -> None:
    assert aligned([]) == []


def test_what_all_roles_share_is_no_role() -> None:
    metrics = {"iteration": 1, "player/kl": 0.1, "rollout/length": 3, "league/weight_random": 0.1,
               "train/grad_norm_pre_clip": 0.5, "other/kl": 0.2}
    assert roles_in(metrics) == ["player", "other"]
