"""Matches that stop by their results: as precise as wanted, reproducible, whole deals."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Runner, finished, refused, succeed, workdir

from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.verbs.evaluate import EvaluationOptions, evaluate
from rematch.verbs.tournament import Match, play_match, tournament

__all__ = ["finished", "refused", "succeed", "workdir"]


def test_match_stops_when_its_score_is_precise() -> None:
    match = Match(players=["queue", "random"], until=0.03, seed=1)
    result = play_match("beasty", match)
    first, second = result["table"]
    assert (first["high"] - first["low"]) / 2 <= 0.03 and first["games"] % 2 == 0 and first["games"] < 4000
    assert first["deals"] == first["games"] / 2 and abs(first["score"] + second["score"] - 1) < 1e-9
    fixed = tournament("beasty", ["queue", "random"], games=4000, seed=2)["table"][0]
    assert first["low"] <= fixed["score"] <= first["high"]
    assert play_match("beasty", match).to_dict() == result.to_dict()
    assert any("always valid" in line for line in result.lines())


def test_match_ends_at_its_largest_number_of_games() -> None:
    result = play_match("beasty", Match(players=["queue", "random"], until=0.001, games=300))
    assert result["table"][0]["games"] == 300


def test_threshold_decides_and_sets_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "beasty", "--players", "queue,random", "--better-than"]
    assert main.main([*words, "0.7"]) == 0
    assert "Better than 0.700: queue against random." in capsys.readouterr().out
    assert main.main([*words, "0.97"]) == 1
    assert "Not better than 0.970: queue against random." in capsys.readouterr().out
    assert main.main([*words, "0.88", "--games", "20"]) == 1
    assert "Undecided" in capsys.readouterr().out


def test_run_is_evaluated_until_it_is_precise(workdir: Path, refused: Runner) -> None:
    result = evaluate("done", games=2000, against=["random"], options=EvaluationOptions(until=0.08))
    entries = [*result["table"], *result["rates"].values()]
    assert entries and all((entry["high"] - entry["low"]) / 2 <= 0.08 for entry in entries)
    assert result["until"] == 0.08 and len({entry["games"] for entry in result["table"]}) >= 1
    assert "expected one of them" in refused("eval", "done", "--until", "0.1", "--better-than", "0.5")
    assert "--until" in refused("eval", "done", "--until", "0")
    with pytest.raises(ConfigError, match="one seat"):
        evaluate("@small", options=EvaluationOptions(until=0.1))


def test_shipped_agents_have_short_names(succeed: Runner, refused: Runner, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = succeed("tournament", "beasty", "@beasty", "queue", "random", "--games", "20")
    assert out.splitlines()[3].split()[:2] == ["1", "@beasty"] and "Elo" in out
    assert "@beasty" in succeed("eval", "beasty", "--players", "@beasty,queue", "--games", "4")
    assert "expected one of @beasty, @beasty_first, @small; nearest: @beasty" in refused(
        "eval", "beasty", "--players", "@besty,queue")
    assert "is a policy of gameboy" in refused("eval", "beasty", "--players", "@small,queue")
    assert "three players or more" in refused("tournament", "beasty", "queue", "random")
    three = succeed("tournament", "beasty", "queue", "random", "heuristic", "--games", "12",
                    "--world.players", "3")
    assert "Elo" not in three and "Tournament in beasty: 3 players" in three
    assert "given twice" in refused("tournament", "beasty", "queue", "random", "queue")
    assert "same role" in refused("tournament", "beasty", "queue", "random", "heuristic", "--until", "20",
                                  "--world.players", "3")
