"""`rematch bench` of a card game: counts, targets, and the lines about missing libraries."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rematch.bench import card_games
from rematch.bench.run import short
from rematch.bench.timing import Measurement
from rematch.cli import main
from rematch.worlds.capabilities import CardGameSpeed


class FakeRandom:
    """Has the interface of RLCard's random agent."""

    def __init__(self, num_actions: int) -> None:
        self.num_actions = num_actions

    def eval_step(self, state: Any) -> Any:
        return 0, {}


class FakeEnv:
    num_players, num_actions = 2, 3

    def set_agents(self, agents: list[FakeRandom]) -> None:
        self.agents = agents

    def run(self, is_training: bool) -> Any:
        assert not is_training
        return [self.agents[turn % 2].eval_step({}) for turn in range(7)], [1, -1]


def install(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def make(name: str, config: dict[str, int]) -> FakeEnv:
        names.append(name)
        return FakeEnv()

    library, agents = ModuleType("rlcard"), ModuleType("rlcard.agents")
    library.make, library.__version__ = make, "0"  # type: ignore[attr-defined]
    agents.RandomAgent = FakeRandom  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rlcard", library)
    monkeypatch.setitem(sys.modules, "rlcard.agents", agents)
    return names


def test_rlcard_games_are_played_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = install(monkeypatch)
    peer = card_games.rlcard_games("uno")
    assert peer.run(0.0) == 1 and peer.settings["decisions_per_game"] == 7 and made == ["uno"]


def test_openspiel_counts_decisions_and_not_the_dealer() -> None:
    pytest.importorskip("pyspiel")
    peer = card_games.openspiel_games("leduc_poker")
    assert peer.run(0.05) > 1 and 2 <= peer.settings["decisions_per_game"] <= 8  # two rounds of two to four


def test_bench_command_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    monkeypatch.setitem(sys.modules, "rlcard", None)
    assert main.main(["bench", "beasty", "--json", "--seconds", "0.01"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["missing"] == list(card_games.MISSING.values()) and report["repetitions"] >= 5
    rows = {(row["name"], row["threads"]): row for row in report["measurements"]}
    assert len(rows) == 7
    for row in rows.values():
        assert row["unit"] == "games/s" and row["n"] >= 5 and 0 < row["min"] <= row["median"] <= row["max"]
    random = rows["random play", 1]
    assert 20 < random["decisions_per_second"] / random["median"] < 24  # decisions of a game of two
    assert len(report["targets"]) == 7
    for target in report["targets"]:
        assert target["met"] is (target["value"] >= target["wanted"]) or "ratio" in target
    text = "\n".join(card_games.lines(report, short))
    assert text.count("games/s") >= 7 and "RLCard is not installed" in text and "target 500 K" in text


def test_targets_are_judged_by_medians_of_a_core_and_of_the_clock() -> None:
    def measured(threads: int, rates: list[float], cpu: float) -> Measurement:
        subject: Any = SimpleNamespace(key="random", name="random", threads=threads, unit="", settings={})
        return Measurement(subject, rates, wall=1.0, cpu=cpu, cpu_rates=[2 * rate for rate in rates])

    speed = CardGameSpeed(subjects=[], targets={"random": 200.0}, two_threads=1.7)
    rates = ([99, 100, 900], [168, 168, 900])
    for cpu_share, met in ((1.0, False), (0.5, None)):  # on a busy machine the gain of two threads is unknown
        results = card_games.targets(
            speed, [measured(1, rates[0], cpu_share), measured(2, rates[1], 2 * cpu_share)]
        )
        assert [(t["value"], t["met"]) for t in results] == [(200, True), (1.68, met)]
