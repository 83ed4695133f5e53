"""Checkpoint store: commits, pruning and recovery, whenever the machine stops."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from support.broken_disk import Crash, Kernel, run_before_save, use_kernel
from support.fake_training import (
    CPU,
    compared_files,
    continue_run,
    flip_bit,
    load_newest,
    single_line,
    state_parts,
    train_iteration,
    train_run,
)

from rematch.core.errors import ConfigError, RunError
from rematch.storage import checkpoint
from rematch.storage.run_folder import Run


def test_prune_keeps_three_recent_checkpoints_milestones_and_the_newest_temporary_one(tmp_path: Path) -> None:
    def saved_iterations() -> list[int]:
        return sorted(int(name[5:]) for name in os.listdir(tmp_path / "x" / "checkpoints"))

    with Run.create(tmp_path / "x", "") as run:
        for i in range(5):
            train_iteration(run, i, milestone=i == 1)
        assert saved_iterations() == [1, 2, 3, 4]
        train_iteration(run, 7, temporary=True)
        assert saved_iterations() == [1, 2, 3, 4, 7]
    with Run.open(tmp_path / "x", write=True) as run:
        checkpoint = run.load()
        assert checkpoint and checkpoint.iteration == 7
        run.rewind(checkpoint)
        assert saved_iterations() == [1, 2, 3, 4, 7]
        train_iteration(run, 9)
        assert saved_iterations() == [1, 3, 4, 9]


def test_second_save_of_an_iteration_replaces_only_a_different_one(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        first = run.save(3, state_parts(3), CPU, temporary=True)
        inode = first.stat().st_ino
        assert run.save(3, state_parts(3), CPU, temporary=True) == first and first.stat().st_ino == inode
        run.save(3, {**state_parts(3), "more": {}}, CPU)
        assert os.listdir(first.parent) == [first.name]
    assert "more" in load_newest(tmp_path / "x").parts


@pytest.mark.parametrize("name", [checkpoint.ARRAYS_FILE, checkpoint.STATE_FILE, checkpoint.MANIFEST_FILE])
def test_flipped_bit_is_reported_and_the_previous_checkpoint_used(tmp_path: Path, name: str) -> None:
    folder, rng = train_run(tmp_path / "x", 4), random.Random(3)
    path = folder / "checkpoints" / "iter_00000003" / name
    for _ in range(10):
        position, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
        flip_bit(path, position, bit)
        loaded = load_newest(folder)
        assert loaded.iteration == 2
        ((skipped, reason),) = loaded.skipped
        assert skipped == "iter_00000003" and name in reason
        flip_bit(path, position, bit)
    flip_bit(path, 1)
    continue_run(folder, 5)
    assert compared_files(folder) == compared_files(train_run(tmp_path / "expected", 5))
    assert os.listdir(folder / "damaged") == ["iter_00000003"]


def test_load_refuses_and_changes_nothing_where_no_checkpoint_verifies(tmp_path: Path) -> None:
    folder = train_run(tmp_path / "x", 4)
    for path in (folder / "checkpoints").glob("*/state.json"):
        flip_bit(path, 0)
    before = compared_files(folder)
    with Run.open(folder, write=True) as run:
        with pytest.raises(ConfigError, match=r"none of its 3 .*iter_00000003: state.json.*refus") as caught:
            run.load()
        single_line(caught)
        with pytest.raises(RunError, match="has checkpoints"):
            run.rewind(None)
    assert compared_files(folder) == before


def test_checkpoint_of_another_run_or_iteration_is_skipped(tmp_path: Path) -> None:
    folder = train_run(tmp_path / "x", 3)
    with Run.create(tmp_path / "other", "seed: 2\n") as run:
        train_iteration(run, 8)
    checkpoints = folder / "checkpoints"
    shutil.copytree(tmp_path / "other" / "checkpoints" / "iter_00000008", checkpoints / "iter_00000008")
    shutil.copytree(checkpoints / "iter_00000001", checkpoints / "iter_00000009")
    (checkpoints / "iter_00000010").symlink_to(tmp_path / "other" / "checkpoints" / "iter_00000008")
    loaded = load_newest(folder)
    assert loaded.iteration == 2
    assert [name for name, _ in loaded.skipped] == [f"iter_{n:08d}" for n in (10, 9, 8)]
    assert "config.yaml" in loaded.skipped[2][1]
    continue_run(folder, 4)
    assert compared_files(folder) == compared_files(train_run(tmp_path / "expected", 4))
    assert load_newest(tmp_path / "other").iteration == 8


@pytest.mark.parametrize("again", [False, True], ids=["next", "replacing"])
def test_interrupted_save_recovers_to_the_old_or_the_new_checkpoint(
        ram_folder: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Stop before each call; lose, tear or keep what was not synced; resume; end with the expected files."""
    start = train_run(ram_folder / "start", 4)
    expected = compared_files(train_run(ram_folder / "expected", 5))
    if again:  # iteration 4 exists already, as a temporary checkpoint
        with run_before_save(start, 4) as run:
            run.save(4, state_parts(4), CPU, temporary=True)
    old = load_newest(start).manifest
    outcomes: set[tuple[int, str]] = set()
    committed = False
    for index in range(1000):
        folder = ram_folder / f"{index}"
        shutil.copytree(start, folder)
        if again:
            run = Run.open(folder, write=True)
            run.rewind(run.load())
        else:
            run = run_before_save(folder, 4)
        kernel = Kernel(folder, index, Crash())
        for log in run._logs.values():  # lines after the last save have not reached the disk
            kernel.bytes[kernel.number(log.path)] = log.path.read_bytes()[:log._hashed]
        use_kernel(kernel, monkeypatch)
        try:
            run.save(4, state_parts(4), CPU)
            done = True
        except Crash:
            done = False
        use_kernel(os, monkeypatch)
        run.close()
        synced = 0  # the commit point: the fsync that follows the last rename of the new folder
        if "rename" in kernel.calls:
            tail = kernel.calls[kernel.calls.index("rename") + (2 if again else 1):]
            synced = tail.count("fsync") - (not done and tail[-1:] == ["fsync"])
        committed = committed or synced > 0
        for names, data in (("all", "written"), ("all", "lost"), ("all", "torn"), ("synced", "lost"),
                            ("synced", "torn")):
            disk_after = kernel.power_loss(ram_folder / f"{index}-{names}-{data}", names, data)
            loaded = load_newest(disk_after)
            assert (loaded.iteration, loaded.manifest.keep) in ((old.iteration, old.keep), (4, "recent"))
            outcomes.add((loaded.iteration, loaded.manifest.keep))
            if synced:
                assert loaded.manifest.keep == "recent" and loaded.iteration == 4
            if again and loaded.manifest.keep == checkpoint.TEMPORARY:
                with Run.open(disk_after, write=True) as run:
                    run.rewind(run.load())
                    run.save(4, state_parts(4), CPU)
            else:
                continue_run(disk_after, 5)
            assert compared_files(disk_after) == expected, (index, names, data)
            assert not (disk_after / "damaged").exists()  # a crash damages no checkpoint
            shutil.rmtree(disk_after)
        shutil.rmtree(folder)
        if done:
            break
    assert committed and index > 25 and len(outcomes) == 2


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failed_save_leaves_a_valid_checkpoint_and_can_be_repeated(
        ram_folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, lasting: bool) -> None:
    start = train_run(ram_folder / "start", 4)
    expected = compared_files(train_run(ram_folder / "expected", 5))
    failures = 0
    for index in range(1000):
        folder = ram_folder / f"{index}"
        shutil.copytree(start, folder)
        with run_before_save(folder, 4) as run:
            kernel = Kernel(folder, index, OSError(code, os.strerror(code)), lasting)
            use_kernel(kernel, monkeypatch)
            try:
                run.save(4, state_parts(4), CPU)
                saved = True
            except RunError as error:
                saved = False
                failures += 1
                assert "iter_00000004 was not saved: " in str(error) and os.strerror(code) in str(error)
                assert "\n" not in str(error)
            use_kernel(os, monkeypatch)
            loaded = run.load()
            assert loaded and loaded.iteration in ((4,) if saved else (3, 4) if lasting else (3,))
            if not saved and not lasting:
                assert sorted(os.listdir(folder / "checkpoints")) == [f"iter_{n:08d}" for n in (1, 2, 3)]
            run.save(4, state_parts(4), CPU)
        continue_run(folder, 5)
        assert compared_files(folder) == expected, index
        shutil.rmtree(folder)
        if len(kernel.calls) <= index:
            break
    assert failures > 20


def test_commit_reads_back_and_finds_wrong_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = train_run(tmp_path / "x", 4)
    before = compared_files(folder)

    class WrongBytes(Kernel):
        def write(self, fd: int, data: bytes) -> int:
            return os.write(fd, bytes(data).replace(b"a", b"b", 1))

    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        use_kernel(WrongBytes(folder), monkeypatch)
        with pytest.raises(RunError, match=r"00004 was not saved: .*does not match") as caught:
            run.save(4, state_parts(4), CPU)
        single_line(caught)
        use_kernel(os, monkeypatch)
    assert compared_files(folder) == before


def test_load_lists_again_where_a_checkpoint_is_replaced_meanwhile(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that looks between the two renames of a replacement finds the old checkpoint all the same."""
    folder = train_run(tmp_path / "x", 4)
    newest = folder / "checkpoints" / "iter_00000003"
    read_checkpoint = checkpoint.read_checkpoint

    def rename_first(path: Path, verify_chunks: bool) -> checkpoint.Checkpoint:
        if newest.exists():
            newest.rename(newest.with_name(".old-iter_00000003"))
        return read_checkpoint(path, verify_chunks)

    monkeypatch.setattr(checkpoint, "read_checkpoint", rename_first)
    loaded = load_newest(folder)
    assert loaded.iteration == 3 and not loaded.skipped
