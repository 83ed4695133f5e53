"""`rematch play gameboy`: keys in, half blocks out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import gameboy_worlds

from rematch.cli.main import dispatch
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy import human_play


def test_a_person_walks_by_keys() -> None:
    world = gameboy_worlds.world()
    names = {name: key for key, name in human_play.KEYS.items()}
    keys = "".join(names[human_play.ACTIONS[action]] for action in gameboy_worlds.tiny().solution[:12])
    out = io.StringIO()
    assert human_play.terminal(world, io.StringIO(keys + "?q" + keys), out) == 0
    other = gameboy_worlds.world()
    gameboy_worlds.follow(other, 12)
    assert np.array_equal(world.save(np.array([0])), other.save(np.array([0])))
    assert "DAWN" in out.getvalue() and out.getvalue().count("▀") == 2 * 80 * 36


def test_arrows_and_the_end_of_keys() -> None:
    world = gameboy_worlds.world(max_steps=3)
    out = io.StringIO()
    human_play.terminal(world, io.StringIO("\x1b[A\x1b[Bwwww"), out)
    assert "cut off after 3 actions" in out.getvalue()


def test_half_blocks_hold_two_pixels() -> None:
    text = human_play.half_blocks(np.array([[0, 255], [255, 255], [0, 0], [0, 0]], np.uint8))
    assert text == (
        "\x1b[38;5;232;48;5;255m▀\x1b[38;5;255;48;5;255m▀\x1b[0m\n\x1b[38;5;232;48;5;232m▀▀\x1b[0m\n"
    )


def test_a_window_needs_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert not human_play.window(None)


@pytest.mark.parametrize("wanted", [True, False])
def test_who_wants_a_window_gets_pyboys_and_others_do_not_load_it(wanted: bool) -> None:
    gameboy_worlds.need_pyboy()
    pytest.importorskip("sdl2")
    code = ("from rematch.worlds.gameboy import human_play\n"
            "from rematch.worlds.gameboy.emulator import pyboy_emulator\n"
            f"if {wanted}: human_play.load_window()\n"
            "pyboy_emulator.load_pyboy()\nfrom pyboy.plugins import window_sdl2\n"
            "print(window_sdl2.sdl2 is not None)")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}, check=True)
    assert done.stdout == f"{wanted}\n"


def test_the_command_finds_who_can_be_played() -> None:
    for words, line in ((["play"], "with one of .*gameboy"),
                        (["play", "gameboi"], "nearest: gameboy"),
                        (["play", "gameboy", "--cartridge", "huge"], "expected one of tiny")):  # fmt: skip
        with pytest.raises(ConfigError, match=line):
            dispatch(words)


@pytest.mark.parametrize("word", ["--screen", "--mask", "--workers", "--patience"])
def test_what_means_nothing_to_a_person_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=f"{word} has no effect in play"):
        dispatch(["play", "gameboy", word, "1" if word in ("--workers", "--patience") else "false"])


def test_help_lists_what_has_an_effect_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["play", "gameboy", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--terminal False" in text and "--cartridge small" in text and "--max_steps 200000" in text
    assert not [name for name in human_play.NO_EFFECT if f"--{name}" in text]


@pytest.mark.parametrize(("words", "chosen", "others"), [
    ("--terminal", True, ""), ("--terminal true --max_steps 3", True, "--max_steps 3"), ("", False, ""),
    ("--max_steps 3 --terminal false", False, "--max_steps 3"),
    ("--terminal --max_steps 3", True, "--max_steps 3"),
])  # fmt: skip
def test_terminal_is_a_switch_with_or_without_a_value(words: str, chosen: bool, others: str) -> None:
    assert human_play.split_terminal(words.split()) == (chosen, others.split())


def test_the_command_plays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gameboy_worlds.need_pyboy()
    monkeypatch.setattr("sys.stdin", io.StringIO("ssss\r"))
    assert dispatch(["play", "gameboy", "--cartridge", "tiny", "--terminal"]) == 0
    assert "step 5" in capsys.readouterr().out
