"""Run folders that are damaged, deleted or named with control characters: one line says so."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.commands import (
    PRODUCTS,
    Runner,
    files,
    finished,
    flip,
    newest,
    process,
    refused,
    succeed,
    workdir,
)
from support.tiny_run import flags

from rematch.cli import main
from rematch.reporting import run_summary
from rematch.storage import atomic_files
from rematch.storage.checkpoint import ARRAYS_FILE
from rematch.storage.run_folder import Run

__all__ = ["finished", "refused", "succeed", "workdir"]
pytestmark = pytest.mark.usefixtures("blank_pictures")


# --- disks that fail ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open", "read"])
@pytest.mark.parametrize("name", ["history.json", "config.yaml", "train.log", "observations.json",
                                  "learning.png"])  # fmt: skip
def test_unreadable_file_of_a_report_is_named_and_resume_writes_the_report(
        workdir: Path, capsys: pytest.CaptureFixture[str], succeed: Runner, monkeypatch: pytest.MonkeyPatch,
        name: str, call: str) -> None:
    whole = files(workdir / "runs" / "done")
    (workdir / "runs" / "done" / "report.html").unlink()
    page, opened, fstat = run_summary.page, os.open, os.fstat

    def fails(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith(f"/{name}"):
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *arguments, **options)

    def unreadable(fd: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(f"/{name}"):
            raise OSError(errno.EIO, "Input/output error")
        return fstat(fd)

    def page_on_a_failing_disk(path: Path) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(os, *(("open", fails) if call == "open" else ("fstat", unreadable)))
            return page(path)

    with monkeypatch.context() as patch:
        patch.setattr(run_summary, "page", page_on_a_failing_disk)
        assert main.main(["resume", "done"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"report.html was not written: {name} cannot be read: Input/output" in err
    assert "the training itself is complete and saved: write the missing files with `rematch resume" in err
    succeed("resume", "done")
    assert files(workdir / "runs" / "done") == whole


def test_deleted_run_folder_is_not_called_saved(
        workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write = Run.write_file

    def after_deletion(self: Run, name: str, data: bytes) -> Path:
        if name in PRODUCTS:
            shutil.rmtree(self.folder, ignore_errors=True)
        return write(self, name, data)

    monkeypatch.setattr(Run, "write_file", after_deletion)
    assert main.main(["train", "quick", *flags(), "--name", "gone"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "runs/gone has no checkpoint any more: it was deleted or moved" in err
    assert "saved" not in err


# --- damaged files ------------------------------------------------------------------------------------------


FALLBACK = "uses checkpoint iter_00000002, because newer ones do not verify: iter_00000003: "


@pytest.mark.parametrize("words", ["eval done --games 2", "export done --out p", "film done --out f.gif"])
def test_command_warns_that_it_uses_an_earlier_checkpoint(workdir: Path, words: str) -> None:
    flip(newest(workdir / "runs" / "done") / ARRAYS_FILE)
    with pytest.warns(UserWarning, match=f"^runs/done: {FALLBACK}"):
        assert main.main(words.split()) == 0


def test_warning_about_an_earlier_checkpoint_is_one_line_of_stderr(workdir: Path, succeed: Runner) -> None:
    flip(newest(workdir / "runs" / "done") / ARRAYS_FILE)
    ended = process("eval", "done", "--games", "2", cwd=workdir)
    assert ended.returncode == 0
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"rematch: runs/done: {FALLBACK}")
    assert f"runs/done: {FALLBACK}" in succeed("report", "done")


def test_history_with_hostile_rates_is_one_line(workdir: Path, refused: Runner) -> None:
    path = workdir / "runs" / "done" / "history.json"
    path.write_text(json.dumps([row | {"rates": {"x": 1}} for row in json.loads(path.read_text())]))
    assert "history.json, row 1: WinRate: expected a JSON object" in refused("eval", "done", "--games", "2")


@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_damaged_observation_summary_is_written_again_by_resume(
        workdir: Path, succeed: Runner, damage: str) -> None:
    whole = files(workdir / "runs" / "done")
    path = workdir / "runs" / "done" / "observations.json"
    flip(path) if damage == "flip" else path.unlink()
    assert "observations.json was damaged or missing: it was written again" in succeed("resume", "done")
    assert files(workdir / "runs" / "done") == whole
    assert "observations.json" not in succeed("resume", "done").partition("Scoreboard")[0]


def test_resume_renames_the_file_of_an_earlier_version(workdir: Path, succeed: Runner) -> None:
    folder = workdir / "runs" / "done"
    data = (folder / "observations.json").read_bytes()
    (folder / "observations.json").rename(folder / "sight.json")
    assert "observations.json was" not in succeed("resume", "done")
    assert (folder / "observations.json").read_bytes() == data and not (folder / "sight.json").exists()


# --- names --------------------------------------------------------------------------------------------------


def test_control_characters_in_folder_names_do_not_reach_the_terminal(
        workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "runs/a\x1b]0;title\x07\x1b[31mb"
    os.rename(workdir / "runs" / "done", workdir / name)
    for words in (["report", name], ["status", name], ["runs"], ["eval", name, "--games", "2"],
                  ["film", name, "--out", "f.gif"], ["resume", name], ["export", name, "--out", "p"]):
        main.main(words)
        out, err = capsys.readouterr()
        assert "\x1b" not in out + err and "\x07" not in out + err, words


def test_problems_of_a_report_name_the_run_only_where_its_path_stands(tmp_path: Path) -> None:
    folder = run_summary.Folder(Path("r"))

    def fail(text: str) -> None:
        raise atomic_files.RunError(text)

    folder.problems.clear()
    for text in ("r is not a run: world.rom", "r/history.json: a damaged world", "their world.rom: error"):
        folder.attempt(lambda text=text: fail(text))
    assert folder.problems == ["the run is not a run: world.rom", "the run/history.json: a damaged world",
                               "their world.rom: error"]
