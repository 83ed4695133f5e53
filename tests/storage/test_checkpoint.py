"""Trees survive a round trip to the bit; nothing changed, cut, mixed up or forged is ever believed."""

from __future__ import annotations

import json
import math
import os
import random
import struct
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from rematch.core.errors import Damaged, RunError
from rematch.storage import array_chunks
from rematch.storage import checkpoint as disk
from rematch.storage.checkpoint import FileDigest, Manifest

LOGS = {name: FileDigest(0, disk.sha256_hex(b"")) for name in ("train.log", "metrics.jsonl", "history.json")}
PARTS: dict[str, Any] = {
    "learner": {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "step": 7, "best": -math.inf},
    "league": {"names": ["a", "b"], "seed": np.array([2**64 - 1], np.uint64)},
}


def write(folder: Path, files: dict[str, bytes], /, **changes: Any) -> Path:
    """A checkpoint of iteration 5 with these files and a manifest that vouches for them, honest or not."""
    folder.mkdir()
    marks = {name: FileDigest(len(data), disk.sha256_hex(data)) for name, data in files.items()}
    manifest = Manifest(iteration=5, keep="recent", config="c", fingerprint={"cpu": "x"}, logs=LOGS,
                        policies=["p"], files=marks)
    body = {"schema": disk.SCHEMA, **disk.asdict(manifest), **changes}
    for name, data in (files | {disk.MANIFEST_FILE: disk.encode_with_digest(body)}).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "iter_00000005", disk.encode_state(PARTS))


def same(a: Any, b: Any) -> bool:
    """Equal to the bit and of the same types; NaN equals NaN, 0.0 differs from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return struct.pack("d", a) == struct.pack("d", b) if isinstance(a, float) else bool(a == b)


def round_trip(parts: dict[str, Any]) -> Any:
    files = disk.encode_state(parts)
    arrays = array_chunks.read_arrays(files[disk.ARRAYS_FILE], "")
    back = disk.unpack(disk.read_json(files[disk.STATE_FILE], ""), arrays, {})
    assert not arrays
    return back


KINDS = st.sampled_from(sorted(array_chunks.DTYPES, key=str))
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
ARRAYS = KINDS.flatmap(lambda kind: hnp.arrays(kind, SHAPES))
LEAVES = st.one_of(ARRAYS, ARRAYS.map(np.transpose), st.integers(), st.floats(), st.text(max_size=8),
                   st.booleans(), st.none(), KINDS.map(lambda kind: kind.type(1)))
TRICKY = st.sampled_from(["$array", "$", "$$float", "a/b", "a", "b", "__metadata__"])
KEYS = st.one_of(st.text(max_size=4), TRICKY)
TREES = st.recursive(LEAVES, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=2).map(tuple),
    st.dictionaries(KEYS, inner, max_size=4)), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_trees_come_back_to_the_bit(tree: dict[str, Any]) -> None:
    assert same(round_trip(tree), tree)
    assert disk.encode_state(tree) == disk.encode_state(round_trip(tree))


def test_paths_that_read_alike_stay_apart_and_arrays_are_ours_to_change() -> None:
    tree = {"a/b": np.array([1]), "a": {"b": np.array([2]), "b'": np.array([3])}, "view": np.arange(6)[::2]}
    back = round_trip(tree)
    assert same(back, {**tree, "view": np.array([0, 2, 4])})
    back["a/b"][0] = 9


@pytest.mark.parametrize(("value", "word"), [
    ({1: 2}, "key 1"), ({"x": {3}}, "set"), ({"x": b"raw"}, "bytes"), ({"x": "\ud800"}, "Unicode"),
    ({"x": np.array(["s"])}, "<U1"), ({"x": np.array([1j])}, "complex"), ({"x": 10**5000}, "digits"),
    ({"x": np.zeros(2, ">f4")}, ">f4"), ({"x": object()}, "object"),
])
def test_what_cannot_be_kept_is_named(value: Any, word: str) -> None:
    with pytest.raises(RunError, match=word) as caught:
        disk.encode_state({"part": value})
    assert "\n" not in str(caught.value)


def test_endless_nesting_is_refused_when_saved_not_when_loaded() -> None:
    deep: Any = 1
    for _ in range(disk.MAX_DEPTH + 2):
        deep = [deep]
    ring: list[Any] = []
    ring.append(ring)
    for tree in (deep, ring):
        with pytest.raises(RunError, match="deep"):
            disk.encode_state({"x": tree})


def test_verified_checkpoint_reads_back(good: Path) -> None:
    found = disk.read_checkpoint(good)
    assert same(found.parts, PARTS) and found.iteration == 5 and found.fingerprint == {"cpu": "x"}


def test_one_flipped_bit_anywhere_in_the_manifest_is_found(good: Path) -> None:
    path = good / disk.MANIFEST_FILE
    raw, chance = path.read_bytes(), random.Random(1)
    for position in range(len(raw)):
        path.write_bytes(flipped(raw, position, chance.randrange(8)))
        with pytest.raises(Damaged, match="manifest"):
            disk.verify(good)
    path.write_bytes(raw)
    disk.verify(good)


def flipped(raw: bytes, position: int, bit: int) -> bytes:
    return raw[:position] + bytes([raw[position] ^ 1 << bit]) + raw[position + 1:]


@pytest.mark.parametrize("name", [disk.ARRAYS_FILE, disk.STATE_FILE])
def test_flipped_cut_grown_missing_and_swapped_files_are_found(good: Path, name: str) -> None:
    path = good / name
    raw, chance = path.read_bytes(), random.Random(2)
    positions = {0, len(raw) - 1, *(chance.randrange(len(raw)) for _ in range(40))}
    spoiled = [flipped(raw, position, chance.randrange(8)) for position in positions]
    spoiled += [raw[:-1], raw[:len(raw) // 2], b"", raw + b"\0", bytes(len(raw))]
    for data in spoiled:
        path.write_bytes(data)
        with pytest.raises(Damaged, match=name):
            disk.verify(good)
    path.unlink()
    with pytest.raises(Damaged, match=f"{name} is missing"):
        disk.verify(good)


def test_links_pipes_and_folders_in_place_of_files_are_refused(good: Path, tmp_path: Path) -> None:
    kept = (good / disk.STATE_FILE).read_bytes()
    (tmp_path / "elsewhere").write_bytes(kept)

    def link(path: Path) -> None:
        path.symlink_to(tmp_path / "elsewhere")

    for make, word in ((link, "symbolic link"), (os.mkfifo, "regular file"), (os.mkdir, "regular file")):
        (good / disk.STATE_FILE).unlink()
        make(good / disk.STATE_FILE)
        with pytest.raises(Damaged, match=word):
            disk.verify(good)
        if make is os.mkdir:
            (good / disk.STATE_FILE).rmdir()
            (good / disk.STATE_FILE).write_bytes(kept)
    (tmp_path / "iter_00000006").symlink_to(good)
    with pytest.raises(Damaged, match="not a folder"):
        disk.verify(tmp_path / "iter_00000006")
    with pytest.raises(Damaged, match="No such file"):
        disk.verify(tmp_path / "iter_00000007")


MARK = {"size": 1, "sha256": "x"}


@pytest.mark.parametrize("changes", [
    {"files": {"../state.json": MARK, disk.ARRAYS_FILE: MARK}},
    {"files": {"/etc/passwd": MARK, disk.ARRAYS_FILE: MARK, disk.STATE_FILE: MARK}},
    {"files": {disk.ARRAYS_FILE: {"size": 10**18, "sha256": "x"}, disk.STATE_FILE: MARK}},
    {"files": {disk.ARRAYS_FILE: {"size": -1, "sha256": "x"}, disk.STATE_FILE: MARK}},
    {"files": {disk.ARRAYS_FILE: {"size": True, "sha256": "x"}, disk.STATE_FILE: MARK}},
    {"files": {disk.ARRAYS_FILE: {"size": 1.5, "sha256": "x"}, disk.STATE_FILE: MARK}},
    {"files": []}, {"files": None}, {"files": {disk.ARRAYS_FILE: 3, disk.STATE_FILE: MARK}},
    {"iteration": "5"}, {"iteration": True}, {"iteration": 6}, {"iteration": -5}, {"iteration": None},
    {"schema": 2}, {"schema": "1"}, {"extra": 1}, {"fingerprint": ["cpu"]}, {"fingerprint": {"cpu": 1}},
    {"logs": {}}, {"logs": {**LOGS, "../x": MARK}}, {"keep": 3}, {"config": None}, {"policies": "p"},
    {"policies": [["p"]]},
])
def test_forged_manifests_with_a_right_seal_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = json.loads(json.dumps(changes, default=disk.asdict))
    folder = write(tmp_path / "iter_00000005", disk.encode_state(PARTS), **changes)
    with pytest.raises(Damaged) as caught:
        disk.read_checkpoint(folder)
    assert "\n" not in str(caught.value) and not isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("raw", [
    b"", b"{", b"[]", b"null", b'{"sha256": "x"}', b'{"a": NaN, "sha256": ""}', b'{"a":1,"a":2,"sha256":""}',
    b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1e999, "sha256": ""}', b"\xff\xfe", b"1" * 5000,
    b'{"a": ' + b"1" * 5000 + b', "sha256": ""}', b'{"x": ' + b"[" * 900 + b"]" * 900 + b', "sha256": ""}',
])
def test_no_manifest_text_leads_to_anything_but_damaged(good: Path, raw: bytes) -> None:
    (good / disk.MANIFEST_FILE).write_bytes(raw)
    with pytest.raises(Damaged, match="manifest"):
        disk.read_checkpoint(good)


def tensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(("arrays", "rest"), [
    (b"", b"{}"), (b"PK\x03\x04 not ours", b"{}"), (struct.pack("<Q", 2**63) + b"{}", b"{}"),
    (tensors(b"[" * 5000), b"{}"), (tensors({"a": {**ONE, "dtype": "BF16"}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "shape": [2**62, 2**62]}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "data_offsets": [4, 0]}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "shape": [-1]}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "dtype": "C64", "data_offsets": [0, 8]}}, bytes(8)), b'{"a":{"$array":"a"}}'),
    (safetensors.numpy.save({"a": np.zeros(1)}), b"{}"),
    (safetensors.numpy.save({"a": np.zeros(1)}), b'{"x":{"$array":"a"},"y":{"$array":"a"}}'),
    (safetensors.numpy.save({"a": np.zeros(2)}), b'{"x":{"$scalar":"a"}}'),
    *((tensors({}), rest) for rest in (
        b"[]", b"3", b'{"x":{"$array":"b"}}', b'{"x":{"$array":[1]}}', b'{"x":{"$array":null}}',
        b'{"x":{"$code":"b"}}', b'{"x":{"$float":"1"}}', b'{"x":{"$float":"0000000000000000"}}',
        b'{"x":{"$float":"zz"}}', b'{"x":{"$tuple":3}}', b'{"x":1,"x":2}',
        b'{"x":NaN}', b'{"x":' + b"[" * 100_000, b'{"x":' + b"[" * 900 + b"]" * 900 + b"}", b"\xff", b"")),
])
def test_foreign_contents_with_right_digests_are_refused(tmp_path: Path, arrays: bytes, rest: bytes) -> None:
    folder = write(tmp_path / "iter_00000005", {disk.ARRAYS_FILE: arrays, disk.STATE_FILE: rest})
    with pytest.raises(Damaged) as caught:
        disk.read_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_files_of_two_checkpoints_do_not_mix(tmp_path: Path, good: Path) -> None:
    other = write(tmp_path / "iter_00000006", disk.encode_state({**PARTS, "more": {}}), iteration=6)
    for name in (disk.STATE_FILE, disk.MANIFEST_FILE):
        kept = (good / name).read_bytes()
        (good / name).write_bytes((other / name).read_bytes())
        with pytest.raises(Damaged):
            disk.read_checkpoint(good)
        (good / name).write_bytes(kept)
    disk.read_checkpoint(good)
