"""tools/experiments/ppo_peers.py: its statistics, its results file and its evaluation."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOL = Path(__file__).parents[2] / "tools/experiments/ppo_peers.py"


@pytest.fixture(scope="module")
def peers() -> Any:
    spec = importlib.util.spec_from_file_location("ppo_peers", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["ppo_peers"] = module
    spec.loader.exec_module(module)
    return module


def line(peers: Any, who: str, seed: int, score: float, task: str = "CartPole-v1") -> dict[str, Any]:
    row = {"task": task, "who": who, "seed": seed, "settings": peers.digest(task)}
    return row | {"sampled": score, "greedy": score}


def test_the_interquartile_mean(peers: Any) -> None:
    assert peers.iqm(np.array([9.0, 1, 2, 3, -50, 100, 4, 5, 6, 7])) == pytest.approx(
        np.mean([2, 3, 4, 5, 6, 7])
    )
    assert peers.iqm(np.array([[3.0], [4.0]])).tolist() == [3.0, 4.0]


def test_the_interval_is_that_of_the_resampled_means(peers: Any) -> None:
    rng = np.random.default_rng(1)
    strata = [rng.normal(0, 1, 10), rng.normal(5, 1, 10)]
    middle, low, high = peers.iqm_interval(strata)
    again = []
    for _ in range(3000):
        drawn = np.concatenate([rng.choice(scores, len(scores)) for scores in strata])
        again.append(np.sort(drawn)[5:15].mean())
    assert low < middle < high
    assert (low, high) == pytest.approx(np.quantile(again, [0.025, 0.975]), abs=0.1)
    assert peers.iqm_interval(strata) == (middle, low, high), "the same file gives the same table"


def test_finished_runs_stay_and_incomplete_lines_are_dropped(peers: Any, tmp_path: Path) -> None:
    file = tmp_path / "peers.jsonl"
    assert peers.read(file) == []
    peers.append(file, line(peers, "ours", 0, 1.0))
    with file.open("ab") as out:
        out.write(b'{"task": "CartP')  # killed while writing
    peers.append(file, line(peers, "ours", 1, 2.0))
    peers.append(file, line(peers, "ours", 2, 3.0) | {"settings": "others"})
    assert [row["seed"] for row in peers.read(file)] == [0, 1]
    assert json.loads(file.read_text().splitlines()[-1])["seed"] == 2


def test_the_table_says_where_ours_stands(peers: Any) -> None:
    theirs = [line(peers, "sb3", s, 100.0 + s) for s in range(10)]
    for shift, word in ((0.0, "within"), (50.0, "above"), (-50.0, "BELOW")):
        rows = theirs + [line(peers, "ours", s, 100.0 + s + shift) for s in range(10)]
        assert f"ours is {word} SB3's interval" in "\n".join(peers.table(rows, ["CartPole-v1"]))
    assert "100.0  101.0" in "\n".join(peers.table(theirs, ["CartPole-v1"])), "every seed is shown"


def test_seeds_and_names(peers: Any) -> None:
    assert peers.parse_seeds("0-3") == [0, 1, 2, 3] and peers.parse_seeds("4,7") == [4, 7]
    for bad in ("x", "1-", ""):
        with pytest.raises(SystemExit):
            peers.parse_seeds(bad)
    with pytest.raises(SystemExit, match="expected some of"):
        peers.parse_names("CartPole", list(peers.TASKS), "--tasks")


def test_the_judge_plays_what_the_heads_say(peers: Any) -> None:
    """A policy that always pushes left and one that balances: the returns are known."""

    def left(observations: Any) -> Any:
        return np.tile([1e9, 0.0], (len(observations), 1)), None

    def balances(observations: Any) -> Any:
        lean = 1e9 * (
            observations[:, 2]
            + 0.5 * observations[:, 3]
            + 0.05 * observations[:, 0]
            + 0.1 * observations[:, 1]
        )
        return np.stack([-lean, lean], 1), None

    assert 8 < peers.evaluate("CartPole-v1", left, greedy=True) < 11
    assert peers.evaluate("CartPole-v1", balances, greedy=False) > 400
    assert peers.evaluate("CartPole-v1", left, greedy=True) == peers.evaluate(
        "CartPole-v1", left, greedy=False
    )
