"""Trends: values become bars between two bounds, and a long run keeps its whole history."""

from __future__ import annotations

from rematch.reporting.terminal.sparkline import BARS, POINTS, Trend, sparkline


def test_bars_follow_the_values() -> None:
    assert sparkline([0.0, 0.5, 1.0], 0.0, 1.0) == "▁▅█"
    assert sparkline([3.0, 3.0]) == BARS[4] * 2
    assert sparkline([]) == "" and sparkline([-9.0, 9.0], 0.0, 1.0) == "▁█"


def test_trend_of_many_values_keeps_means_of_all() -> None:
    trend = Trend()
    for value in range(10_000):
        trend.add(value)
    trend.add(float("nan"))
    trend.add(None)
    assert POINTS <= len(trend.values) < 2 * POINTS and trend.values == sorted(trend.values)
    assert abs(trend.values[0] - (trend.each - 1) / 2) < 1e-9
    assert len(trend.bars()) == POINTS and trend.bars()[-1] == "█"
