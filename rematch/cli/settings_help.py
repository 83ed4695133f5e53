"""`rematch train RECIPE --help`: what the recipe sets, and the other settings that have an effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rematch.cli.command import Command
from rematch.cli.help_text import entries, paragraph, width
from rematch.cli.recipe_options import config_file, nearest_options, recipe_words
from rematch.recipes import recipe_texts, summary
from rematch.verbs.arguments import world_name

if TYPE_CHECKING:
    from rematch.verbs.settings import SettingInfo, SettingsTable

HELP = ("--help", "-h")


def split_help(words: Sequence[str]) -> tuple[list[str], str]:
    """The words without --help [SECTION], and the section; `--help RECIPE` is the same as `RECIPE --help`."""
    position = next(index for index, word in enumerate(words) if word in HELP)
    following = words[position + 1 : position + 2]
    section = following[0] if following and not following[0].startswith("-") else ""
    others = [*words[:position], *words[position + 1 + bool(section) :]]
    others = [word for word in others if word not in HELP]
    return ([section, *others], "") if section and not others else (others, section)


def text(command: Command, words: Sequence[str], section: str) -> str:
    """The settings of the recipe or the world that the words name."""
    from rematch.verbs.settings import describe_settings, settings_table

    if command.world_settings is not None:
        world = world_name(words[0])
        config = command.world_settings(world)
        title = f"Settings of rematch {command.name} {world}"
        return described(settings_table(title, config, config, {}), "", section)
    recipe, options = recipe_words(command, words)
    with nearest_options(options):
        table = describe_settings(recipe, file=config_file(options), flags=options.remaining[1:])
    return described(table, summary(recipe) if recipe in recipe_texts() else "", section)


def described(table: SettingsTable, summary: str, section: str = "") -> str:
    """Settings that the recipe sets, then the others that have an effect; or one section; or all."""
    columns = width()
    lines = paragraph(table.title + (f": {summary}" if summary else ""), columns)
    if section:
        return "\n".join([*lines, *section_lines(table.section(section), columns)])
    for source in table.sources:
        if chosen := [setting for setting in table.changed if setting.source == source]:
            lines += ["", f"{source} sets:"]
            lines += entries([(flag(setting), changed_text(setting)) for setting in chosen], columns)
    others = [setting for setting in table if not setting.source and not setting.idle]
    lines += section_lines(replace(table, settings=tuple(others)), columns)
    if idle := sum(1 for setting in table if setting.idle):
        names = ", ".join(table.sections)
        lines += ["", *paragraph(f"{idle} more settings have no effect; --help all lists them with the "
                                 f"reason. --help SECTION shows one section: {names}.", columns)]
    return "\n".join(lines)


def section_lines(table: SettingsTable, columns: int) -> Iterator[str]:
    """The settings under the headings of their sections; without a heading where there is one section."""
    for name, meaning in table.sections.items():
        if chosen := [setting for setting in table if setting.section == name]:
            yield ""
            yield from paragraph(f"{name}: {meaning}", columns) if len(table.sections) > 1 else ()
            yield from entries([(flag(setting), full_text(setting)) for setting in chosen], columns)


def flag(setting: SettingInfo) -> str:
    return f"--{setting.key} {setting.value}".rstrip()


def changed_text(setting: SettingInfo) -> str:
    """The help text with the default; with the reason where the setting has no effect."""
    value = f"{setting.default or 'empty'} {setting.unit}".rstrip()
    default = "" if setting.default == setting.value else f" (default {value})"
    return setting.help + default + (f"; no effect: {setting.idle}" if setting.idle else "")


def full_text(setting: SettingInfo) -> str:
    """The help text with the accepted values; with source and default where a recipe or file sets it."""
    if not setting.source:
        return setting.meaning
    return f"{setting.meaning}; set by {setting.source}, default {setting.default or 'empty'}"
