"""Run folders: create, open, rewind, and files that disks, kernels or people have changed."""

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
from support.fake_training import (
    compared_files,
    continue_run,
    flip_bit,
    fork,
    single_line,
    train_iteration,
    train_run,
    wait_for_exit,
)

from rematch.core.errors import ConfigError, RunError
from rematch.storage import checkpoint
from rematch.storage.run_folder import Run

# --- creating and opening ---


def test_equal_runs_write_equal_bytes_with_private_permissions(tmp_path: Path) -> None:
    a, b = train_run(tmp_path / "a", 6), train_run(tmp_path / "b", 6)
    assert compared_files(a) == compared_files(b)
    assert {name.split("/")[1] for name in compared_files(a) if name.startswith("checkpoints")} == \
        {"iter_00000003", "iter_00000004", "iter_00000005"}
    for path in [a, *a.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    text = b"".join(compared_files(a).values())
    assert str(os.getpid()).encode() not in re.findall(rb"process (\d+)", text)
    assert not any(path.name == "lock" for path in a.iterdir())


def test_create_refuses_the_folder_of_a_run(tmp_path: Path) -> None:
    folder = train_run(tmp_path / "x", 2)
    before = compared_files(folder)
    with pytest.raises(ConfigError, match="rematch resume") as caught:
        Run.create(folder, "seed: 2\n")
    assert str(folder) in single_line(caught)
    assert compared_files(folder) == before


@pytest.mark.parametrize("name", ["thesis.txt", "train.log", "checkpoints"])
def test_create_refuses_a_folder_with_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text")
    with pytest.raises(ConfigError, match="not empty"):
        Run.create(tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_open_refuses_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    train_run(tmp_path / "quick_1", 0)
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
            assert name in single_line(caught)
    assert not (tmp_path / "other" / "lock").exists()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError) as caught:
            Run.create(folder, "")
        single_line(caught)


def test_output_redirected_into_train_log_is_allowed(tmp_path: Path) -> None:
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


# --- continuing ---


def test_rewind_removes_everything_after_the_checkpoint(tmp_path: Path) -> None:
    expected, folder = train_run(tmp_path / "expected", 6), train_run(tmp_path / "x", 4)
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
    continue_run(folder, 6)
    assert compared_files(folder) == compared_files(expected)
    assert json.loads((folder / "timing.jsonl").read_text()) == {"event": "stop", "at": 1.5}


def test_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "seed: 1\n") as run:
        run.log_line("lost")
        run.append_history({"a": 1})
    continue_run(tmp_path / "x", 3)
    assert compared_files(tmp_path / "x") == compared_files(train_run(tmp_path / "expected", 3))


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl", "history.json"])
def test_altered_log_is_refused_and_deleted_log_starts_again(tmp_path: Path, name: str) -> None:
    folder = train_run(tmp_path / "x", 4)
    path = folder / name
    raw = path.read_bytes()
    for changed in (raw[:-9], b"", raw.replace(b"1", b"2", 1)):
        path.write_bytes(changed)
        with Run.open(folder, write=True) as run:
            checkpoint = run.load()
            with pytest.raises(RunError, match=f"{name} was altered") as caught:
                run.rewind(checkpoint)
            assert "delete it" in single_line(caught)
        assert path.read_bytes() == changed and len(os.listdir(folder / "checkpoints")) == 3
    path.unlink()
    with Run.open(folder, write=True) as run:
        (note,) = run.rewind(run.load())
        assert name in note and "starts again" in note
        train_iteration(run, 4)
    continue_run(folder, 6)


def test_opened_run_must_be_rewound_before_it_is_written(tmp_path: Path) -> None:
    folder = train_run(tmp_path / "x", 2)
    with Run.open(folder, write=True) as run:
        for write in (lambda: run.log({"a": 1}), lambda: run.log_line("x"), lambda: run.save(9, {}, {})):
            with pytest.raises(RunError, match="rewind"):
                write()


def test_links_in_a_run_folder_are_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".tmp-foreign").write_text("")
    for name in ("train.log", "metrics.jsonl", "timing.jsonl", "checkpoints", "policies", "lock", "damaged"):
        folder = train_run(tmp_path / f"x-{name}", 2)
        if name == "damaged":
            flip_bit(folder / "checkpoints" / "iter_00000001" / checkpoint.STATE_FILE, 0)
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
        is_file = "." in name or name == "lock"
        (folder / name).symlink_to(outside / "f" if is_file else outside)
        with pytest.raises(ConfigError) as caught:
            continue_run(folder, 4)
            with Run.open(folder, write=True) as run:
                run.timing({"a": 1})
        single_line(caught)
        assert os.listdir(outside) == [".tmp-foreign"], name


def test_write_file_refuses_reserved_names_and_other_folders(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "seed: 1\n") as run:
        assert run.write_file("films/match.gif", b"GIF").read_bytes() == b"GIF"
        run.write_file("report.html", b"one")
        assert run.write_file("report.html", b"two").read_bytes() == b"two"
        for name in ("../x", "/etc/x", "a/b/c", "config.yaml", "lock", "checkpoints/x", "", "a/", ".x", "\0"):
            with pytest.raises(RunError, match="name"):
                run.write_file(name, b"")
    assert os.listdir(tmp_path) == ["x"] and run.config_text == "seed: 1\n"


def test_run_killed_at_random_instants_ends_with_the_same_bytes(ram_folder: Path) -> None:
    until, rng, kills = 50, random.Random(4), 0
    folder = ram_folder / "x"

    def work() -> int:
        continue_run(folder, until)
        return 0

    while kills < 30:
        if not folder.exists():
            Run.create(folder, "seed: 1\n").close()
            before = -1
        pid = fork(work)
        time.sleep(rng.uniform(0.001, 0.04))
        os.kill(pid, signal.SIGKILL)
        if wait_for_exit(pid) == 0:  # it had ended already: start again
            shutil.rmtree(folder)
            continue
        kills += 1
        with Run.open(folder, write=False) as run:
            loaded = run.load()
        assert loaded is None or not loaded.skipped
        reached = loaded.iteration if loaded else -1
        assert reached >= before  # no saved checkpoint is ever lost
        before = reached
    work()
    assert compared_files(folder) == compared_files(train_run(ram_folder / "expected", until))
    assert not (folder / "damaged").exists()


def test_past_policies_are_pruned_and_foreign_files_stay(run: Run) -> None:
    weights = {"w": np.zeros(2)}
    run.write_past_policy(1, weights, {}, [1])
    (run.folder / "past" / "notes.txt").write_text("text of a user")
    (run.folder / "past" / "00000009.json").write_text("of a time that was rewound")
    run.write_past_policy(2, weights, {}, [2])
    assert sorted(os.listdir(run.folder / "past")) == ["00000002.json", "00000002.safetensors", "notes.txt"]


def test_second_rewind_starts_tables_again(run: Run) -> None:
    run.table("progress.csv", "1", "step")
    run.rewind(None)
    run.table("progress.csv", "2", "step")
    run.save(1, {}, {})
    assert (run.folder / "progress.csv").read_text() == "step\n2\n"
