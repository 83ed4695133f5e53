"""tools/experiments/encoders.py: a small run of every arm, resumed, and the page of its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import encoders
import pytest

from rematch import api
from rematch.core.errors import ConfigError


def line(arm: str, seed: int, wins: int) -> dict[str, Any]:
    scores = {"pursuer random": [wins, 1000], "pursuer lion": [0, 1000], "evader random": [500, 1000]}
    return {"arm": arm, "seed": seed, "steps": 400_000, "seconds": 61, "scores": scores, "commit": "abc"}


def test_all_seeds_and_their_intervals_are_shown() -> None:
    text = "\n".join(encoders.tables([line("bimdn", 1, 800), line("bimdn", 0, 600), line("mlp", 0, 500)]))
    assert "| role, opponent | mlp | bimdn |" in text  # arms in the order of ARMS, none without a run
    assert "| pursuer, mean of all | 0.250 | 0.300, 0.400 |" in text
    assert "| pursuer, random | 0.500 [0.469, 0.531] | 0.600 [0.569, 0.630], 0.800 [0.774, 0.824] |" in text
    assert "- bimdn: seeds 0, 1; 400,000 steps; 1, 1 minutes; commit abc" in text


def test_page_is_that_of_the_lines() -> None:
    assert encoders.PAGE.read_text() == encoders.page(), "run tools/experiments/encoders.py publish"


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_command_trains_every_arm_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    small = {"games": 4, "steps": 8, "stagger": 0, "total_steps": 64, "evaluation.games": 4,
             "network.hidden": (8,), "evaluation.opponents": ("random",)}  # fmt: skip
    monkeypatch.setattr(encoders, "ARMS", {arm: change | small for arm, change in encoders.ARMS.items()})
    monkeypatch.setattr(encoders, "RESULTS", tmp_path / "lines.jsonl")
    assert encoders.main(["run", "--seeds", "3", "--out", str(tmp_path / "runs")]) == 0
    stored = encoders.load_lines()
    assert [each["arm"] for each in stored] == list(encoders.ARMS)
    assert all(each["steps"] == 64 and each["scores"]["evader random"][1] == 4 for each in stored)
    for arm, sees_all in (("full_sight", True), ("lstm", False)):
        assert api.load(tmp_path / "runs" / arm / "3").config.world.full_obs is sees_all
    capsys.readouterr()
    assert encoders.main(["run", "--seeds", "3", "--out", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out == "" and encoders.load_lines() == stored  # nothing is trained twice


@pytest.mark.parametrize("words", [["--seeds", "2-1"], ["--only", "gru"]])
def test_wrong_words_are_one_line(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        encoders.main(["run", *words])
