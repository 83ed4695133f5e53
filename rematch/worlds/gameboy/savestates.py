"""Savestates: the emulator's bytes with the data that are checked before PyBoy loads them.

PyBoy loads a state of another game without an error, and its loader does not check where a state ends (spec
section 2). So a state is stored as a `Bundle` and loaded only if its digest, cartridge, PyBoy version and
size fit. A bundle also has its inputs since power-on, one byte per run of equal inputs, so that it can be
replayed to the same bytes.

A file is: MAGIC, the length of the header (4 bytes), the header (JSON), the emulator's bytes (zlib), the
inputs, the recurrent state of a learner, and the SHA-256 of all these (32 bytes).
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rematch.core.arrays import Tree
from rematch.core.errors import ConfigError

MAGIC = b"rematch gameboy savestate 1\n"
LENGTH = struct.Struct("<I")
MAX_BYTES = 64 << 20  # of a file, and of the emulator's bytes in it
POWER_ON, FOREIGN = "", "foreign"  # start of the inputs: power-on, or an imported state


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A savestate with its cartridge, milestones and inputs."""

    packed: bytes  # the emulator's bytes, compressed by zlib
    sha256: str  # of the emulator's bytes
    rom: str  # SHA-1 of the cartridge
    pyboy: str
    milestones: tuple[str, ...]  # names of those reached
    map: str
    start_group: str = "early"
    parent: str = POWER_ON  # sha256 of the state from which its episode started
    root: str = POWER_ON  # start of `inputs`: POWER_ON, or FOREIGN (an imported state)
    inputs: bytes = b""  # run_length_encode(...)
    memory: bytes = b""  # recurrent state of a policy, if any
    place: str = ""  # cell, or index on a trajectory; "": at a milestone

    @cached_property
    def actions(self) -> list[int]:
        """The inputs since the root, one per action."""
        return run_length_decode(self.inputs)

    def emulator(self) -> bytes:
        return zlib.decompress(self.packed)

    def pack(self) -> bytes:
        """The content of a file."""
        head = {
            "sha256": self.sha256, "rom": self.rom, "pyboy": self.pyboy, "milestones": list(self.milestones),
            "map": self.map, "band": self.start_group, "parent": self.parent, "root": self.root,
            "place": self.place,
            "emulator": len(self.packed), "inputs": len(self.inputs), "memory": len(self.memory),
        }  # fmt: skip
        text = json.dumps(head).encode()
        content = MAGIC + LENGTH.pack(len(text)) + text + self.packed + self.inputs + self.memory
        return content + hashlib.sha256(content).digest()


def compress(emulator: bytes) -> dict[str, Any]:
    """The fields `packed` and `sha256` of a Bundle."""
    return {"packed": zlib.compress(emulator, 1), "sha256": hashlib.sha256(emulator).hexdigest()}


def unpack(data: bytes, name: str = "savestate") -> Bundle:
    """The bundle in the content of a file; ConfigError with the reason if it is damaged."""
    if not data.startswith(MAGIC):
        raise ConfigError(f"{name}: not a savestate: expected a file that starts with {MAGIC[:-1]!r}")
    if len(data) > MAX_BYTES or len(data) < len(MAGIC) + LENGTH.size + 32:
        raise ConfigError(f"{name}: {len(data)} bytes: truncated or too long: expected a whole savestate")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise ConfigError(f"{name}: damaged or truncated: its checksum does not fit its {len(data)} bytes")
    at = len(MAGIC) + LENGTH.size
    (length,) = LENGTH.unpack(data[at - LENGTH.size : at])
    try:
        head = json.loads(data[at : at + length])
        sizes = [int(head[key]) for key in ("emulator", "inputs", "memory")]
        words = {key: head[key] for key in ("sha256", "rom", "pyboy", "map", "parent", "root")}
        words["start_group"], words["place"] = head["band"], head.get("place", "")
        milestones = tuple(head["milestones"])
        if min(sizes) < 0 or not all(isinstance(word, str) for word in (*words.values(), *milestones)):
            raise ValueError
    except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{name}: damaged: its header cannot be read") from None
    at += length
    if at + sum(sizes) + 32 != len(data):
        raise ConfigError(f"{name}: {len(data)} bytes: expected {at + sum(sizes) + 32} by its own header")
    parts = []
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return Bundle(**words, milestones=milestones, packed=parts[0], inputs=parts[1], memory=parts[2])


def checked_bytes(bundle: Bundle, rom: str, pyboy: str, size: int) -> bytes:
    """The emulator's bytes after all checks that are needed before PyBoy may load them."""
    name = f"savestate {bundle.sha256[:12]}"
    if bundle.rom != rom:
        raise ConfigError(f"{name}: of the cartridge {bundle.rom}: expected {rom}; another game's state")
    if bundle.pyboy != pyboy:
        raise ConfigError(f"{name}: made by {bundle.pyboy!r}: expected {pyboy!r}")
    try:
        expander = zlib.decompressobj()
        emulator = expander.decompress(bundle.packed, size + 1)  # a few bytes may expand to gigabytes
    except zlib.error:
        raise ConfigError(f"{name}: damaged: its bytes cannot be expanded") from None
    if len(emulator) != size:
        actual = f"more than {size}" if len(emulator) > size else f"{len(emulator)}"
        raise ConfigError(f"{name}: {actual} bytes: expected {size} for this cartridge")
    if hashlib.sha256(emulator).hexdigest() != bundle.sha256:
        raise ConfigError(f"{name}: damaged: its SHA-256 does not fit its bytes")
    return emulator


# --- inputs -----------------------------------------------------------------------------------------


def run_length_encode(actions: Sequence[int]) -> bytes:
    """One byte per run of equal actions: 3 bits for the action, 5 bits for the length minus one."""
    out = bytearray()
    for action in actions:
        if out and out[-1] >> 5 == action and out[-1] & 31 < 31:
            out[-1] += 1
        else:
            out.append(action << 5)
    return bytes(out)


def run_length_decode(data: bytes) -> list[int]:
    return [byte >> 5 for byte in data for _ in range((byte & 31) + 1)]


# --- the library ------------------------------------------------------------------------------------


@dataclass
class Library:
    """The savestates from which games may start, by index; each is checked when it is added.

    An index never changes its meaning. A savestate that crashes the emulator is put in quarantine and keeps
    its index; games that would start from it start at power-on.
    """

    rom: str
    pyboy: str
    size: int  # bytes of a state of this cartridge
    bundles: list[Bundle] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # sha256 -> index
    quarantine: dict[str, str] = field(default_factory=dict)  # sha256 -> reason

    def __len__(self) -> int:
        return len(self.bundles)

    def __iter__(self) -> Iterator[Bundle]:
        return iter(self.bundles)

    def __getitem__(self, index: int) -> Bundle:
        return self.bundles[index]

    def add(self, bundle: Bundle) -> int:
        """The index of the bundle; a bundle that was added before keeps its index."""
        if bundle.sha256 not in self.numbers:
            checked_bytes(bundle, self.rom, self.pyboy, self.size)
            self.bundles.append(bundle)
            self.numbers[bundle.sha256] = len(self.bundles) - 1
        return self.numbers[bundle.sha256]

    def find(self, sha256: str) -> Bundle | None:
        return self.bundles[self.numbers[sha256]] if sha256 in self.numbers else None

    def clear(self) -> None:
        """Remove all bundles; no running game may have started from one."""
        self.bundles, self.numbers = [], {}

    def emulator(self, bundle: Bundle) -> bytes:
        return checked_bytes(bundle, self.rom, self.pyboy, self.size)

    # `add` appends to the list before it publishes the index, so threads may read while one thread adds.

    def state(self) -> Tree:
        """All bundles and the quarantine, for a checkpoint."""
        files = [np.frombuffer(bundle.pack(), np.uint8) for bundle in self.bundles]
        named = {f"{index:06d}": file for index, file in enumerate(files)}
        return {"bundles": named, "quarantine": dict(self.quarantine)}

    def restore(self, tree: Tree) -> None:
        self.clear()
        self.quarantine = dict(tree["quarantine"])
        for name in sorted(tree["bundles"]):
            self.add(unpack(np.asarray(tree["bundles"][name], np.uint8).tobytes(), f"savestate {name}"))
