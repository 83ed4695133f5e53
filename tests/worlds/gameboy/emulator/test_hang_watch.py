"""A cartridge that hangs the emulator of this process: one line, exit code 2, within a bounded time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import gameboy_worlds
from support.commands import environment
from support.patience import PATIENCE, wait_until

from rematch.worlds.gameboy.emulator import hang_watch

MAIN = """
import sys, warnings
from rematch.cli import main
from rematch.worlds.gameboy.emulator import hang_watch
warnings.simplefilter("ignore")  # "not a known cartridge"
hang_watch.HANG_SECONDS, hang_watch.LOOK = 1, 0.25
sys.exit(main.main(sys.argv[1:]))
"""


def hanging_cartridge(folder: Path) -> Path:
    """Our cartridge with an instruction that the processor does not have."""
    rom = bytearray(gameboy_worlds.tiny().rom)
    rom[0x100:0x104] = bytes((0x00, 0xC3, 0x50, 0x01))  # nop; jp 0150
    rom[0x150] = 0xD3
    (folder / "hang.gb").write_bytes(rom)
    return folder / "hang.gb"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_hanging_cartridge_ends_with_one_line(tmp_path: Path, workers: str) -> None:
    gameboy_worlds.need_pyboy()
    words = ["eval", "gameboy", "--players", "random", "--games", "1", "--world.max_steps", "20",
             "--world.workers", workers, "--world.rom", str(hanging_cartridge(tmp_path))]
    ended = subprocess.run([sys.executable, "-c", MAIN, *words], env=environment(), cwd=tmp_path,
                           capture_output=True, timeout=PATIENCE)
    assert ended.returncode == 2, ended
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("rematch: gameboy: the cartridge hangs the emulator: no answer within 1 s")


def test_calls_that_return_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(hang_watch, "_end_process", lambda: ends.append(1))
    monkeypatch.setattr(hang_watch, "HANG_SECONDS", 1.5)
    monkeypatch.setattr(hang_watch, "LOOK", 0.1)
    with pytest.raises(KeyError), hang_watch.limited():
        raise KeyError
    for _ in range(100):  # longer together than one may take
        with hang_watch.limited():
            time.sleep(0.02)
    assert not ends and not hang_watch._calls
    with hang_watch.limited():
        wait_until(lambda: ends, "a call that does not return is not noticed")
