"""Writes docs/reference/commands.md and docs/reference/settings.md from the command and setting classes.

    python tools/setup/generate_reference.py            write the pages
    python tools/setup/generate_reference.py --check    exit code 1 if a page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch.cli.command import Command  # noqa: E402
from rematch.cli.command_list import GROUPS, listed  # noqa: E402
from rematch.cli.help_text import EXIT_CODES, RUN_NAMES, option_entries  # noqa: E402
from rematch.core.settings.setting_names import RENAMED  # noqa: E402
from rematch.training.config import default  # noqa: E402
from rematch.verbs.settings import SettingInfo, SettingsTable, settings_table  # noqa: E402
from rematch.worlds import registry  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
WRITTEN = "<!-- Written by tools/setup/generate_reference.py: do not edit. -->"
WORLD = "world"  # the section whose settings differ from world to world
INTRODUCTION = (
    "Each setting is a flag (`--ppo.lr 0.001`), a key of a YAML recipe and a key in Python. Settings come in "
    "one order: default < recipe < `--config FILE` < flags. `rematch train RECIPE --help` shows the values "
    "under a recipe and only those settings that have an effect there; a setting without effect is refused."
)
FIRST_WORLD = "pursuit"  # the world whose run shows the settings that all worlds share


def cell(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table; the first row is its head."""
    for number, row in enumerate(rows):
        yield "| " + " | ".join(cell(text) for text in row) + " |"
        if number == 0:
            yield "|" + " --- |" * len(row)


# --- commands ---------------------------------------------------------------------------------------------


def commands_page() -> str:
    lines = ["# Commands", "", WRITTEN, "", "`rematch COMMAND --help` prints the same in the terminal. "
             + RUN_NAMES, "", EXIT_CODES, ""]
    for group, meaning in GROUPS.items():
        chosen = [each for each in listed() if each.group == group]
        links = ", ".join(f"[{each.name}](#{each.name})" for each in chosen)
        lines.append(f"- {meaning}: {links}")
    for each in listed():
        lines += ["", *command_lines(each)]
    return "\n".join(lines) + "\n"


def command_lines(described: Command) -> Iterator[str]:
    yield f"## {described.name}"
    yield ""
    yield f"{described.summary[:1].upper()}{described.summary[1:]}."
    yield ""
    yield from (f"    {usage}" + (" [OPTIONS]" if described.options else "") for usage in described.usage)
    for paragraph in filter(None, described.details.split("\n\n")):
        yield ""
        yield " ".join(paragraph.split()).replace("<", "&lt;")
    if pairs := list(option_entries(described)):
        yield ""
        yield from table([("option", "meaning"), *((f"`{words}`", text) for words, text in pairs)])
    if described.examples:
        yield ""
        yield from (f"    {line}    # {meaning}" for line, meaning in described.examples)


# --- settings ---------------------------------------------------------------------------------------------


def shipped_worlds() -> list[str]:
    """The worlds of this repository, without those of other installed packages."""
    return [name for name in registry.names() if (ROOT / "rematch/worlds" / name).is_dir()]


def settings_of(world: str) -> SettingsTable:
    config = default(world)
    return settings_table(world, config, config, {})


def settings_page() -> str:
    shared = settings_of(FIRST_WORLD)
    names = [name for name in shared.sections if name != WORLD]
    worlds = shipped_worlds()
    links = [", ".join(f"[{name}](#{name})" for name in names),
             "; of worlds: " + ", ".join(f"[{world}](#world-{world})" for world in worlds)]
    lines = ["# Settings", "", WRITTEN, "", INTRODUCTION, "",
             "Sections: " + "".join(links) + "; [old names](#old-names)."]
    for name in names:
        rows = [setting for setting in shared if setting.section == name]
        lines += ["", *section_lines(f"## {name}", shared.sections[name], rows)]
    for world in worlds:
        own = settings_of(world)
        rows = [setting for setting in own if setting.section == WORLD]
        lines += ["", *section_lines(f"## world: {world}", own.sections[WORLD], rows)]
    renamed = [(f"`{old}`", f"`{new}`") for old, new in sorted(RENAMED.items())]
    lines += ["", "## Old names", "", "These names of version 0.1.0 are still accepted, with a note.", "",
              *table([("old", "present"), *renamed])]
    return "\n".join(lines) + "\n"


def section_lines(head: str, meaning: str, rows: list[SettingInfo]) -> Iterator[str]:
    yield from (head, "", meaning, "")
    cells = [(f"`{each.key}`", f"`{each.default}`" if each.default else "", each.help, each.accepts)
             for each in rows]
    yield from table([("setting", "default", "meaning", "values"), *cells])


def pages() -> dict[Path, str]:
    return {FOLDER / "commands.md": commands_page(), FOLDER / "settings.md": settings_page()}


def main() -> int:
    stale = [page for page, text in pages().items() if not page.exists() or page.read_text() != text]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.relative_to(ROOT)} is out of date: run tools/setup/generate_reference.py")
        return 1 if stale else 0
    for page, text in pages().items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
