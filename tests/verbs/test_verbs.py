"""Every command as a Python function: what it returns, how that prints, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import ROOT, environment, files, finished, workdir
from support.tiny_run import SMALL

import rematch
from rematch.cli import main
from rematch.core.errors import ConfigError

__all__ = ["finished", "workdir"]
pytestmark = pytest.mark.usefixtures("blank_pictures")

PARTS = [path.name for path in (ROOT / "rematch").iterdir() if path.is_dir()]


def test_public_names_are_listed_and_collide_with_no_package() -> None:
    assert set(rematch.__all__) <= set(dir(rematch)) and "__version__" in dir(rematch)
    assert not set(rematch.__all__) & {*PARTS, *(path.stem for path in (ROOT / "rematch").glob("*.py"))}
    for name in rematch.__all__:
        assert callable(getattr(rematch, name)) and getattr(rematch, name).__doc__, name
        assert getattr(rematch, name) is getattr(rematch, name)
    with pytest.raises(AttributeError, match="module 'rematch' has no attribute 'trian'"):
        rematch.trian  # noqa: B018


def test_public_names_stay_functions_after_every_import() -> None:
    code = ("import rematch, inspect; [getattr(rematch, name) for name in rematch.__all__];"
            "print([name for name in rematch.__all__ if inspect.ismodule(getattr(rematch, name))])")
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def printed(result: Any) -> str:
    """The result as text; its HTML and its dict must exist too."""
    assert isinstance(result._repr_html_(), str) and result._repr_html_()
    assert json.dumps(result.to_dict())
    return repr(result)


def test_evaluate_returns_a_table(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = rematch.evaluate("done", against=["random"], games=10)
    assert main.main(["eval", "done", "--against", "random", "--games", "10"]) == 0
    assert printed(result) + "\n" == capsys.readouterr().out
    assert result["table"][0]["games"] == 10 and "<td" in result._repr_html_()
    for arguments in ({"games": 0}, {"games": 2.5}, {"games": True}, {"seed": -1},
                      {"options": rematch.EvaluationOptions(picture="x.txt")}):
        with pytest.raises(ConfigError, match="expected"):
            rematch.evaluate("done", **arguments)  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")


def test_tournament_takes_settings_as_values(capsys: pytest.CaptureFixture[str]) -> None:
    result = rematch.tournament("Beasty", ["random", "queue"], games=6,
                                options=rematch.MatchOptions(changes={"players": 3}))
    assert result["settings"]["players"] == 3 and result["world"] == "beasty"
    assert [row["rival"] for row in result["table"]] == ["2 x queue", "2 x random"]
    assert printed(result).startswith("Match in beasty") and capsys.readouterr() == ("", "")
    with pytest.raises(ConfigError, match="--players = '': expected names"):
        rematch.tournament("beasty", [])


def test_export_and_film_name_their_files(workdir: Path) -> None:
    made = rematch.export("done", "agent")
    assert [path.name for path in made.policies] == ["agent-pursuer.safetensors", "agent-evader.safetensors"]
    assert all(path.is_file() for path in made.files) and "agent-evader.json" in printed(made)
    film = rematch.film("done", "game.gif", seconds=4)
    assert film.file.is_file() and printed(film).endswith("bytes") and "image/gif" in film._repr_html_()
    with pytest.raises(ConfigError, match="seconds = 1: expected a number above 3"):
        rematch.film("done", "game.gif", seconds=1)


def test_report_is_a_pair_that_prints(workdir: Path) -> None:
    page, facts = result = rematch.report("done", games=4)
    assert page == Path("runs/done/report.html") and facts["runs"][0]["label"]
    assert printed(result).endswith("report  runs/done/report.html") and "<iframe" in result._repr_html_()
    assert rematch.report(["done"], "two.html", 4).page == Path("two.html")


def test_status_and_load_print(workdir: Path) -> None:
    status = rematch.status("done")
    assert status.exit_code == status["exit"] and "runs/done" in printed(status)
    run = rematch.load("runs/done")
    text = printed(run)
    assert text.startswith("runs/done: pursuit, seed 0, policies for pursuer, evader\n")
    assert "newest evaluation, after 96 steps:" in text and "verdict: " in text
    run.history = []
    assert printed(run).endswith("no evaluation yet")


def test_solve_and_exploit_print(workdir: Path) -> None:
    solution = rematch.solve("lattice", {"n": 4, "horizon": 5}, threads=1)
    assert 0 <= solution["value"] <= 1 and printed(solution).startswith("value 0.")
    for changes, message in (({"nn": 3}, "unknown setting nn = 3"), ({"n": 1}, "n = 1: expected")):
        with pytest.raises(ConfigError, match=message):
            rematch.solve("lattice", changes)
    with pytest.raises(ConfigError, match="solve pursuit: this world has no exact solver"):
        rematch.solve("pursuit")
    best = rematch.exploit("done", rematch.ExploitRequest(budget=64, seeds=1, games=10, roles=("evader",)))
    assert list(best["roles"]) == ["evader"] and printed(best).startswith("Best responses to the policies")


def test_check_is_silent_and_keeps_its_lines(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def rehearse(config: Any) -> int:
        print("rollout  fired")
        print("league  FAILED", flush=True)
        return 1

    monkeypatch.setattr("rematch.verbs.check.rehearse", rehearse)
    lines: list[str] = []
    result = rematch.check("quick", SMALL, lines.append)
    assert capsys.readouterr() == ("", "") and not result.passed
    assert printed(result).splitlines() == lines == ["rollout  fired", "league  FAILED"]
    assert main.main(["check", "quick"]) == 1
    assert capsys.readouterr().out.splitlines() == lines


def test_lists_iterate_and_print(capsys: pytest.CaptureFixture[str]) -> None:
    recipes, worlds = rematch.list_recipes(), rematch.list_worlds()
    assert "quick" in [recipe.name for recipe in recipes] and len(recipes) > 20
    pursuit = next(world for world in worlds if world.name == "pursuit")
    assert [role.name for role in pursuit.roles] == ["pursuer", "evader"] and len(worlds) >= 6
    for result, command in ((recipes, "recipes"), (worlds, "worlds")):
        assert main.main([command]) == 0
        assert printed(result) + "\n" == capsys.readouterr().out
    beasty = next(world for world in worlds if world.name == "beasty")
    assert len(beasty.roles[0].actions) > 30 and "in all)" in beasty.roles[0].text()
    assert max(map(len, worlds.lines(80))) <= 80 < max(map(len, worlds.lines()))


def test_verbs_leave_runs_as_they_were(workdir: Path) -> None:
    before = files(workdir / "runs" / "done")
    rematch.evaluate("done", against=["random"], games=4)
    rematch.status("done")
    rematch.list_runs()
    assert files(workdir / "runs" / "done") == before
