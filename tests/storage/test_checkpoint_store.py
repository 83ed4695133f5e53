"""Checkpoints are kept, pruned and recovered, whatever instant the machine stops at."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from support.broken_disk import Crash, Kernel, about_to_save, memory, under
from support.fake_training import CPU, advance, contents, damage, go_on, new, newest, one_line, parts

from rematch.core.errors import ConfigError, RunError
from rematch.storage import checkpoint as disk
from rematch.storage.run_folder import Run

__all__ = ["memory"]


def test_three_stay_and_milestones_and_a_passing_one_only_until_the_next(tmp_path: Path) -> None:
    def there() -> list[int]:
        return sorted(int(name[5:]) for name in os.listdir(tmp_path / "x" / "checkpoints"))

    with Run.create(tmp_path / "x", "") as run:
        for i in range(5):
            advance(run, i, milestone=i == 1)
        assert there() == [1, 2, 3, 4]
        advance(run, 7, temporary=True)
        assert there() == [1, 2, 3, 4, 7]
    with Run.open(tmp_path / "x", write=True) as run:
        checkpoint = run.load()
        assert checkpoint and checkpoint.iteration == 7
        run.rewind(checkpoint)
        assert there() == [1, 2, 3, 4, 7]
        advance(run, 9)
        assert there() == [1, 3, 4, 9]


def test_saving_one_iteration_twice(tmp_path: Path) -> None:
    with Run.create(tmp_path / "x", "") as run:
        first = run.save(3, parts(3), CPU, temporary=True)
        inode = first.stat().st_ino
        assert run.save(3, parts(3), CPU, temporary=True) == first and first.stat().st_ino == inode
        run.save(3, {**parts(3), "more": {}}, CPU)
        assert os.listdir(first.parent) == [first.name]
    assert "more" in newest(tmp_path / "x").parts


@pytest.mark.parametrize("name", [disk.ARRAYS_FILE, disk.STATE_FILE, disk.MANIFEST_FILE])
def test_a_flipped_bit_is_found_named_and_the_previous_one_used(tmp_path: Path, name: str) -> None:
    folder, chance = new(tmp_path / "x", 4), random.Random(3)
    path = folder / "checkpoints" / "iter_00000003" / name
    for _ in range(10):
        position, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        damage(path, position, bit)
        found = newest(folder)
        assert found.iteration == 2
        ((skipped, why),) = found.skipped
        assert skipped == "iter_00000003" and name in why
        damage(path, position, bit)
    damage(path, 1)
    go_on(folder, 5)
    assert contents(folder) == contents(new(tmp_path / "twin", 5))
    assert os.listdir(folder / "damaged") == ["iter_00000003"]


def test_where_none_verifies_nothing_is_started_or_changed(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 4)
    for path in (folder / "checkpoints").glob("*/state.json"):
        damage(path, 0)
    before = contents(folder)
    with Run.open(folder, write=True) as run:
        with pytest.raises(ConfigError, match=r"none of its 3 .*iter_00000003: state.json.*refus") as caught:
            run.load()
        one_line(caught)
        with pytest.raises(RunError, match="has checkpoints"):
            run.rewind(None)
    assert contents(folder) == before


def test_checkpoints_of_another_run_or_under_another_name_are_not_taken(tmp_path: Path) -> None:
    folder = new(tmp_path / "x", 3)
    with Run.create(tmp_path / "other", "seed: 2\n") as run:
        advance(run, 8)
    there = folder / "checkpoints"
    shutil.copytree(tmp_path / "other" / "checkpoints" / "iter_00000008", there / "iter_00000008")
    shutil.copytree(there / "iter_00000001", there / "iter_00000009")
    (there / "iter_00000010").symlink_to(tmp_path / "other" / "checkpoints" / "iter_00000008")
    found = newest(folder)
    assert found.iteration == 2
    assert [name for name, _ in found.skipped] == [f"iter_{n:08d}" for n in (10, 9, 8)]
    assert "config.yaml" in found.skipped[2][1]
    go_on(folder, 4)
    assert contents(folder) == contents(new(tmp_path / "twin", 4))
    assert newest(tmp_path / "other").iteration == 8


@pytest.mark.parametrize("again", [False, True], ids=["next", "replacing"])
def test_every_prefix_of_a_save_recovers_to_the_old_or_the_new(
        memory: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Stop before each call; lose, tear or keep what was not synced; resume; end like the twin."""
    start, twin = new(memory / "start", 4), contents(new(memory / "twin", 5))
    if again:  # iteration 4 is there already, as a passing one
        with about_to_save(start, 4) as run:
            run.save(4, parts(4), CPU, temporary=True)
    old = newest(start).manifest
    outcomes: set[tuple[int, str]] = set()
    committed = False
    for index in range(1000):
        folder = memory / f"{index}"
        shutil.copytree(start, folder)
        if again:
            run = Run.open(folder, write=True)
            run.rewind(run.load())
        else:
            run = about_to_save(folder, 4)
        kernel = Kernel(folder, index, Crash())
        for log in run._logs.values():  # lines after the last save have not reached the disk
            kernel.bytes[kernel.number(log.path)] = log.path.read_bytes()[:log._hashed]
        under(kernel, monkeypatch)
        try:
            run.save(4, parts(4), CPU)
            done = True
        except Crash:
            done = False
        under(os, monkeypatch)
        run.close()
        synced = 0  # the commit point: the fsync that follows the last rename of the new folder
        if "rename" in kernel.calls:
            tail = kernel.calls[kernel.calls.index("rename") + (2 if again else 1):]
            synced = tail.count("fsync") - (not done and tail[-1:] == ["fsync"])
        committed = committed or synced > 0
        for names, data in (("all", "written"), ("all", "lost"), ("all", "torn"), ("synced", "lost"),
                            ("synced", "torn")):
            disk_now = kernel.power_loss(memory / f"{index}-{names}-{data}", names, data)
            found = newest(disk_now)
            assert (found.iteration, found.manifest.keep) in ((old.iteration, old.keep), (4, "recent"))
            outcomes.add((found.iteration, found.manifest.keep))
            if synced:
                assert found.manifest.keep == "recent" and found.iteration == 4
            if again and found.manifest.keep == "passing":
                with Run.open(disk_now, write=True) as run:
                    run.rewind(run.load())
                    run.save(4, parts(4), CPU)
            else:
                go_on(disk_now, 5)
            assert contents(disk_now) == twin, (index, names, data)
            assert not (disk_now / "damaged").exists()  # a crash alone damages nothing
            shutil.rmtree(disk_now)
        shutil.rmtree(folder)
        if done:
            break
    assert committed and index > 25 and len(outcomes) == 2


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_a_valid_checkpoint_and_a_save_that_can_be_tried_again(
        memory: Path, monkeypatch: pytest.MonkeyPatch, code: int, lasting: bool) -> None:
    start, twin = new(memory / "start", 4), contents(new(memory / "twin", 5))
    told = 0
    for index in range(1000):
        folder = memory / f"{index}"
        shutil.copytree(start, folder)
        with about_to_save(folder, 4) as run:
            kernel = Kernel(folder, index, OSError(code, os.strerror(code)), lasting)
            under(kernel, monkeypatch)
            try:
                run.save(4, parts(4), CPU)
                saved = True
            except RunError as error:
                saved = False
                told += 1
                assert "iter_00000004 was not saved: " in str(error) and os.strerror(code) in str(error)
                assert "\n" not in str(error)
            under(os, monkeypatch)
            found = run.load()
            assert found and found.iteration in ((4,) if saved else (3, 4) if lasting else (3,))
            if not saved and not lasting:
                assert sorted(os.listdir(folder / "checkpoints")) == [f"iter_{n:08d}" for n in (1, 2, 3)]
            run.save(4, parts(4), CPU)
        go_on(folder, 5)
        assert contents(folder) == twin, index
        shutil.rmtree(folder)
        if len(kernel.calls) <= index:
            break
    assert told > 20


def test_a_disk_that_lies_is_caught_by_reading_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new(tmp_path / "x", 4)
    before = contents(folder)

    class Lying(Kernel):
        def write(self, fd: int, data: bytes) -> int:
            return os.write(fd, bytes(data).replace(b"a", b"b", 1))

    with Run.open(folder, write=True) as run:
        run.rewind(run.load())
        under(Lying(folder), monkeypatch)
        with pytest.raises(RunError, match=r"00004 was not saved: .*does not match") as caught:
            run.save(4, parts(4), CPU)
        one_line(caught)
        under(os, monkeypatch)
    assert contents(folder) == before
