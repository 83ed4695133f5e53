"""A run folder survives what disks, kernels and people do to it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.broken_disk import memory
from support.fake_training import advance, contents, damage, exit_status, forked, go_on, new, one_line

from rematch.core.errors import ConfigError, RunError
from rematch.storage import checkpoint as disk
from rematch.storage.run_folder import Run

__all__ = ["memory"]


# --- making and opening ---


def test_equal_runs_are_equal_to_the_byte_and_private(tmp_path: Path) -> None:
    a, b = new(tmp_path / "a", 6), new(tmp_path / "b", 6)
    assert contents(a) == contents(b)
    assert {name.split("/")[1] for name in contents(a) if name.startswith("checkpoints")} == \
        {"iter_00000003", "iter_00000004", "iter_00000005"}
    for path in [a, *a.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    text = b"".join(contents(a).values())
    assert str(os.getpid()).encode() not in re.findall(rb"process (\d+)", text)
    assert not any(path.name == "lock" for path in a.iterdir())


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 2)
    before = contents(folder)
    with pytest.raises(ConfigError, match="rematch resume") as caught:
        Run.create(folder, "seed: 2\n")
    assert str(folder) in one_line(caught)
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["thesis.txt", "train.log", "checkpoints"])
def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        Run.create(tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_missing_foreign_and_impossible_folders(tmp_path: Path) -> None:
    new(tmp_path / "quick_1", 0)
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "config.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "config.yaml").symlink_to("/etc/passwd")
    for name, word in (("quick1", "nearest: .*quick_1"), ("other", "no config.yaml"), ("file", "is a file"),
                       ("binary", "not text"), ("linked", "symbolic link")):
        for write in (False, True):
            with pytest.raises(ConfigError, match=word) as caught:
                Run.open(tmp_path / name, write=write)
            assert name in one_line(caught)
    assert not (tmp_path / "other" / "lock").exists()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError) as caught:
            Run.create(folder, "")
        one_line(caught)


def test_output_redirected_into_the_log_is_no_obstacle(tmp_path: Path) -> None:
    code = """if 1:
        import sys; from pathlib import Path; from rematch.storage.run_folder import Run
        print("banner", flush=True)
        with Run.create(Path(sys.argv[1]), "") as run:
            assert run.stdout_is_log
            run.log_line("one"); print("stray", flush=True); run.log_line("two")
            run.save(1, {"x": {}}, {})
            print("late", flush=True)
        with Run.open(Path(sys.argv[1]), write=True) as run:
            assert run.rewind(run.load()) == []
    """
    with open(tmp_path / "train.log", "w") as log:
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, stdout=log, stderr=log)
    assert (tmp_path / "train.log").read_text() == "banner\none\nstray\ntwo\n"


# --- going on ---


def test_what_came_after_the_checkpoint_is_cut_and_done_again(tmp_path: Path) -> None:
    twin, folder = new(tmp_path / "twin", 6), new(tmp_path / "x", 4)
    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        run.log_line("lost")
        run.log({"lost": 1})
        run.append_history({"lost": 1})
        run.write_policy("p5", {"w": np.zeros(3)}, {"of": "another time"})
        run.timing({"event": "stop", "at": 1.5})
    (folder / ".tmp-report.html").write_text("half")
    (folder / "policies" / ".tmp-p5.json").write_text("half")
    (folder / "checkpoints" / ".tmp-iter_00000004").mkdir()
    go_on(folder, 6)
    assert contents(folder) == contents(twin)
    assert json.loads((folder / "timing.jsonl").read_text()) == {"event": "stop", "at": 1.5}


def test_a_run_killed_before_its_first_checkpoint_starts_afresh(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "seed: 1\n") as run:
        run.log_line("lost")
        run.append_history({"a": 1})
    go_on(tmp_path / "x", 3)
    assert contents(tmp_path / "x") == contents(new(tmp_path / "twin", 3))


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl", "history.json"])
def test_an_altered_log_is_an_error_and_a_deleted_one_begins_anew(tmp_path: Path, name: str) -> None:
    folder = new(tmp_path / "x", 4)
    path = folder / name
    raw = path.read_bytes()
    for spoiled in (raw[:-9], b"", raw.replace(b"1", b"2", 1)):
        path.write_bytes(spoiled)
        with Run.open(folder, write=True) as run:
            checkpoint = run.load()
            with pytest.raises(RunError, match=f"{name} was altered") as caught:
                run.rewind(checkpoint)
            assert "delete it" in one_line(caught)
        assert path.read_bytes() == spoiled and len(os.listdir(folder / "checkpoints")) == 3
    path.unlink()
    with Run.open(folder, write=True) as run:
        (note,) = run.rewind(run.load())
        assert name in note and "starts again" in note
        advance(run, 4)
    go_on(folder, 6)


def test_an_opened_run_must_say_where_its_logs_go_on(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 2)
    with Run.open(folder, write=True) as run:
        for write in (lambda: run.log({"a": 1}), lambda: run.log_line("x"), lambda: run.save(9, {}, {})):
            with pytest.raises(RunError, match="rewind"):
                write()


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".tmp-mine").write_text("")
    for name in ("train.log", "metrics.jsonl", "timing.jsonl", "checkpoints", "policies", "lock", "damaged"):
        folder = new(tmp_path / f"x-{name}", 2)
        if name == "damaged":
            damage(folder / "checkpoints" / "iter_00000001" / disk.STATE_FILE, 0)
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
        is_file = "." in name or name == "lock"
        (folder / name).symlink_to(outside / "f" if is_file else outside)
        with pytest.raises(ConfigError) as caught:
            go_on(folder, 4)
            with Run.open(folder, write=True) as run:
                run.timing({"a": 1})
        one_line(caught)
        assert os.listdir(outside) == [".tmp-mine"], name


def test_files_stay_in_the_folder_and_off_the_runs_own(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "seed: 1\n") as run:
        assert run.write_file("films/match.gif", b"GIF").read_bytes() == b"GIF"
        run.write_file("report.html", b"one")
        assert run.write_file("report.html", b"two").read_bytes() == b"two"
        for name in ("../x", "/etc/x", "a/b/c", "config.yaml", "lock", "checkpoints/x", "", "a/", ".x", "\0"):
            with pytest.raises(RunError, match="name"):
                run.write_file(name, b"")
    assert os.listdir(tmp_path) == ["x"] and run.config_text == "seed: 1\n"


def test_killed_at_random_instants_a_run_ends_with_the_bytes_of_its_twin(memory: Path) -> None:
    until, chance, kills = 50, random.Random(4), 0
    folder = memory / "x"

    def work() -> int:
        go_on(folder, until)
        return 0

    while kills < 30:
        if not folder.exists():
            Run.create(folder, "seed: 1\n").close()
            before = -1
        pid = forked(work)
        time.sleep(chance.uniform(0.001, 0.04))
        os.kill(pid, signal.SIGKILL)
        if exit_status(pid) == 0:  # it was done already: once more from the start
            shutil.rmtree(folder)
            continue
        kills += 1
        with Run.open(folder, write=False) as run:
            found = run.load()
        assert found is None or not found.skipped
        reached = found.iteration if found else -1
        assert reached >= before  # nothing that was saved is ever lost
        before = reached
    work()
    assert contents(folder) == contents(new(memory / "twin", until)) and not (folder / "damaged").exists()
