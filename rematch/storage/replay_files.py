"""Replay files: one JSON object with a digest of its own; arrays are zlib-compressed base64.

Files come from anywhere: sizes, types and shapes are checked before memory is used for them, and a damaged,
foreign or newer file raises Damaged with one line.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.errors import Damaged, RunError
from rematch.core.recording import ENDS, Replay, ReplayPlayer
from rematch.storage import atomic_files

SUFFIX = ".replay"
FORMAT, VERSION = "rematch replay", 1
MOST_FILE = 1 << 24  # bytes
MOST_ARRAY = 1 << 26  # bytes of one array, decompressed
MOST_STEPS = 1_000_000
MOST_SEATS, MOST_NAME = 64, 400
DTYPES = {"u1": np.uint8, "i4": np.int32, "f4": np.float32}
KEYS = {"format", "version", "world", "build", "settings", "seed", "game", "savestate", "step", "players",
        "end", "length", "outcome", "final", "states", "start", "actions", "values", "probs",
        "scores"}  # fmt: skip


def encode(replay: Replay) -> bytes:
    """The bytes of the file; equal replays give equal bytes."""
    players = [{"role": p.role, "name": p.name, "digest": p.digest} for p in replay.players]
    return atomic_files.encode_with_digest({
        "format": FORMAT, "version": VERSION, "world": replay.world, "build": replay.build,
        "settings": dict(replay.settings), "seed": replay.seed, "game": replay.game,
        "savestate": replay.savestate, "step": replay.step, "players": players,
        "end": replay.end, "length": replay.length, "outcome": list(replay.outcome),
        "final": replay.final, "states": replay.states, "start": _pack(replay.start),
        "actions": {role: _pack(array) for role, array in replay.actions.items()},
        "values": {str(seat): _pack(array) for seat, array in replay.values.items()},
        "probs": {str(seat): _pack(array) for seat, array in replay.probs.items()},
        "scores": {str(seat): _pack(array) for seat, array in replay.scores.items()},
    })  # fmt: skip


def write(path: Path, replay: Replay) -> Path:
    """Write the file as a whole."""
    with atomic_files.os_errors_as_run_error(f"{path.name} was not written"):
        atomic_files.replace_file(path, encode(replay))
    return path


def read(path: Path) -> Replay:
    """The replay in a file; RunError with one line for any file that is none."""
    path = Path(path)
    if not path.is_file():
        raise RunError(f"{path} is a folder" if path.is_dir() else f"{path}: no such file")
    try:
        return decode(atomic_files.read_regular_file(path, MOST_FILE), path.name)
    except Damaged as damage:
        folder = "" if path.parent == Path() else f"{path.parent}/"
        raise RunError(f"{folder}{damage}") from None


def decode(raw: bytes, name: str) -> Replay:
    """The replay in these bytes; Damaged where they are none."""
    body = atomic_files.read_json(raw, name)
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise Damaged(f"{name} is not a replay of Rematch")
    version = body.get("version")
    if type(version) is not int or version < 1:
        raise Damaged(f"{name}: version = {version!r:.20}: expected {VERSION}")
    if version > VERSION:
        raise Damaged(f"{name}: format version {version} is newer than this Rematch, which reads version "
                      f"{VERSION}; install a newer Rematch")
    body = atomic_files.decode_with_digest(raw, name)
    if body.keys() != KEYS:
        wrong = sorted(body.keys() ^ KEYS)[0]
        raise Damaged(f"{name}: {wrong!r:.40} is missing or unknown")
    return _Reader(body, name).replay()


def _pack(array: NDArray[Any]) -> dict[str, Any]:
    dtype = next(key for key, kind in DTYPES.items() if array.dtype == kind)
    data = np.ascontiguousarray(array, np.dtype(f"<{dtype}")).tobytes()
    return {"dtype": dtype, "shape": list(array.shape),
            "data": base64.b64encode(zlib.compress(data, 9)).decode()}  # fmt: skip


class _Reader:
    """Reads the checked parts of a replay."""

    def __init__(self, body: dict[str, Any], name: str) -> None:
        self.body, self.name = body, name

    def replay(self) -> Replay:
        body = self.body
        settings, players, outcome = body["settings"], body["players"], body["outcome"]
        self.require(isinstance(settings, dict), "settings")
        self.require(isinstance(players, list) and 1 <= len(players) <= MOST_SEATS, "players")
        self.require(isinstance(outcome, list) and len(outcome) == len(players), "outcome")
        self.require(all(type(x) in (int, float) and 0 <= x <= 1 for x in outcome), "outcome")
        self.require(body["end"] in ENDS, "end")
        length, step = self.integer("length", 0, MOST_STEPS), None
        if body["step"] is not None:
            step = self.integer("step", 0, 10**15)
        seats, start = len(players), self.array("start", body["start"])
        self.require(start.dtype == np.uint8 and start.ndim == 1, "start")
        return Replay(
            world=self.text("world", 2000), build=self.text("build"), settings=settings,
            seed=self.integer("seed", 0, 2**64 - 1), game=self.integer("game", 0, 2**32),
            start=start, players=tuple(self.player(entry) for entry in players),
            actions=self.actions(length), values=self.by_seat("values", (length,), seats),
            probs=self.by_seat("probs", (length, None), seats),
            scores=self.by_seat("scores", (length, None), seats), end=body["end"],
            outcome=tuple(map(float, outcome)), final=self.digest("final"), states=self.digest("states"),
            savestate=self.text("savestate"), step=step,
        )  # fmt: skip

    def require(self, valid: bool, key: str) -> None:
        if not valid:
            raise Damaged(f"{self.name}: {key} = {self.body.get(key)!r:.60}: this is not what a replay holds")

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.body[key]
        self.require(type(value) is int and low <= value <= high, key)
        return int(value)

    def text(self, key: str, most: int = MOST_NAME) -> str:
        value = self.body[key]
        self.require(isinstance(value, str) and len(value) <= most, key)
        return str(value)

    def digest(self, key: str) -> str:
        value = self.text(key)
        self.require(len(value) == 64 and not value.strip("0123456789abcdef"), key)
        return value

    def player(self, entry: Any) -> ReplayPlayer:
        valid = isinstance(entry, dict) and entry.keys() == {"role", "name", "digest"}
        valid = valid and all(isinstance(x, str) and len(x) <= MOST_NAME for x in entry.values())
        self.require(valid, "players")
        return ReplayPlayer(role=entry["role"], name=entry["name"], digest=entry["digest"])

    def actions(self, length: int) -> dict[str, NDArray[Any]]:
        entries = self.body["actions"]
        self.require(isinstance(entries, dict) and 1 <= len(entries) <= MOST_SEATS, "actions")
        out = {role: self.array("actions", entry) for role, entry in entries.items()}
        for array in out.values():
            dimensions = {np.dtype(np.int32): 2, np.dtype(np.float32): 3}.get(array.dtype)
            self.require(array.ndim == dimensions and array.shape[0] == length, "actions")
        return out

    def by_seat(self, key: str, shape: tuple[int | None, ...], seats: int) -> dict[int, NDArray[Any]]:
        entries = self.body[key]
        valid = isinstance(entries, dict) and set(entries) <= {str(seat) for seat in range(seats)}
        self.require(valid, key)
        out = {int(seat): self.array(key, entry) for seat, entry in entries.items()}
        for array in out.values():
            same = array.ndim == len(shape) and all(w in (None, g) for w, g in zip(shape, array.shape))
            self.require(same and array.dtype == np.float32, key)
        return out

    def array(self, key: str, entry: Any) -> NDArray[Any]:
        """An array; its size is known before anything is decompressed."""
        valid = isinstance(entry, Mapping) and entry.keys() == {"dtype", "shape", "data"}
        self.require(valid and isinstance(entry["data"], str) and entry["dtype"] in DTYPES, key)
        shape = entry["shape"]
        valid = isinstance(shape, list) and len(shape) <= 3
        self.require(valid and all(type(n) is int and 0 <= n <= MOST_ARRAY for n in shape), key)
        dtype = np.dtype(f"<{entry['dtype']}")
        size = math.prod(shape) * dtype.itemsize
        self.require(size <= MOST_ARRAY, key)
        try:
            decompressor = zlib.decompressobj()
            data = decompressor.decompress(base64.b64decode(entry["data"], validate=True), size + 1)
        except (zlib.error, binascii.Error, ValueError):
            raise Damaged(f"{self.name}: {key} cannot be decompressed") from None
        whole = len(data) == size and decompressor.eof and not decompressor.unused_data
        self.require(whole or (size == 0 and not data), key)
        return np.frombuffer(data, dtype).reshape(shape).astype(DTYPES[entry["dtype"]])
