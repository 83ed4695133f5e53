"""Tables of games: milestones at their addresses, bands, and cartridge files that are none."""

from __future__ import annotations

import hashlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from support import gameboy_worlds

from rematch import api
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy import titles
from rematch.worlds.gameboy.cartridge import compiler
from rematch.worlds.gameboy.cartridge import ram_addresses as wram


def test_red_lies_at_the_addresses_of_the_original() -> None:
    red = titles.red()
    milestones = {mark.name: mark for mark in red.milestones}
    assert len(milestones) == len(red.milestones)
    assert [milestones[f"badge_{name}"].place for name in ("Boulder", "Earth")] == [
        (wram.BADGES, 1, False),
        (wram.BADGES, 0x80, False),
    ]
    assert milestones["beat_brock"].place == (0xD755, 0x80, False)  # the flag 0x77
    assert milestones["got_starter"].place == (0xD74B, 0x04, False)
    assert milestones["CeruleanCity"].place == (wram.TOWNS_VISITED, 8, False)
    assert milestones["SaffronCity"].place == (wram.TOWNS_VISITED + 1, 4, False)
    assert milestones["VictoryRoad1F"].place == (wram.MAP, 108, True)
    assert [red.map_name(number) for number in (0, 54, 11)] == ["PalletTown", "PewterGym", "map-11"]
    assert red.map_name(247) == "AgathasRoom" and len(red.maps) == 248 - 22  # unused numbers
    assert {mark.start_group for mark in red.milestones} == set(titles.START_GROUPS)
    last = wram.EVENTS + wram.EVENTS_BYTES
    assert all(mark.kind in ("map",) or wram.HALL_OF_FAME <= mark.place[0] < last or mark.kind == "badge"
               for mark in red.milestones)  # fmt: skip


@pytest.mark.parametrize("size", ["tiny", "mid", "small", "kanto-ish"])
def test_table_of_our_cartridge_names_all_milestones(size: str) -> None:
    made = titles.cartridge(size, 0)
    title = titles.included_title(made)
    names = [mark.name for mark in title.milestones]
    assert len(set(names)) == len(names) and set(made.maps.values()) <= set(names)
    assert {mark.start_group for mark in title.milestones} == set(titles.START_GROUPS)
    assert title.start_group(frozenset()) == title.start_group(frozenset({"DAWN"})) == "early"
    assert title.start_group(frozenset({"DAWN", "HALL-OF-FAME"})) == "late"
    read = {address for first, end in title.regions for address in range(first, end)}
    assert {mark.place[0] for mark in title.milestones} <= read


def cartridge_file(folder: Path, name: str = "own.gb", title: bytes | None = None) -> Path:
    """Our cartridge as somebody's file; with another title in its header, checksum and all."""
    rom = bytearray(gameboy_worlds.tiny().rom)
    if title is not None:
        rom[0x134:0x143] = title.ljust(15, b"\0")
        rom[0x14D] = -sum(byte + 1 for byte in rom[0x134:0x14D]) & 0xFF
    (folder / name).write_bytes(rom)
    return folder / name


def test_files_that_are_no_cartridge_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "short.gb").write_bytes(b"hello")
    (tmp_path / "odd.gb").write_bytes(bytes(40_000))
    (tmp_path / "zeros.gb").write_bytes(bytes(32_768))
    wrong = {"none.gb": "no such file", "": "a folder", "short.gb": "5 bytes",
             "odd.gb": "40000 bytes: expected .* 32768 to 8388608 bytes, a multiple of 16384",
             "zeros.gb": "header checksum 00, computed E7"}  # fmt: skip
    for name, line in wrong.items():
        with pytest.raises(ConfigError, match=line) as caught:
            titles.find(str(tmp_path / name), "tiny", 0)
        assert "\n" not in str(caught.value) and "expected" in str(caught.value)


def headed(folder: Path, **changes: int) -> Path:
    """The tiny cartridge with other bytes in its header, at addresses such as x147; the checksum is right."""
    data = bytearray(gameboy_worlds.tiny().rom)
    for address, byte in changes.items():
        data[int(address[1:], 16)] = byte
    data[0x14D] = -sum(byte + 1 for byte in data[0x134:0x14D]) & 0xFF
    file = folder / "headed.gb"
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("changes", [{"x147": 0xFC}, {"x147": 0xFF}, {"x147": 0x03, "x149": 9}])
def test_what_pyboy_cannot_play_is_one_line(tmp_path: Path, changes: dict[str, int]) -> None:
    gameboy_worlds.need_pyboy()
    known = pytest.warns(UserWarning, match="not a known")
    with known, pytest.raises(ConfigError, match="cannot play") as no:
        gameboy_worlds.world(rom=str(headed(tmp_path, **changes)))
    assert "\n" not in str(no.value) and "headed.gb" in str(no.value)


def test_a_cartridge_with_a_clock_is_refused(tmp_path: Path) -> None:
    for kind in titles.CLOCK_TYPES:
        with pytest.raises(ConfigError, match="a cartridge with a clock"):
            titles.check(str(headed(tmp_path, x147=kind)))
    with pytest.raises(ConfigError, match="nobody-has-this-name"):
        titles.check("~nobody-has-this-name/x.gb")


def test_unknown_cartridge_has_no_end(tmp_path: Path) -> None:
    """Whatever lies at the addresses of another game, it earns no badge and ends no episode."""
    with pytest.warns(UserWarning, match="not a known"):
        world = gameboy_worlds.world(rom=str(cartridge_file(tmp_path)))
    assert world.title.milestones == () and world.milestones(0) == ()
    full = np.full_like(world.shared.pool.ram, 0xFF)
    assert not world.shared.reader.facts(full).decided.any()
    assert (
        gameboy_worlds.world()
        .shared.reader.facts(np.full_like(gameboy_worlds.world().shared.pool.ram, 0xFF))
        .decided.all()
    )
    for _ in range(4):
        assert gameboy_worlds.press(world, 0).ended[0] == 0


def test_an_unknown_cartridge_runs_with_a_warning(tmp_path: Path) -> None:
    file = cartridge_file(tmp_path)
    with pytest.warns(UserWarning, match=f"REMATCH RPG, SHA-1 {gameboy_worlds.tiny().sha1}: not a known"):
        rom, title = titles.find(str(file), "tiny", 0)
    assert rom == gameboy_worlds.tiny().rom and title.name == "REMATCH RPG" and title.map_name(3) == "map-3"
    with pytest.warns(UserWarning, match="not a known"):
        assert titles.find(str(cartridge_file(tmp_path, title=b"POKEMON RED")), "tiny", 0)[1] is titles.red()


def test_a_known_cartridge_gets_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cartridge_file(tmp_path)
    monkeypatch.setitem(titles.KNOWN, hashlib.sha1(file.read_bytes()).hexdigest(), "Pokemon Red")
    assert titles.find(str(file), "tiny", 0)[1] is titles.red()


def test_a_world_s_text_is_a_cartridge_with_its_own_names(tmp_path: Path) -> None:
    file, made = tmp_path / "mine.txt", gameboy_worlds.tiny()
    file.write_text(made.world)
    rom, title = titles.find(str(file), "small", 0)
    assert api.configure("tiny", changes={"world.rom": str(file)}).world.rom == str(file)
    assert rom == compiler.compile_world(made.world, "mine").rom
    assert title.milestones == titles.included_title(made).milestones
    for text, why in ((b"map nonsense", "mine.txt"), (b"\xff\xfe", "not a text")):
        file.write_bytes(text)
        with pytest.raises(ConfigError, match=f"rom = .*{why}"):
            titles.find(str(file), "small", 0)


def test_unknown_cartridge_is_reported_once_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cartridge_file(tmp_path)
    words = ["eval", "gameboy", "--players", "random", "--games", "2", "--world.rom", str(file),
             "--world.max_steps", "3"]  # fmt: skip
    with warnings.catch_warnings():  # as outside of a test
        warnings.simplefilter("default")
        warnings.showwarning = lambda *given, **_: sys.stderr.write(warnings.formatwarning(*given[:4]))
        assert main.main(words) == 0
    assert [line[:8] for line in capsys.readouterr().err.splitlines()] == ["rematch:"]


@pytest.mark.parametrize("text", ["SECRET one\nSECRET two\n", "map a\nSECRET two\n", "map a\nkind SECRET\n"])
def test_error_about_a_world_s_text_shows_nothing_of_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"notes.txt': line [12] is not valid") as caught:
        api.configure("tiny", changes={"world.rom": str(file)})
    assert "SECRET" not in str(caught.value)
