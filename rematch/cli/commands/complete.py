"""rematch complete: the completions of a command line, for the scripts of `rematch completion`."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import Command


def run(words: Sequence[str]) -> int:
    from rematch.cli.shell_completion import completions

    shell, *line = words or ("bash",)
    separator = {"zsh": ":", "fish": "\t"}.get(shell, "")
    for word, meaning in completions(line):
        if shell == "zsh":
            word = word.replace(":", r"\:")
        print(f"{word}{separator}{meaning}" if separator and meaning else word)
    return 0


COMMAND = Command(
    name="complete",
    group="tools",
    summary="print the completions of a command line, for shells",
    usage=("rematch complete SHELL WORD...",),
    run=run,
    hidden=True,
    loads_api=False,
)
