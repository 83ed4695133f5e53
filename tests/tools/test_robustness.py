"""tools/experiments/robustness.py: every value is measured on the games of the undisturbed score."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from rematch import api
from rematch.cli.main import main as run_command
from rematch.worlds.pursuit.config import DISTURBANCES

SMALL = {
    "games": 16, "steps": 16, "stagger": 0, "network.hidden": (8,), "ppo.minibatch_size": 64,
    "total_steps": 256, "evaluation.games": 2, "evaluation.opponents": ("random",),
    "league.opponent_share": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    file = Path(__file__).parents[2] / "tools" / "experiments" / "robustness.py"
    spec = importlib.util.spec_from_file_location("robustness", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("robustness") / "run"
    api.train("quick", changes=SMALL, folder=folder)
    return folder


@pytest.mark.slow
def test_robustness_prints_and_appends_every_value(
    tool: ModuleType, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(tool.DISTURBANCES) == set(DISTURBANCES)
    out = tmp_path / "rows.jsonl"
    for _ in range(2):  # appends, and repeats to the bit
        assert tool.measure([str(run), "--games", "40", "--out", str(out)]) == 0
    rows = [json.loads(text) for text in out.read_text().splitlines()]
    count = 2 * (1 + sum(len(values) for values in tool.DISTURBANCES.values()))
    assert len(rows) == 2 * count and rows[:count] == rows[count:]
    assert capsys.readouterr().out.count("\n") == 2 * (count + 2)
    for row in rows:
        assert row["games"] == 40 and row["low"] <= row["score"] <= row["high"]
        assert row["drop_low"] <= row["drop"] <= row["drop_high"]
    assert {row["role"] for row in rows} == {"pursuer", "evader"}


def test_robustness_measures_the_value_that_it_names(tool: ModuleType, run: Path) -> None:
    """A scripted pursuer catches a robot that stands still; with a long delay it does not."""
    trained = api.load(run)
    request = (60, ["stand_still"], 0)
    same, delayed = (tool.scores(trained, {"action_delay": n}, request) for n in (0, 70))
    pursuer = [next(result for result in results if result.role == "pursuer") for results in (same, delayed)]
    assert pursuer[1].wins <= pursuer[0].wins and pursuer[1].wins == 0  # 75 steps: it stands for 70 of them


@pytest.mark.parametrize(("words", "text"), [
    (["--only", "gravity"], "--only gravity: expected some of"), (["--games", "0"], "--games = 0"),
    (["--against", "ghost"], "ghost")])
def test_robustness_rejects_wrong_words_in_one_line(
    tool: ModuleType, run: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([str(run), *words], act=tool.measure) == 2
    error = capsys.readouterr().err.strip()
    assert text in error and "\n" not in error
