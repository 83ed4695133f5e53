"""rematch status: a run in one screen; it only reads, and no content of a folder breaks it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tiny_run import SMALL

from rematch import api
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.evaluation.text import verdict_text
from rematch.reporting.status import status
from rematch.reporting.text import learning_sentence
from rematch.storage.run_folder import Run

pytestmark = pytest.mark.usefixtures("blank_pictures")

CHANGES = SMALL | {"threads": 1, "total_steps": 8 * 4 * 6, "world.max_steps": 6, "evaluation.every": 2,
                   "evaluation.games": 5}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.train("pursuit", CHANGES, tmp_path_factory.mktemp("status") / "finished").folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a complete run, for a test to damage."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def screen(facts: dict[str, Any]) -> str:
    """The lines as one text, after checks that hold for every status."""
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert len(facts["lines"]) <= 24 and all(line.isprintable() for line in facts["lines"])
    return "\n".join(facts["lines"])


def stopped(folder: Path) -> Path:
    api.train("pursuit", CHANGES, folder, minutes=1e-9)
    return folder


def test_complete_run(finished: Path) -> None:
    facts = status(finished)
    text = screen(facts)
    assert facts["exit"] == 0 and facts["state"] == "complete" and facts["checkpoint"] == "iter_00000006"
    assert (facts["iteration"], facts["iterations"], facts["step"], facts["total_steps"]) == (6, 6, 192, 192)
    assert "complete at iteration 6 of 6 (100 %)" in text and f"rematch eval {finished}" in text
    assert facts["evaluations"] == 3 and facts["steps_per_second"] > 0
    head = next(line for line in facts["lines"] if line.startswith("iteration "))
    assert head.split() == ["iteration", "learned", "last", "SR_P", "SR_E", "NE", "gap", "games",
                            "rollbacks", "steps"]
    last = facts["recent"][-1]
    assert last["SR_P"] == last["rates"]["pursuer"]["rate"] and last["rates"]["evader"]["games"] == 5
    assert f"{last['SR_P']:.3f} [{last['rates']['pursuer']['low']:.3f}, " in text
    assert "verdict: " + verdict_text(facts["verdict"]) in text and sum(facts["standings"].values()) == 2


def test_stopped_run_names_the_resume_command_and_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stopped(tmp_path / "run")
    facts = status(folder)
    assert facts["exit"] == 3 and facts["state"] == "stopped" and facts["iteration"] == 1
    assert "stopped before its end (last event: stop time) at iteration 1 of 6 (17 %)" in screen(facts)
    assert "no evaluation yet" in screen(facts) and f"rematch resume {folder}" in screen(facts)
    assert main.main(["status", str(folder)]) == 3
    assert capsys.readouterr().out.splitlines() == facts["lines"]
    assert main.main(["status", str(folder), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["checkpoint"] == "iter_00000001"


def test_running_run_names_its_process_and_is_ahead_of_its_checkpoint(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        run.log({"iteration": 3, "step": 96})
        facts = status(folder)
    assert facts["exit"] == 0 and facts["state"] == "running" and facts["iteration"] == 3
    assert f"running (locked by process {os.getpid()} on" in screen(facts) and "tail -f" in facts["next"]
    assert status(folder)["iteration"] == 1  # no process holds it: only the checkpoint counts


def test_speed_and_time_left_have_one_definition(tmp_path: Path) -> None:
    """Steps of all games per second; with one learning role, learner steps are fewer."""
    folder = stopped(tmp_path / "run")
    rows = [{"iteration": i, "seconds": 4.0, "learner_steps_per_second": 1.0} for i in range(3)]
    (folder / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = status(folder)
    assert facts["steps_per_second"] == 32 / 4 and facts["total_steps"] - facts["step"] == 160
    assert facts["seconds_left"] == 160 / 8
    assert "; 8 steps/s, 0:20 left at this speed, without evaluations" in screen(facts)


def test_status_of_micro_phases_shows_the_learning_of_both_roles(tmp_path: Path) -> None:
    changes = CHANGES | {"schedule.kind": "micro", "schedule.warmup_steps": 32,
                         "schedule.micro_phase_steps": 32}
    folder = api.train("pursuit", changes, tmp_path / "run").folder
    sentence = ("learning in 6 iterations: evader in 3 (50 %), pursuer in 3 (50 %); iterations of the newest "
                "phases: evader 1, pursuer 1, evader 1, pursuer 1")
    text = screen(status(folder))
    assert sentence in text, text
    assert "learning in 6 iterations" in (folder / "report.html").read_text().lower()


def test_status_of_one_role_shows_its_scores(tmp_path: Path) -> None:
    """A card game has no win rates between roles, no gap and no role that learned last."""
    changes = {"games": 8, "steps": 8, "total_steps": 8 * 8 * 2, "network.hidden": [8], "evaluation.games": 4,
               "evaluation.every": 1, "evaluation.opponents": ["random", "queue"]}
    facts = status(api.train("beasty", changes, tmp_path / "run").folder)
    head, *rows = [line for line in screen(facts).splitlines()
                   if line.startswith(("iteration ", "1 ", "2 "))]
    assert head.split() == ["iteration", "mean", "score", "scripted", "opponents", "games", "of", "each",
                            "steps"]
    score = facts["recent"][-1]["strength"]
    assert rows[-1].split()[:2] == ["2", f"{score['score']:.3f}"] and score["match_ups"] == 2
    assert score["low"] < score["score"] < score["high"] and score["games"] == 4


@pytest.mark.parametrize(("cause", "verdict"), [("learning", "collapsed: x is not finite"), ("code", "")])
def test_failed_run_is_an_alarm_and_code_says_nothing_about_the_agents(
    cause: str, verdict: str, tmp_path: Path
) -> None:
    folder = stopped(tmp_path / "run")
    event = {"event": "failed", "cause": cause, "why": "x is not finite", "iteration": 3}
    with (folder / "timing.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    facts = status(folder)
    assert facts["exit"] == 1 and facts["verdict"] == verdict and facts["alarms"] == ["x is not finite"]
    text = screen(facts)
    assert "failed at iteration 1 of 6" in text and "ALARM: x is not finite" in text
    assert f"next: rematch resume {folder}" in text


def test_learning_sentence_says_that_it_covers_the_newest_rows() -> None:
    rows = [{"iteration": 400 + i, "a/updates": i % 2, "b/updates": 1 - i % 2} for i in range(6)]
    assert learning_sentence(rows).startswith("learning in the newest 6 iterations: a in 3 (50 %), b in 3")
    first = [row | {"iteration": row["iteration"] - 399} for row in rows]
    assert learning_sentence(first).startswith("learning in 6 iterations:")


def test_new_run_without_checkpoint_is_stopped(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    for name in ("checkpoints", "policies"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("metrics.jsonl", "timing.jsonl", "history.json", "train.log", "observations.json"):
        (folder / name).unlink()
    facts = status(folder)
    assert facts["exit"] == 3 and facts["checkpoint"] is None and "none yet" in screen(facts)


def test_run_without_its_report_is_not_complete(run: Path) -> None:
    (run / "report.html").unlink()
    facts = status(run)
    assert facts["exit"] == 3 and facts["state"] == "stopped" and "rematch resume" in facts["next"]


def change_history(run: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    rows = json.loads((run / "history.json").read_text())
    change(rows)
    (run / "history.json").write_text(json.dumps(rows))


def test_alarm_is_exit_code_1(run: Path) -> None:
    def swing(rows: list[dict[str, Any]]) -> None:
        rows[0]["rates"]["pursuer"]["rate"], rows[1]["rates"]["pursuer"]["rate"] = 0.0, 1.0

    change_history(run, swing)
    facts = status(run)
    assert facts["exit"] == 1 and facts["alarms"]
    assert "ALARM: win rate of pursuer changed by 1.00" in screen(facts)


def test_collapsed_verdict_is_exit_code_1(run: Path) -> None:
    change_history(run, lambda rows: rows[-1].update(verdict="collapsed: it did"))
    assert status(run)["exit"] == 1


def test_damaged_checkpoint_is_named_and_the_one_before_counts(run: Path) -> None:
    path = next(p for p in (run / "checkpoints" / "iter_00000006").iterdir() if p.suffix == ".safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    facts = status(run)
    assert facts["checkpoint"] == "iter_00000005" and facts["skipped"] == ["iter_00000006"]
    assert "PROBLEM: iter_00000006 does not verify" in screen(facts) and facts["exit"] == 3


def test_run_without_a_valid_checkpoint_is_exit_code_1(run: Path) -> None:
    for path in (run / "checkpoints").glob("*/manifest.json"):
        path.write_bytes(b"{}")
    facts = status(run)
    assert facts["exit"] == 1 and "none of its 3 checkpoints verifies" in screen(facts)
    assert "rematch resume" not in facts["next"]


HOSTILE: dict[str, bytes] = {
    "nothing": b"", "garbage": b"\xff\x00\xfe" * 100, "deep": b"[" * 100_000, "a number": b"7",
    "no rows": b'[1, "two", null]', "odd rows": b'[{"rates": 3, "table": {}, "step": "x"}]',
    "NaN": b'[{"rates": {}, "table": [], "gap": NaN, "step": 1e999}]',
    "escapes": b'[{"rates": {}, "table": [], "step": 1, "phase": "\\u001b[2J\\r", "verdict": "\\n\\u001b"}]',
}


@pytest.mark.parametrize("kind", [*HOSTILE, "link", "pipe", "folder", "absent"])
@pytest.mark.parametrize("name", ["history.json", "metrics.jsonl", "timing.jsonl"])
def test_hostile_file_is_one_line_at_most(name: str, kind: str, run: Path) -> None:
    (run / name).unlink()
    if kind in HOSTILE:
        (run / name).write_bytes(HOSTILE[kind])
    elif kind == "link":
        (run / name).symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    facts = status(run)
    assert facts["exit"] in (0, 1) and len(facts["problems"]) <= 1 and facts["iteration"] == 6
    screen(facts)


@pytest.mark.parametrize("text", ["game: nowhere", "game: pursuit\nseed: -1", "[", "game: pursuit\nnew: 1"])
def test_unreadable_settings_are_a_problem_and_not_a_crash(text: str, run: Path) -> None:
    (run / "config.yaml").write_text(text)
    facts = status(run)
    assert facts["exit"] == 1 and facts["iterations"] is None
    assert "PROBLEM: " in screen(facts)


def test_folder_that_is_not_a_run_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="no such run"):
        status(tmp_path / "nowhere")
    assert main.main(["status", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert len(output.err.splitlines()) == 1 and "is not a run" in output.err and not output.out


def test_status_changes_nothing(run: Path) -> None:
    def seen() -> dict[str, tuple[int, int]]:
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in [run, *run.rglob("*")]}

    before = seen()
    for path in run.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    status(run)
    for path in run.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert seen() == before
