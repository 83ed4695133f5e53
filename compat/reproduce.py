"""Runs command lines of the earlier project as they stand, in the present folder, without preparation.

    python PATH/TO/compat/reproduce.py FILE             command lines in a file, such as a block of a report
    python PATH/TO/compat/reproduce.py < FILE           the same from standard input
    python PATH/TO/compat/reproduce.py -- WORDS ...     one command line, split by the shell

--max-minutes M stops each run after M minutes. No folder, link or virtual environment of that project is
needed: `nohup`, variables and the path of its interpreter are dropped, files of its configs/ come from this
folder, and a run makes its own folder. Commands run one after the other, in the foreground. Redirections are
not followed, because a run writes its own train.log; `cd` and other commands are skipped. Each of these has
a note. docs/how_to/earlier_project.md describes the translation.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

COMPAT = Path(__file__).resolve().parent
PROGRAMS = {  # program of the earlier project -> module in this folder
    "train_amsdrl.py": "train_amsdrl",
    "train_iter600.py": "train_iter600",
    "Daddy.train_big": "Daddy.train_big",
}
WRAPPERS = ("nohup", "time", "exec", "env", "nice", "srun")  # words before the interpreter
REDIRECTION = re.compile(r"(?<!\S)(?:[012]?>>?|&>>?|<)\s*(?:&\d|\S+)")
ENDS = ";&|"  # characters that end a command
MOST_TEXT = 1 << 20  # characters


@dataclass(frozen=True)
class Program:
    """A command of the earlier project: the module that runs it, and its arguments."""

    module: str
    arguments: list[str]


def read_commands(text: str) -> tuple[list[Program], list[str]]:
    """(the programs in a text of shell commands, a note for everything that is not followed)."""
    programs, notes = [], []
    joined = re.sub(r"\\\r?\n", " ", text)
    plain = "\n".join(line for line in joined.splitlines() if not line.lstrip().startswith(("#", "```")))
    for redirection in REDIRECTION.findall(plain):
        if not redirection.endswith(("&1", "&2")):
            notes.append(f"note: {redirection}: not followed; a run writes train.log into its own folder")
    for words in split_commands(REDIRECTION.sub(" ", plain)):
        program = find_program(words)
        if program is not None:
            programs.append(program)
        else:
            notes.append(f"note: {' '.join(words):.80}: skipped; it starts no training")
    return programs, notes


def split_commands(text: str) -> Iterator[list[str]]:
    """The words of each command; a line, ; & && | and || end one."""
    from rematch.core.errors import ConfigError

    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=ENDS)
        lexer.whitespace_split = True
        try:
            tokens = list(lexer)
        except ValueError as error:
            raise ConfigError(f"{line.strip()!r:.80}: cannot be read: {error}") from None
        for is_end, words in groupby(tokens, lambda token: not set(token) - set(ENDS)):
            if not is_end:
                yield list(words)


def find_program(words: Sequence[str]) -> Program | None:
    """The program that a command starts, behind variables, wrappers and interpreter; None for other ones."""
    rest = list(words)
    while rest and (re.match(r"\w+=", rest[0]) or rest[0] in WRAPPERS):
        rest.pop(0)
    if rest and re.fullmatch(r"python[\d.]*", Path(rest[0]).name):
        rest.pop(0)
        while rest and rest[0] in ("-u", "-m", "-O"):
            rest.pop(0)
    if not rest or Path(rest[0]).name not in PROGRAMS:
        return None
    return Program(PROGRAMS[Path(rest[0]).name], [stored_file(word) for word in rest[1:]])


def stored_file(word: str) -> str:
    """The path of a configuration file of the earlier project that is not here but in compat/configs/."""
    copy = COMPAT / "configs" / Path(word).name
    return str(copy) if Path(word).suffix == ".yaml" and not Path(word).exists() and copy.exists() else word


def read_text(arguments: Sequence[str]) -> str:
    """The command lines that the arguments name: a file, standard input, or the words after --."""
    from rematch.core.errors import ConfigError

    if arguments and arguments[0] == "--":
        return shlex.join(arguments[1:])
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-") and arguments[0] != "-"):
        raise ConfigError(f"{shlex.join(arguments):.80}: expected a file with command lines, or -- and one "
                          "command line")
    if not arguments and sys.stdin.isatty():
        raise ConfigError("expected a file with command lines, standard input, or -- and one command line")
    try:
        if not arguments or arguments[0] == "-":
            return sys.stdin.read(MOST_TEXT)
        with open(arguments[0], encoding="utf-8") as file:
            return file.read(MOST_TEXT)
    except (OSError, UnicodeDecodeError) as error:
        name = arguments[0] if arguments else "standard input"
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{name}: cannot be read: {reason}") from None


def reproduce(arguments: Sequence[str]) -> int:
    """Run the programs one after the other; returns the exit code of the first that fails."""
    from rematch.cli.options import Options
    from rematch.core.errors import ConfigError

    words, dashes, command = _split(arguments)
    if {"--help", "-h"} & set(words):
        print(__doc__)
        return 0
    options = Options(words, single=("--max-minutes",))
    options.minutes()  # refuses a wrong number before anything runs
    limit = [f"--max-minutes={text}" for text in options.values.values()]
    programs, notes = read_commands(read_text([*options.remaining, *dashes, *command]))
    for note in notes:
        print(note)
    if not programs:
        raise ConfigError(f"no command of the earlier project; expected one of {', '.join(PROGRAMS)}")
    for program in programs:
        print(f"runs {program.module} {shlex.join(program.arguments)}", flush=True)
        module = importlib.import_module(program.module)
        if code := module.train([*program.arguments, *limit]):
            return int(code)
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """(words before --, the --, words after it)."""
    listed = list(arguments)
    at = listed.index("--") if "--" in listed else len(listed)
    return listed[:at], listed[at : at + 1], listed[at + 1 :]


if __name__ == "__main__":
    sys.path[:0] = [str(COMPAT.parent), str(COMPAT), str(COMPAT / "scripts")]
    from rematch.cli.main import main

    sys.exit(main(act=reproduce))
