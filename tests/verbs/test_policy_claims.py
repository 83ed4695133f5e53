"""diff and verify: agents in the same games, and claims that are checked by playing games again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import Runner, files, finished, refused, succeed, workdir
from support.tiny_run import SMALL

import rematch
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.storage import policy_files
from rematch.verbs.exact_runs.claims import consistent

__all__ = ["finished", "refused", "succeed", "workdir"]
pytestmark = pytest.mark.usefixtures("blank_pictures")


# --- diff ---------------------------------------------------------------------------------------------------


def test_diff_of_a_run_with_itself_finds_nothing(workdir: Path, succeed: Runner) -> None:
    shutil.copytree("runs/done", "runs/copy")
    before = files(workdir)
    out = succeed("diff", "done", "copy", "--games", "12", "--against", "random")
    assert "All settings are equal." in out and "equal to the bit up to iteration 3" in out
    result = rematch.diff("done", "copy", games=12, against=["random"])
    assert len(result["comparisons"]) == 6  # two roles; random and the agents of both runs
    for row in result["comparisons"]:
        assert row["difference"] == 0 and row["better"] == "level" and row["n"] == 12
        assert row["low"] < 0 < row["high"]
    assert files(workdir) == before


def test_diff_names_a_damaged_line(workdir: Path, refused: Runner) -> None:
    path = workdir / "runs/done/metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"iteration": "x"\n', *lines[2:]]))
    error = refused("diff", "done", "done", "--games", "2")
    assert "runs/done/metrics.jsonl: line 2 is damaged; expected a row of metrics" in error


def test_diff_shows_settings_and_finds_the_stronger_agent(workdir: Path, succeed: Runner) -> None:
    """A pursuer that was not trained against one that is a copy of it but for a setting of the learner."""
    rematch.fork("done@1", {"ppo.lr": 0.05}, folder="runs/fork")
    result = rematch.diff("done", "fork", games=20, against=["random"])
    assert {"key": "ppo.lr", "values": [0.002, 0.05]} in result["settings"]
    assert result["equal_until"] == 1
    assert result["lineage"][0] == [] and "forked from done" in result["lineage"][1][0]
    names = [row["name"] for row in result["measures"]]
    assert names[:3] == ["step", "SR_P", "SR_E"]
    text = repr(result)
    assert "ppo.lr   0.002  0.05" in text and "n = 20 for each opponent" in text
    earlier = rematch.diff("done@1", "done", games=8, against=["random"])
    assert earlier["steps"] == [32, 96]


def test_diff_says_why_agents_cannot_meet(workdir: Path) -> None:
    rematch.train("quick", SMALL | {"world.max_steps": 21}, folder="runs/other")
    result = rematch.diff("done", "other", games=4)
    assert "max_steps = 20, other with 21" in result["not_compared"] and result["comparisons"] == []
    assert "were not compared" in repr(result)


@pytest.mark.parametrize(("words", "message"), [
    (("diff", "done"), "expected rematch diff A B"),
    (("diff", "done", "nobody"), "no such run"),
    (("diff", "done", "done", "--games", "1"), "--games = '1': expected"),
    (("diff", "done", "done", "--against", "liom"), "nearest: lion"),
    (("diff", "done", "@beasty"), "expected runs of one world"),
    (("diff", "done", "done@2000"), "past/ has no policies of this iteration"),
    (("verify", "done"), "expected a policy file that ends in .safetensors"),
    (("verify", "nothing.safetensors"), "no such file"),
    (("verify", "@beasty"), "its card has no claims"),
    (("verify", "@beasty", "--games", "0"), "--games = '0': expected"),
    (("export", "done", "--out", "x", "--games", "100001"), "--games = '100001': expected"),
])
def test_wrong_requests_are_one_line(
        workdir: Path, refused: Runner, words: tuple[str, ...], message: str) -> None:
    assert message in refused(*words)


# --- verify -------------------------------------------------------------------------------------------------


@pytest.fixture
def card(workdir: Path) -> Path:
    rematch.export("done", "agent", games=6)
    return workdir / "agent-evader.safetensors"


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the card of a policy as a forger would: its digests are valid."""
    arrays, metadata = policy_files.read(path)
    change(metadata["claims"])
    policy_files.write_file(path, arrays, metadata, replace=True)


def test_true_claims_are_confirmed(card: Path, succeed: Runner) -> None:
    out = succeed("verify", str(card), "--games", "20")
    assert "true: 20 of 20 games" in out and "of all 36 claimed games differ" in out
    result = rematch.verify(card, games=1000, seed=1)
    assert result["replayed"] == 36 and result.exit_code == 0 and "at most 0.0 %" in result["sentence"]
    assert rematch.verify(card, 5, seed=9).to_dict() == rematch.verify(card, 5, seed=9).to_dict()


def test_one_false_game_is_found(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def forge(claims: dict[str, Any]) -> None:
        match = next(match for match in claims["matches"] if "w" in match["results"])
        first = match["results"].index("w")
        match["results"] = match["results"][:first] + "l" + match["results"][first + 1 :]
        match["score"] -= 1 / match["games"]

    rewrite(card, forge)
    assert main.main(["verify", str(card), "--games", "36"]) == 1
    assert "FALSE: 1 of 36 games" in capsys.readouterr().out


def test_score_that_does_not_follow_from_the_games_is_false(card: Path) -> None:
    rewrite(card, lambda claims: claims["matches"][0].update(score=0.99))
    result = rematch.verify(card, 1)
    assert result["verdict"] == "FALSE" and "does not follow from its games" in result["sentence"]


def test_other_machine_is_not_called_a_lie(card: Path) -> None:
    def forge(claims: dict[str, Any]) -> None:
        claims["fingerprint"]["processor"] = "another"
        for match in claims["matches"]:
            match["results"] = match["results"].translate(str.maketrans("wl", "lw"))
            match["score"] = 1 - match["score"]

    rewrite(card, forge)
    result = rematch.verify(card, 20, seed=0)
    assert result["verdict"] == "unknown" and result.exit_code == 1 and result["examples"]


@pytest.mark.parametrize("change", [
    lambda claims: claims.pop("matches"), lambda claims: claims.update(seed="x"),
    lambda claims: claims["matches"][0].update(games=10**9), lambda claims: claims.update(matches=[]),
    lambda claims: claims["matches"][0].update(results=7), lambda claims: claims.update(fingerprint=3),
])
def test_odd_claims_are_one_line(card: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    rewrite(card, change)
    with pytest.raises(ConfigError, match="claims of an unknown form"):
        rematch.verify(card, 1)


def test_unknown_opponent_is_refused(card: Path) -> None:
    rewrite(card, lambda claims: claims["matches"][0].update(opponent="nobody"))
    with pytest.raises(ConfigError, match="claims games against 'nobody'; expected one of random"):
        rematch.verify(card, 1)


def test_shared_wins_cannot_be_added_up() -> None:
    assert consistent({"results": "wsd", "games": 3, "score": 0.1, "low": 0, "high": 1})
    assert not consistent({"results": "wxd", "games": 3, "score": 0.5, "low": 0, "high": 1})
    assert consistent({"results": [1.0, 3.0], "games": 2, "mean": 2.0, "low": 0, "high": 1})
