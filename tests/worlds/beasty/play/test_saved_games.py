"""Saved games: written whole, read with suspicion."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rematch.core.errors import ConfigError, Damaged, RunError
from rematch.worlds.beasty.play import saved_games
from rematch.worlds.beasty.play.saved_games import SavedGame, SavedGames, UnknownGame, from_bytes

GAME = SavedGame(seats=("you", "agent"), names=("you", "agent"), scoring="points", seed=7, actions=(0, 3, 12))


def test_game_is_read_as_it_was_written(tmp_path: Path) -> None:
    saved = SavedGames(tmp_path)
    assert saved.identifiers() == []
    first, second = saved.add(GAME), saved.add(replace(GAME, forfeit=(1, "it took too long"), resigned=True))
    assert len(first) == 32 and first != second
    assert replace(saved.load(first), written=0.0) == GAME
    assert saved.load(second).forfeit == (1, "it took too long")
    assert set(saved.identifiers()) == {first, second}
    saved.store(first, replace(GAME, actions=(1,)))
    assert saved.load(first).actions == (1,)
    saved.remove(first)
    assert saved.identifiers() == [second]
    assert [path.name for path in (tmp_path / "saved_games").iterdir()] == [f"{second}.json"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../one",
        "a" * 32 + ".json",
        "A" * 32,
        "0" * 31,
        "0" * 32,
        "0" * 5000,
        "é" * 32,
        "0" * 31 + "/",
        "0" * 31 + "\0",
    ],
)
def test_foreign_identifiers_are_unknown(tmp_path: Path, name: str) -> None:
    saved = SavedGames(tmp_path)
    saved.add(GAME)
    for use in (saved.load, saved.remove, saved.stamp):
        with pytest.raises(UnknownGame, match="no such game"):
            use(name)


WRONG: dict[str, list[Any]] = {
    "version": [0, 2, "1", None, True],
    "seats": [
        [],
        ["you"],
        ["you"] * 5,
        ["you", 3],
        ["you", ""],
        ["you", "x" * 200],
        ["you", "a\nb"],
        "ab",
        None,
        ["you", "a", "b"],
    ],
    "names": [[], ["you", None], ["you", "\x1b[2J"]],
    "scoring": ["", "most", 1, None, []],
    "seed": [-1, 2**31, 1.5, "7", None, True, 10**400],
    "actions": [[33], [-1], [0.0], ["0"], [True], [0] * 49, "", None, {}, [[0]]],
    "resigned": [0, 1, None, "false"],
    "forfeit": [[], [2, "x"], [0], [0, 1], "x", [0, "x" * 500], [True, "x"], [0, "\x07"]],
    "written": [1, -1.0, 1e300, None, "now"],
}


@pytest.mark.parametrize("key", WRONG)
def test_wrong_values_are_damage(key: str) -> None:
    good = json.loads(GAME.to_bytes())
    assert from_bytes(json.dumps(good).encode(), "game") == GAME
    for value in WRONG[key]:
        with pytest.raises(Damaged):
            from_bytes(json.dumps(good | {key: value}).encode(), "game")
    with pytest.raises(Damaged):
        from_bytes(json.dumps({name: value for name, value in good.items() if name != key}).encode(), "game")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b"[" * 9000,
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": 1, "a": 1}',
        os.urandom(300),
    ],
)
def test_files_that_are_no_game_are_damage(tmp_path: Path, raw: bytes) -> None:
    saved = SavedGames(tmp_path)
    identifier = saved.add(GAME)
    (tmp_path / f"saved_games/{identifier}.json").write_bytes(raw)
    with pytest.raises(Damaged):
        saved.load(identifier)
    saved.remove(identifier)  # a damaged file can still be deleted
    assert saved.identifiers() == []


def test_links_devices_and_huge_files_are_not_read(tmp_path: Path) -> None:
    saved = SavedGames(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    good = saved.add(GAME)
    folder = tmp_path / "runs/saved_games"
    link, pipe, huge = (folder / f"{letter * 32}.json" for letter in "abc")
    link.symlink_to(folder / f"{good}.json")
    os.mkfifo(pipe)
    huge.write_bytes(b" " * (saved_games.MOST_BYTES + 1))
    for path in (link, pipe, huge):
        with pytest.raises(Damaged):
            saved.load(path.stem)
    assert set(saved.identifiers()) == {good, huge.stem}
    other = tmp_path / "other"
    other.mkdir()
    (other / "saved_games").symlink_to(folder)
    elsewhere = SavedGames(other)
    assert elsewhere.identifiers() == []
    with pytest.raises(ConfigError):
        elsewhere.load(good)
    with pytest.raises(ConfigError):
        elsewhere.add(GAME)
    with pytest.raises(ConfigError):
        elsewhere.remove(good)
    assert saved.load(good)


def test_number_of_games_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_games, "MOST_GAMES", 3)
    saved = SavedGames(tmp_path)
    for _ in range(3):
        saved.add(GAME)
    with pytest.raises(ConfigError, match="delete some"):
        saved.add(GAME)


def test_failed_write_is_one_line_and_leaves_the_old_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = SavedGames(tmp_path)
    identifier = saved.add(GAME)

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rematch.storage.atomic_files.write_all", full)
    with pytest.raises(RunError, match=r"the game cannot be saved: .*No space left"):
        saved.store(identifier, replace(GAME, actions=()))
    assert saved.load(identifier).actions == GAME.actions
