"""`python -m rematch.worlds.gameboy.cartridge`: output files, printed text and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge.__main__ import main
from rematch.worlds.gameboy.cartridge.compiler import build


def test_writes_a_cartridge_and_prints_its_solution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "game.gb"
    assert main(["tiny", "--seed", "3", "--out", str(out), "--solution"]) == 0
    cartridge = build("tiny", 3)
    captured = capsys.readouterr()
    assert out.read_bytes() == cartridge.rom and cartridge.sha1 in captured.err
    assert captured.out.split() == [constants.ACTIONS[action] for action in cartridge.solution]
    assert "no solution has fewer than" in captured.err


def test_a_worlds_text_goes_out_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny", "--text"]) == 0
    text, out = tmp_path / "tiny.txt", tmp_path / "again.gb"
    text.write_text(capsys.readouterr().out)
    assert main([str(text), "--out", str(out)]) == 0
    assert out.read_bytes() == build("tiny", 0).rom
    assert main(["tiny", "--check", "2000"]) == 0
    assert "2000 random steps" in capsys.readouterr().out


def test_replays_on_the_emulator(capsys: pytest.CaptureFixture[str]) -> None:
    """The larger sizes work too, but `kanto-ish --replay` takes a minute or two."""
    pytest.importorskip("pyboy", reason="PyBoy is not installed")
    assert main(["tiny", "--seed", "5", "--replay"]) == 0
    assert "1 badges, hall of fame" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "message"), [
    (["tinny", "--text"], "error: size 'tinny': expected one of tiny, mid, small, kanto-ish; nearest: tiny"),
    (["tiny", "--seed", "-4", "--text"], "error: seed -4: expected 0 to"),
    (["tiny"], "error: nothing to do: expected --out FILE"),
    (["no/such.txt", "--text"], "No such file"),
    (["tiny", "--out", "no/such/folder.gb"], "No such file"),
])  # fmt: skip
def test_mistakes_are_one_line(line: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_a_file_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "game.gb"
    other.write_bytes(build("tiny", 0).rom)
    assert main([str(other), "--text"]) == 2
    assert "expected a text file with a world" in capsys.readouterr().err
