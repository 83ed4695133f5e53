"""State files of other PyBoy versions: by which PyBoy a file was written, and its bytes for the present one.

The first byte of a PyBoy state is its version. PyBoy 2.8 reads older versions, with mistakes: it expects some
bytes that were added later in older states too, which do not have them. From there on it reads every byte at
a wrong place. `conversions` inserts these bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rematch.core.errors import ConfigError

PRESENT = 29  # state version of PyBoy 2.8, which this module was written for
CONVERTED = (8, 9, 10, 11, 12, 14, 15, 17)  # released versions that lack bytes which PyBoy 2.8 expects
FULL_VOLUME = 0x77  # value of the sound register NR50
SAMPLES = struct.Struct("<Q")  # samples per frame, in the state of the sound
RELEASES = {  # state version -> releases of PyBoy that wrote it; the other versions were never released
    4: "1.0", 5: "1.1 to 1.3", 6: "1.4.0", 7: "1.4.1 to 1.4.7", 8: "1.5.0 to 1.5.5", 9: "1.5.6 to 1.6",
    10: "2.0.0 to 2.2.1", 11: "2.2.2 to 2.3", 12: "2.4", 14: "2.5", 15: "2.6.0 to 2.7.0",
    17: "2.7.1", 29: "2.8",
}  # fmt: skip


def writer(version: int) -> str:
    """The PyBoy that wrote states of this version, in words."""
    release = RELEASES.get(version, "between two releases" if version < PRESENT else "newer than 2.8")
    return f"written by PyBoy {release}: state version {version}"


def display_end(version: int) -> int:
    """Length of a state without Game Boy Color memory, up to the display's next mode."""

    def since(first: int, size: int) -> int:
        return size if version >= first else 0

    head = 5 + since(16, 1)  # version, boot ROM, (key 0), key 1, double speed, color
    processor = 18 + since(12, 8)  # registers and flags; (cycles)
    memory = 8192 + 160 + 11 + since(16, 1) + since(11, 144 * 5)  # tiles, sprites, registers, (lines)
    clock = 2 + since(17, 1) + since(13, 3) + since(12, 8) + 16 + 1  # flags, (cycles), clocks, next mode
    return head + processor + memory + clock


def missing_bytes(data: bytes, has_volume: bool) -> list[tuple[int, bytes]]:
    """(index, bytes to insert there), in order, for a version of CONVERTED; has_volume: NR50 is there."""
    display = display_end(data[0])
    missing = [(display, bytes(1))]  # stat_transition: no change of the display's mode is pending
    if data[0] < 14:
        return missing  # without sound
    (samples,) = SAMPLES.unpack(data[display + 8 : display + 8 + SAMPLES.size])
    volume = display + 24 + (samples + 1) * 2 + 1 + 56 + 2 + 8  # head, samples, clocks, flags
    sweep_timer = volume + has_volume + 57 + 3 + 8  # the tone part of the sweep channel, and its sweep
    wave = sweep_timer + 1 + 8 + 57 + 16 + 7 + 32  # rest of the sweep, tone channel, the wave's timers
    return [
        *missing,
        (volume, b"" if has_volume else bytes([FULL_VOLUME])),
        (sweep_timer, bytes(8 + 1)),  # sweepchecktimer, sweep_negate_used
        (wave, bytes(1)),  # sample_suppressed
        (wave + 8, bytes(1)),  # wave_access
    ]


def conversions(data: bytes, name: str) -> list[bytes]:
    """The same state for the installed PyBoy; ConfigError with the reason if it cannot be read.

    Version 15 has two forms, of PyBoy 2.6 and 2.7.0, which differ by one byte. Only the one that PyBoy reads
    to its last byte, with the cartridge of the state, is right.
    """
    if not data:
        raise ConfigError(f"{name}: an empty file: expected a state of PyBoy")
    version = data[0]
    if version > PRESENT:
        raise ConfigError(f"{name}: {writer(version)}, or no PyBoy state; expected a version up to {PRESENT}")
    if version >= 8 and any(data[4 + (version >= 16) : 5 + (version >= 16)]):
        raise ConfigError(f"{name}: {writer(version)}, of a Game Boy Color; expected one of a Game Boy")
    if version not in CONVERTED:
        return [data]
    if len(data) < display_end(version) + 16:
        raise ConfigError(f"{name}: {writer(version)}, but {len(data)} bytes: truncated")
    forms = {15: (False, True), 17: (True,)}.get(version, (False,))
    return [insert(data, missing_bytes(data, has_volume)) for has_volume in forms]


def insert(data: bytes, missing: Sequence[tuple[int, bytes]]) -> bytes:
    parts, last = [], 0
    for index, piece in missing:
        parts += [data[last:index], piece]
        last = index
    return b"".join([*parts, data[last:]])
