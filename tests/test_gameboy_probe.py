"""The speed probe measures what it says, at the size of a test."""

from __future__ import annotations

import json

import gameboys
import pytest

from rematch import bench
from rematch.worlds.gameboy import probe


def test_it_measures_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gameboys.need_pyboy()
    for name, value in (("GAMES", 2), ("MACHINES", 2), ("TURNS", 1)):
        monkeypatch.setattr(probe, name, value)
    assert bench.bench("gameboy", 0.01, as_json=True) == 0
    about = json.loads(capsys.readouterr().out)
    assert len(about["steps_per_second"]) == 5 and all(
        found["median"] > 0 and len(found["all"]) == 1 for found in about["steps_per_second"].values()
    )
    assert set(about["ratio_to_bare"]) == {"one thread", "two cores"} and about["megabytes"] < 100
    said = probe.lines(about)
    assert len(said) == 1 + 5 + 2 + 1 and about["steps_a_turn"] == 14
