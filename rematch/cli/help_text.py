"""Help texts: the overview, the list of commands, one command; wrapped to the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from rematch.cli.command import Command, Option
from rematch.cli.command_list import GROUPS, listed
from rematch.core.system import user_code

TITLE = "Rematch trains game agents by self-play and measures how strong they are."
FIRST_STEPS = (
    ("rematch train quick", "train a first pair of agents, about a minute"),
    ("rematch runs", "list the runs in the folder runs/"),
    ("rematch eval quick-1", "play it against scripted players"),
    ("rematch report quick-1", "write one page about it"),
)
EXIT_CODES = ("Exit codes: 0 success; 1 a check failed, a run of a sweep failed, or status found an alarm; 2 "
              "the command or one of its files is wrong; 3 status: the run stopped before its end; 130 "
              "interrupted.")
RUN_NAMES = ("RUN is the folder of a run, or its name in runs/. Upper and lower case are the same in the "
             "names of commands, recipes and worlds.")
NARROWEST, WIDEST = 30, 100  # characters of a line
NARROW = 60  # below this width there is one column instead of two
LEFT = 30  # characters of the left column, at most


def width() -> int:
    """Characters of a line: those of the terminal, 80 where the output is piped."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((80, 24)).columns))


# --- layout -----------------------------------------------------------------------------------------------


def paragraph(text: str, columns: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, columns, initial_indent=indent, subsequent_indent=indent,
                         break_on_hyphens=False, break_long_words=False) or [""]


def entries(pairs: Sequence[tuple[str, str]], columns: int) -> list[str]:
    """Words and their meanings in two columns; in one column where the terminal is narrow."""
    fitting = [len(left) for left, _ in pairs if len(left) <= LEFT]
    start = 2 + max(fitting, default=0) + 2
    out = []
    for left, right in pairs:
        if columns < NARROW:
            out += paragraph(left, columns, "  ") + paragraph(right, columns, "      ")
        elif len(left) > LEFT:
            out += [f"  {left}", *paragraph(right, columns, " " * start)]
        else:
            first, *more = paragraph(right, columns, " " * start)
            out += [f"  {left}".ljust(start) + first[start:], *more]
    return out


# --- commands ---------------------------------------------------------------------------------------------


def overview() -> str:
    """What `rematch` alone prints: 15 lines."""
    columns = width()
    names = {group: [each.name for each in listed() if each.group == group] for group in GROUPS}
    lines = [*paragraph(TITLE, columns), "", *entries(FIRST_STEPS, columns), "", "Commands:"]
    lines += entries([(meaning, ", ".join(names[group])) for group, meaning in GROUPS.items()], columns)
    lines += ["", *paragraph("rematch COMMAND --help explains a command; rematch --help lists them all.",
                             columns)]
    return "\n".join(lines)


def all_commands() -> str:
    """What `rematch --help` prints: every command with its summary."""
    columns = width()
    lines = [*paragraph(TITLE, columns), "", "usage: rematch COMMAND ..."]
    for group, meaning in GROUPS.items():
        chosen = [each for each in listed() if each.group == group]
        lines += ["", f"{meaning}:", *entries([(short(each), each.summary) for each in chosen], columns)]
    lines += ["", *paragraph(RUN_NAMES, columns), *paragraph(EXIT_CODES, columns)]
    return "\n".join([*lines, *paragraph("rematch COMMAND --help explains a command.", columns)])


def short(described: Command) -> str:
    return described.usage[0].removeprefix("rematch ")


def command_help(described: Command) -> str:
    """What `rematch COMMAND --help` prints."""
    columns = width()
    lines = [*paragraph(f"rematch {described.name}: {described.summary}", columns), "", "usage:"]
    for usage in described.usage:
        lines += paragraph(usage + (" [OPTIONS]" if described.options else ""), columns, "  ")
    for text in filter(None, described.details.split("\n\n")):
        lines += ["", *paragraph(" ".join(text.split()), columns)]
    if pairs := list(option_entries(described)):
        lines += ["", "options:", *entries(pairs, columns)]
    if described.examples:
        lines += ["", "examples:"]
    for line, meaning in described.examples:
        lines += [f"  {line}", *paragraph(meaning, columns, "      ")]
    return "\n".join(lines)


def option_entries(described: Command) -> Iterator[tuple[str, str]]:
    for option in described.options:
        yield option_words(option), option.help
    if described.loads_api:
        yield user_code.FLAG, "import code of your own that a run, recipe or policy names"
    if described.settings_of:
        word = described.settings_of.upper()
        yield "--KEY VALUE", f"change a setting; rematch {described.name} {word} --help lists the settings"


def option_words(option: Option) -> str:
    return f"{option.name} {option.value}".strip() + (" ..." if option.repeated else "")
