"""Finds games by name: every folder here that has a `game.py`, those of other packages, and Python files.

A file is named by its path, `./my_world.py` or `./my_world.py:NAME`; the game is its object GAME, or NAME.
Another package offers a game by an entry point of the group `rematch.worlds` that names a Game object, for
example `chess = "my_package.chess:GAME"`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

from rematch.core.config import class_problem, nearest
from rematch.core.errors import ConfigError, UserCodeError
from rematch.core.settings.setting_names import note_renamed
from rematch.core.system import user_code
from rematch.worlds.game import Game

GROUP = "rematch.worlds"
ALIASES = {"gym": "gymnasium"}  # old name -> present name: in recipes, stored runs, policies and commands


@functools.cache
def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Those of installed packages, read once: it takes longer than to read a recipe."""
    return tuple(metadata.entry_points(group=group))


def present_name(name: str) -> str:
    """The name that a game has now: the full path of a file; `name` itself where it was never renamed."""
    return file_reference(name) if is_file(name) else ALIASES.get(name, name)


def note_old_name(name: str) -> None:
    """Warn once in a process that a user asked for a game by its old name."""
    if name in ALIASES:
        note_renamed(f"world {name}", ALIASES[name])


def names() -> list[str]:
    """Present names of all games."""
    ours = {file.parent.name for file in Path(__file__).parent.glob("*/game.py")}
    return sorted(ours | {point.name for point in entry_points(group=GROUP)})


def find(name: str) -> Game:
    """The game of this name, or of this old name.

    A game that is in use is found also while its files are being replaced, as by an update during a training.
    """
    name = present_name(name)
    if is_file(name):
        return _load_file(name)
    module_name = f"{__package__}.{name}.game"
    file = Path(__file__).parent / name / "game.py"
    if name.isidentifier() and (module_name in sys.modules or file.is_file()):
        game: Game = importlib.import_module(module_name).GAME
        return game
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _load(point)
    near = nearest(name, names())
    raise ConfigError(f"unknown world {name!r}: expected one of {', '.join(names())}"
                      + (f"; nearest: {near}" if near else ""))


def is_file(name: str) -> bool:
    """Whether a name is the path of a Python file: file.py or file.py:NAME."""
    return name.endswith(".py") or name.rpartition(":")[0].endswith(".py")


def file_reference(name: str) -> str:
    """FILE:NAME with the full path of the file, as a run stores it."""
    return user_code.absolute(f"{name}:GAME" if name.endswith(".py") else name)


def typed_name(name: str) -> str:
    """A name that the user typed; the code of a file that was typed may be imported."""
    if not is_file(name):
        return name
    user_code.allow([file_reference(name)])
    return file_reference(name)


def title(name: str) -> str:
    """The name of a game for headings: of a file its stem."""
    file = name if name.endswith(".py") else name.rpartition(":")[0]
    return Path(file).stem if is_file(name) else name


def is_user_game(name: str) -> bool:
    """Whether a game comes from a file of the user or from another package."""
    return is_file(name) or not (Path(__file__).parent / name / "game.py").is_file()


def _load_file(name: str) -> Game:
    reference = file_reference(name)
    game: Game = user_code.load_object(reference, Game, "game")
    return _with_build(game, reference)


def _with_build(game: Game, reference: str) -> Game:
    """The game; other rules are other games, so that an exact resume needs the same file."""
    if not game.build:
        _check(game, reference)
        game.build = user_code.source_digest(reference)
    return game


def _check(game: Game, reference: str) -> None:
    """ConfigError for a user's game whose settings or spec cannot be made."""
    if problem := class_problem(game.Config):
        raise ConfigError(f"game = {reference}: {problem}")
    try:
        game.spec(game.Config())
    except ConfigError:
        pass  # under other settings it may be valid
    except Exception as error:
        raise UserCodeError(f"game = {reference}: {user_code.described(error)}") from error


def _load(point: EntryPoint) -> Game:
    game = point.load()
    if not isinstance(game, Game):
        raise ConfigError(f"world {point.name!r}: its entry point {point.value!r} names a "
                          f"{type(game).__name__}; expected a Game, such as package.module:GAME")
    user_code.record_module(point.value, point.module)
    return _with_build(game, point.value)
