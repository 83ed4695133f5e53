"""Prints results: wrapped to the width of a terminal, unwrapped where the output is piped, or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from typing import Any, Protocol

from rematch.evaluation.text import clean
from rematch.reporting.text import fold_sentence


class Printed(Protocol):
    """A result that prints as lines and as JSON."""

    def lines(self, width: int | None = None) -> list[str]: ...

    def to_dict(self) -> dict[str, Any]: ...


def print_result(result: Printed, as_json: bool = False) -> None:
    if as_json:
        print(json.dumps(result.to_dict(), indent=1))
        return
    terminal = sys.stdout is not None and sys.stdout.isatty()
    if not terminal:
        print_lines(result.lines())
        return
    width = shutil.get_terminal_size().columns
    print_lines(part for line in result.lines(width) for part in fold_sentence(line, width))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without control characters: names of files and folders may hold terminal escapes."""
    print("\n".join(clean(line) for line in lines))


def log_line(line: str) -> None:
    """Print a line of a long command at once."""
    print(clean(line), flush=True)
