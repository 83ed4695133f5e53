"""Arguments that several commands share: run folders, files to write, whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rematch.core.config import known_name
from rematch.core.errors import ConfigError
from rematch.worlds.shipped_agents import agent_file, is_short_name

POLICY = ".safetensors"  # file name ending of an exported policy
RUNS = Path("runs")  # the folder in which new runs are made
MOST_GAMES = 100_000  # games of one match, which are all in memory at the same time
MOST_SEED = 2**32 - 1

Log = Callable[[str], None]  # receives the lines of a long command while it works


def silent(line: str) -> None:
    """Ignore the line: a Python call prints nothing."""


def folder_of(run: Path | str) -> Path:
    """The folder of a run, from its path or its name in runs/; or the path of a policy file, also of one that
    comes with Rematch (@beasty)."""
    if isinstance(run, str) and is_short_name(run):
        return agent_file(run)
    path, in_runs = Path(run), RUNS / run
    is_path = path.exists() or path.suffix == POLICY or "/" in str(run)
    return path if path.is_dir() or (is_path and not in_runs.is_dir()) else in_runs


def new_folder(name: str) -> Path:
    """The folder of a new run: runs/NAME, or NAME itself where that is a path."""
    folder = Path(name) if "/" in name else RUNS / name
    hidden = "/" not in name and name.startswith(".")
    if not name or name.startswith("-") or not name.isprintable() or folder.name in ("", "..") or hidden:
        raise ConfigError(f"--name = {name!r}: expected the name of a new folder in runs/, or a path to one")
    return folder


def world_name(word: str) -> str:
    """The name of the world that `word` names in any case; `word` itself where there is none."""
    from rematch.worlds import registry

    return known_name(word, registry.names())


def check_picture_file(file: Path | str) -> Path:
    """The PNG file of --picture; ConfigError before any work where it cannot be written."""
    path = Path(file)
    if path.suffix != ".png" or not path.parent.is_dir() or path.is_dir():
        raise ConfigError(f"--picture = {str(path)!r}: expected a name that ends in .png, in a folder that "
                          "exists")
    return path


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """ConfigError for a value that is not a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} = {value!r}: expected a whole number from {low} to {high}")
