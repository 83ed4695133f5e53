"""Best known responses: the committed table is valid and repeatable; the tool measures each response once."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import rematch
from rematch.cli import main
from rematch.training.player_lookup import find_player
from rematch.verbs.tournament import Match, play_match
from rematch.worlds.beasty.best_responses import FILE, best_known
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.bots import BOTS
from rematch.worlds.beasty.terminal import AGENT

TOOL = Path(rematch.__file__).parents[1] / "tools/experiments/beasty_responses.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("beasty_responses", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_table_has_every_bot() -> None:
    table = json.loads(FILE.read_text())
    assert set(table["responses"]) == set(BOTS)
    for opponent, entry in table["responses"].items():
        assert best_known(opponent, Config()) == entry
        assert best_known(opponent, Config(earlier_rules=True)) is None
        assert 0 < entry["low"] <= entry["win"] <= entry["high"] <= 1 and entry["games"] >= 100
        player = find_player(entry["response"], "beasty", Config(), "player")
        assert player.name == entry["response"]
        assert f"--against {opponent} --games {entry['games']}" in entry["command"]
    assert best_known("nobody", Config()) is None
    assert best_known("random", Config(), FILE.with_name("absent.json")) is None


def test_tool_measures_responses_once(tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "responses.json"
    flags = [
        "--games",
        "8",
        "--completions",
        "3",
        "--opponents",
        "random,noisy",
        "--out",
        str(out),
        "--threads",
        "1",
    ]
    assert tool.main(flags) == 0
    assert capsys.readouterr().out.count("\n") == 2
    table = json.loads(out.read_text())
    assert list(table["responses"]) == ["random", "noisy"]
    entry = table["responses"]["random"]
    assert best_known("random", Config(), out) == entry
    assert tool.main(flags) == 0 and capsys.readouterr().out == ""  # no response is measured twice
    arguments = shlex.split(entry["command"])
    assert arguments[0] == "rematch" and main.main([*arguments[1:], "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["table"]
    assert (again["win"], again["win_low"], again["games"]) == (entry["win"], entry["low"], 8)


def test_eval_table_shows_the_best_response(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["eval", "beasty", "--players", "queue", "--against", "random", "--games", "4"]) == 0
    entry = best_known("random", Config())
    assert entry is not None and f"{entry['response']} {100 * entry['win']:.1f} [" in capsys.readouterr().out
    assert (
        main.main(["eval", "beasty", "--players", "queue,random", "--games", "3", "--world.players", "3"])
        == 0
    )
    assert "best known" not in capsys.readouterr().out


def test_committed_agent_reaches_its_documented_strength() -> None:
    """A small match; the documented table has 10 000 games against each bot."""
    assert AGENT.stat().st_size < 5_000_000
    for opponent, minimum in (("heuristic", 0.90), ("distilled_outcome", 0.85)):
        match = Match(players=[str(AGENT)], against=[opponent], games=400, greedy=True)
        (row,) = play_match("beasty", match)["table"]
        assert row["win_low"] > minimum, (opponent, row["win"], row["win_low"])


def test_committed_agent_is_stronger_than_the_first_one() -> None:
    """A small match; the documented one has 10 000 games."""
    match = Match(players=["@beasty"], against=["@beasty_first"], games=400, greedy=True)
    (row, *_) = play_match("beasty", match)["table"]
    assert row["player"] == "@beasty" and row["low"] > 0.6, row
