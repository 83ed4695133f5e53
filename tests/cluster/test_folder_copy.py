"""A copy of a folder that grows: complete at the end, and resumable after every message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.cluster import folder_copy
from rematch.cluster.folder_copy import FolderReader, apply, whole
from rematch.core.errors import ConfigError
from rematch.storage.tree_bytes import decode, encode


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


NAMES = st.sampled_from(["train.log", "config.yaml", "past/a.json", "checkpoints/iter_00000001/state.json"])
CHANGE = st.tuples(NAMES, st.sampled_from(["append", "write", "delete"]), st.binary(max_size=40))


@given(rounds=st.lists(st.lists(CHANGE, max_size=5), max_size=5))
def test_copy_equals_the_folder_after_every_message(
    rounds: list[list[tuple[str, str, bytes]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    source, copy = (tmp_path_factory.mktemp(name) for name in ("source", "copy"))
    reader = FolderReader(source)
    for changes in rounds:
        for name, action, data in changes:
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if action == "delete":
                path.unlink(missing_ok=True)
            else:
                before = path.read_bytes() if action == "append" and path.exists() else b""
                path.unlink(missing_ok=True)  # a new file has a new time of change
                path.write_bytes(before + data)
        apply(copy, decode(encode(reader.changes())))
        assert contents(copy) == contents(source)


def test_grown_file_sends_its_new_bytes_alone(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(b"first\n")
    reader = FolderReader(tmp_path)
    reader.changes()
    log.write_bytes(b"first\nsecond\n")
    ((name, offset, data),) = reader.changes()["files"]
    assert (name, offset, data.tobytes()) == ("metrics.jsonl", 6, b"second\n")
    assert reader.changes()["files"] == []


def test_checkpoint_follows_the_files_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a message is full: then the checkpoint waits for a later one."""
    checkpoint = tmp_path / "checkpoints" / "iter_00000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_bytes(b"m")
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 10)
    monkeypatch.setattr(folder_copy, "MOST_BYTES", 15)
    reader = FolderReader(tmp_path)
    names: list[str] = []
    while True:
        changes = reader.changes()
        names += [file[0] for file in changes["files"]]
        if changes["complete"]:
            break
    assert names == ["a", "b", "c", "checkpoints/iter_00000001/manifest.json"]
    monkeypatch.undo()
    assert [file[0] for file in whole(tmp_path)["files"]] == names


def test_lock_and_unfinished_files_stay_behind(tmp_path: Path) -> None:
    for name in ("lock", ".tmp-config.yaml", "config.yaml"):
        (tmp_path / name).write_bytes(b"1")
    assert [file[0] for file in whole(tmp_path)["files"]] == ["config.yaml"]
    assert whole(tmp_path, {"config.yaml"})["files"] == []


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "", "a\0b"])
def test_names_outside_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    entry = [name, 0, np.zeros(1, np.uint8)]
    with pytest.raises(ConfigError, match="expected the name of a file inside the folder"):
        apply(tmp_path / "copy", {"files": [entry], "removed": []})
    with pytest.raises(ConfigError):
        apply(tmp_path / "copy", {"files": [], "removed": [name]})
    assert list(tmp_path.iterdir()) == []
