"""States of earlier PyBoy versions: tests/data/pyboy_states has one of each, written by that PyBoy itself."""

from __future__ import annotations

import gzip
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from support import gameboy_worlds

from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.emulator import state_versions

DATA = Path(__file__).resolve().parents[3] / "data" / "pyboy_states"
VERSIONS = {"1.4.7": 7, "1.6.14": 9, "2.0.3": 10, "2.2.2": 11, "2.4.1": 12, "2.5.4": 14,
            "2.6.0": 15, "2.7.0": 15, "2.7.1": 17}  # fmt: skip
WORK_RAM = "1479fbf6fa3de0f4"  # SHA-256 of work RAM, as each of these PyBoys read it after the same inputs


def old_state(release: str) -> bytes:
    return gzip.decompress((DATA / f"pyboy_{release}.state.gz").read_bytes())


def loads(emulator: Any, state: bytes) -> bool:
    try:
        emulator.load(state)
    except Exception:  # PyBoy raises errors of many kinds
        return False
    return True


@pytest.mark.parametrize("release", VERSIONS)
def test_state_of_each_release_loads_exactly_and_runs(release: str) -> None:
    gameboy_worlds.need_pyboy()
    from rematch.worlds.gameboy.emulator import pyboy_emulator

    rom = gzip.decompress((DATA / "tiny.gb.gz").read_bytes())
    data = old_state(release)
    assert data[0] == VERSIONS[release]
    exact = []
    for state in state_versions.conversions(data, "old.state"):
        if loads(pyboy_emulator.acquire(rom), state) and not loads(pyboy_emulator.acquire(rom), state[:-1]):
            exact.append(state)
    (state,) = exact
    emulator = pyboy_emulator.acquire(rom)
    emulator.load(state)
    memory = emulator.memory
    assert hashlib.sha256(bytes(memory[0xC000:0xE000])).hexdigest().startswith(WORK_RAM)
    before = memory[0xD361], memory[0xD362]
    for action in (2, 2, 2, 3, 3, 3):  # the first action turns the player, the next ones move it
        emulator.press(action)
    assert (memory[0xD361], memory[0xD362]) != before


def test_pyboy_itself_misreads_version_12() -> None:
    """Without the inserted byte: if PyBoy mends this, `conversions` must stop inserting it."""
    gameboy_worlds.need_pyboy()
    from rematch.worlds.gameboy.emulator import pyboy_emulator

    rom = gzip.decompress((DATA / "tiny.gb.gz").read_bytes())
    with pytest.raises(Exception, match=r"."):
        pyboy_emulator.acquire(rom).boy.load_state(io.BytesIO(old_state("2.4.1")))


@pytest.mark.parametrize(("data", "line"), [
    (b"", "x.state: an empty file"),
    (bytes([77]) + bytes(100), "written by PyBoy newer than 2.8: state version 77, or no PyBoy state"),
    (bytes([9, 0, 0, 0, 1]) + bytes(10_000), "PyBoy 1.5.6 to 1.6: state version 9, of a Game Boy Color"),
    (bytes([9]) + bytes(500), "PyBoy 1.5.6 to 1.6: state version 9, but 501 bytes: truncated"),
])  # fmt: skip
def test_unreadable_state_is_refused_with_its_version(data: bytes, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        state_versions.conversions(data, "x.state")
