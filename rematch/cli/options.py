"""A command's own options, read strictly: none unknown, none twice, every number within its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rematch.core.config import nearest
from rematch.core.errors import ConfigError

POLICY = ".safetensors"  # what a policy's file ends with

MOST_MINUTES = 1e7  # 19 years


class Options:
    """A command's own options, taken out of its words; what is left are the run's settings."""

    def __init__(
        self, words: Sequence[str], values: Sequence[str] = (), switches: Sequence[str] = (),
        several: Sequence[str] = (),
    ) -> None:
        self.given: dict[str, str] = {}
        self.many: dict[str, list[str]] = {name: [] for name in several}  # may be given more than once
        self.rest: list[str] = []
        todo = list(words)
        while todo:
            word = todo.pop(0)
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in values or name in several:
                if not equals:
                    if not todo:
                        raise ConfigError(f"{name} needs a value")
                    value = todo.pop(0)
                if not value and name != "--name":  # whose own complaint says more
                    raise ConfigError(f"{name} needs a value")
                if name in several:
                    self.many[name].append(value)
                    continue
                if name in self.given:
                    raise ConfigError(f"{name} is given twice: {self.given[name]!r} and {value!r}")
                self.given[name] = value
            elif name in switches and not equals:
                self.given[name] = "yes"
            else:
                self.rest.append(word)
        self.known = [*values, *several, *switches]

    def only(self, positional: int, usage: str) -> list[str]:
        """The positional words, exactly that many; anything else is an error."""
        for word in self.rest:
            if word.startswith("-"):
                near = nearest(word.partition("=")[0], self.known)
                raise ConfigError(f"unknown option {word!r}"
                                  + (f"; nearest: {near}" if near else f"; usage: {usage}"))
        if len(self.rest) != positional or "" in self.rest:
            raise ConfigError(f"expected {usage}, found {' '.join(map(repr, self.rest)) or 'nothing'}")
        return self.rest

    def minutes(self) -> float | None:
        """--max-minutes, None where it is not given."""
        return self.number("--max-minutes", 0.0, MOST_MINUTES) if "--max-minutes" in self.given else None

    def number(self, name: str, above: float, most: float) -> float:
        try:
            value = float(self.given[name])
        except ValueError:
            value = math.nan
        if not above < value <= most:
            raise ConfigError(
                f"{name} = {self.given[name]!r}: expected a number above {above:g}, at most {most:g}")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number; 1e3 is one."""
        try:
            value = float(self.given.get(name, default))
        except ValueError:
            value = math.nan
        if not low <= value <= high or value != int(value):
            raise ConfigError(f"{name} = {self.given[name]!r}: expected a whole number from {low} to {high}")
        return int(value)


def folder_of(run: str) -> Path:
    """A run by its folder or by its name in runs/; or a file, such as a policy's."""
    path, ours = Path(run), Path("runs") / run
    here = path.exists() or path.suffix == POLICY or "/" in run
    return path if path.is_dir() or (here and not ours.is_dir()) else ours


def new_folder(name: str) -> Path:
    """Where a run called `name` goes: runs/NAME, or NAME itself where that is a path."""
    folder = Path(name) if "/" in name else Path("runs") / name
    if not name or name.startswith("-") or not name.isprintable() or folder.name in ("", "..") \
            or ("/" not in name and name.startswith(".")):
        raise ConfigError(f"--name = {name!r}: expected the name of a new folder in runs/, or a path to one")
    return folder
