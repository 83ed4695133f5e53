"""Annealing shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.core.annealing import ANNEALING_SHAPES, anneal

NUMBERS = st.floats(0, 10)


@given(st.sampled_from(ANNEALING_SHAPES), NUMBERS, NUMBERS)
def test_annealed_value_starts_and_ends_as_given(shape: str, start: float, end: float) -> None:
    last = start if shape == "none" else end
    assert anneal(shape, start, end, 0.0) == anneal(shape, start, end, -3.0) == start
    assert anneal(shape, start, end, 1.0) == anneal(shape, start, end, 7.0) == pytest.approx(last, abs=1e-14)


@given(st.sampled_from(ANNEALING_SHAPES), NUMBERS, NUMBERS, st.floats(0, 1), st.floats(0, 1))
def test_annealed_value_is_monotone(shape: str, start: float, end: float, a: float, b: float) -> None:
    early, late = (anneal(shape, start, end, p) for p in sorted((a, b)))
    assert min(start, end) - 1e-12 <= min(early, late) and max(early, late) <= max(start, end) + 1e-12
    assert (late - early) * (end - start) >= -1e-12


def test_shapes_have_known_values() -> None:
    assert anneal("linear", 1.0, 3.0, 0.25) == 1.5
    assert anneal("cosine", 1.0, 3.0, 0.25) == pytest.approx(
        1.2928932188134525
    )  # 1 + 2 (1 - cos(pi / 4)) / 2
    assert anneal("cosine", 1.0, 3.0, 0.5) == pytest.approx(2.0)
    assert anneal("none", 1.0, 3.0, 0.9) == 1.0
