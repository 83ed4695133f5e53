"""`rematch report` on small real runs: page and JSON, several seeds, stored matrix, bad input in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.commands import Runner, refused
from support.html_reader import TAGS, Reader
from support.tiny_run import flags

import rematch
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.evaluation.text import verdict_text
from rematch.reporting.html import strength_sections
from rematch.reporting.html.run_payoff import MATRIX, stored_matrix
from rematch.reporting.run_summary import gather, report
from rematch.reporting.seed_groups import groups

__all__ = ["refused"]
pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs: two seeds of one kind and one of another, whose name is hostile."""
    workdir = tmp_path_factory.mktemp("runs")
    made = []
    for name, changes in (("one", {}), ("two", {"seed": 1}), ("<b>&three", {"ppo__gamma": 0.5})):
        words = flags(evaluation__every=1, total_steps=160, **changes)
        assert main.main(["train", "quick", *words, "--name", str(workdir / name)]) == 0
        made.append(workdir / name)
    return made


def test_report_of_one_run_is_a_page_in_its_folder_and_json(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main.main(["report", str(runs[0]), "--games", "4", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    (run,) = summary["runs"]
    text = (runs[0] / "report.html").read_text()
    read = Reader(text)
    assert {tag for tag, _ in read.used} <= TAGS and verdict_text(run["verdict"]) in read.words
    assert run["payoff"]["games"] == 4 and len(run["payoff"]["steps"]) == 5
    assert run["cyclic"]["policies"] == 5 and set(run["forgetting"]["curves"]) == {"pursuer", "evader"}
    assert "Share of cycles" in read.words and "n = 4 games per match" in read.words
    assert len(run["evaluations"]) == 5 and run["evaluations"][0]["strength"]["match_ups"] == 2
    assert run["missing"][0]["command"].startswith("rematch exploit ")
    assert {"key": "games", "value": 8, "default": 2048} in run["changed"]
    assert any(entry["key"] == "lookahead.lr" for entry in run["unused"])
    again = stored_matrix(runs[0])
    assert again is not None and again.wins.tolist() == run["payoff"]["wins"]
    assert gather([runs[0]])["runs"][0]["payoff"] == run["payoff"]  # stored, not played again


def test_seeds_form_a_group_with_a_band_and_other_settings_another(runs: list[Path], tmp_path: Path) -> None:
    target, summary = report(runs, tmp_path / "all.html", games=2)
    assert [group["runs"] for group in summary["groups"]] == [[0, 1], [2]]
    assert [group["label"] for group in summary["groups"]] == ["ppo.gamma 0.99", "ppo.gamma 0.5"]
    curve = summary["groups"][0]["curves"]["gap"]
    assert curve["seeds"] == 2 and len(curve["steps"]) == 5 and None not in curve["low"]
    gaps = [run["evaluations"][-1]["gap"] for run in summary["runs"][:2]]
    assert curve["middle"][-1] == pytest.approx(sum(gaps) / 2)
    text = target.read_text()
    read = Reader(text)
    assert "<b>&three" in read.words and "<b>" not in text and "3 training runs" in read.words
    assert text.count('class="thin s') >= 6 and "<img" not in text
    json.dumps(summary, allow_nan=False)


def test_stops_and_resumes_are_listed(runs: list[Path]) -> None:
    with (runs[1] / "timing.jsonl").open("a") as file:
        file.write('{"event": "resume", "iteration": 3, "time": 1e9}\n{"torn')
    facts = gather([runs[1]], games=2)["runs"][0]
    assert facts["events"] == [{"event": "resume", "iteration": 3, "why": None, "time": 1e9}]


def test_report_overwrites_only_reports(runs: list[Path], tmp_path: Path) -> None:
    own_page = tmp_path / "mine.html"
    own_page.write_text("years of work")
    with pytest.raises(ConfigError, match="is not a report"):
        report([runs[0]], own_page)
    assert own_page.read_text() == "years of work"
    report([runs[0]], tmp_path / "page.html", games=4)
    report([runs[0]], tmp_path / "page.html", games=4)
    (tmp_path / "link.html").symlink_to(own_page)
    for target in (tmp_path, tmp_path / "no" / "x.html", tmp_path / "link.html"):
        with pytest.raises(ConfigError, match="--out = "):
            report([runs[0]], target)


@pytest.mark.parametrize("damage", ["truncated", "hostile", "matrix"])
def test_damaged_folder_is_one_line_and_a_page(
    damage: str, runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    history = copy / "history.json"
    if damage == "truncated":
        history.write_bytes(history.read_bytes()[:-40])
    elif damage == "hostile":
        rows: list[dict[str, Any]] = json.loads(history.read_text())
        rows[0] |= {"rates": {"<script>x</script>": {"rate": float("nan")}}, "table": [{"role": []}]}
        history.write_text(json.dumps(rows))
    else:
        (copy / MATRIX).write_text('{"config": 1, "payoff": {"wins": "<script>"}}')
    capsys.readouterr()
    assert main.main(["report", str(copy), "--games", "2"]) == 0
    out, err = capsys.readouterr()
    problems = [line for line in out.splitlines() if line.startswith("PROBLEM: copy: ")]
    assert len(problems) == (damage != "matrix") and not err, out
    text = (copy / "report.html").read_text()
    assert "<script" not in text
    Reader(text)


def test_wrong_arguments_are_one_line(runs: list[Path], refused: Runner) -> None:
    run = str(runs[0])
    for words in (("nowhere",), (), ("--json",), (run, "--gams", "3"), (run, "--games", "0"),
                  (run, "no/where"), (run, "--out", run), (str(runs[0].parent),)):
        refused("report", *words)
    assert "no such run" in refused("report", run, run + "x")


def test_matrix_of_another_level_is_not_used(tmp_path: Path) -> None:
    """After a change of level the run plays another game; the old matrix is of the wrong one."""
    assert main.main(["train", "h", *flags(total_steps=160), "--name", str(tmp_path / "run")]) == 0
    report([tmp_path / "run"], games=2)
    matrix_file = tmp_path / "run" / MATRIX
    tree, stamp = json.loads(matrix_file.read_text()), matrix_file.stat().st_mtime_ns
    assert isinstance(tree["level"], str) and tree["level"]
    report([tmp_path / "run"])
    assert matrix_file.stat().st_mtime_ns == stamp  # the same level: used as it is
    matrix_file.write_text(json.dumps(tree | {"level": "another"}))
    assert stored_matrix(tmp_path / "run", tree["level"]) is None
    report([tmp_path / "run"], games=2)
    assert json.loads(matrix_file.read_text()) == tree


def test_report_from_python(runs: list[Path], tmp_path: Path) -> None:
    path, summary = rematch.report([runs[0]], tmp_path / "page.html", games=4)
    assert path.is_file() and summary["rematch"] == rematch.__version__
    assert groups([]) == []


def test_milestones_of_a_world_with_one_seat() -> None:
    reached = {"TOWN": {"rate": 0.2, "low": 0.1, "high": 0.4}, "GATE": {"rate": 1.0, "low": 0.9, "high": 1.0}}
    entry = {"games": 30, "success": 0.0, "success_low": 0.0, "success_high": 0.1, "milestones": reached}
    words = Reader(
        strength_sections.milestones({"frontier": ["any chain: 2 of 3"], "returns": {"pad": entry}})
    ).words
    assert "any chain: 2 of 3" in words and "0.000 [0.000, 0.100] of the games finished" in words
    assert words.index("GATE") < words.index("TOWN") and "[0.100, 0.400]" in words
