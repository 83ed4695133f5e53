"""Completions of a command line: commands, options, recipes, worlds, runs, players, settings, values.

Names come from folders of unknown origin: only names without special characters of a shell are offered.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rematch.cli import command_list
from rematch.cli.command import (
    BOTS,
    FOLDER,
    PLAYERS,
    RECIPE,
    ROLES,
    RUN,
    RUN_OR_WORLD,
    WORLD,
    Command,
    Option,
)
from rematch.core.errors import ConfigError
from rematch.recipes import recipe_texts, summary
from rematch.verbs.arguments import RUNS, world_name
from rematch.worlds import registry
from rematch.worlds.shipped_agents import FILES

if TYPE_CHECKING:
    from rematch.verbs.settings import SettingInfo

SAFE = re.compile(r"[\w.,@%+=:/-]+")  # characters without a special meaning in a shell
MOST = 2000  # entries of runs/ that are offered
HELP = ("--help", "show options and examples")
Completion = tuple[str, str]  # a word, and what it means


def completions(words: Sequence[str]) -> list[Completion]:
    """The words that fit the last one of a command line, which may be empty or half typed."""
    *before, current = joined(words) or [""]
    matching: list[Completion] = []
    with contextlib.suppress(ConfigError, OSError):  # a wrong word earlier in the line: no completions
        matching = [(word, meaning) for word, meaning in candidates(before, current)
                    if word.casefold().startswith(current.casefold())]
    return [(word, meaning) for word, meaning in matching if SAFE.fullmatch(word)]


def joined(words: Sequence[str]) -> list[str]:
    """The words of the line; bash splits `--key=value` into three."""
    out: list[str] = []
    pieces = list(words)
    while pieces:
        piece = pieces.pop(0)
        if piece == "=" and out:
            out[-1] += "=" + (pieces.pop(0) if pieces else "")
        else:
            out.append(piece)
    return out


def candidates(before: Sequence[str], current: str) -> Iterable[Completion]:
    """Every completion at this position of the line."""
    if not before:
        return [*((each.name, each.summary) for each in command_list.listed()), HELP, ("--version", "")]
    command = command_list.find(before[0])
    words = list(before[1:])
    if "=" in current and current.startswith("-"):
        name, _, value = current.partition("=")
        values = with_list(values_of(command, words, name), value)
        return [(f"{name}={word}", meaning) for word, meaning in values]
    if words and words[-1].startswith("-") and "=" not in words[-1] and takes_value(command, words):
        return with_list(values_of(command, words[:-1], words[-1]), current)
    if current.startswith("-"):
        return [*options(command, words), *flags(command, words), HELP]
    return list(arguments(command, words))


# --- options and positional words -------------------------------------------------------------------------


def option_of(command: Command, name: str) -> Option | None:
    return next((option for option in command.options if option.name == name.replace("_", "-")), None)


def options(command: Command, words: Sequence[str]) -> Iterator[Completion]:
    """The options that are not in the line yet."""
    used = {word.partition("=")[0] for word in words}
    for option in command.options:
        if option.repeated or option.name not in used:
            yield option.name, option.help


def arguments(command: Command, words: Sequence[str]) -> Iterator[Completion]:
    """The names that fit the next positional word."""
    count = len(positional(command, words))
    if count < len(command.arguments):
        yield from names(command.arguments[count])


def positional(command: Command, words: Sequence[str]) -> list[str]:
    """The words that are neither an option nor its value. A setting takes one value."""
    out, value_expected = [], False
    for index, word in enumerate(words):
        if word.startswith("-"):
            value_expected = "=" not in word and takes_value(command, words[: index + 1])
        elif value_expected:
            value_expected = False
        else:
            out.append(word)
    return out


def takes_value(command: Command, words: Sequence[str]) -> bool:
    """Whether the last word is an option or a setting that a value follows."""
    option = option_of(command, words[-1])
    return bool(option.value) if option else words[-1] not in ("--help", "-h", "--version")


def values_of(command: Command, words: Sequence[str], name: str) -> Iterator[Completion]:
    """The values that an option or a setting accepts."""
    option = option_of(command, name)
    if option is not None:
        if option.completes in (PLAYERS, BOTS, ROLES):
            yield from of_world(option.completes, positional(command, words)[:1])
        else:
            yield from names(option.completes)
        return
    key = name.lstrip("-").replace("-", "_")
    for setting in settings(command, words):
        if setting.key == key:
            yield from ((word, setting.help) for word in setting.choices)


def with_list(values: Iterable[Completion], current: str) -> list[Completion]:
    """The values as further items of a list: `lion,fl` is completed to `lion,flee_straight`."""
    typed, comma, _ = current.rpartition(",")
    return [(f"{typed}{comma}{word}", meaning) for word, meaning in values]


# --- names ------------------------------------------------------------------------------------------------


def names(kind: str) -> Iterator[Completion]:
    """The names of a kind; none for files, which the shell completes itself."""
    if "|" in kind:
        yield from ((word, "") for word in kind.split("|"))
    if kind == RECIPE:
        yield from ((name, summary(name)) for name in recipe_texts())
    if kind in (RECIPE, WORLD, RUN_OR_WORLD):
        recipes = recipe_texts() if kind == RECIPE else {}
        yield from ((name, "world") for name in registry.names() if name not in recipes)
    if kind in (RUN, RUN_OR_WORLD):
        yield from runs()
    if kind == FOLDER:
        yield from ((f"{RUNS}/{name}", "") for name, _ in runs())


def runs() -> Iterator[Completion]:
    """The folders in runs/ that hold a run or a sweep; their files are not read."""
    with os.scandir(RUNS) as entries:
        for _, entry in zip(range(MOST), sorted(entries, key=lambda entry: entry.name)):
            if os.path.lexists(os.path.join(entry.path, "config.yaml")):
                yield entry.name, "run"
            elif os.path.lexists(os.path.join(entry.path, "sweep.yaml")):
                yield entry.name, "sweep"


def of_world(kind: str, names: Sequence[str]) -> Iterator[Completion]:
    """Players or roles of the world that the line names, or that the run was trained in."""
    from rematch import api
    from rematch.storage.run_folder import Run
    from rematch.verbs.arguments import folder_of

    if not names:
        return
    world = world_name(names[0])
    if world not in registry.names():
        with Run.open(folder_of(names[0]), write=False) as run:
            world = api.stored_config(run).game
    game = registry.find(world)
    if kind == ROLES:
        yield from ((role, "role") for role in game.bots)
        return
    bots = dict.fromkeys(bot for each in game.bots.values() for bot in each)
    yield from ((bot, "scripted player") for bot in bots)
    if kind == PLAYERS:
        yield from runs()
        yield from ((name, "an agent that comes with Rematch") for name in FILES)


# --- settings ---------------------------------------------------------------------------------------------


def settings(command: Command, words: Sequence[str]) -> list[SettingInfo]:
    """The settings of the recipe or world that the line names."""
    from rematch.verbs.settings import describe_settings, settings_table

    first = positional(command, words)[:1]
    if not command.settings_of or not first:
        return []
    if command.world_settings is not None:
        config: Any = command.world_settings(world_name(first[0]))
        return list(settings_table("", config, config, {}).settings)
    from rematch.cli.recipe_options import recipe_name

    return list(describe_settings(recipe_name(first[0])).settings)


def flags(command: Command, words: Sequence[str]) -> Iterator[Completion]:
    """Settings that have an effect and are not in the line yet."""
    used = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in words}
    for setting in settings(command, words):
        if not setting.idle and setting.key not in used:
            yield f"--{setting.key}", setting.help
