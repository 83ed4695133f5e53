"""Saved games: one small JSON file each, with the deal and the actions, from which every position follows.

A file may come from someone else: links are not followed, sizes are bounded, and every value is checked.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError, Damaged
from rematch.storage import atomic_files

from ..config import ACTIONS, SCORINGS, SPECIES

VERSION = 1
MOST_GAMES = 1000  # files of a folder
MOST_BYTES = 1 << 14  # of a file
MOST_SEED = 2**31 - 1
NAME = re.compile(r"[0-9a-f]{32}")  # 128 random bits: identifiers cannot be guessed
TEXT = 120  # characters of a name


class UnknownGame(ConfigError):
    """There is no saved game of this identifier (any more)."""


@dataclass(frozen=True, kw_only=True)
class SavedGame:
    """A game: its seats, its deal, and what was played."""

    seats: tuple[str, ...]  # keys of the players
    names: tuple[str, ...]  # their names, as shown
    scoring: str
    seed: int
    actions: tuple[int, ...] = ()
    resigned: bool = False  # the person has given up
    forfeit: tuple[int, str] | None = None  # seat and reason of an opponent that has failed
    written: float = 0.0  # time of the last move, in seconds since 1970

    def to_bytes(self) -> bytes:
        return (json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n").encode()


def from_bytes(raw: bytes, name: str) -> SavedGame:
    """The game of a file; Damaged where a value is missing, unknown or of another type."""
    tree = atomic_files.read_json(raw, name)
    keys = {"version", *(field.name for field in fields(SavedGame))}
    if not isinstance(tree, dict) or tree.keys() != keys:
        raise Damaged(f"{name} is no saved game")
    version = tree.pop("version")
    if version != VERSION or isinstance(version, bool):
        raise Damaged(f"{name} has another version than {VERSION}")
    checks = (
        _texts(tree["seats"]) and _texts(tree["names"]) and len(tree["seats"]) == len(tree["names"]),
        tree["scoring"] in SCORINGS,
        _integer(tree["seed"], MOST_SEED),
        _actions(tree["actions"]),
        isinstance(tree["resigned"], bool),
        tree["forfeit"] is None or _forfeit(tree["forfeit"], len(tree["seats"])),
        isinstance(tree["written"], float) and 0 <= tree["written"] < 1e12,
    )
    if not all(checks):
        raise Damaged(f"{name} is damaged")
    forfeit = tuple(tree["forfeit"]) if tree["forfeit"] is not None else None
    lists = {key: tuple(tree[key]) for key in ("seats", "names", "actions")}
    return SavedGame(**(tree | lists | {"forfeit": forfeit}))


def _integer(value: Any, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high


def _texts(value: Any) -> bool:
    return isinstance(value, list) and 2 <= len(value) <= 4 and all(
        isinstance(text, str) and 0 < len(text) <= TEXT and text.isprintable() for text in value
    )


def _actions(value: Any) -> bool:
    most = 4 * len(SPECIES)
    return isinstance(value, list) and len(value) <= most and all(
        _integer(action, len(ACTIONS) - 1) for action in value
    )


def _forfeit(value: Any, seats: int) -> bool:
    return (isinstance(value, list) and len(value) == 2 and _integer(value[0], seats - 1)
            and isinstance(value[1], str) and len(value[1]) <= 400 and value[1].isprintable())


class SavedGames:
    """The saved games of a folder, by identifier. The folder is made with the first game."""

    def __init__(self, parent: Path, name: str = "saved_games") -> None:
        self.parent, self.name = parent, name

    @property
    def folder(self) -> Path:
        return self.parent / self.name

    def add(self, game: SavedGame) -> str:
        """Store a new game; returns its identifier. ConfigError where the folder is full."""
        if len(self.identifiers()) >= MOST_GAMES:
            raise ConfigError(f"there are {MOST_GAMES} saved games: delete some of them first")
        identifier = secrets.token_hex(16)
        self.store(identifier, game)
        return identifier

    def store(self, identifier: str, game: SavedGame) -> None:
        """Write a game, as a whole or not at all."""
        path = self._path(identifier)
        with atomic_files.os_errors_as_run_error("the game cannot be saved"):
            atomic_files.subfolder(self.parent, self.name)
            atomic_files.replace_file(path, replace(game, written=time.time()).to_bytes())

    def load(self, identifier: str) -> SavedGame:
        """The game; UnknownGame where there is none, Damaged where its file cannot be used."""
        path = self._path(identifier)
        if not os.path.lexists(path):
            raise UnknownGame("there is no such game (any more)")
        self._check_folder()
        return from_bytes(atomic_files.read_regular_file(path, MOST_BYTES), "the saved game")

    def remove(self, identifier: str) -> None:
        self.load_error(identifier)
        self._check_folder()
        with atomic_files.os_errors_as_run_error("the game cannot be deleted"):
            atomic_files.remove(self._path(identifier))

    def load_error(self, identifier: str) -> str:
        """The reason why a game cannot be used, or an empty text; UnknownGame where there is none."""
        try:
            self.load(identifier)
        except Damaged as error:
            return str(error)
        return ""

    def identifiers(self) -> list[str]:
        """The identifiers of all games, the newest first; at most MOST_GAMES."""
        entries = list[tuple[float, str]]()
        try:
            self._check_folder()
            with os.scandir(self.folder) as files:
                for file in files:
                    name, _, suffix = file.name.partition(".")
                    if suffix == "json" and NAME.fullmatch(name) and file.is_file(follow_symlinks=False):
                        entries.append((file.stat(follow_symlinks=False).st_mtime, name))
        except (OSError, Damaged):
            return []
        return [name for _, name in sorted(entries, reverse=True)[:MOST_GAMES]]

    def stamp(self, identifier: str) -> tuple[int, int]:
        """A value that changes whenever the file does."""
        try:
            info = os.lstat(self._path(identifier))
        except OSError:
            raise UnknownGame("there is no such game (any more)") from None
        return info.st_mtime_ns, info.st_ino

    def _path(self, identifier: str) -> Path:
        if not NAME.fullmatch(identifier):
            raise UnknownGame("there is no such game (any more)")
        return self.folder / f"{identifier}.json"

    def _check_folder(self) -> None:
        if self.folder.is_symlink():
            raise Damaged(f"{self.name} is a symbolic link")
