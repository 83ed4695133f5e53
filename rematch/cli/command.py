"""The description of a command: help text, option parser and shell completion are made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

RECIPE, RUN, RUN_OR_WORLD, WORLD, FOLDER, FILE = "recipe", "run", "run or world", "world", "folder", "file"
PLAYERS, BOTS, ROLES = "players", "bots", "roles"  # kinds of words that shells complete


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a command. Without `value` it is a switch."""

    name: str
    help: str
    value: str = ""  # the word that stands for its value in the help: "N"
    repeated: bool = False  # accepted more than once
    completes: str = ""  # kind of its value, for completion


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Its file defines `COMMAND` and `run(words) -> exit code`."""

    name: str
    group: str
    summary: str  # one line
    usage: tuple[str, ...]  # without the options, which the help adds
    run: Callable[[Sequence[str]], int]
    details: str = ""  # paragraphs, separated by empty lines
    options: tuple[Option, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()  # (command line, what it does)
    arguments: tuple[str, ...] = ()  # kinds of its positional words, for completion
    settings_of: str = ""  # RECIPE or WORLD: --KEY VALUE are settings of that recipe or world
    world_settings: Callable[[str], Any] | None = None  # the settings of a world in this command
    hidden: bool = False  # for programs: not listed
    loads_api: bool = True  # needs compiled modules, which a Ctrl-C must not interrupt while they load


JSON = Option(name="--json", help="print the result as JSON")
MINUTES = Option(name="--max-minutes", value="M", help="stop after M minutes; the run can be resumed")
JOBS = Option(name="--jobs", value="J",
              help="runs at a time (default: as many as cores and memory allow)")
CONFIG = Option(name="--config", value="FILE", completes=FILE,
                help="read settings from a YAML file; they override those of the recipe")
CLUSTER = Option(name="--cluster", value="ADDRESS",
                 help="use a Ray cluster: ray (started on this machine) or ray://HOST:PORT; the results have "
                      "the same bytes")
ACTORS = Option(name="--actors", value="N",
                help="actors that play the games on the cluster (default: one per processor)")
