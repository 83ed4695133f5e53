"""Chunks: written once, shared by checkpoints, verified on load, gone when nobody names them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.broken_disk import Crash, Kernel, memory, under

from rematch.core.errors import ConfigError, Damaged
from rematch.storage.array_chunks import CHUNK_FOLDER, ArrayChunk
from rematch.storage.atomic_files import FileDigest, sha256_hex
from rematch.storage.run_folder import Run

__all__ = ["memory"]


def chunk(number: int) -> ArrayChunk:
    arrays = {"a": np.full((3, 2), number, np.int16), "empty": np.zeros((0, 4))}
    return ArrayChunk.from_arrays(f"replay-{number:08d}", arrays)


def parts(*chunks: ArrayChunk) -> dict[str, Any]:
    return {"learner": {"replay": {"chunks": list(chunks)}, "x": 1}}


def files(folder: Path) -> dict[str, int]:
    """Name -> the file's identity: a file that is written again has another."""
    return {path.name: path.stat().st_ino for path in sorted((folder / CHUNK_FOLDER).iterdir())}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with Run.create(tmp_path / "run", "game: none\n") as made:
        yield made


def test_they_come_back_and_are_written_once(run: Run) -> None:
    first, second = chunk(1), chunk(2)
    run.save(1, parts(first), {})
    before = files(run.folder)
    run.save(2, parts(first, second), {})
    after = files(run.folder)
    assert set(after) - set(before) == {second.name} and after[first.name] == before[first.name]
    found = run.load()
    assert found is not None
    back = found.parts["learner"]["replay"]["chunks"]
    assert [c.number for c in back] == [1, 2] and (back[1].arrays()["a"] == 2).all()
    assert back[0].arrays()["empty"].shape == (0, 4) and back[0].data is None


def test_who_is_named_by_no_checkpoint_goes(run: Run) -> None:
    made = [chunk(i) for i in range(7)]
    for i in range(2, 7):
        run.save(i, parts(*made[i - 2 : i + 1]), {})
    assert sorted(files(run.folder)) == sorted(c.name for c in made[2:])  # those of the three newest


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_a_damaged_one_is_found_and_the_checkpoint_before_it_taken(run: Run, how: str) -> None:
    first, second = chunk(1), chunk(2)
    run.save(1, parts(first), {})
    run.save(2, parts(first, second), {})
    path = run.folder / CHUNK_FOLDER / second.name
    raw = bytearray(path.read_bytes())
    path.unlink()
    if how != "remove":
        raw[-1] ^= 1
        path.write_bytes(raw if how == "flip" else raw[:-1])
    found = run.load()
    assert found is not None and found.iteration == 1
    (name, why), = found.skipped
    assert name == "iter_00000002" and second.name in why


def test_who_wants_the_rest_alone_reads_no_chunk_and_is_told_of_damage_when_he_does(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = chunk(1)
    run.save(1, parts(only), {})
    path = run.folder / CHUNK_FOLDER / only.name
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with monkeypatch.context() as patch:
        patch.setattr(ArrayChunk, "read", lambda self: pytest.fail("it was read"))
        found = run.load(verify_chunks=False)
    assert found is not None and found.parts["learner"]["x"] == 1
    with pytest.raises(Damaged, match="does not match its SHA-256"):
        found.parts["learner"]["replay"]["chunks"][0].arrays()
    path.unlink()
    with pytest.raises(ConfigError, match="none of its 1 checkpoints verifies"):
        run.load(verify_chunks=False)


def test_a_run_whose_only_chunk_is_gone_refuses_to_start(run: Run) -> None:
    only = chunk(1)
    run.save(1, parts(only), {})
    (run.folder / CHUNK_FOLDER / only.name).unlink()
    with pytest.raises(ConfigError, match=r"none of its 1 checkpoints verifies .*missing"):
        run.load()


@pytest.mark.parametrize("kind", ["stops", "fails"])
def test_every_prefix_of_a_save_leaves_the_old_or_the_new(
    memory: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The machine stops before each call, or the disk is full at each: whatever is found then is whole."""
    start, found = memory / "start", set()
    with Run.create(start, "game: none\n") as run:
        run.save(1, parts(chunk(1)), {})
    error = Crash() if kind == "stops" else OSError(errno.ENOSPC, "No space left on device")
    for index in range(1000):
        folder, second = memory / f"{index}", chunk(2)
        shutil.copytree(start, folder)
        run = Run.open(folder, write=True)
        old = run.load()
        run.rewind(old)
        assert old is not None
        (first,) = old.parts["learner"]["replay"]["chunks"]
        kernel = Kernel(folder, index, error)
        under(kernel, monkeypatch)
        try:
            run.save(2, parts(first, second), {})
            done = True
        except (Crash, ConfigError):
            done = False
        under(os, monkeypatch)
        if kind == "fails":
            found.add(_newest(folder))
            run.save(2, parts(first, second), {})
            assert _newest(folder) == 2, index
        run.close()
        for names, data in (("all", "lost"), ("all", "torn"), ("synced", "lost")):
            disk_now = kernel.power_loss(memory / f"{index}-{names}-{data}", names, data)
            if kind == "stops":
                found.add(_newest(disk_now))
            shutil.rmtree(disk_now)
        shutil.rmtree(folder)
        if done and len(kernel.calls) <= index:
            break
    assert found == {1, 2} and index > 25


def _newest(folder: Path) -> int:
    """The iteration that a resume would go on from; its chunks are whole."""
    with Run.open(folder, write=False) as run:
        found = run.load()
    assert found is not None and not found.skipped
    for number, part in enumerate(found.parts["learner"]["replay"]["chunks"], 1):
        assert (part.arrays()["a"] == number).all()
    return found.iteration


def test_a_manifest_cannot_lead_out_of_the_folder(run: Run) -> None:
    stray = ArrayChunk("../../etc.safetensors", chunk(1).digest, data=b"")
    with pytest.raises(ConfigError, match="is not the name of an array chunk"):
        run.save(1, parts(stray), {})
    assert not list(run.folder.parent.parent.glob("*.safetensors"))


def test_bytes_that_are_no_arrays_are_damage_however_well_sealed() -> None:
    raw = b"garbage" * 10
    name = f"replay-00000000.{sha256_hex(raw)[:16]}.safetensors"
    with pytest.raises(Damaged, match="is not a safetensors file of plain arrays"):
        ArrayChunk(name, FileDigest(len(raw), sha256_hex(raw)), raw).arrays()
