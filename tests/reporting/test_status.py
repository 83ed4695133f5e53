"""rematch status: where a run stands, in one screen; reads only, and nothing in a folder can break it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rematch import api
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.reporting.status import status
from rematch.storage.run_folder import Run

pytestmark = pytest.mark.usefixtures("blank_pictures")

CHANGES = {
    "threads": 1, "games": 8, "steps": 4, "total_steps": 8 * 4 * 6, "save_every": 1, "network.hidden": (4,),
    "world.max_steps": 6, "evaluation.every": 2, "evaluation.games": 5, "evaluation.rivals": ("random",),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.train("pursuit", CHANGES, tmp_path_factory.mktemp("status") / "finished").folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a complete run, to be spoilt."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def screen(about: dict[str, Any]) -> str:
    """The lines as one text, after what holds for all of them."""
    assert json.loads(json.dumps(about, allow_nan=False)) == about
    assert len(about["lines"]) <= 24 and all(line.isprintable() for line in about["lines"])
    return "\n".join(about["lines"])


def stopped(folder: Path) -> Path:
    api.train("pursuit", CHANGES, folder, minutes=1e-9)
    return folder


def test_a_complete_run(finished: Path) -> None:
    about = status(finished)
    text = screen(about)
    assert about["exit"] == 0 and about["state"] == "complete" and about["checkpoint"] == "iter_00000006"
    assert (about["iteration"], about["iterations"], about["step"], about["total_steps"]) == (6, 6, 192, 192)
    assert "complete at iteration 6 of 6 (100 %)" in text and f"rematch eval {finished}" in text
    assert about["evaluations"] == 3 and about["learner_steps_per_second"] > 0
    head = next(line for line in about["lines"] if line.startswith("phase"))
    assert head.split() == ["phase", "role", "SR_P", "SR_E", "gap", "n", "rollbacks", "steps"]
    last = about["recent"][-1]
    assert last["SR_P"] == last["rates"]["pursuer"]["rate"] and last["rates"]["evader"]["games"] == 5
    assert f"{last['SR_P']:.3f} [{last['rates']['pursuer']['low']:.3f}, " in text
    assert "verdict: " + about["verdict"] in text and sum(about["standings"].values()) == 2


def test_a_stopped_run_says_how_to_go_on_and_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stopped(tmp_path / "run")
    about = status(folder)
    assert about["exit"] == 3 and about["state"] == "stopped" and about["iteration"] == 1
    assert "stopped before its end (last: stop time) at iteration 1 of 6 (17 %)" in screen(about)
    assert "no evaluation yet" in screen(about) and f"rematch resume {folder}" in screen(about)
    assert main.main(["status", str(folder)]) == 3
    assert capsys.readouterr().out.splitlines() == about["lines"]
    assert main.main(["status", str(folder), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["checkpoint"] == "iter_00000001"


def test_a_run_in_work_names_its_holder_and_is_ahead_of_its_checkpoint(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    with Run.open(folder, write=True) as held:
        held.rewind(held.load())
        held.log({"iteration": 3, "step": 96})
        about = status(folder)
    assert about["exit"] == 0 and about["state"] == "running" and about["iteration"] == 3
    assert f"running (held by process {os.getpid()} on" in screen(about) and "tail -f" in about["next"]
    assert status(folder)["iteration"] == 1  # nobody holds it any more: what was not saved did not happen


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    for name in ("checkpoints", "policies"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("metrics.jsonl", "timing.jsonl", "history.json", "train.log", "sight.json"):
        (folder / name).unlink()
    about = status(folder)
    assert about["exit"] == 3 and about["checkpoint"] is None and "none yet" in screen(about)


def test_trained_but_without_its_report_is_not_complete(run: Path) -> None:
    (run / "report.html").unlink()
    about = status(run)
    assert about["exit"] == 3 and about["state"] == "stopped" and "rematch resume" in about["next"]


def change_history(run: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    rows = json.loads((run / "history.json").read_text())
    change(rows)
    (run / "history.json").write_text(json.dumps(rows))


def test_an_alarm_is_exit_code_1(run: Path) -> None:
    def swing(rows: list[dict[str, Any]]) -> None:
        rows[0]["rates"]["pursuer"]["rate"], rows[1]["rates"]["pursuer"]["rate"] = 0.0, 1.0

    change_history(run, swing)
    about = status(run)
    assert about["exit"] == 1 and about["alarms"] and "ALARM: pursuer swung by 1.00" in screen(about)


def test_a_collapsed_verdict_is_exit_code_1(run: Path) -> None:
    change_history(run, lambda rows: rows[-1].update(verdict="collapsed: it did"))
    assert status(run)["exit"] == 1


def test_a_damaged_checkpoint_is_named_and_the_one_before_counts(run: Path) -> None:
    path = next(p for p in (run / "checkpoints" / "iter_00000006").iterdir() if p.suffix == ".safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    about = status(run)
    assert about["checkpoint"] == "iter_00000005" and about["skipped"] == ["iter_00000006"]
    assert "PROBLEM: iter_00000006 does not verify" in screen(about) and about["exit"] == 3


def test_no_checkpoint_that_verifies_is_exit_code_1(run: Path) -> None:
    for path in (run / "checkpoints").glob("*/manifest.json"):
        path.write_bytes(b"{}")
    about = status(run)
    assert about["exit"] == 1 and "none of its 3 checkpoints verifies" in screen(about)
    assert "rematch resume" not in about["next"]


HOSTILE: dict[str, bytes] = {
    "nothing": b"", "garbage": b"\xff\x00\xfe" * 100, "deep": b"[" * 100_000, "a number": b"7",
    "no rows": b'[1, "two", null]', "odd rows": b'[{"rates": 3, "table": {}, "step": "x"}]',
    "NaN": b'[{"rates": {}, "table": [], "gap": NaN, "step": 1e999}]',
    "escapes": b'[{"rates": {}, "table": [], "step": 1, "phase": "\\u001b[2J\\r", "verdict": "\\n\\u001b"}]',
}


@pytest.mark.parametrize("kind", [*HOSTILE, "link", "pipe", "folder", "absent"])
@pytest.mark.parametrize("name", ["history.json", "metrics.jsonl", "timing.jsonl"])
def test_hostile_files_cost_a_line_at_most(name: str, kind: str, run: Path) -> None:
    (run / name).unlink()
    if kind in HOSTILE:
        (run / name).write_bytes(HOSTILE[kind])
    elif kind == "link":
        (run / name).symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    about = status(run)
    assert about["exit"] in (0, 1) and len(about["problems"]) <= 1 and about["iteration"] == 6
    screen(about)


@pytest.mark.parametrize("text", ["game: nowhere", "game: pursuit\nseed: -1", "[", "game: pursuit\nnew: 1"])
def test_settings_that_cannot_be_read_are_a_problem_and_not_a_crash(text: str, run: Path) -> None:
    (run / "config.yaml").write_text(text)
    about = status(run)
    assert about["exit"] == 1 and about["iterations"] is None
    assert "PROBLEM: " in screen(about)


def test_what_is_no_run_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="no such run"):
        status(tmp_path / "nowhere")
    assert main.main(["status", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1 and "is not a run" in said.err and not said.out


def test_looking_changes_nothing(run: Path) -> None:
    def seen() -> dict[str, tuple[int, int]]:
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in [run, *run.rglob("*")]}

    before = seen()
    for path in run.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    status(run)
    for path in run.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert seen() == before
