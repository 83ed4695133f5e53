"""Charts: points at their values, axes with names, and no numbers that break them."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.reporting.html.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    Line,
    chart,
    matrix,
    ticks,
    with_interval,
)

AXES = Axes(x="steps & <more>", y="score (share)", low=0.0, high=1.0)
number = st.floats(-1e12, 1e12)


@given(number, number, st.integers(2, 9))
def test_ticks_are_round_few_and_inside(a: float, b: float, most: int) -> None:
    low, high = sorted((a, b))
    positions = ticks(low, high, most)
    assert positions or high - low < 1e-3
    assert len(positions) <= most + 2
    for value in positions:
        assert low - 1e-6 * (high - low) - 1e-9 <= value <= high + 1e-6 * (high - low) + 1e-9
    if len(positions) > 2 and high - low > 1e-6 * abs(high):
        apart = (positions[-1] - positions[0]) / (len(positions) - 1)
        lead = apart / 10 ** math.floor(math.log10(apart) + 1e-9)
        assert min(abs(lead - step) for step in (1, 2, 5, 10)) < 1e-3


@given(st.lists(st.tuples(st.floats(0, 1e9), number), min_size=1, max_size=9), st.booleans(),
       st.sampled_from(("line", "thin", "dash", "dot")))
def test_chart_of_any_numbers_is_well_formed_and_inside_the_frame(
    points: list[tuple[float, float]], banded: bool, style: str
) -> None:
    x, y = [p[0] for p in sorted(points)], [p[1] for p in sorted(points)]
    bounds = ([v - 1 for v in y], [v + 1 for v in y]) if banded else ((), ())
    line = Line(name="<b>&", x=x, y=y, low=bounds[0], high=bounds[1], style=style)
    text = chart([line], Axes(x="a", y="b"))
    ElementTree.fromstring(text)
    for cx, cy in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text.partition("</svg>")[0]):
        assert LEFT - 0.1 <= float(cx) <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= float(cy) <= HEIGHT - BOTTOM + 0.1


def test_chart_has_points_at_their_coordinates() -> None:
    text = chart([Line(name="a", x=[0.0, 100.0], y=[0.0, 1.0], newest="0.5 [0.4, 0.6] n 9")], AXES)
    ends = re.findall(r'<path class="line s0" d="M([\d. L]+)"', text)[0].replace("L", " ").split()
    assert [float(v) for v in ends] == [LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, TOP]
    assert "steps &amp; &lt;more&gt;" in text and "score (share)" in text and "0.5 [0.4, 0.6] n 9" in text


def test_long_line_is_thinned_and_keeps_its_end() -> None:
    x = [float(i) for i in range(5000)]
    text = chart([Line(name="a", x=x, y=x)], Axes(x="a", y="b"))
    points = re.findall(r'<path class="line s0" d="M([^"]+)"', text)[0].split("L")
    assert len(points) == MOST_POINTS and points[-1].startswith(f"{WIDTH - RIGHT:.1f} ")


def test_logarithmic_axis_has_marks() -> None:
    text = chart([Line(name="a", x=[2e5, 1e6], y=[0.1, 0.2], style="dot")], Axes(x="b", y="c", powers=True))
    assert ">200 K<" in text and ">500 K<" in text and ">1 M<" in text
    assert chart([], AXES) == "" and chart([Line(name="a", x=[], y=[])], AXES) == ""


@pytest.mark.parametrize("k", [2, 20, 60])
def test_matrix_has_a_cell_for_every_pair(k: int) -> None:
    score = [[i / k if i != j else 0.5 for j in range(k)] for i in range(k)]
    text = matrix(score, [1000 * i for i in range(k)], ("p <&>", "e"), [["a < b"] * k] * k)
    ElementTree.fromstring(text)
    assert text.count("<rect") == k * k and text.count("a &lt; b") == k * k
    assert 'fill="rgb(255 255 255)"' in text  # one half is white


def test_value_has_interval_and_n() -> None:
    assert with_interval(0.5, 0.4, 0.6, 100) == "0.500 [0.400, 0.600], n = 100"
    assert with_interval(0.5) == "0.500"
