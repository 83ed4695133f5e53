"""Check a recipe before a long run: every feature once in a shrunk copy, with kill and resume."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rematch import api
from rematch.core.run_config import Config
from rematch.rehearsal.check import rehearse
from rematch.reporting.result import Block, Lines, Printable
from rematch.verbs.arguments import Log, silent


@dataclass(frozen=True, repr=False)
class CheckResult(Printable):
    """A line for every feature: fired, off or FAILED; then the settings that no code read."""

    passed: bool
    features: tuple[str, ...]

    def blocks(self) -> Iterator[Block]:
        yield Lines(self.features)

    def to_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "lines": list(self.features)}


class LineWriter(io.TextIOBase):
    """A text stream that calls `log` with every complete line and stores all lines."""

    def __init__(self, log: Log) -> None:
        self.log, self.lines = log, list[str]()
        self.partial = ""  # the last line, which is incomplete

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *complete, self.partial = (self.partial + text).split("\n")
        for line in complete:
            self.lines.append(line)
            self.log(line)
        return len(text)


def check(
    recipe: str | Config, changes: Mapping[str, Any] | None = None, log: Log = silent
) -> CheckResult:
    """Train a shrunk copy of a run with all its features; kill (SIGKILL) and resume a second one."""
    config = api.configure(recipe, changes=changes) if isinstance(recipe, str) else recipe
    writer = LineWriter(log)
    with contextlib.redirect_stdout(writer):
        code = rehearse(config)
    return CheckResult(code == 0, tuple(writer.lines))
