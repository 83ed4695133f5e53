"""Array chunks: written once, shared by checkpoints, verified on load, deleted when unreferenced."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.broken_disk import Crash, Kernel, use_kernel

from rematch.core.errors import ConfigError, Damaged
from rematch.storage.array_chunks import CHUNK_FOLDER, ArrayChunk
from rematch.storage.atomic_files import FileDigest, sha256_hex
from rematch.storage.run_folder import Run


def chunk(number: int) -> ArrayChunk:
    arrays = {"a": np.full((3, 2), number, np.int16), "empty": np.zeros((0, 4))}
    return ArrayChunk.from_arrays(f"replay-{number:08d}", arrays)


def parts(*chunks: ArrayChunk) -> dict[str, Any]:
    return {"learner": {"replay": {"chunks": list(chunks)}, "x": 1}}


def chunk_files(folder: Path) -> dict[str, int]:
    """Name -> inode of each chunk file: a file that is written again has another inode."""
    return {path.name: path.stat().st_ino for path in sorted((folder / CHUNK_FOLDER).iterdir())}


def test_chunk_is_written_once_and_read_back(run: Run) -> None:
    first, second = chunk(1), chunk(2)
    run.save(1, parts(first), {})
    before = chunk_files(run.folder)
    run.save(2, parts(first, second), {})
    after = chunk_files(run.folder)
    assert set(after) - set(before) == {second.name} and after[first.name] == before[first.name]
    loaded = run.load()
    assert loaded is not None
    back = loaded.parts["learner"]["replay"]["chunks"]
    assert [c.number for c in back] == [1, 2] and (back[1].arrays()["a"] == 2).all()
    assert back[0].arrays()["empty"].shape == (0, 4) and back[0].data is None


def test_chunk_without_a_checkpoint_is_deleted(run: Run) -> None:
    chunks = [chunk(i) for i in range(7)]
    for i in range(2, 7):
        run.save(i, parts(*chunks[i - 2 : i + 1]), {})
    assert sorted(chunk_files(run.folder)) == sorted(c.name for c in chunks[2:])  # those of the three newest


@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
def test_damaged_chunk_makes_load_use_the_checkpoint_before(run: Run, change: str) -> None:
    first, second = chunk(1), chunk(2)
    run.save(1, parts(first), {})
    run.save(2, parts(first, second), {})
    path = run.folder / CHUNK_FOLDER / second.name
    raw = bytearray(path.read_bytes())
    path.unlink()
    if change != "remove":
        raw[-1] ^= 1
        path.write_bytes(raw if change == "flip" else raw[:-1])
    loaded = run.load()
    assert loaded is not None and loaded.iteration == 1
    (name, reason), = loaded.skipped
    assert name == "iter_00000002" and second.name in reason


def test_load_without_chunk_verification_reads_no_chunk(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = chunk(1)
    run.save(1, parts(only), {})
    path = run.folder / CHUNK_FOLDER / only.name
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with monkeypatch.context() as patch:
        patch.setattr(ArrayChunk, "read", lambda self: pytest.fail("a chunk was read"))
        loaded = run.load(verify_chunks=False)
    assert loaded is not None and loaded.parts["learner"]["x"] == 1
    with pytest.raises(Damaged, match="does not match its SHA-256"):
        loaded.parts["learner"]["replay"]["chunks"][0].arrays()
    path.unlink()
    with pytest.raises(ConfigError, match="none of its 1 checkpoints verifies"):
        run.load(verify_chunks=False)


def test_load_refuses_where_the_only_chunk_is_missing(run: Run) -> None:
    only = chunk(1)
    run.save(1, parts(only), {})
    (run.folder / CHUNK_FOLDER / only.name).unlink()
    with pytest.raises(ConfigError, match=r"none of its 1 checkpoints verifies .*missing"):
        run.load()


@pytest.mark.parametrize("kind", ["stops", "fails"])
def test_interrupted_save_with_chunks_leaves_the_old_or_the_new_state(
    ram_folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The machine stops before each call, or the disk is full at each call: a whole state is loaded."""
    start, outcomes = ram_folder / "start", set()
    with Run.create(start, "game: none\n") as run:
        run.save(1, parts(chunk(1)), {})
    error = Crash() if kind == "stops" else OSError(errno.ENOSPC, "No space left on device")
    for index in range(1000):
        folder, second = ram_folder / f"{index}", chunk(2)
        shutil.copytree(start, folder)
        run = Run.open(folder, write=True)
        old = run.load()
        run.rewind(old)
        assert old is not None
        (first,) = old.parts["learner"]["replay"]["chunks"]
        kernel = Kernel(folder, index, error)
        use_kernel(kernel, monkeypatch)
        try:
            run.save(2, parts(first, second), {})
            done = True
        except (Crash, ConfigError):
            done = False
        use_kernel(os, monkeypatch)
        if kind == "fails":
            outcomes.add(_newest(folder))
            run.save(2, parts(first, second), {})
            assert _newest(folder) == 2, index
        run.close()
        for names, data in (("all", "lost"), ("all", "torn"), ("synced", "lost")):
            disk_after = kernel.power_loss(ram_folder / f"{index}-{names}-{data}", names, data)
            if kind == "stops":
                outcomes.add(_newest(disk_after))
            shutil.rmtree(disk_after)
        shutil.rmtree(folder)
        if done and len(kernel.calls) <= index:
            break
    assert outcomes == {1, 2} and index > 25


def _newest(folder: Path) -> int:
    """The iteration that a resume would continue from; its chunks are verified."""
    with Run.open(folder, write=False) as run:
        loaded = run.load()
    assert loaded is not None and not loaded.skipped
    for number, part in enumerate(loaded.parts["learner"]["replay"]["chunks"], 1):
        assert (part.arrays()["a"] == number).all()
    return loaded.iteration


def test_chunk_name_cannot_lead_out_of_the_folder(run: Run) -> None:
    stray = ArrayChunk("../../etc.safetensors", chunk(1).digest, data=b"")
    with pytest.raises(ConfigError, match="is not the name of an array chunk"):
        run.save(1, parts(stray), {})
    assert not list(run.folder.parent.parent.glob("*.safetensors"))


def test_chunk_that_holds_no_arrays_is_damaged() -> None:
    raw = b"garbage" * 10
    name = f"replay-00000000.{sha256_hex(raw)[:16]}.safetensors"
    with pytest.raises(Damaged, match="is not a safetensors file of plain arrays"):
        ArrayChunk(name, FileDigest(len(raw), sha256_hex(raw)), raw).arrays()


def test_second_save_of_an_iteration_finds_a_missing_chunk(run: Run) -> None:
    only = chunk(1)
    run.save(1, parts(only), {})
    (run.folder / CHUNK_FOLDER / only.name).unlink()
    with pytest.raises(ConfigError, match=f"was not saved: {only.name} cannot be read"):
        run.save(1, parts(only), {})
