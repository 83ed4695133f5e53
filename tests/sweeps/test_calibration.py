"""Calibration: the search on known curves, its intervals, and real runs that are stopped and continued."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import Runner, refused
from support.tiny_run import flags

from rematch.cli.main import main
from rematch.core.errors import ConfigError
from rematch.core.system.interrupts import StopRequest
from rematch.sweeps.calibration import (
    Calibration,
    Point,
    Request,
    bracket,
    interval_over_seeds,
    next_value,
    open_folder,
    summary,
)
from rematch.sweeps.run_place import RunPlace
from rematch.training.recipes import configure

__all__ = ["refused"]
GAMES = 1000


class OnCurve(Calibration):
    """A calibration whose runs follow a known curve: value -> win rate."""

    def __init__(self, curve: Any, request: Request) -> None:
        super().__init__(request, Path("unused"), lambda more: configure("quick", flags=more), lambda _: None)
        self.curve = curve

    def measure(self, value: float, place: Any, jobs: int | None, stop: Any) -> bool:
        rates = tuple(min(1.0, max(0.0, self.curve(value) + off)) for off in (-0.01, 0.0, 0.01))
        low, high = interval_over_seeds(rates, GAMES)
        self.points.append(Point(value, rates, GAMES, low, high, self.request.target))
        self.steps += 3
        return True


def search(curve: Any, **request: Any) -> dict[str, Any]:
    wanted = Request(recipe="quick", key="world.evader_v_max", role="pursuer",
                     **({"low": 0.5, "high": 2.0} | request))  # fmt: skip
    run = OnCurve(curve, wanted)
    with StopRequest(None) as stop:
        run.run(RunPlace(), None, stop)
    return summary(wanted, run.points, run.steps)


@given(st.floats(0.55, 1.95), st.floats(0.003, 1.0), st.sampled_from([-1, 1]), st.floats(0.1, 0.9))
def test_crossing_of_a_logistic_curve_is_bracketed(
    middle: float, width: float, sign: int, target: float
) -> None:
    def curve(value: float) -> float:
        return 1 / (1 + math.exp(min(700.0, max(-700.0, -sign * (value - middle) / width))))

    shift = sign * width * math.log(target / (1 - target))
    result = search(curve, target=target, rounds=30)
    if not 0.5 <= middle + shift <= 2.0:
        return  # the range does not contain the target
    assert result["value"] is not None
    assert result["low"] <= middle + shift <= result["high"]
    assert result["low"] <= result["value"] <= result["high"]
    assert abs(result["value"] - (middle + shift)) <= 0.016 or abs(curve(result["value"]) - target) <= 0.05


def test_range_without_the_target_has_no_value() -> None:
    result = search(lambda value: 0.9 + 0.01 * value)
    assert result["value"] is None and len(result["points"]) == 2


def test_steep_curve_ends_with_a_narrow_bracket_and_no_false_precision() -> None:
    result = search(lambda value: 0.99 if value < 0.9871 else 0.02, rounds=20, tolerance=0.002)
    assert result["low"] < 0.9871 < result["high"] and result["high"] - result["low"] <= 0.004


def test_rounds_limit_the_cost() -> None:
    assert len(search(lambda value: 2.0 - value, rounds=0)["points"]) == 2
    assert search(lambda value: 0.99 if value < 1.3 else 0.02, rounds=3)["runs"] == 15


def test_interval_over_seeds_covers_the_spread_of_seeds_and_of_games() -> None:
    low, high = interval_over_seeds([0.2, 0.5, 0.8], 1000)
    assert low == 0.0 and high == 1.0  # t(2) = 4.3: three seeds this far apart say little
    low, high = interval_over_seeds([0.5, 0.5, 0.5], 100)
    assert low == pytest.approx(0.444, abs=0.002) and high == pytest.approx(0.556, abs=0.002)
    assert interval_over_seeds([1.0], 10) == (pytest.approx(0.7225, abs=0.001), 1.0)


def test_whole_settings_get_whole_values() -> None:
    left, right = (Point(value, (rate,), 10, 0, 1, 0.5) for value, rate in ((3.0, 0.9), (4.0, 0.1)))
    assert next_value(left, right, whole=True) is None and next_value(left, right, whole=False) == 3.5
    assert bracket([right, left]) == (left, right)


SMALL = flags(total_steps=32 * 2, threads=1, evaluation__games=20)


@pytest.mark.slow
def test_real_runs_are_measured_and_reused(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["calibrate", "quick", "--by", "world.capture_radius", "--range", "0.05,2.99", "--seeds", "0,1",
             "--world.max_init_distance", "3.2", "--rounds", "1", "--name", "even", *SMALL]  # fmt: skip
    code = main(words)
    text = capsys.readouterr().out
    result = json.loads((tmp_path / "runs/even/calibration.json").read_text())
    assert [point["value"] for point in result["points"]][0::2] == [0.05, 2.99] and code == 0
    assert result["runs"] == 6 and result["points"][-1]["mean"] > result["points"][0]["mean"]
    assert f"world.capture_radius = {result['value']:.4g} [" in text and "6 runs" in text
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs/even").rglob("iter_*")}
    assert main(words) == 0 and before
    assert {path: path.stat().st_mtime_ns for path in before} == before, "nothing is trained twice"
    assert json.loads((tmp_path / "runs/even/calibration.json").read_text()) == result
    assert main([*words, "--target", "0.7"]) == 2
    assert "holds another calibration: target = 0.7 instead of 0.5" in capsys.readouterr().err


def test_recipe_with_another_value_of_the_setting_continues(tmp_path: Path) -> None:
    """Every run has a value of its own, so that of the recipe does not matter; all others do."""
    request = Request(recipe="quick", key="world.capture_radius", low=0.3, high=1.0, role="pursuer")
    config = configure("quick")
    open_folder(request, tmp_path / "here", config)
    other = configure("quick", changes={"world.capture_radius": 0.7, "seed": 9})
    open_folder(request, tmp_path / "here", other)
    with pytest.raises(ConfigError, match="holds another calibration: other settings"):
        open_folder(request, tmp_path / "here", configure("quick", changes={"games": 8}))


@pytest.mark.parametrize(("words", "line"), [
    ((), "needs --by KEY"),
    (("--by", "world.evader_v_mx"), "unknown setting; nearest: world.evader_v_max"),
    (("--by", "world.fixed_speed"), "expected a setting that is a number"),
    (("--by", "world.evader_v_max", "--range", "2,1"), "LOW below HIGH"),
    (("--by", "world.evader_v_max", "--range", "2"), "expected LOW,HIGH, two numbers"),
    (("--by", "world.evader_v_max", "--target", "1.5"), "--target = '1.5'"),
    (("--by", "world.evader_v_max", "--role", "hunter"), "expected one of pursuer, evader"),
    (("--by", "world.capture_radius", "--range", "0.05,8"), "min_init_distance = 3: expected more than"),
    (("--by", "world.evader_v_max", "--seeds", "3-1"), "--seeds = '3-1'"),
])  # fmt: skip
def test_wrong_requests_are_one_line(words: tuple[str, ...], line: str, refused: Runner) -> None:
    assert line in refused("calibrate", "quick", *words)
