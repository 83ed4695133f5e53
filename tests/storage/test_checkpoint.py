"""Checkpoint format: state trees are read back bit for bit; changed or forged files are damaged."""

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
from rematch.storage import array_chunks, checkpoint
from rematch.storage.checkpoint import FileDigest, Manifest

LOGS = dict.fromkeys(sorted(checkpoint.LOGS_OF_EVERY_RUN), FileDigest(0, checkpoint.sha256_hex(b"")))
PARTS: dict[str, Any] = {
    "learner": {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "step": 7, "best": -math.inf},
    "league": {"names": ["a", "b"], "seed": np.array([2**64 - 1], np.uint64)},
}


def write(folder: Path, files: dict[str, bytes], /, **changes: Any) -> Path:
    """A checkpoint of iteration 5 with these files and a manifest with their digests; `changes` forge it."""
    folder.mkdir()
    digests = {name: FileDigest(len(data), checkpoint.sha256_hex(data)) for name, data in files.items()}
    manifest = Manifest(iteration=5, keep="recent", config="c", fingerprint={"cpu": "x"}, logs=LOGS,
                        policies=["p"], files=digests)
    body = {"schema": checkpoint.SCHEMA, **checkpoint.asdict(manifest), **changes}
    for name, data in (files | {checkpoint.MANIFEST_FILE: checkpoint.encode_with_digest(body)}).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    return write(tmp_path / "iter_00000005", checkpoint.encode_state(PARTS))


def bitwise_equal(a: Any, b: Any) -> bool:
    """Equal to the bit and of the same types; NaN equals NaN, 0.0 differs from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(bitwise_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(bitwise_equal, a, b))
    return struct.pack("d", a) == struct.pack("d", b) if isinstance(a, float) else bool(a == b)


def round_trip(parts: dict[str, Any]) -> Any:
    files = checkpoint.encode_state(parts)
    arrays = array_chunks.read_arrays(files[checkpoint.ARRAYS_FILE], "")
    back = checkpoint.unpack(checkpoint.read_json(files[checkpoint.STATE_FILE], ""), arrays, {})
    assert not arrays
    return back


DTYPES = st.sampled_from(sorted(array_chunks.DTYPES, key=str))
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))
LEAVES = st.one_of(ARRAYS, ARRAYS.map(np.transpose), st.integers(), st.floats(), st.text(max_size=8),
                   st.booleans(), st.none(), DTYPES.map(lambda dtype: dtype.type(1)))
TRICKY = st.sampled_from(["$array", "$", "$$float", "a/b", "a", "b", "__metadata__"])
KEYS = st.one_of(st.text(max_size=4), TRICKY)
TREES = st.recursive(LEAVES, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=2).map(tuple),
    st.dictionaries(KEYS, inner, max_size=4)), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_state_tree_is_read_back_bit_for_bit(tree: dict[str, Any]) -> None:
    assert bitwise_equal(round_trip(tree), tree)
    assert checkpoint.encode_state(tree) == checkpoint.encode_state(round_trip(tree))


def test_equal_array_paths_stay_separate_and_arrays_are_writable() -> None:
    tree = {"a/b": np.array([1]), "a": {"b": np.array([2]), "b'": np.array([3])}, "view": np.arange(6)[::2]}
    back = round_trip(tree)
    assert bitwise_equal(back, {**tree, "view": np.array([0, 2, 4])})
    back["a/b"][0] = 9


@pytest.mark.parametrize(("value", "word"), [
    ({1: 2}, "key 1"), ({"x": {3}}, "set"), ({"x": b"raw"}, "bytes"), ({"x": "\ud800"}, "Unicode"),
    ({"x": np.array(["s"])}, "<U1"), ({"x": np.array([1j])}, "complex"), ({"x": 10**5000}, "digits"),
    ({"x": np.zeros(2, ">f4")}, ">f4"), ({"x": object()}, "object"),
])
def test_unsupported_value_is_refused_by_name(value: Any, word: str) -> None:
    with pytest.raises(RunError, match=word) as caught:
        checkpoint.encode_state({"part": value})
    assert "\n" not in str(caught.value)


def test_deep_nesting_is_refused_on_save() -> None:
    deep: Any = 1
    for _ in range(checkpoint.MAX_DEPTH + 2):
        deep = [deep]
    ring: list[Any] = []
    ring.append(ring)
    for tree in (deep, ring):
        with pytest.raises(RunError, match="deep"):
            checkpoint.encode_state({"x": tree})


def test_verified_checkpoint_is_read_back(valid: Path) -> None:
    loaded = checkpoint.read_checkpoint(valid)
    assert bitwise_equal(loaded.parts, PARTS) and loaded.iteration == 5 and loaded.fingerprint == {"cpu": "x"}


def test_manifest_with_any_flipped_bit_is_damaged(valid: Path) -> None:
    path = valid / checkpoint.MANIFEST_FILE
    raw, rng = path.read_bytes(), random.Random(1)
    for position in range(len(raw)):
        path.write_bytes(flipped(raw, position, rng.randrange(8)))
        with pytest.raises(Damaged, match="manifest"):
            checkpoint.verify(valid)
    path.write_bytes(raw)
    checkpoint.verify(valid)


def flipped(raw: bytes, position: int, bit: int) -> bytes:
    return raw[:position] + bytes([raw[position] ^ 1 << bit]) + raw[position + 1:]


@pytest.mark.parametrize("name", [checkpoint.ARRAYS_FILE, checkpoint.STATE_FILE])
def test_changed_or_missing_state_file_is_damaged(valid: Path, name: str) -> None:
    path = valid / name
    raw, rng = path.read_bytes(), random.Random(2)
    positions = {0, len(raw) - 1, *(rng.randrange(len(raw)) for _ in range(40))}
    changed = [flipped(raw, position, rng.randrange(8)) for position in positions]
    changed += [raw[:-1], raw[:len(raw) // 2], b"", raw + b"\0", bytes(len(raw))]
    for data in changed:
        path.write_bytes(data)
        with pytest.raises(Damaged, match=name):
            checkpoint.verify(valid)
    path.unlink()
    with pytest.raises(Damaged, match=f"{name} is missing"):
        checkpoint.verify(valid)


def test_link_pipe_or_folder_instead_of_a_file_is_damaged(valid: Path, tmp_path: Path) -> None:
    original = (valid / checkpoint.STATE_FILE).read_bytes()
    (tmp_path / "elsewhere").write_bytes(original)

    def link(path: Path) -> None:
        path.symlink_to(tmp_path / "elsewhere")

    for make, word in ((link, "symbolic link"), (os.mkfifo, "regular file"), (os.mkdir, "regular file")):
        (valid / checkpoint.STATE_FILE).unlink()
        make(valid / checkpoint.STATE_FILE)
        with pytest.raises(Damaged, match=word):
            checkpoint.verify(valid)
        if make is os.mkdir:
            (valid / checkpoint.STATE_FILE).rmdir()
            (valid / checkpoint.STATE_FILE).write_bytes(original)
    (tmp_path / "iter_00000006").symlink_to(valid)
    with pytest.raises(Damaged, match="not a folder"):
        checkpoint.verify(tmp_path / "iter_00000006")
    with pytest.raises(Damaged, match="No such file"):
        checkpoint.verify(tmp_path / "iter_00000007")


DIGEST = {"size": 1, "sha256": "x"}


@pytest.mark.parametrize("changes", [
    {"files": {"../state.json": DIGEST, checkpoint.ARRAYS_FILE: DIGEST}},
    {"files": {"/etc/passwd": DIGEST, checkpoint.ARRAYS_FILE: DIGEST, checkpoint.STATE_FILE: DIGEST}},
    {"files": {checkpoint.ARRAYS_FILE: {"size": 10**18, "sha256": "x"}, checkpoint.STATE_FILE: DIGEST}},
    {"files": {checkpoint.ARRAYS_FILE: {"size": -1, "sha256": "x"}, checkpoint.STATE_FILE: DIGEST}},
    {"files": {checkpoint.ARRAYS_FILE: {"size": True, "sha256": "x"}, checkpoint.STATE_FILE: DIGEST}},
    {"files": {checkpoint.ARRAYS_FILE: {"size": 1.5, "sha256": "x"}, checkpoint.STATE_FILE: DIGEST}},
    {"files": []}, {"files": None}, {"files": {checkpoint.ARRAYS_FILE: 3, checkpoint.STATE_FILE: DIGEST}},
    {"iteration": "5"}, {"iteration": True}, {"iteration": 6}, {"iteration": -5}, {"iteration": None},
    {"schema": 2}, {"schema": "1"}, {"extra": 1}, {"fingerprint": ["cpu"]}, {"fingerprint": {"cpu": 1}},
    {"logs": {}}, {"logs": {**LOGS, "../x": DIGEST}}, {"keep": 3}, {"config": None}, {"policies": "p"},
    {"policies": [["p"]]},
])
def test_forged_manifest_with_a_correct_digest_is_damaged(tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = json.loads(json.dumps(changes, default=checkpoint.asdict))
    folder = write(tmp_path / "iter_00000005", checkpoint.encode_state(PARTS), **changes)
    with pytest.raises(Damaged) as caught:
        checkpoint.read_checkpoint(folder)
    assert "\n" not in str(caught.value) and not isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("raw", [
    b"", b"{", b"[]", b"null", b'{"sha256": "x"}', b'{"a": NaN, "sha256": ""}', b'{"a":1,"a":2,"sha256":""}',
    b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1e999, "sha256": ""}', b"\xff\xfe", b"1" * 5000,
    b'{"a": ' + b"1" * 5000 + b', "sha256": ""}', b'{"x": ' + b"[" * 900 + b"]" * 900 + b', "sha256": ""}',
])
def test_malformed_manifest_is_damaged(valid: Path, raw: bytes) -> None:
    (valid / checkpoint.MANIFEST_FILE).write_bytes(raw)
    with pytest.raises(Damaged, match="manifest"):
        checkpoint.read_checkpoint(valid)


def tensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(("arrays", "state"), [
    (b"", b"{}"), (b"PK\x03\x04 not ours", b"{}"), (struct.pack("<Q", 2**63) + b"{}", b"{}"),
    (tensors(b"[" * 5000), b"{}"), (tensors({"a": {**ONE, "dtype": "BF16"}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "shape": [2**62, 2**62]}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "data_offsets": [4, 0]}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "shape": [-1]}}, bytes(4)), b"{}"),
    (tensors({"a": {**ONE, "dtype": "C64", "data_offsets": [0, 8]}}, bytes(8)), b'{"a":{"$array":"a"}}'),
    (safetensors.numpy.save({"a": np.zeros(1)}), b"{}"),
    (safetensors.numpy.save({"a": np.zeros(1)}), b'{"x":{"$array":"a"},"y":{"$array":"a"}}'),
    (safetensors.numpy.save({"a": np.zeros(2)}), b'{"x":{"$scalar":"a"}}'),
    *((tensors({}), state) for state in (
        b"[]", b"3", b'{"x":{"$array":"b"}}', b'{"x":{"$array":[1]}}', b'{"x":{"$array":null}}',
        b'{"x":{"$code":"b"}}', b'{"x":{"$float":"1"}}', b'{"x":{"$float":"0000000000000000"}}',
        b'{"x":{"$float":"zz"}}', b'{"x":{"$tuple":3}}', b'{"x":1,"x":2}',
        b'{"x":NaN}', b'{"x":' + b"[" * 100_000, b'{"x":' + b"[" * 900 + b"]" * 900 + b"}", b"\xff", b"")),
])
def test_foreign_state_with_correct_digests_is_damaged(tmp_path: Path, arrays: bytes, state: bytes) -> None:
    folder = write(tmp_path / "iter_00000005", {checkpoint.ARRAYS_FILE: arrays, checkpoint.STATE_FILE: state})
    with pytest.raises(Damaged) as caught:
        checkpoint.read_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_files_of_two_checkpoints_are_not_mixed(tmp_path: Path, valid: Path) -> None:
    other = write(tmp_path / "iter_00000006", checkpoint.encode_state({**PARTS, "more": {}}), iteration=6)
    for name in (checkpoint.STATE_FILE, checkpoint.MANIFEST_FILE):
        original = (valid / name).read_bytes()
        (valid / name).write_bytes((other / name).read_bytes())
        with pytest.raises(Damaged):
            checkpoint.read_checkpoint(valid)
        (valid / name).write_bytes(original)
    checkpoint.read_checkpoint(valid)
