"""Savestates that can be trusted: emulator bytes with all that must fit before they are loaded.

PyBoy takes a state of another game without a word, and its loader does not look where a state ends (spec
section 2). So a state travels as a `Bundle`, and is loaded only if its digest, cartridge, PyBoy version and
size fit. A bundle also carries its inputs since power-on, one byte a run of equal ones, so that whoever
doubts how it was reached can play it again to the same bytes.

A file is: MAGIC, the header's length (4 bytes), the header (JSON), the emulator's bytes (zlib), the inputs,
the memory that a learner adds, and the SHA-256 of all that (32 bytes).
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
LARGEST = 64 << 20  # bytes of a file, and of the emulator's bytes in it
POWER_ON, FOREIGN = "", "foreign"  # where inputs begin: at power-on, or in a state that others made


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A savestate and where it belongs."""

    packed: bytes  # the emulator's bytes, compressed by zlib
    sha256: str  # of the emulator's bytes
    rom: str  # SHA-1 of the cartridge
    pyboy: str
    milestones: tuple[str, ...]  # those set, by name
    map: str
    band: str = "early"
    parent: str = POWER_ON  # sha256 of the state that its episode began from
    root: str = POWER_ON  # POWER_ON: `inputs` lead here from power-on; FOREIGN: from a state of others
    inputs: bytes = b""  # runs(...)
    memory: bytes = b""  # of a recurrent policy, if any
    place: str = ""  # where it was taken on the way; "": at a milestone

    @cached_property
    def actions(self) -> list[int]:
        """The inputs since its root, one an action."""
        return unrun(self.inputs)

    def emulator(self) -> bytes:
        return zlib.decompress(self.packed)

    def pack(self) -> bytes:
        """As the bytes of a file."""
        head = {
            "sha256": self.sha256, "rom": self.rom, "pyboy": self.pyboy, "milestones": list(self.milestones),
            "map": self.map, "band": self.band, "parent": self.parent, "root": self.root,
            "place": self.place,
            "emulator": len(self.packed), "inputs": len(self.inputs), "memory": len(self.memory),
        }  # fmt: skip
        text = json.dumps(head).encode()
        whole = MAGIC + LENGTH.pack(len(text)) + text + self.packed + self.inputs + self.memory
        return whole + hashlib.sha256(whole).digest()


def seal(emulator: bytes) -> dict[str, Any]:
    """What a Bundle says of the emulator's bytes themselves."""
    return {"packed": zlib.compress(emulator, 1), "sha256": hashlib.sha256(emulator).hexdigest()}


def unpack(data: bytes, name: str = "savestate") -> Bundle:
    """The bundle in a file's bytes, or what is wrong with them in one line."""
    if not data.startswith(MAGIC):
        raise ConfigError(f"{name}: no savestate of ours: expected one that begins with {MAGIC[:-1]!r}")
    if len(data) > LARGEST or len(data) < len(MAGIC) + LENGTH.size + 32:
        raise ConfigError(f"{name}: {len(data)} bytes: truncated or too long: expected a whole savestate")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise ConfigError(f"{name}: damaged or truncated: its checksum does not fit its {len(data)} bytes")
    at = len(MAGIC) + LENGTH.size
    (length,) = LENGTH.unpack(data[at - LENGTH.size : at])
    try:
        head = json.loads(data[at : at + length])
        sizes = [int(head[key]) for key in ("emulator", "inputs", "memory")]
        words = {key: head[key] for key in ("sha256", "rom", "pyboy", "map", "band", "parent", "root")}
        words["place"] = head.get("place", "")
        milestones = tuple(head["milestones"])
        if min(sizes) < 0 or not all(isinstance(word, str) for word in (*words.values(), *milestones)):
            raise ValueError
    except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{name}: damaged: its header is none of ours") from None
    at += length
    if at + sum(sizes) + 32 != len(data):
        raise ConfigError(f"{name}: {len(data)} bytes: expected {at + sum(sizes) + 32} by its own header")
    parts = []
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return Bundle(**words, milestones=milestones, packed=parts[0], inputs=parts[1], memory=parts[2])


def opened(bundle: Bundle, rom: str, pyboy: str, size: int) -> bytes:
    """The emulator's bytes, after every check; none of them may be skipped before PyBoy reads them."""
    name = f"savestate {bundle.sha256[:12]}"
    if bundle.rom != rom:
        raise ConfigError(f"{name}: of the cartridge {bundle.rom}: expected {rom}; another game's state")
    if bundle.pyboy != pyboy:
        raise ConfigError(f"{name}: made by {bundle.pyboy!r}: expected {pyboy!r}")
    try:
        expander = zlib.decompressobj()
        emulator = expander.decompress(bundle.packed, size + 1)  # a few bytes can mean gigabytes
    except zlib.error:
        raise ConfigError(f"{name}: damaged: its bytes cannot be expanded") from None
    if len(emulator) != size:
        found = f"more than {size}" if len(emulator) > size else f"{len(emulator)}"
        raise ConfigError(f"{name}: {found} bytes: expected {size} for this cartridge")
    if hashlib.sha256(emulator).hexdigest() != bundle.sha256:
        raise ConfigError(f"{name}: damaged: its SHA-256 does not fit its bytes")
    return emulator


# --- inputs -----------------------------------------------------------------------------------------


def runs(actions: Sequence[int]) -> bytes:
    """One byte a run of equal actions: 3 bits which, 5 bits how many, less one."""
    out = bytearray()
    for action in actions:
        if out and out[-1] >> 5 == action and out[-1] & 31 < 31:
            out[-1] += 1
        else:
            out.append(action << 5)
    return bytes(out)


def unrun(data: bytes) -> list[int]:
    return [byte >> 5 for byte in data for _ in range((byte & 31) + 1)]


# --- the library ------------------------------------------------------------------------------------


@dataclass
class Library:
    """The savestates that games may begin from, by index; checked when they come in.

    An index never changes its meaning: what turns out to crash the emulator is put in quarantine, where it
    keeps its place, and games that ask for it begin at power-on.
    """

    rom: str
    pyboy: str
    size: int  # bytes of a state of this cartridge
    bundles: list[Bundle] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # sha256 -> index
    quarantine: dict[str, str] = field(default_factory=dict)  # sha256 -> why

    def __len__(self) -> int:
        return len(self.bundles)

    def __iter__(self) -> Iterator[Bundle]:
        return iter(self.bundles)

    def __getitem__(self, index: int) -> Bundle:
        return self.bundles[index]

    def add(self, bundle: Bundle) -> int:
        """Its index; one that is here already keeps it."""
        if bundle.sha256 not in self.numbers:
            opened(bundle, self.rom, self.pyboy, self.size)
            self.bundles.append(bundle)
            self.numbers[bundle.sha256] = len(self.bundles) - 1
        return self.numbers[bundle.sha256]

    def find(self, sha256: str) -> Bundle | None:
        return self.bundles[self.numbers[sha256]] if sha256 in self.numbers else None

    def clear(self) -> None:
        """Forget all of them; no game may be running that began in one."""
        self.bundles, self.numbers = [], {}

    def emulator(self, bundle: Bundle) -> bytes:
        return opened(bundle, self.rom, self.pyboy, self.size)

    # A list is appended to before anybody is told its new length, so threads may read while one adds.

    def state(self) -> Tree:
        """All of it, to be kept with a run."""
        files = [np.frombuffer(bundle.pack(), np.uint8) for bundle in self.bundles]
        named = {f"{index:06d}": file for index, file in enumerate(files)}
        return {"bundles": named, "quarantine": dict(self.quarantine)}

    def restore(self, tree: Tree) -> None:
        self.clear()
        self.quarantine = dict(tree["quarantine"])
        for name in sorted(tree["bundles"]):
            self.add(unpack(np.asarray(tree["bundles"][name], np.uint8).tobytes(), f"savestate {name}"))
